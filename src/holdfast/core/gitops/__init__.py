"""GitOps as values and pure functions: an application, its drifts, and what is decided about them.

Start at `application.py` (the custom resource), `drift.py` (one drift from first seen to resolved)
and `decide.py` (what is done next about one). In the order of a pass:

- `address`, `source`, `kustomize`: where a repository is, what it declares, in which file.
- `objects`, `owners`, `secrets`, `pods`, `health`: one object as it was observed.
- `ignore`, `external_ignore`, `routes`: which differences count, and which route each takes.
- `track`, `decide`, `hold`, `window`, `guard`: drifts, and what is done about them when.
- `plan`: the steps of a sync or a heal; `sync_decision`: what of a sync is done now or waits.
- `codify`: what it means to declare a live value; `model_pins`: a model whose branch moved on;
  `pull_request_text`: what a request says.
- `facts`: everything that can happen; `wording` and `notices` say it to people and machines.
- `records`: what the ledger keeps beside drifts; `statistics` are made of it. `notification`: how
  notices become messages. `application_validation`: what has to hold for an Application.
"""
