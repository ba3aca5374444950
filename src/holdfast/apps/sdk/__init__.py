"""The SDK: declare workloads, and call them. Start at `management.py`, the two clients.

`api.py` has what both do, as coroutines; the sync client drives them without a loop. `inference.py`
has the clients of the data plane, `settings.py` says where to connect, `connect.py` opens it,
and `watching.py` waits for workloads and follows them.
"""
