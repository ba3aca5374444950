"""Joins the core to the world, through ports that adapters implement.

Start at `reconciler.py`: one workload, one pass, top to bottom. `ports.py` and `kube.py` are what
is asked of the world. `objects/` handles single Kubernetes objects, `service/` the children of an
InferenceService, `gitops/` whole applications. `sync_bridge.py` runs all of it without an event
loop, for the sync client.
"""
