"""The SDK: declare workloads, and call them. Start at `management.py`, the two clients.

`api.py` has what both do, as coroutines; the sync client drives them without a loop. `inference.py`
has the clients of the data plane, `settings.py` says where to connect, `connect.py` opens it,
`watching.py` waits for workloads and follows them, `progress.py` shows such a wait, and
`background.py` runs a loop for a sync client whose target needs one.
"""
