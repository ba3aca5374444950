"""One Kubernetes object of any kind, from observing to applying.

Start at `resource_manager.py`: it compares an object with its declaration, creates it, heals it
and hands fields over to their owners. The operator uses it for the children of its services, the
GitOps controller for whatever Git holds.
"""
