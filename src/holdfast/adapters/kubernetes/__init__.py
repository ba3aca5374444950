"""A Kubernetes cluster: how to reach it, read it, follow it, and be the only one who acts on it.

Start at `api` (`KubeApi`, the one client, which implements the `KubeClient` port). Below it are
`kubeconfig` and `credentials` (where, and as whom), `connection` (HTTP, TLS, retries), `responses`
(what a response means) and `watch`; `objects` says where kinds live. `informer` keeps a copy of a
kind, `cached_client` reads from such copies. Controllers add `queue`, `lease` (leader election) and
`events`. `target` and its `target_*` modules show InferenceServices as workloads (`target_objects`)
with their past (`target_history`), `pod_logs` reads the logs of their pods, and `endpoints` follows
the pods that take requests.
"""
