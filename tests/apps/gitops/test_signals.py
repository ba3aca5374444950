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
from tests.apps.gitops.machine import Machine
from tests.support.gitops_world import config_ref, configmap, route
from tests.support.promql import unanswered_queries

from holdfast.adapters.memory.ledger_store import MemoryLedgerStore
from holdfast.apps.gitops.metrics import MeteredChannel
from holdfast.apps.gitops.wiring import repository_fingerprints
from holdfast.apps.server import logs
from holdfast.core.errors import StoreUnavailable, TargetUnavailable
from holdfast.core.gitops.application import ApplicationId, DriftSpec, IgnoreSpec, Remediation
from holdfast.core.gitops.hold import PAUSED_UNTIL
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.records import PullRequestRecord
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerWrite, RecordKind
from holdfast.reconcile.kube import ref_of
from holdfast.wire import gitops_v1

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
    machine = watched()
    contest_images(machine)
    async with machine.working():
        healed = machine.declare("healed", {"a.yaml": configmap("a", x="1")})
        rule = IgnoreSpec(name="tuned", owner="ml", pointer="/data/x", kind="ConfigMap")
        machine.declare("tuned", {"t.yaml": configmap("t", x="1")}, drift=DriftSpec(ignore=(rule,)))
        reviewed = machine.declare("reviewed", {"b.yaml": configmap("b", x="1")}, drift=REVIEW)
        held = machine.declare("held", {"c.yaml": configmap("c", x="1")})
        for id in (healed, reviewed, held, ApplicationId(namespace="team", name="tuned")):
            await machine.reaches(id, "synced")
        await machine.edit("a", "9")
        await machine.edit("t", "9")
        old = await machine.kube.get(config_ref("b"))
        await machine.kube.delete(config_ref("b"))
        machine.controller.on_object(old, None)
        pause(machine, "c")
        fought = machine.declare("fought", {"d.yaml": DEPLOYMENT})
        await machine.reaches(fought, "drifted")
        machine.controller.wake(fought)
        unread = machine.declare("unread", {})
        machine.repositories[unread].down = "It is being moved."
        broken = machine.declare("broken", {"e.yaml": configmap("e", x="1")})
        await machine.reaches(broken, "synced")
        fail_passes_over(machine, broken)
        machine.controller.wake(broken)
        await eventually(lambda: passes(machine, "error") >= 1, "a failure")
        await send_and_fail(machine)
        await open_a_pull(machine)
        machine.metrics.leader.labels("holdfast-gitops").set(1)
        machine.metrics.plan_duration.observe(0.1)
        reasons = {"DriftCorrected", "SelfHealLoopDetected", "DriftTolerated", "ApprovalRequested"}
        await eventually(lambda: reasons <= {each.reason for each in machine.notes}, "the story")
    scrape = generate_latest(machine.metrics.registry).decode()
    assert unanswered_queries("holdfast-gitops", scrape) == []


async def test_a_repository_is_overdue_by_the_interval_of_each_application() -> None:
    machine = watched()
    async with machine.working():
        minute = machine.declare("minute", {"a.yaml": configmap("a", x="1")})
        daily = machine.declare("daily", {"b.yaml": configmap("b", x="1")})
        every(machine, daily, "24h")
        for id in (minute, daily):
            await machine.reaches(id, "synced")
        await eventually(lambda: overdue(machine, daily) is not None, "a read with the interval")
        ahead = timedelta(seconds=66)
        assert overdue(machine, minute) == pytest.approx(read(machine, minute, ahead), abs=0.01)
        day = timedelta(hours=24 * 1.1)
        assert overdue(machine, daily) == pytest.approx(read(machine, daily, day), abs=0.01)
        before = overdue(machine, daily)
        assert before is not None
        machine.controller.hint(daily)
        await eventually(lambda: (overdue(machine, daily) or 0) > before, "the webhook to count")


async def test_a_repository_that_fails_is_overdue_since_its_first_failure() -> None:
    machine = watched()
    async with machine.working():
        id = machine.declare("daily", {"a.yaml": configmap("a", x="1")})
        every(machine, id, "24h")
        await machine.reaches(id, "synced")
        machine.repositories[id].down = "It is being moved."
        machine.controller.hint(id)
        now = machine.clock.now().timestamp()
        await eventually(lambda: (overdue(machine, id) or now * 2) < now + 60, "the failure")
        since = overdue(machine, id)
        follower = machine.contexts[id].poller
        assert follower.wait <= 900 * 1.1, "it is asked again before the day is over"
        follower.hasten()
        machine.controller.wake(id)
        await machine.settled()
        assert overdue(machine, id) == since
        machine.repositories[id].down = ""
        machine.controller.hint(id)
        await eventually(lambda: (overdue(machine, id) or 0) > now + 80_000, "a good read")
        never = machine.declare("never", {})
        machine.repositories[never].down = "It was never there."
        await eventually(lambda: overdue(machine, never) is not None, "the first failure")


async def test_a_suspended_application_is_said_to_be_and_nothing_of_it_is_overdue() -> None:
    machine = watched()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        assert value(machine, "holdfast_application_suspended", id) == 0
        application = machine.applications.held[id].application
        assert application is not None
        machine.applications.put(
            replace(application, spec=replace(application.spec, suspend=True), generation=2)
        )
        await eventually(lambda: value(machine, "holdfast_application_suspended", id) == 1, "it")
        assert overdue(machine, id) is None


async def test_an_application_is_late_while_its_passes_fail_or_its_spec_is_wrong() -> None:
    machine = watched()
    async with machine.working():
        fine = machine.declare("fine", {"a.yaml": configmap("a", x="1")})
        failing = machine.declare("failing", {"b.yaml": configmap("b", x="1")})
        wrong = machine.declare("wrong", {"c.yaml": configmap("c", x="1")})
        machine.applications.spoil(wrong)
        for id in (fine, failing):
            await machine.reaches(id, "synced")
        await machine.settled()
        for id in (fine, failing):
            assert (due(machine, id) or 0) > machine.clock.now().timestamp()
        assert (due(machine, wrong) or 0) < machine.clock.now().timestamp()
        fail_passes_over(machine, failing)
        stays = due(machine, failing)
        machine.controller.wake(failing)
        await eventually(lambda: passes(machine, "error") >= 1, "a failure")
        assert due(machine, failing) == stays
        machine.applications.remove(wrong)
        await eventually(lambda: due(machine, wrong) is None, "one that is gone to be forgotten")


async def test_lines_of_the_log_and_of_the_journal_name_the_project(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        await machine.edit("a", "9")
        await eventually(lambda: "DriftCorrected" in {n.reason for n in machine.notes}, "it")
        fail_passes_over(machine, id)
        machine.controller.wake(id)
        await eventually(lambda: passes(machine, "error") >= 1, "a failure")
    entries = await machine.ledger_store.entries(application=str(id))
    lines = [json.loads(logs.JsonFormat().format(record)) for record in caplog.records]
    named = [line for line in lines if "application" in line]
    assert {line["event"] for line in named} == {"not-reconciled"}
    assert {line["project"] for line in named} == {"ml-platform"}
    assert {"detected", "resolved"} <= {entry.action for entry in entries}
    assert {entry.detail["project"] for entry in entries} == {"ml-platform"}


MARKS = repository_fingerprints(b"a key of the tests")


def watched() -> Machine:
    """A controller whose applications are asked how they stand."""
    machine = Machine()
    machine.metrics.watch(
        machine.contexts, MARKS, lambda: {"ConfigMap": 1}, machine.controller.due_times
    )
    return machine


async def test_figures_name_no_repository_and_tell_one_from_another() -> None:
    """Anybody who reaches the port may read them."""
    machine = watched()
    async with machine.working():
        ids = [machine.declare(name, {f"{name}.yaml": configmap(name, x="1")}) for name in "ab"]
        for id in ids:
            await machine.reaches(id, "synced")
        text = generate_latest(machine.metrics.registry).decode()
        marks = [MARKS(machine.contexts[id]) for id in ids]
    assert "git.example.com" not in text
    assert "acme" not in text
    assert len(set(marks)) == 2
    assert all(f'repo="{mark}"' in text for mark in marks)


def value(machine: Machine, name: str, id: ApplicationId, **more: str) -> float | None:
    labels = {"namespace": id.namespace, "name": id.name, **more}
    return machine.metrics.registry.get_sample_value(name, labels)


def overdue(machine: Machine, id: ApplicationId) -> float | None:
    mark = MARKS(machine.contexts[id]) if id in machine.contexts else ""
    return value(machine, "holdfast_git_fetch_overdue_timestamp_seconds", id, repo=mark)


def due(machine: Machine, id: ApplicationId) -> float | None:
    return value(machine, "holdfast_application_pass_due_timestamp_seconds", id)


def read(machine: Machine, id: ApplicationId, later: timedelta) -> float:
    at = machine.contexts[id].poller.last.fetched_at
    assert at is not None
    return (at + later).timestamp()


def passes(machine: Machine, result: str) -> float:
    labels = {"controller": "application", "result": result}
    found = machine.metrics.registry.get_sample_value("holdfast_reconcile_total", labels)
    return found or 0


def every(machine: Machine, id: ApplicationId, interval: str) -> None:
    """Give an application another interval."""
    application = machine.applications.held[id].application
    assert application is not None
    source = replace(application.spec.source, interval=interval)
    machine.applications.put(
        replace(application, spec=replace(application.spec, source=source), generation=2)
    )


def pause(machine: Machine, name: str) -> None:
    until = (machine.clock.now() + timedelta(hours=1)).isoformat()

    def emergency(item: dict) -> None:  # type: ignore[type-arg]  # as it is in the cluster
        item["data"]["x"] = "9"
        item["metadata"]["annotations"][PAUSED_UNTIL] = until

    machine.controller.on_object(None, machine.kube.edit(config_ref(name), emergency))


def contest_images(machine: Machine) -> None:
    """Have somebody change the image of a Deployment as soon as it was written."""
    inner = machine.kube.apply

    def change(live: Fields) -> None:
        live["spec"]["template"]["spec"]["containers"][0]["image"] = "docker.example/web:2"  # type: ignore[index,call-overload]

    async def apply(item: Fields, **more: object) -> Fields:
        made = await inner(item, **more)  # type: ignore[arg-type]  # as we were given
        if item["kind"] == "Deployment" and not more.get("dry_run"):
            machine.kube.edit(ref_of(item), change, manager="rival")
        return made

    machine.kube.apply = apply  # type: ignore[method-assign,assignment]


def fail_passes_over(machine: Machine, id: ApplicationId) -> None:
    async def read() -> None:
        raise StoreUnavailable("The ledger does not answer.")

    shelf = machine.contexts[id].state
    shelf.refresh = shelf.read = read  # type: ignore[method-assign]


async def send_and_fail(machine: Machine) -> None:
    class Flaky:
        name = "flaky"
        down = False

        async def send(self, notices: Sequence[Notice]) -> None:
            if self.down:
                raise TargetUnavailable("It does not answer.")

    flaky = Flaky()
    channel = MeteredChannel(flaky, "slack", machine.metrics)
    await channel.send([])
    flaky.down = True
    with pytest.raises(TargetUnavailable):
        await channel.send([])


async def open_a_pull(machine: Machine) -> None:
    now = machine.clock.now()
    kept = PullRequestRecord(
        branch="holdfast/codify/x",
        drift="drf-1",
        digest="",
        number=1,
        url="",
        head="",
        opened_at=now,
        checked_at=now,
    )
    put = LedgerWrite(
        kind=RecordKind.PULL,
        application="team/other",
        key=kept.branch,
        seen=0,
        body=gitops_v1.encode_record(kept),
    )
    entry = JournalEntry(
        application="team/other",
        subject="drf-1",
        action="pull-opened",
        actor="holdfast-gitops",
        summary="",
        detail={},
        at=now,
    )
    assert isinstance(machine.memory, MemoryLedgerStore)
    await machine.ledger_store.write([put], [entry])
