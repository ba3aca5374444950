"""The embedded store: workloads, declarations, drifts, history, projects, tokens and sessions.

Start at `store`: a `Store` is one open SQLite file. What can be read is in `queries`, what can be
written in `transaction`; `rows` and `records` turn rows into values. `files` opens, locks and
checks the files, `schema` has the tables. `target` and `ledger_store` implement ports over a store;
`errors` says what is wrong with one.
"""

from holdfast.adapters.store.files import OpenMode
from holdfast.adapters.store.records import (
    SESSION_IDLE,
    Project,
    SignedInSession,
    Token,
    TokenKind,
    TokenScope,
    WorkloadRecord,
)
from holdfast.adapters.store.store import Store
from holdfast.adapters.store.target import NOT_SERVED, StoreTarget, WorkloadRuntime
from holdfast.adapters.store.transaction import Transaction

__all__ = [
    "NOT_SERVED",
    "SESSION_IDLE",
    "OpenMode",
    "Project",
    "SignedInSession",
    "Store",
    "StoreTarget",
    "Token",
    "TokenKind",
    "TokenScope",
    "Transaction",
    "WorkloadRecord",
    "WorkloadRuntime",
]
