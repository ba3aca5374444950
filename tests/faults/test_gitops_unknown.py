"""What looks empty, partial or unreadable: nothing is deleted because of it, nothing made anew."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import tests.support.gitops_world as world_module
from tests.faults.gitops_story import PROJECT
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap, route

from holdfast.core.errors import (
    AuthError,
    HoldfastError,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.gitops.application import (
    DriftSpec,
    OrphanPolicy,
    PullRequestKind,
    Remediation,
    SourceSpec,
    SyncSpec,
)
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.source import Ancestry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import LedgerWrite, RecordKind, SourceUnavailable

COUNT = 12
FILES = {f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(COUNT)}
MODES = [
    *(pytest.param(route(each), id=each.value) for each in Remediation),
    pytest.param(route(Remediation.PULL_REQUEST, pull=PullRequestKind.REVERT), id="revert"),
]
Form = Callable[[GitopsWorld], Awaitable[None]]


async def applied(*routes: object, **more: object) -> GitopsWorld:
    """An application that may do everything by itself: sync, prune, and heal."""
    world = GitopsWorld(*routes, sync=SyncSpec(automatic=True, prune=True), **more)  # type: ignore[arg-type]
    world.git.commit(FILES)
    await world.reconcile()
    return world


def writes(world: GitopsWorld) -> list[str]:
    return [f"{w.verb} {w.ref.name}" for w in world.kube.writes if w.changed and not w.dry_run]


async def missing_path(world: GitopsWorld) -> None:
    world.renderer.refused = SourceUnavailable("There is no directory deploy.")


async def broken_file(world: GitopsWorld) -> None:
    world.git.commit({"0.yaml": "apiVersion: v1\nkind: ["})


async def renderer_that_dies(world: GitopsWorld) -> None:
    world.renderer.refused = SourceUnavailable("The renderer took too long.")


async def invalid_declaration(world: GitopsWorld) -> None:
    world.renderer.refused = ValidationError("c0 is declared twice.")


async def no_objects(world: GitopsWorld) -> None:
    world.git.commit({"README.md": "nothing here any more"})


async def empty_file(world: GitopsWorld) -> None:
    world.git.commit({"0.yaml": "# nothing\n"})


async def unrelated_history(world: GitopsWorld) -> None:
    world.git.commit({"0.yaml": FILES["0.yaml"]})
    world.git.ancestry = Ancestry.UNRELATED


async def older_commit(world: GitopsWorld) -> None:
    world.git.commit({"0.yaml": FILES["0.yaml"]})
    world.git.ancestry = Ancestry.REWOUND


async def rewritten_branch(world: GitopsWorld) -> None:
    world.git.commit({n: FILES[n] for n in list(FILES)[:-1]})
    world.git.ancestry = Ancestry.DIVERGED


async def most_objects_gone(world: GitopsWorld) -> None:
    world.git.commit({n: FILES[n] for n in list(FILES)[:4]})


async def remote_down(world: GitopsWorld) -> None:
    world.git.commit({})
    world.git.down = "git.example.com refused the connection."


async def every_read_refused(world: GitopsWorld) -> None:
    world.git.commit({n: FILES[n] for n in list(FILES)[:-2]})
    for _ in range(10 * COUNT):
        world.kube.fail_next("get", PermissionDenied("configmaps is forbidden."))


async def one_read_times_out(world: GitopsWorld) -> None:
    world.git.commit({n: FILES[n] for n in list(FILES)[:-2]})
    plain = world.kube.get

    async def get(ref: ObjectRef) -> Fields | None:
        if ref.name == "c3":
            raise TargetUnavailable("No answer.")
        return await plain(ref)

    world.kube.get = get  # type: ignore[method-assign]


async def credential_over(world: GitopsWorld) -> None:
    for _ in range(10 * COUNT):
        world.kube.fail_next("get", AuthError("The token is over."))


async def kind_not_served(world: GitopsWorld) -> None:
    world.kube.unserve("ConfigMap")


FORMS = [
    missing_path, broken_file, renderer_that_dies, invalid_declaration, no_objects, empty_file,
    unrelated_history, older_commit, rewritten_branch, most_objects_gone, remote_down,
    every_read_refused, one_read_times_out, credential_over, kind_not_served,
]  # fmt: skip


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.replace("_", " "))
async def test_what_looks_empty_or_partial_deletes_and_creates_nothing(
    form: Form, mode: object, restarted: bool
) -> None:
    world = await applied(mode)
    before = writes(world)
    await form(world)
    if restarted:
        await world.start()
    for _ in range(3):
        await world.fetch_and_reconcile()
        world.pass_time(120)
    world.kube.serve("ConfigMap")
    world.kube._faults.clear()
    vars(world.kube).pop("get", None)
    new = writes(world)[len(before) :]
    assert [each for each in new if each.startswith("delete")] == []
    assert not world.forge.pulls, "what could not be read is not proposed either"
    for n in range(COUNT):
        assert await world.data(f"c{n}") == {"x": "1"}
    assert new == []


@pytest.mark.parametrize("form", [no_objects, empty_file])
async def test_a_forced_sync_does_not_make_an_empty_repository_meant(form: Form) -> None:
    world = await applied()
    await form(world)
    await world.fetch_and_reconcile()
    await world.sync(prune=True, force=True)
    assert world.context is not None
    for plan in list(world.context.state.plans.values()):
        await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.fetch_and_reconcile()
    assert await world.live("c0") is not None


async def test_an_object_that_is_gone_and_one_that_cannot_be_read_are_told_apart() -> None:
    world = await applied(route(Remediation.SELF_HEAL))
    await world.kube.delete(config_ref("c3"))
    world.kube.fail_next("get", TargetUnavailable("No answer."), after=8)
    count = len(writes(world))
    await world.reconcile()
    assert writes(world)[count:] == ["apply c3"]


async def test_an_orphan_list_that_fails_neither_forgets_nor_deletes() -> None:
    drift = DriftSpec(namespaces=(NAMESPACE,), orphans=OrphanPolicy.REMEDIATE)
    world = await applied(route(Remediation.REVIEW), drift=drift)
    stray = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "stray", "namespace": NAMESPACE}, "data": {"k": "v"},
    }  # fmt: skip
    world.kube.create(stray)  # type: ignore[arg-type]
    await world.reconcile()
    (drifted,) = world.drifts
    errors: tuple[HoldfastError, ...] = (
        PermissionDenied("It may not."),
        TargetUnavailable("No answer."),
    )
    for error in errors:
        world.kube.fail_next("list", error, kind="ConfigMap")
        await world.reconcile()
        assert [each.id for each in world.drifts] == [drifted.id]
    assert await world.live("stray") is not None


@pytest.mark.parametrize("damage", ["lost", "cut", "other uid", "other object"])
async def test_a_damaged_inventory_prunes_nothing_that_is_not_surely_ours(damage: str) -> None:
    world = await applied(route(Remediation.SELF_HEAL))
    foreign = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "foreign", "namespace": NAMESPACE},
    }  # fmt: skip
    made = world.kube.create(foreign)  # type: ignore[arg-type]
    records = await world.ledger_store.records(RecordKind.INVENTORY)
    last = next(record for record in records if record.key.endswith("|c11"))
    puts = []
    match damage:
        case "lost":
            puts = [_put(record) for record in records]
        case "cut":
            puts = [_put(record) for record in records[::2]]
        case "other uid":
            puts = [replace(_put(last), body={**last.body, "uid": "0000"})]
        case _:
            uid = made["metadata"]["uid"]  # type: ignore[index,call-overload]
            ref = {**last.body["ref"], "name": "foreign"}  # type: ignore[dict-item]
            body = {**last.body, "ref": ref, "uid": uid}
            puts = [replace(_put(last), key=last.key.replace("c11", "foreign"), seen=0, body=body)]
    await world.ledger_store.write(puts, [])
    known = {record.key.rpartition("|")[2] for record in await world.ledger_store.records(
        RecordKind.INVENTORY) if record.body["uid"] != "0000"}  # fmt: skip
    world.git.commit({n: FILES[n] for n in list(FILES)[:-2]})
    await world.start()
    await world.fetch_and_reconcile()
    assert await world.live("foreign") is not None
    for name in ("c10", "c11"):
        gone = await world.live(name) is None
        assert gone == (name in known), "what is still on record is pruned, nothing else"


def _put(record: object) -> LedgerWrite:
    return LedgerWrite(
        kind=record.kind, application=record.application, key=record.key, seen=record.version,  # type: ignore[attr-defined]
    )  # fmt: skip


async def test_a_commit_that_was_applied_in_part_is_not_rolled_back_by_a_restart() -> None:
    """Only whole commits are on record, so without its repository the newer one is not known."""
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    world.git.commit({"a.yaml": configmap("a", x="2"), "b.yaml": configmap("b", x="2")})
    world.kube.fail_next("apply", ValidationError("b is refused."), after=3, kind="ConfigMap")
    await world.fetch_and_reconcile()
    values = [await world.data("a"), await world.data("b")]
    assert values == [{"x": "2"}, {"x": "1"}]
    world.git.down = "git.example.com refused the connection."
    await world.start()
    await world.reconcile()
    assert [await world.data("a"), await world.data("b")] == values
    world.git.down = ""
    world.pass_time(1000)
    await world.fetch_and_reconcile()
    assert await world.data("b") == {"x": "2"}


async def test_a_path_that_moved_is_not_an_empty_one() -> None:
    world = await applied()
    source = SourceSpec(url=world.application.spec.source.url, path="moved")
    spec = replace(world.application.spec, source=source)
    world.application = replace(world.application, spec=spec)
    world.renderer.refused = SourceUnavailable("There is no directory moved.")
    count = len(writes(world))
    await world.start()
    result = await world.reconcile()
    assert result.status.sync == "unknown"
    assert writes(world)[count:] == []


async def test_a_lost_fingerprint_key_makes_no_drift_and_reverts_no_rotation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({f"{n}.yaml": secret(f"s{n}", f"value-{n}") for n in range(10)})
    await world.reconcile()
    rotated = base64.b64encode(b"rotated").decode()
    world.kube.edit(secret_ref("s0"), lambda item: item["data"].update(password=rotated))
    await world.reconcile()
    before = [await world.kube.get(secret_ref(f"s{n}")) for n in range(10)]
    monkeypatch.setattr(world_module, "KEY", b"another" * 5)
    await world.start()
    for _ in range(3):
        result = await world.reconcile()
        assert result.status.drifted == 1
    after = [await world.kube.get(secret_ref(f"s{n}")) for n in range(10)]
    assert [each and each["data"] for each in after] == [each and each["data"] for each in before]
    assert not any(write.verb == "delete" for write in world.kube.writes)


async def test_many_secrets_that_drift_at_once_are_not_healed_by_themselves() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL), sync=SyncSpec(automatic=True))
    world.git.commit({f"{n}.yaml": secret(f"s{n}", f"value-{n}") for n in range(10)})
    await world.reconcile()
    rotated = base64.b64encode(b"rotated").decode()
    for n in range(10):
        world.kube.edit(secret_ref(f"s{n}"), lambda item: item["data"].update(password=rotated))
    for _ in range(3):
        await world.reconcile()
        world.pass_time(61)
    live = await world.kube.get(secret_ref("s0"))
    assert live is not None
    assert live["data"] == {"password": rotated}
    assert {drift.state for drift in world.drifts} == {DriftState.BLOCKED}
    parked = [line for line, _ in world.ledger_store._entries if line.action == "parked"]
    assert len(parked) == 1, "told once, not at every look"


async def test_a_secret_that_is_rotated_between_look_and_write_is_not_reverted() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL), sync=SyncSpec(automatic=True))
    world.git.commit({"s.yaml": secret("s", "declared")})
    await world.reconcile()
    ref = secret_ref("s")
    first, last = (base64.b64encode(text).decode() for text in (b"first", b"rotated"))
    world.kube.edit(ref, lambda item: item["data"].update(password=first))
    plain = world.kube.apply

    async def late(item: object, **more: object) -> object:
        if not more.get("dry_run"):
            world.kube.edit(ref, lambda item: item["data"].update(password=last), manager="vault")
            world.kube.apply = plain  # type: ignore[method-assign]
        return await plain(item, **more)  # type: ignore[arg-type]

    world.kube.apply = late  # type: ignore[assignment,method-assign]
    await world.reconcile()
    live = await world.kube.get(ref)
    assert live is not None
    assert live["data"] == {"password": last}


def secret(name: str, value: str) -> str:
    head = f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n"
    return f"{head}stringData:\n  password: {value!r}\n"


def secret_ref(name: str) -> ObjectRef:
    return ObjectRef(api_version="v1", kind="Secret", namespace=NAMESPACE, name=name)


async def test_drift_that_cannot_be_read_any_more_is_not_proposed_as_a_deletion() -> None:
    world = await applied(route(Remediation.PULL_REQUEST))
    world.git.down = "git.example.com refused the connection."
    world.kube.edit(config_ref("c3"), lambda item: item["data"].update(x="9"))
    await world.fetch_and_reconcile()
    assert [drift.object.name for drift in world.drifts] == ["c3"]
    world.git.down = ""
    world.pass_time(1000)
    await one_read_times_out(world)
    await world.fetch_and_reconcile()
    assert not world.forge.pulls
    vars(world.kube).pop("get")
    await world.fetch_and_reconcile()
    assert [pull.branch for pull in world.forge.pulls.values()] == [
        "holdfast/codify/chat-configmap-c3"
    ]
