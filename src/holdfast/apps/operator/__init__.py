"""The Kubernetes operator: watches InferenceServices and their children, feeds the reconciler.

Start at `build.py`, which puts an operator together; `main.py` is the process around it, with its
signals, informers, lease and probes. `controller.py` puts keys into the queue and
makes one pass for each, on the workers of `apps/runtime`. `watches.py` says which kinds are watched
and which service an event concerns; `status_writer.py` writes statuses when there is time.
`settings.py` has what the command line may set; `logs.py` and `metrics.py` are made from facts.
"""
