"""What is kept of a workload: declarations, drift, audit rows, keys, and no secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.adapters.store.store_script import CURL, SDK, CountingClock, counting_ids, spec

from holdfast.adapters.store import (
    NOT_SERVED,
    Store,
    StoreTarget,
    TokenKind,
    TokenScope,
    WorkloadRecord,
)
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.errors import Conflict, NotFound, ValidationError, WorkloadFailed
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Phase, Progress, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.policy import OnDrift
from holdfast.core.single_machine import unsupported_fields
from holdfast.core.tree import Fields
from holdfast.core.workload import desired_of
from holdfast.reconcile import reconciler
from holdfast.reconcile.sync_bridge import run_sync

CHAT = WorkloadId(project="acme", slug="chat")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(
        tmp_path / "holdfast.db", clock=CountingClock(), new_id=counting_ids()
    ) as store:
        store.write(lambda tx: tx.create_project("acme"))
        yield store


def create(store: Store, **fields: object) -> WorkloadRecord:
    desired = desired_of(spec("chat", **fields), project="acme")
    return store.write(lambda tx: tx.create_workload(desired, writer=SDK))


def update(
    store: Store, record: WorkloadRecord, write: Fields, writer: Writer = SDK
) -> WorkloadRecord:
    return store.write(
        lambda tx: tx.update_workload(
            record.uid, write, version=None, writer=writer, declare=record.is_declared_by(writer)
        )
    )


def actions(store: Store) -> list[str]:
    return [row.action for row in store.history("acme", slug="chat")]


def test_a_foreign_write_opens_a_drift_that_names_writer_cause_and_evidence(store: Store) -> None:
    update(store, create(store), {"replicas": 5, "vllm_version": None}, CURL)
    (drift,) = store.drifts("acme")
    (entry,) = drift.fields
    assert (entry.path, entry.desired, entry.live) == ("/replicas", 1, 5)
    assert entry.writer is not None
    assert str(entry.writer) == "curl (ops)"
    assert entry.cause is Cause.PERSON
    assert entry.evidence == "PATCH by curl with token ops"
    assert drift.kinds == (DriftKind.CONFIGURATION,)
    assert store.drift("acme", drift.id) == drift
    assert store.drift("other", drift.id) is None
    assert actions(store) == ["drifted", "updated", "created"]


def test_another_foreign_write_brings_the_open_drift_up_to_date(store: Store) -> None:
    record = create(store)
    update(store, record, {"replicas": 5}, CURL)
    (first,) = store.drifts("acme")
    update(store, record, {"env": {"A": "2"}}, CURL)
    (second,) = store.drifts("acme")
    assert (second.id, second.first_seen) == (first.id, first.first_seen)
    assert [entry.path for entry in second.fields] == ["/env/A", "/replicas"]


@pytest.mark.parametrize(
    ("write", "writer", "resolution"),
    [
        ({"replicas": 1}, CURL, "reverted"),
        ({"replicas": 1}, SDK, "reconciled"),
        ({"replicas": 7}, SDK, "declared"),
        ({"replicas": 5}, SDK, "declared"),
    ],
)
def test_a_drift_is_resolved_by_what_ended_it(
    store: Store, write: Fields, writer: Writer, resolution: str
) -> None:
    record = create(store)
    update(store, record, {"replicas": 5}, CURL)
    update(store, record, write, writer)
    assert store.drifts("acme") == []
    (drift,) = store.drifts("acme", include_resolved=True)
    assert drift.resolution == resolution
    assert drift.resolved_at is not None
    assert actions(store)[0] == "resolved"


def test_a_drift_in_another_field_stays_open_when_the_owner_writes(store: Store) -> None:
    record = create(store)
    update(store, record, {"replicas": 5}, CURL)
    update(store, record, {"description": "new"})
    (drift,) = store.drifts("acme")
    assert [entry.path for entry in drift.fields] == ["/replicas"]


def test_what_an_owner_only_carried_along_is_not_declared(store: Store) -> None:
    """A nested field is written whole, with the live keys that its owner left open."""
    record = create(store, health={"path": "/health"})
    update(store, record, {"health": {"path": "/health", "interval": "5s"}}, CURL)
    assert store.drifts("acme") == []
    record = update(store, record, {"health": {"path": "/ready", "interval": "5s"}})
    assert record.declared is not None
    assert record.declared["health"] == {"path": "/ready"}
    update(store, record, {"health": {"path": "/ready", "interval": "9s"}}, CURL)
    assert store.drifts("acme") == []


def test_reconciling_a_drift_puts_the_declared_value_back(store: Store) -> None:
    target = StoreTarget(store, writer=SDK)
    desired = desired_of(spec("chat", replicas=2), project="acme")
    run_sync(reconciler.ensure(target, desired, key="1"))
    record = store.record(CHAT)
    assert record is not None
    update(store, record, {"replicas": 6}, CURL)
    left = run_sync(reconciler.ensure(target, desired, on_drift=OnDrift.IGNORE, key="2"))
    assert left.live is not None
    assert left.live.fields["replicas"] == 6
    healed = run_sync(reconciler.ensure(target, desired, key="3"))
    assert healed.live is not None
    assert healed.live.fields["replicas"] == 2
    assert [each.resolution for each in store.drifts("acme", include_resolved=True)] == [
        "reconciled"
    ]


def test_resource_drift_lives_beside_field_drift_and_heals_by_itself(store: Store) -> None:
    record = create(store)
    entry = DriftEntry(
        path="/processes/0",
        desired="running",
        live="exited",
        kind=DriftKind.RESOURCE,
        cause=Cause.HARDWARE,
        evidence="exit status 1 with --api-key hunter22222",
    )
    fallen = store.write(lambda tx: tx.open_drift(CHAT, [entry]))
    assert store.write(lambda tx: tx.open_drift(CHAT, [entry])).id == fallen.id
    update(store, record, {"replicas": 5}, CURL)
    assert len(store.drifts("acme", slug="chat")) == 2
    update(store, record, {"replicas": 1})
    assert [each.id for each in store.drifts(None)] == [fallen.id]
    assert "hunter22222" not in str(store.drifts(None))
    assert store.write(lambda tx: tx.resolve_drift(fallen.id, "healed"))
    assert not store.write(lambda tx: tx.resolve_drift(fallen.id, "healed"))
    assert store.drifts(None) == []


def test_a_write_that_changes_nothing_leaves_no_trace(store: Store) -> None:
    record = create(store, command="vllm serve m --a 1 --b 2")
    serial = store.serial
    for write in (
        {},
        {"replicas": 1},
        {"command": "vllm serve m --b=2 --a=1"},
        {"execution_policy": "fixed", "execution_policy_config": {"replicas": 1}},
        {"description": None},
    ):
        assert update(store, record, write, CURL) == record
    assert store.serial == serial
    assert actions(store) == ["created"]


def test_writing_one_way_to_count_replicas_clears_the_others(store: Store) -> None:
    record = create(store, replicas=2)
    scheduled: Fields = {
        "execution_policy": "autoscaling",
        "execution_policy_config": {"min_workers": 1, "max_workers": 3},
    }
    record = update(store, record, scheduled)
    assert "replicas" not in record.fields
    record = update(store, record, {"execution_policy_config": {"max_workers": 2}})
    assert record.fields["execution_policy"] == "autoscaling"
    record = update(store, record, {"replicas": 4})
    assert "execution_policy" not in record.fields
    assert record.declared == record.fields


def test_an_update_checks_the_workload_as_a_whole(store: Store) -> None:
    record = create(store)
    for write in ({"image": "repo/image"}, {"env": {"A": 1}}, {"model": None}, {"slug": "x"}):
        with pytest.raises(ValidationError):
            update(store, record, write)
    assert store.record(CHAT) == record


def test_an_update_with_a_version_needs_the_present_one(store: Store) -> None:
    record = create(store)
    with pytest.raises(Conflict, match=f"it is at {record.version}"):
        store.write(
            lambda tx: tx.update_workload(record.uid, {"replicas": 2}, version="x", writer=SDK)
        )
    with pytest.raises(NotFound):
        store.write(lambda tx: tx.update_workload("nobody", {}, version=None, writer=SDK))
    with pytest.raises(NotFound):
        store.write(lambda tx: tx.create_workload(desired_of(spec("a"), project="b"), writer=SDK))


def test_deleting_a_workload_ends_its_keys_and_its_drifts(store: Store) -> None:
    record = create(store)
    for id, uid in (("live0001", record.uid), ("sdk00001", None)):
        store.write(
            lambda tx, id=id, uid=uid: tx.create_token(
                id=id,
                kind=TokenKind.LIVE if uid else TokenKind.SDK,
                project="acme",
                name=id,
                scopes=[TokenScope.READ],
                secret_hash=b"h" * 32,
                workload_uid=uid,
            )
        )
    update(store, record, {"replicas": 9}, CURL)
    assert store.write(lambda tx: tx.delete_workload(record.uid, version=None, writer=SDK))
    assert not store.write(lambda tx: tx.delete_workload(record.uid, version=None, writer=SDK))
    assert {token.id: token.revoked_at is None for token in store.tokens("acme")} == {
        "live0001": False,
        "sdk00001": True,
    }
    assert [each.resolution for each in store.drifts(None, include_resolved=True)] == ["deleted"]
    assert store.workload_count() == 0


def test_tokens_are_bound_to_projects_and_workloads_that_are_there(store: Store) -> None:
    record = create(store)
    store.write(lambda tx: tx.create_project("other"))
    for project, uid in (("nobody", None), ("other", record.uid), ("acme", "nobody")):
        with pytest.raises(NotFound):
            store.write(
                lambda tx, project=project, uid=uid: tx.create_token(
                    id="t1",
                    kind=TokenKind.LIVE,
                    project=project,
                    name="t",
                    scopes=[],
                    secret_hash=b"",
                    workload_uid=uid,
                )
            )
    assert store.token("t1") is None


def test_a_scope_includes_the_smaller_ones() -> None:
    assert TokenScope.ADMIN.implied == set(TokenScope)
    assert TokenScope.WRITE.implied == {TokenScope.READ, TokenScope.WRITE}
    assert TokenScope.APPROVE.implied == {TokenScope.READ, TokenScope.APPROVE}
    assert TokenScope.READ.implied == {TokenScope.READ}


def test_no_secret_reaches_history_or_ledger(store: Store, tmp_path: Path) -> None:
    """A value of a declaration from before such were refused, and text that is none at all."""
    secret, pin = "s3cr3t-Value-9", "pin4711"
    create(store)
    entry = DriftEntry(
        path="/config/password",
        desired="short",
        live=pin,
        kind=DriftKind.CONFIGURATION,
        cause=Cause.UNKNOWN,
        evidence=f"password={pin}",
    )
    store.write(lambda tx: tx.open_drift(CHAT, [entry]))
    store.write(lambda tx: tx.note(CHAT, "exited", SDK, f"--token {secret}", {"token": secret}))
    assert store.drifts("acme")
    connection = apsw.Connection(str(tmp_path / "holdfast.db"))
    kept = [
        *connection.execute("SELECT * FROM history"),
        *connection.execute("SELECT * FROM drifts"),
    ]
    connection.close()
    assert kept
    assert secret not in str(kept)
    assert pin not in str(kept)


def test_history_can_be_paged(store: Store) -> None:
    record = create(store)
    for replicas in range(2, 12):
        update(store, record, {"replicas": replicas})
    whole = store.history("acme")
    pages, before = [], None
    while page := store.history("acme", limit=3, before=before):
        pages += page
        before = page[-1].seq
    assert pages == whole
    assert len(whole) == 12


def test_workloads_can_be_paged(store: Store) -> None:
    for slug in ("a", "b", "c", "d"):
        desired = desired_of(spec(slug), project="acme")
        store.write(lambda tx, desired=desired: tx.create_workload(desired, writer=SDK))
    assert [each.id.slug for each in store.records("acme", limit=2)] == ["a", "b"]
    assert [each.id.slug for each in store.records("acme", limit=9, after="b")] == ["c", "d"]


def test_a_kept_answer_is_forgotten_after_a_day(tmp_path: Path) -> None:
    class DayClock(CountingClock):
        def now(self):  # type: ignore[no-untyped-def]  # as in the base
            self._looks += 86_500
            return super().now()

    with Store.open(tmp_path / "holdfast.db", clock=DayClock()) as store:
        store.write(lambda tx: tx.remember("k1", "request", b"answer"))
        assert store.recall("k1") == ("request", b"answer")
        store.write(lambda tx: tx.remember("k2", "request", b"answer"))
        assert store.recall("k1") is None


def test_without_a_server_waiting_says_at_once_that_it_is_vain(store: Store) -> None:
    create(store)
    target = StoreTarget(store, writer=SDK)

    async def wait() -> None:
        updates = target.progress(CHAT)
        first = await anext(updates)
        assert (first.phase, first.message) == (Phase.SCHEDULING, NOT_SERVED)
        with pytest.raises(WorkloadFailed, match="holdfast serve"):
            await anext(updates)
        with pytest.raises(NotFound, match="holdfast serve"):
            await anext(target.logs(CHAT, tail=1, follow=False))

    asyncio.run(wait())
    live = run_sync(target.observe(CHAT))
    assert live.status == Status(message=NOT_SERVED)  # type: ignore[union-attr]  # it is there


def test_a_runtime_speaks_for_the_workloads_it_runs(store: Store) -> None:
    class Running:
        def status(self, uid: str) -> Status:
            return Status(phase=Phase.READY, message=uid, ready=1, wanted=1)

        async def progress(self, uid: str):  # type: ignore[no-untyped-def]  # yields Progress
            yield Progress(phase=Phase.READY, message=uid)

        async def logs(self, uid: str, *, tail: int, follow: bool):  # type: ignore[no-untyped-def]
            yield f"{uid} {tail} {follow}"

    record = create(store)
    target = StoreTarget(store, writer=SDK, runtime=Running())

    async def look() -> None:
        assert [each.message async for each in target.progress(CHAT)] == [record.uid]
        lines = [line async for line in target.logs(CHAT, tail=3, follow=False)]
        assert lines == [f"{record.uid} 3 False"]
        (live,) = await target.list("acme")
        assert live.status.phase is Phase.READY

    asyncio.run(look())


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"command": "serve", "replicas": 3, "env": {"A": "1"}, "health": {"path": "/"}}, []),
        ({"image": "repo/image", "args": ["a"]}, ["image", "args"]),
        ({"worker_id": "w", "gpu_resource_id": "g"}, ["worker_id", "gpu_resource_id"]),
        ({"autoscaling": {"min": 1, "max": 3}}, ["autoscaling"]),
        ({"autoscaling": {"min": 2, "max": 2}}, []),
        ({"execution_policy": "fixed"}, []),
        ({"execution_policy": "scheduled"}, ["execution_policy"]),
        ({"execution_policy": "autoscaling"}, ["execution_policy"]),
        (
            {
                "execution_policy": "autoscaling",
                "execution_policy_config": {"min_workers": 2, "max_workers": 2},
            },
            [],
        ),
        (
            {"resources": {"cpu": "1", "memory": "1Gi", "gpu": 1, "gpu_memory": "1Gi"}},
            ["resources.cpu", "resources.memory", "resources.gpu", "resources.gpu_memory"],
        ),
        ({"canary": {"weight": 5, "command": "serve b", "replicas": 1}}, []),
        (
            {"canary": {"weight": 5, "image": "i", "analysis": {"metric": "m", "max": 1}}},
            ["canary.image", "canary.analysis"],
        ),
    ],
)
def test_one_machine_refuses_what_it_cannot_honour_with_a_reason_and_a_fix(
    fields: Fields, refused: list[str]
) -> None:
    problems = unsupported_fields(fields)
    assert [problem.field for problem in problems] == refused
    assert all(problem.reason and problem.fix for problem in problems)


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM workloads WHERE project = 'a' AND slug = 'b'",
        "SELECT * FROM workloads WHERE project = 'a' AND slug > '' ORDER BY slug LIMIT 9",
        "SELECT * FROM workloads WHERE uid = 'a'",
        "SELECT * FROM tokens WHERE id = 'a'",
        "SELECT * FROM tokens WHERE project = 'a' ORDER BY key",
        "SELECT id FROM tokens WHERE workload_uid = 'a' AND revoked_at IS NULL",
        "SELECT * FROM history WHERE project = 'a' AND seq < 9 ORDER BY seq DESC LIMIT 9",
        "SELECT * FROM history WHERE project = 'a' AND slug = 'b' ORDER BY seq DESC LIMIT 9",
        "SELECT * FROM drifts WHERE project = 'a' AND slug = 'b' ORDER BY seq DESC LIMIT 9",
        "SELECT * FROM drifts WHERE project = 'a' AND resolved_at IS NULL ORDER BY seq DESC",
        "SELECT * FROM drifts WHERE uid = 'a' AND resolved_at IS NULL AND subject = ''",
        "SELECT * FROM answers WHERE key = 'a'",
        "DELETE FROM answers WHERE at < 9",
        "SELECT coalesce(max(seq), 0) + 1 FROM history",
    ],
)
def test_every_question_is_answered_from_an_index(store: Store, question: str) -> None:
    """Neither a scan nor a sort: the file may hold a million rows."""
    plan = [row[3] for row in store._reader.execute(f"EXPLAIN QUERY PLAN {question}")]
    assert plan
    assert all(step.startswith("SEARCH") for step in plan), plan
