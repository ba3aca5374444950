"""JSON and YAML forms of the core's values, one module per API version.

`yaml.py` is the one reader of YAML and JSON files and the one writer of YAML; `yaml_edit.py`
changes single values in somebody's file. `spec_v1.py`, `plan_v1.py`, `ledger_v1.py` and
`workload_v1.py` are the forms of workloads, `gitops_v1.py` and `gitops_http_v1.py` those of
applications; the class names of forms are the component names of the OpenAPI document.
`resource_json.py` and `crd.py` handle any custom resource by its types. `decode.py` reads a value
of the core as a form and back.
"""
