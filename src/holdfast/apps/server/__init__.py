"""The HTTP server: the control plane, the data plane in front of workloads, and the GitOps API.

Start at `route_table.py`, which has every route, and `app.py`, the way of one request: match,
authorize, handle, respond. Handlers are in `workload_routes.py` (workloads in the store),
`cluster_routes.py` (workloads in a cluster), `gitops_routes.py` and `gitops_decisions.py`
(applications), `token_routes.py`, `probes.py` and `proxy.py` (the data plane).

`main.py` starts and stops a server, `services.py` is what handlers may use, `protocol.py` is
HTTP/1.1 on one connection with its deadlines and limits, and `supervisor.py` joins the store to
the runner of local processes.
"""
