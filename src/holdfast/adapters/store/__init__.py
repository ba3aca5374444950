"""The embedded store: workloads, declarations, drifts, history, projects and tokens."""

from holdfast.adapters.store.lock import Mode
from holdfast.adapters.store.records import Project, Record, Scope, Token, TokenKind
from holdfast.adapters.store.store import Store
from holdfast.adapters.store.target import NOT_SERVED, Runtime, StoreTarget
from holdfast.adapters.store.transaction import Transaction

__all__ = [
    "NOT_SERVED",
    "Mode",
    "Project",
    "Record",
    "Runtime",
    "Scope",
    "Store",
    "StoreTarget",
    "Token",
    "TokenKind",
    "Transaction",
]
