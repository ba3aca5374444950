"""The Kubernetes operator: watches InferenceServices and their children, feeds the reconciler.

Start at `main.py`, which wires the process together; `controller.py` puts keys into the queue and
makes one pass for each, on the workers of `apps/runtime`. `watches.py` says which kinds are watched
and which service an event concerns; `status_writer.py` writes statuses when there is time.
`settings.py` has what the command line may set; `logs.py` and `metrics.py` are made from facts.
"""
