"""The HTTP server: the control plane, the data plane in front of workloads, and the GitOps API.

Start at `route_table.py`, which has every route, and `app.py`, the way of one request: match,
authorize, handle, respond. `routes` matches a path, `request` is what a handler gets. The handlers:

- workloads: `workload_routes` and `workload_drifts` (in the store), `cluster_routes` (in a
  cluster), `prompt`.
- applications: `gitops_routes`, `gitops_decisions`, `gitops_drifts`, `gitops_plans`,
  `gitops_rules`, `gitops_statistics`, `gitops_events`; they answer with `gitops_forms` and
  `gitops_drift_forms`. What is asked of every list of drifts is read by `drift_queries`.
- people and tokens: `session_routes`, `openid_routes`, `token_routes`.
- `open_routes`, and `page`, which gives the files of the page, `page_scripts` those of scripts
  without their comments.

The data plane is `proxy` and `project_endpoint`; `pods` and `probes` say who gets a request,
`waking` has replicas made when there are none.

Who asks is known by `authorize`, `identities` and `sessions`; `origins` says by which names and
from where. `streams` and `live_events` are for long answers, `forms` and `errors` for all of them.

`main` starts and stops a server as `config` says, `services` is what handlers may use, `protocol`
is HTTP/1.1 on one connection with its deadlines and limits, with `tls` below it, and `supervisor`
joins the store to the runner of local processes. `logs` and `metrics` tell of it.
"""
