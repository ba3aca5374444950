"""The custom resource `InferenceService`: its values, what they render to, and its canary. Pure.

Start at `spec.py` for the fields, and `validation.py` for what they must satisfy, said once for
Python and once in CEL. `children.py` and `pod.py` render a service as Kubernetes objects.
`canary.py` is the canary's state machine, with `split.py` for the arithmetic of shares and
`analysis.py` for rounds of a metric. `importer.py` is the way back from somebody's Deployment to
fields, with `backend_detection.py` for its command line.
"""
