"""The custom resource `InferenceService`: its values, what they render to, and its canary. Pure.

Start at `spec.py` for the fields, and `validation.py` for what they must satisfy, said once for
Python and once in CEL; its rules about models, replicas and nodes are in `model_rules.py`,
`scaling_rules.py` and `node_rules.py`, with `rule_terms.py` for what they are made of.
`children.py` and `pod.py` render a service as Kubernetes objects, with `autoscaling.py` for
autoscalers, `pod_overlay.py` for `podTemplate` and `model_cache.py` for models in a claim.
`idle.py` decides whether there are replicas at all.
`canary.py` is the canary's state machine, with `split.py` for the arithmetic of shares and
`analysis.py` for rounds of a metric. `importer.py` is the way back from somebody's Deployment to
fields, with `backend_detection.py` for its command line.

What is told: `facts.py` has everything that can happen, `pod_health.py` why pods are not ready,
`model_head.py` whether a branch moved on, `service_cost.py` what a change costs.
"""
