"""Values and pure functions: no I/O, no clock, no randomness.

The one sentence, module by module: `workload.py` holds what is declared, `live.py`
what was observed; `normalize.py` gives both one form, `diff.py` finds the changes, `drift.py` names
them, `policy.py` decides, `plan.py` says what will be done, `outcome.py` what was. Start at
`drift.py` and `policy.py`.

`ownership/` does the same for Kubernetes objects, with their field owners; `service/` has the
custom resource InferenceService and its children, `gitops/` Applications and what becomes of their
drift. What both custom resources share is in `custom_resource.py`. `errors.py` is the whole error
tree, `redact.py` keeps secrets out of every text.
"""
