"""What both controllers run on: the operator's and the GitOps one.

Start at `workers.py`: the pool that takes keys from a queue, one pass at a time for each key, with
the ladder of errors and the back-off. `process.py` has the life of a controller's process around
it: settings that both have, background tasks, the lease and its guard, the orderly end.
`metrics.py` has the metrics that both report.
`probes.py` answers on the operator's own address; the GitOps controller uses the server's.
"""
