"""The GitOps controller's passes: follow Git, observe, track drift, heal, sync, propose, report.

Start at `reconciler.py`: one pass over one application, top to bottom; `build` puts it together.
It calls

- `source_poller`, `poll_scheduler`: what the repository declares now.
- `object_observer`, `application_observer`: how the objects compare with it.
- `heal`, `sync`, `apply`, `holds`, `pull_requests`, `codify`: what is done about differences.
- `application_status`, `reporting`: what is said about it; `notifier` delivers notices.

`application_context` is what a controller holds of one application in memory, `application_state`
what the ledger keeps of it (`ledger_store` has the rules of its writes, `drift_index` finds its
drifts, `drift_facts` what figures need of them), and `review` what a person can ask and decide:
`choices` says what each choice would do, `codify_preview` shows a patch that `codify_edits` found.
`ports.py` says what is expected of repositories, renderers, forges, ledgers and channels.
"""
