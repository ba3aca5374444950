"""The ports in plain dictionaries, for tests and demos, held to the same contract suites.

`target` is a control target, `kube` a Kubernetes API server.
"""
