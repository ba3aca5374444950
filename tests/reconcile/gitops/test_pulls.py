"""Pull requests over several passes: hints, refusals, people's branches, what was approved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.gitops_world import (
    NAMESPACE,
    GitopsWorld,
    MemoryForge,
    config_ref,
    configmap,
    route,
)

from holdfast.core.errors import NOTHING_CHANGED, Conflict, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.application import DriftSpec, PullRequestKind, Remediation, SyncSpec
from holdfast.core.gitops.codify import CannotCodify, CodifyResult
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.gitops.pull_request_text import pull_request_body
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.ports import (
    NewPullRequest,
    PullRequest,
    PullRequestState,
    RecordKind,
)


def edit(world: GitopsWorld, name: str, value: str) -> None:
    world.kube.edit(config_ref(name), lambda item: item["data"].update(x=value), manager="kubectl")


async def proposing(pull: PullRequestKind = PullRequestKind.CODIFY) -> GitopsWorld:
    """An application of two objects, applied, whose drift goes to pull requests."""
    world = GitopsWorld(route(Remediation.PULL_REQUEST, pull=pull))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    return world


async def test_a_hint_of_the_forge_makes_it_be_asked_before_it_is_time() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    await world.forge.close(1)
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.PULL_REQUEST]
    assert world.context is not None
    world.context.forge_moved = True
    await world.reconcile(set())
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]
    assert not world.context.forge_moved


async def test_a_drift_that_changed_while_git_was_awaited_is_proposed_anew_with_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a pass only heals, and what it looked at is nobody's reason to look again."""
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    assert world.context is not None

    async def unanswered(*_: object) -> None:
        """The repository takes its time."""

    with monkeypatch.context() as patched:
        patched.setattr(world.context.poller, "follow", unanswered)
        world.context.poller.hasten()
        edit(world, "a", "10")
        await world.reconcile({config_ref("a")})
        assert world.context.awaiting
        assert proposed(world) == ["9"]
    await world.reconcile(set())
    assert proposed(world) == ["10"]


async def test_a_whole_look_while_git_was_awaited_is_made_again_with_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await proposing()
    assert world.context is not None

    async def unanswered(*_: object) -> None:
        """The repository takes its time."""

    with monkeypatch.context() as patched:
        patched.setattr(world.context.poller, "follow", unanswered)
        world.context.poller.hasten()
        edit(world, "a", "9")
        await world.reconcile()
        assert proposed(world) == []
    await world.reconcile(set())
    assert proposed(world) == ["9"]


async def test_a_drift_that_changed_while_the_forge_was_silent_is_proposed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()

    async def silent(*_: object, **__: object) -> PullRequest:
        raise TargetUnavailable("No answer.")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryForge, "open", silent)
        edit(world, "a", "10")
        await world.reconcile({config_ref("a")})
        edit(world, "b", "9")
        result = await world.reconcile({config_ref("b")})  # the forge is left alone for a while
    assert result.requeue_after is not None and result.requeue_after <= 15
    world.pass_time(result.requeue_after)
    await world.reconcile(set())
    assert proposed(world) == ["10", "9"]
    assert [pull.number for pull in world.forge.pulls.values()] == [1, 2]


def proposed(world: GitopsWorld) -> list[str]:
    """The value that each branch of ours declares, by the names of the branches."""
    found = []
    for _, push in sorted(world.git.branches.items()):
        (data,) = push.files.values()
        found.append((data or b"").decode().partition("'x': '")[2].partition("'")[0])
    return found


async def test_a_branch_that_was_pushed_is_told_though_its_pull_request_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await proposing()

    async def refused(forge: MemoryForge, new: NewPullRequest) -> PullRequest:
        raise PermissionDenied("The token may push and not open pull requests.")

    monkeypatch.setattr(MemoryForge, "open", refused)
    edit(world, "a", "9")
    await world.reconcile()
    (drift,) = world.drifts
    assert "Branch holdfast/codify/" in drift.note and "was pushed." in drift.note
    assert NOTHING_CHANGED not in drift.note


async def test_what_cannot_be_declared_is_told_once_and_keeps_no_other_back() -> None:
    world = await proposing()
    codify = world.codify

    async def refusing(
        following: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        if drift.object.name == "a":
            raise CannotCodify("No file could say it.")
        return await codify(following, drift, seen)

    world.codify = refusing  # type: ignore[method-assign]
    await world.start()
    await world.fetch_and_reconcile()
    edit(world, "a", "9")
    first = await world.reconcile()
    assert "PullRequestFailed" in [note.reason for note in first.events]
    world.pass_time(1)
    edit(world, "b", "9")
    second = await world.reconcile()
    assert "PullRequestFailed" not in [note.reason for note in second.events]
    assert [drift.state for drift in world.drifts] == [
        DriftState.BLOCKED,
        DriftState.PULL_REQUEST,
    ]


async def test_a_merged_decision_is_carried_out_soon_whatever_else_is_heard() -> None:
    world = await proposing(PullRequestKind.REVERT)
    spec = world.application.spec
    source = replace(spec.source, interval="1h")
    world.application = replace(world.application, spec=replace(spec, source=source))
    edit(world, "a", "9")
    await world.reconcile()
    (branch,) = world.git.branches
    world.git.merge(branch)
    result = await world.fetch_and_reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.APPROVED]
    assert timedelta(seconds=result.requeue_after) <= timedelta(seconds=2)
    await world.reconcile(set())
    assert await world.data("a") == {"x": "1"}


async def test_nobody_is_told_under_a_pull_request_that_is_over() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    world.git.human.update(world.git.branches)
    world.forge.pulls[1] = replace(world.forge.pulls[1], state=PullRequestState.MERGED)
    world.pass_time(120)
    edit(world, "a", "10")
    await world.reconcile()
    assert world.forge.comments == {}


async def test_under_a_branch_that_a_person_pushed_to_nothing_is_said_about_its_content() -> None:
    """What merging does is up to what they pushed, which is not what differs."""
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    world.git.human.update(world.git.branches)
    edit(world, "a", "10")
    await world.reconcile()
    ((comment,),) = world.forge.comments.values()
    assert "A person has pushed to this branch" in comment
    assert "`data.x` | `10` | `1`" in comment
    assert "declare what runs now" not in comment and "nothing is restarted" not in comment
    assert "holdfast:drift=" not in comment, "that marks what is ours"


async def test_a_request_says_whose_pods_are_replaced_when_it_is_merged() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    (drift,) = world.drifts
    assert "nothing is restarted" in pull_request_body(drift)
    hashed = pull_request_body(drift, repointed=[WEB])
    assert "nothing is restarted" not in hashed
    assert "a new name, to which Deployment web then refers, so pods of it are replaced" in hashed


async def test_a_drift_names_the_line_of_the_container_that_differs() -> None:
    world = GitopsWorld(route(Remediation.REPORT))
    world.git.commit({"web.yaml": TWO_CONTAINERS})
    await world.reconcile()

    def change(item: dict[str, Any]) -> None:
        item["spec"]["template"]["spec"]["containers"][1]["image"] = "main:2"

    world.kube.edit(WEB, change, manager="kubectl")
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.where == "web.yaml:14"


TWO_CONTAINERS = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: side
          image: side:1
        - name: main
          image: main:1
"""
WEB = ObjectRef(api_version="apps/v1", kind="Deployment", namespace=NAMESPACE, name="web")
FIRST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def web(image: str) -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: server, image: '{image}'}}]
"""


def pod_of(digest: str) -> ObjectRef:
    name = f"web-{digest[-4:]}"
    return ObjectRef(api_version="v1", kind="Pod", namespace=NAMESPACE, name=name)


def run(world: GitopsWorld, digest: str) -> None:
    """Have one pod of the Deployment, which runs an image."""
    world.kube.make_ready(WEB)
    pod = pod_of(digest)
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.name, "namespace": NAMESPACE, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "server", "image": "registry.example/web:v1"}]},
        }
    )
    runs = {"name": "server", "imageID": f"registry.example/web@{digest}"}
    world.kube.edit(
        pod, lambda item: item.update(status={"containerStatuses": [runs]}), subresource="status"
    )


async def pinning(*, sync: SyncSpec | None = None) -> GitopsWorld:
    """A Deployment whose tag came to mean another image, which is proposed as a pin."""
    world = GitopsWorld(route(Remediation.PULL_REQUEST), sync=sync)

    async def pin(
        following: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        pinned = web(str(drift.entries[0].live)).encode()
        if pinned == world.git.commits[world.git.head_sha]["web.yaml"]:
            raise CannotCodify("The files declare it already.")
        return CodifyResult(files={"web.yaml": pinned}, lines=(), layer="web.yaml")

    world.codify = pin  # type: ignore[method-assign]
    world.git.commit({"web.yaml": web("registry.example/web:v1")})
    await world.sync()
    run(world, FIRST)
    await world.reconcile()
    await world.kube.delete(pod_of(FIRST))
    run(world, OTHER)
    await world.reconcile()
    return world


def merge(world: GitopsWorld, number: int = 1) -> None:
    """What a person does on the forge: Git has it from then on."""
    pull = world.forge.pulls[number]
    world.forge.pulls[number] = replace(pull, state=PullRequestState.MERGED, closed_by="maria")
    world.git.merge(pull.branch)


@pytest.mark.parametrize("told", [True, False], ids=["the forge told", "Git alone told"])
async def test_a_merged_pin_of_an_image_ends_its_drift_as_codified(told: bool) -> None:
    world = await pinning()
    (drift,) = world.drifts
    assert drift.state is DriftState.PULL_REQUEST and not drift.healable
    merge(world)
    assert world.context is not None
    world.context.forge_moved = told
    await world.fetch_and_reconcile()
    await world.reconcile()
    assert world.drifts == []
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.CODIFIED


async def test_pods_that_run_the_old_image_again_end_its_drift_by_others() -> None:
    world = await pinning()
    world.git.commit({"web.yaml": web("registry.example/web:v1"), "b.yaml": configmap("b")})
    await world.fetch_and_reconcile()
    await world.kube.delete(pod_of(OTHER))
    run(world, FIRST)
    await world.reconcile()
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.EXTERNAL


async def test_a_merged_pin_that_waits_for_a_sync_is_neither_parked_nor_proposed_again() -> None:
    world = await pinning(sync=SyncSpec(automatic=False))
    merge(world)
    for _ in range(3):
        world.pass_time(120)
        result = await world.fetch_and_reconcile()
        assert "PullRequestFailed" not in [note.reason for note in result.events]
        assert [drift.state for drift in world.drifts] == [DriftState.PULL_REQUEST]
    assert len(world.forge.pulls) == 1
    await world.sync()
    await world.reconcile()
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.CODIFIED


@pytest.mark.parametrize("pull", PullRequestKind)
async def test_what_was_merged_is_not_proposed_again_before_git_is_followed(
    pull: PullRequestKind,
) -> None:
    world = await proposing(pull)
    edit(world, "a", "9")
    await world.reconcile()
    world.forge.pulls[1] = replace(world.forge.pulls[1], state=PullRequestState.MERGED)
    world.git.down = "the host is away"
    for _ in range(3):
        world.pass_time(120)
        await world.reconcile()
        await world.start()
    assert len(world.forge.pulls) == 1
    assert "was merged" in world.drifts[0].note


async def test_what_moved_on_after_the_merge_is_another_question() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    merge(world)
    edit(world, "a", "10")
    world.pass_time(120)
    await world.reconcile()
    assert [pull.state for pull in world.forge.pulls.values()] == [
        PullRequestState.MERGED,
        PullRequestState.OPEN,
    ]
    assert "`10`" in world.forge.pulls[2].body


async def test_a_decision_that_was_merged_too_late_is_asked_for_again() -> None:
    world = await proposing(PullRequestKind.REVERT)
    edit(world, "a", "9")
    await world.reconcile()
    world.pass_time(timedelta(days=4).total_seconds())
    merge(world)
    await world.fetch_and_reconcile()
    await world.reconcile()
    assert [pull.state for pull in world.forge.pulls.values()] == [
        PullRequestState.MERGED,
        PullRequestState.OPEN,
    ]
    merge(world, 2)
    await world.fetch_and_reconcile()
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_a_rejected_drift_has_its_pull_request_closed_with_the_reason() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    (drift,) = world.drifts
    await world.review().reject("ml-platform", drift.id, actor="joe", comment="keep it")
    await world.reconcile()
    assert world.forge.pulls[1].state is PullRequestState.CLOSED
    assert "was rejected" in world.forge.comments[1][0]
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]
    assert len(world.forge.pulls) == 1


async def test_a_drift_is_asked_about_in_one_way_at_a_time() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.reconcile()
    (drift,) = world.drifts
    await world.review().revert("ml-platform", drift.id, actor="ann", by_pull=True)
    await world.reconcile()
    codify, revert = world.forge.pulls.values()
    assert (codify.state, revert.state) == (PullRequestState.CLOSED, PullRequestState.OPEN)
    assert revert.branch == f"holdfast/revert/{drift.id}"
    assert "another pull request" in world.forge.comments[1][0]


async def test_an_object_that_comes_and_goes_does_not_flood_the_forge() -> None:
    world = await proposing()
    for _ in range(6):
        edit(world, "a", "9")
        world.pass_time(61)
        await world.reconcile()
        edit(world, "a", "1")
        await world.reconcile()
    assert len(world.forge.pulls) == 3
    edit(world, "a", "9")
    await world.reconcile()
    assert "within the hour" in world.drifts[0].note
    world.pass_time(3600)
    await world.reconcile()
    assert len(world.forge.pulls) == 4


class Meeting(MemoryForge):
    """A forge at which something happens in the middle of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.before_opening: Callable[[], Awaitable[object]] | None = None
        self.after_opening: Callable[[], Awaitable[object]] | None = None

    async def open(self, new: NewPullRequest) -> PullRequest:
        before, self.before_opening = self.before_opening, None
        if before is not None:
            await before()
        pull = await super().open(new)
        after, self.after_opening = self.after_opening, None
        if after is not None:
            await after()
        return pull


class Two:
    """A controller that lost its Lease and does not know yet, and the one that has it."""

    def __init__(self, world: GitopsWorld) -> None:
        self.forge = Meeting()
        self.old = world
        self.new = GitopsWorld(*(world.application.spec.drift or DriftSpec()).routes or ())
        self.new.application = world.application
        for name in ("clock", "kube", "ledger_store", "git", "client"):
            setattr(self.new, name, getattr(world, name))
        self.old.forge = self.new.forge = self.forge

    async def begin(self) -> None:
        for each in (self.old, self.new):
            await each.start()
            await each.reconcile()

    async def reconcile(self, world: GitopsWorld) -> None:
        """A pass, and another when the ledger was written by the other one."""
        with suppress(Conflict):
            await world.reconcile()

    async def open_after_the_claim(self) -> None:
        """Have the new one open a pull request, once the claim of the old one is too old."""
        await self.reconcile(self.new)
        assert not self.forge.pulls, "a claim is left to who made it, for a while"
        self.new.pass_time(120)
        await self.reconcile(self.new)

    async def rest(self) -> None:
        for _ in range(3):
            self.old.pass_time(120)
            await self.reconcile(self.old)
            await self.reconcile(self.new)


async def close_first(forge: MemoryForge) -> None:
    forge.pulls[1] = replace(forge.pulls[1], state=PullRequestState.CLOSED, closed_by="maria")


@pytest.mark.parametrize("decided", [PullRequestState.CLOSED, PullRequestState.MERGED])
async def test_one_that_a_person_answered_while_another_controller_opens_one_is_the_only_one(
    decided: PullRequestState,
) -> None:
    two = Two(await proposing())
    await two.begin()
    edit(two.old, "a", "9")

    async def meanwhile() -> None:
        await two.open_after_the_claim()
        answered = replace(two.forge.pulls[1], state=decided, closed_by="maria")
        two.forge.pulls[1] = answered

    two.forge.before_opening = meanwhile
    await two.reconcile(two.old)
    await two.rest()
    assert [pull.state for pull in two.forge.pulls.values()] == [decided, PullRequestState.CLOSED]
    (said,) = two.forge.comments[2]
    assert two.forge.pulls[1].url in said
    (drift,) = two.new.drifts
    if decided is PullRequestState.CLOSED:
        assert (drift.state, drift.decided_by) == (DriftState.REJECTED, "maria")
    else:
        assert "was merged" in drift.note


async def test_one_too_many_is_closed_although_its_controller_ended_at_once() -> None:
    two = Two(await proposing())
    await two.begin()
    edit(two.old, "a", "9")

    async def killed() -> None:
        raise TargetUnavailable("The connection broke.")

    async def meanwhile() -> None:
        await two.open_after_the_claim()
        await close_first(two.forge)
        two.forge.after_opening = killed

    two.forge.before_opening = meanwhile
    await two.reconcile(two.old)
    assert two.forge.pulls[2].state is PullRequestState.OPEN
    two.old.context = None
    for _ in range(3):
        two.new.pass_time(120)
        await two.reconcile(two.new)
    assert [pull.state for pull in two.forge.pulls.values()] == [PullRequestState.CLOSED] * 2
    (drift,) = two.new.drifts
    assert (drift.state, drift.decided_by) == (DriftState.REJECTED, "maria")


async def test_a_lost_answer_and_a_person_who_closes_leave_nothing_open() -> None:
    """Nothing about the first one is in the ledger, because its controller ended."""
    world = await proposing()
    world.forge = forge = Meeting()
    await world.start()

    async def killed() -> None:
        await close_first(forge)
        raise TargetUnavailable("The connection broke.")

    forge.after_opening = killed
    edit(world, "a", "9")
    await world.reconcile()
    await world.start()
    for _ in range(3):
        world.pass_time(120)
        await world.reconcile()
    assert [pull.state for pull in forge.pulls.values()] == [PullRequestState.CLOSED]
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]


async def test_one_whose_controller_ended_is_closed_although_its_drift_went_away() -> None:
    world = await proposing()
    world.forge = forge = Meeting()
    await world.start()

    async def killed() -> None:
        raise TargetUnavailable("The connection broke.")

    forge.after_opening = killed
    edit(world, "a", "9")
    await world.reconcile()
    edit(world, "a", "1")
    await world.start()
    await world.reconcile()
    assert [pull.state for pull in forge.pulls.values()] == [PullRequestState.CLOSED]
    assert "is gone" in forge.comments[1][0]
    assert world.context is not None and not world.context.state.pulls


async def test_who_knows_an_old_ledger_opens_nothing() -> None:
    two = Two(await proposing())
    await two.begin()
    edit(two.old, "a", "9")
    codify = two.old.codify

    async def slowly(
        following: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        two.old.codify = codify  # type: ignore[method-assign]
        await two.reconcile(two.new)
        await close_first(two.forge)
        two.new.pass_time(120)
        await two.reconcile(two.new)
        return await codify(following, drift, seen)

    two.old.codify = slowly  # type: ignore[method-assign]
    await two.old.start()
    await two.reconcile(two.old)
    await two.rest()
    assert len(two.forge.pulls) == 1
    assert [drift.state for drift in two.new.drifts] == [DriftState.REJECTED]
