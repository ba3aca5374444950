"""One Kubernetes object of any kind, from observing to applying.

Start at `resource_manager.py`: it compares an object with its declaration, creates it, heals it
and hands fields over to their owners. The operator uses it for the children of its services, the
GitOps controller for whatever Git holds. `cost.py` finds out what a step costs;
`apply_over_update.py` stands in for server-side apply where a client has only plain verbs.
"""
