"""The ports in plain dictionaries, for tests and demos, held to the same contract suites.

`target` is a control target, `ledger_store` the GitOps ledger, `kube` a Kubernetes API server.
"""
