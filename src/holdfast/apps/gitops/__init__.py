"""The GitOps controller: follows repositories, and keeps clusters as they declare.

Start at `controller.py`, which decides when to make a pass over which application; a pass itself
is `reconcile/gitops/reconciler.py`. `wiring.py` makes every part and joins them, `main.py` runs
them beside the HTTP server.

`applications.py` reads Applications and writes their status, `sources.py` and `credentials.py`
open what they name, `watches.py` follows the kinds that they declare, `object_index.py` knows which
application an object concerns, `reporting.py` and `metrics.py` tell what happened, `webhooks.py`
takes deliveries of forges, and `settings.py` has what the command line may set.
"""
