"""What the controller tells Prometheus, its log and its journal is true, and is what is asked."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client.exposition import generate_latest
from tests.adapters.kubernetes.harness import eventually
from tests.support.gitops_world import ControllerWorld, config_ref, configmap, route
from tests.support.promql import unanswered_queries

from holdfast.adapters.log_stream import JsonFormat
from holdfast.apps.gitops.metrics import MeteredChannel
from holdfast.apps.gitops.wiring import repository_fingerprints
from holdfast.core.errors import StoreUnavailable, TargetUnavailable
from holdfast.core.gitops import facts
from holdfast.core.gitops.application import ApplicationId, DriftSpec, IgnoreSpec, Remediation
from holdfast.core.gitops.hold import PAUSED_UNTIL
from holdfast.core.gitops.notification import Notice
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ref_of

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: docker.example/web:1}]
"""
REVIEW = DriftSpec(routes=(route(Remediation.REVIEW),))


async def test_every_rule_and_panel_finds_what_it_asks_for_in_a_scrape() -> None:
    """After a story in which everything happens that they are about."""
    world = watched()
    contest_images(world)
    async with world:
        healed = world.declare("healed", {"a.yaml": configmap("a", x="1")})
        rule = IgnoreSpec(name="tuned", owner="ml", pointer="/data/x", kind="ConfigMap")
        world.declare("tuned", {"t.yaml": configmap("t", x="1")}, drift=DriftSpec(ignore=(rule,)))
        reviewed = world.declare("reviewed", {"b.yaml": configmap("b", x="1")}, drift=REVIEW)
        held = world.declare("held", {"c.yaml": configmap("c", x="1")})
        for id in (healed, reviewed, held, ApplicationId(namespace="team", name="tuned")):
            await world.wait_sync(id, "synced")
        await world.edit_and_notify("a", "9")
        await world.edit_and_notify("t", "9")
        old = await world.kube.get(config_ref("b"))
        await world.kube.delete(config_ref("b"))
        world.controller.on_object(old, None)
        pause(world, "c")
        fought = world.declare("fought", {"d.yaml": DEPLOYMENT})
        await world.wait_sync(fought, "drifted")
        world.controller.wake(fought)
        unread = world.declare("unread", {})
        world.repositories[unread].down = "It is being moved."
        broken = world.declare("broken", {"e.yaml": configmap("e", x="1")})
        await world.wait_sync(broken, "synced")
        fail_passes_over(world, broken)
        world.controller.wake(broken)
        await eventually(lambda: passes(world, "error") >= 1, "a failure")
        await send_and_fail(world)
        world.metrics.leader.labels("holdfast-gitops").set(1)
        world.metrics.plan_duration.observe(0.1)
        reasons = {"DriftCorrected", "SelfHealLoopDetected", "DriftTolerated", "ApprovalRequested"}
        await eventually(lambda: reasons <= {each.reason for each in world.events}, "the story")
        await open_a_pull(world, reviewed)
    scrape = generate_latest(world.metrics.registry).decode()
    assert unanswered_queries("holdfast-gitops", scrape) == []


async def test_a_repository_is_overdue_by_the_interval_of_each_application() -> None:
    async with watched() as world:
        minute = world.declare("minute", {"a.yaml": configmap("a", x="1")})
        daily = world.declare("daily", {"b.yaml": configmap("b", x="1")})
        every(world, daily, "24h")
        for id in (minute, daily):
            await world.wait_sync(id, "synced")
        await eventually(lambda: overdue(world, daily) is not None, "a read with the interval")
        ahead = timedelta(seconds=66)
        assert overdue(world, minute) == pytest.approx(read(world, minute, ahead), abs=0.01)
        day = timedelta(hours=24 * 1.1)
        assert overdue(world, daily) == pytest.approx(read(world, daily, day), abs=0.01)
        before = overdue(world, daily)
        assert before is not None
        world.controller.hint(daily)
        await eventually(lambda: (overdue(world, daily) or 0) > before, "the webhook to count")


async def test_a_repository_that_fails_is_overdue_since_its_first_failure() -> None:
    async with watched() as world:
        id = world.declare("daily", {"a.yaml": configmap("a", x="1")})
        every(world, id, "24h")
        await world.wait_sync(id, "synced")
        world.repositories[id].down = "It is being moved."
        world.controller.hint(id)
        now = world.clock.now().timestamp()
        await eventually(lambda: (overdue(world, id) or now * 2) < now + 60, "the failure")
        since = overdue(world, id)
        follower = world.contexts[id].poller
        assert follower.wait <= 900 * 1.1, "it is asked again before the day is over"
        follower.hasten()
        world.controller.wake(id)
        await world.wait_idle()
        assert overdue(world, id) == since
        world.repositories[id].down = ""
        world.controller.hint(id)
        await eventually(lambda: (overdue(world, id) or 0) > now + 80_000, "a good read")
        never = world.declare("never", {})
        world.repositories[never].down = "It was never there."
        await eventually(lambda: overdue(world, never) is not None, "the first failure")


async def test_a_suspended_application_is_said_to_be_and_nothing_of_it_is_overdue() -> None:
    async with watched() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        assert value(world, "holdfast_application_suspended", id) == 0
        application = world.applications.application_of(id)
        world.applications.put(
            replace(application, spec=replace(application.spec, suspend=True), generation=2)
        )
        await eventually(lambda: value(world, "holdfast_application_suspended", id) == 1, "it")
        assert overdue(world, id) is None


async def test_an_application_is_late_while_its_passes_fail_or_its_spec_is_wrong() -> None:
    async with watched() as world:
        fine = world.declare("fine", {"a.yaml": configmap("a", x="1")})
        failing = world.declare("failing", {"b.yaml": configmap("b", x="1")})
        wrong = world.declare("wrong", {"c.yaml": configmap("c", x="1")})
        world.applications.spoil(wrong)
        for id in (fine, failing):
            await world.wait_sync(id, "synced")
        await world.wait_idle()
        for id in (fine, failing):
            assert (due(world, id) or 0) > world.clock.now().timestamp()
        assert (due(world, wrong) or 0) < world.clock.now().timestamp()
        fail_passes_over(world, failing)
        stays = due(world, failing)
        world.controller.wake(failing)
        await eventually(lambda: passes(world, "error") >= 1, "a failure")
        assert due(world, failing) == stays
        world.applications.remove(wrong)
        await eventually(lambda: due(world, wrong) is None, "one that is gone to be forgotten")


async def test_lines_of_the_log_and_of_the_journal_name_the_project(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        await world.edit_and_notify("a", "9")
        await world.wait_event("DriftCorrected")
        fail_passes_over(world, id)
        world.controller.wake(id)
        await eventually(lambda: passes(world, "error") >= 1, "a failure")
    entries = await world.ledger_store.entries(application=str(id))
    lines = [json.loads(JsonFormat().format(record)) for record in caplog.records]
    named = [line for line in lines if "application" in line]
    assert {line["event"] for line in named} == {"not-reconciled"}
    assert {line["project"] for line in named} == {"ml-platform"}
    assert {"detected", "resolved"} <= {entry.action for entry in entries}
    assert {entry.detail["project"] for entry in entries} == {"ml-platform"}


MARKS = repository_fingerprints(b"a key of the tests")


def watched() -> ControllerWorld:
    """A controller whose applications are asked how they stand."""
    world = ControllerWorld()
    world.metrics.watch(world.contexts, MARKS, lambda: {"ConfigMap": 1}, world.controller.due_times)
    return world


async def test_figures_name_no_repository_and_tell_one_from_another() -> None:
    """Anybody who reaches the port may read them."""
    async with watched() as world:
        ids = [world.declare(name, {f"{name}.yaml": configmap(name, x="1")}) for name in "ab"]
        for id in ids:
            await world.wait_sync(id, "synced")
        text = generate_latest(world.metrics.registry).decode()
        marks = [MARKS(world.contexts[id]) for id in ids]
    assert "git.example.com" not in text
    assert "acme" not in text
    assert len(set(marks)) == 2
    assert all(f'repo="{mark}"' in text for mark in marks)


def value(world: ControllerWorld, name: str, id: ApplicationId, **more: str) -> float | None:
    labels = {"namespace": id.namespace, "name": id.name, **more}
    return world.metrics.registry.get_sample_value(name, labels)


def overdue(world: ControllerWorld, id: ApplicationId) -> float | None:
    mark = MARKS(world.contexts[id]) if id in world.contexts else ""
    return value(world, "holdfast_git_fetch_overdue_timestamp_seconds", id, repo=mark)


def due(world: ControllerWorld, id: ApplicationId) -> float | None:
    return value(world, "holdfast_application_pass_due_timestamp_seconds", id)


def read(world: ControllerWorld, id: ApplicationId, later: timedelta) -> float:
    at = world.contexts[id].poller.last.fetched_at
    assert at is not None
    return (at + later).timestamp()


def passes(world: ControllerWorld, result: str) -> float:
    labels = {"controller": "application", "result": result}
    found = world.metrics.registry.get_sample_value("holdfast_reconcile_total", labels)
    return found or 0


def every(world: ControllerWorld, id: ApplicationId, interval: str) -> None:
    """Give an application another interval."""
    application = world.applications.application_of(id)
    source = replace(application.spec.source, interval=interval)
    world.applications.put(
        replace(application, spec=replace(application.spec, source=source), generation=2)
    )


def pause(world: ControllerWorld, name: str) -> None:
    until = (world.clock.now() + timedelta(hours=1)).isoformat()

    def emergency(item: dict) -> None:  # type: ignore[type-arg]  # as it is in the cluster
        item["data"]["x"] = "9"
        item["metadata"]["annotations"][PAUSED_UNTIL] = until

    world.controller.on_object(None, world.kube.edit(config_ref(name), emergency))


def contest_images(world: ControllerWorld) -> None:
    """Have somebody change the image of a Deployment as soon as it was written."""
    inner = world.kube.apply

    def change(live: Fields) -> None:
        live["spec"]["template"]["spec"]["containers"][0]["image"] = "docker.example/web:2"  # type: ignore[index,call-overload]

    async def apply(item: Fields, **more: object) -> Fields:
        made = await inner(item, **more)  # type: ignore[arg-type]  # as we were given
        if item["kind"] == "Deployment" and not more.get("dry_run"):
            world.kube.edit(ref_of(item), change, manager="rival")
        return made

    world.kube.apply = apply  # type: ignore[method-assign,assignment]


def fail_passes_over(world: ControllerWorld, id: ApplicationId) -> None:
    async def read() -> None:
        raise StoreUnavailable("The ledger does not answer.")

    state = world.contexts[id].state
    state.refresh = state.read = read  # type: ignore[method-assign]


async def send_and_fail(world: ControllerWorld) -> None:
    class Flaky:
        name = "flaky"
        down = False

        async def send(self, notices: Sequence[Notice]) -> None:
            if self.down:
                raise TargetUnavailable("It does not answer.")

    flaky = Flaky()
    channel = MeteredChannel(flaky, "slack", world.metrics)
    await channel.send([])
    flaky.down = True
    with pytest.raises(TargetUnavailable):
        await channel.send([])


async def open_a_pull(world: ControllerWorld, id: ApplicationId) -> None:
    context = world.contexts[id]
    async with context.lock:
        (drift,) = context.state.drifts.values()
        context.state.record(facts.PullRequestOpened(drift=drift, url="https://git.example.com/1"))
        await context.state.commit()
