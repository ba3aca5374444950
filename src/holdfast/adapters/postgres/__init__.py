"""The GitOps controller's ledger in PostgreSQL, where several controllers share one.

`ledger_store` implements the port and makes its tables, `sessions` runs transactions and turns
asyncpg's exceptions into ours.
"""

from holdfast.adapters.postgres.ledger_store import PostgresLedgerStore, open_ledger_store

__all__ = ["PostgresLedgerStore", "open_ledger_store"]
