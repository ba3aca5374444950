"""Values and pure functions: no I/O, no clock, no randomness.

The one sentence, module by module: `workload.py` holds what is declared, `live.py`
what was observed; `normalize.py` gives both one form, `diff.py` finds the changes, `drift.py` names
them, `policy.py` decides, `plan.py` says what will be done, `outcome.py` what was. Start at
`drift.py` and `policy.py`.

`ownership/` does the same for Kubernetes objects, with their field owners; `service/` has the
custom resource InferenceService and its children, `gitops/` Applications and what becomes of their
drift. What both custom resources share is in `custom_resource.py`. `errors.py` is the whole error
tree, `redact.py` keeps secrets out of every text.

The rest, by what it is about:

- what is declared: `check` finds what is wrong with a workload, with `rules` that an
  InferenceService is held to as well and `scan` for values at any depth; `single_machine` says what
  one machine cannot do; `command` reads command lines, `quantity` amounts, `model` and `lora`
  references to weights; `cluster_parts` has parts that mean something in a cluster alone;
  `backends` is the table of inference servers, `engine_answer` reads what one says of itself,
  `engine_report` compares that with what was declared.
- objects of a cluster: `object_ref`, `object_plan`, `json_patch`; `node_health` and `capacity` read
  nodes, `cost` and `object_cost` say what a step does to pods that answer.
- the past: `ledger`, `facts`, `fight`; `drift_list` searches, groups and pages drifts.
- people and addresses: `people`, `tokens`, `page_links`, `address_reach`.
- names and shapes: `names` says what a name may be, `tree` what JSON and YAML are made of.
- text: `show` renders plans, `text_style` makes text safe; `align` and `glob` compare and match in
  bounded time.
"""
