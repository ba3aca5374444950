"""The store against a model in plain dictionaries, over any sequence of operations."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.adapters.store.store_script import CURL, SDK, broken_invariants, spec

from holdfast.adapters.store import Store, WorkloadRecord
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.workload import desired_of

LONG = os.environ.get("HOLDFAST_LONG") == "1"
slugs = st.sampled_from(["a", "b", "c"])
counts = st.integers(1, 4)
writers = st.sampled_from([SDK, CURL])


class StoreMachine(RuleBasedStateMachine):
    """Replicas stand for all fields: the live number, and the declared one."""

    @initialize()
    def open(self) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.path = Path(self.home.name) / "holdfast.db"
        self.store = Store.open(self.path)
        self.store.write(lambda tx: tx.create_project("acme"))
        self.live: dict[str, int] = {}
        self.declared: dict[str, int] = {}
        self.seen: dict[str, WorkloadRecord] = {}
        self.generations: dict[str, int] = {}
        self.rows = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            assert broken_invariants(self.path) == []
            self.home.cleanup()

    @rule(slug=slugs, count=counts)
    def create(self, slug: str, count: int) -> None:
        desired = desired_of(spec(slug, replicas=count), project="acme")
        try:
            record = self.store.write(lambda tx: tx.create_workload(desired, writer=SDK))
        except Conflict:
            assert slug in self.live
        else:
            assert slug not in self.live
            self.live[slug] = self.declared[slug] = count
            self.seen[slug], self.generations[slug] = record, 1
            self.rows += 1

    @rule(slug=slugs, count=counts, writer=writers, guarded=st.booleans())
    def update(self, slug: str, count: int, writer: Writer, guarded: bool) -> None:
        known = self.seen.get(slug)
        if known is None:
            return
        now = self.store.record(known.id)
        moved = now is not None and now.version != known.version
        declare = known.is_declared_by(writer)
        try:
            after = self.store.write(
                lambda tx: tx.update_workload(
                    known.uid,
                    {"replicas": count},
                    version=known.version if guarded else None,
                    writer=writer,
                    declare=declare,
                )
            )
        except NotFound:
            assert slug not in self.live
        except Conflict:
            assert guarded
            assert moved
        else:
            assert not (guarded and moved)
            if count != self.live[slug]:
                self.generations[slug] += 1
                self.rows += 1
            self.live[slug] = count
            if declare:
                self.declared[slug] = count
            assert after.generation == self.generations[slug]

    @rule(slug=slugs)
    def look(self, slug: str) -> None:
        record = self.store.record(WorkloadId(project="acme", slug=slug))
        if record is not None:
            self.seen[slug] = record

    @rule(slug=slugs)
    def delete(self, slug: str) -> None:
        record = self.store.record(WorkloadId(project="acme", slug=slug))
        uid = record.uid if record else "nobody"
        gone = self.store.write(lambda tx: tx.delete_workload(uid, version=None, writer=SDK))
        assert gone == (slug in self.live)
        if gone:
            del self.live[slug], self.declared[slug], self.generations[slug], self.seen[slug]
            self.rows += 1

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.path)

    @invariant()
    def what_is_stored_is_what_was_written(self) -> None:
        if not hasattr(self, "store"):
            return
        records = {record.id.slug: record for record in self.store.records("acme")}
        assert {slug: record.fields["replicas"] for slug, record in records.items()} == self.live
        assert {slug: record.generation for slug, record in records.items()} == self.generations

    @invariant()
    def a_drift_is_open_exactly_where_live_and_declared_differ(self) -> None:
        if not hasattr(self, "store"):
            return
        drifted = {slug for slug in self.live if self.live[slug] != self.declared[slug]}
        assert {drift.workload.slug for drift in self.store.drifts("acme")} == drifted

    @invariant()
    def every_write_has_one_audit_row(self) -> None:
        if not hasattr(self, "store"):
            return
        history = self.store.history("acme", limit=10_000)
        written = [row for row in history if row.action in ("created", "updated", "deleted")]
        assert len(written) == self.rows


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=500 if LONG else 25,
    stateful_step_count=60 if LONG else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
