"""JSON and YAML forms of the core's values, one module per API version.

`yaml.py` is the one reader of YAML and JSON files and the one writer of YAML; `yaml_edit.py`
changes single values in somebody's file. `spec_v1.py`, `plan_v1.py`, `ledger_v1.py` and
`workload_v1.py` are the forms of workloads, `gitops_v1.py` and `gitops_http_v1.py` those of
applications; the class names of forms are the component names of the OpenAPI document.
`notice_v1.py`, `people_v1.py` and `ledger_jsonl.py` those of notices, of the people file and of an
exported ledger; `forge_webhooks.py` reads what forges deliver.

`resource_json.py` and `crd.py` handle any custom resource by its types, for
`inference_service_v1alpha1.py` and `application_v1alpha1.py`; `service_mapping.py` is the only
place that maps a workload to an InferenceService. `decode.py` reads a value of the core as a form
and back. Below the YAML reader are `nodes.py`, `yaml_spans.py` and `yaml_splice.py`.
"""
