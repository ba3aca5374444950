"""Secrets planted wherever the GitOps controller reads, and looked for wherever it writes."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import pickle
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.faults.gitops_story import PROJECT, StoryWorld
from tests.support.gitops_world import NAMESPACE, route
from tests.support.planted_secrets import PlantedSecret, Surfaces, planted_secret

from holdfast.adapters.notify.channels import cloud_event, slack_message
from holdfast.core.errors import (
    HoldfastError,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.gitops.application import DriftSpec, MatchSpec, PullRequestKind, Remediation
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.hold import PAUSE_REASON, PAUSED_UNTIL
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.gitops.source import Commit
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.wire.application_v1alpha1 import status_to_json

REMEDIATIONS = [*Remediation]


class Planted(StoryWorld):
    """One Secret and one Deployment, with canaries in everything that may hold one."""

    def __init__(self, remediation: Remediation, pull: PullRequestKind | None = None) -> None:
        every = MatchSpec(kinds=("*",))
        super().__init__(
            None, route(remediation, match=every, pull=pull),
            drift=DriftSpec(namespaces=(NAMESPACE,)),
        )  # fmt: skip
        self.canaries: dict[str, PlantedSecret] = {
            "declared": planted_secret("declared Secret", "declared-{}"),
            "live": planted_secret("live Secret", "live-{}"),
            "again": planted_secret("live Secret, once more", "again-{}"),
            "env": planted_secret("declared env value", "ghp_{}aaaaaaaaaaaaaaaa"),
            "live env": planted_secret("live env value", "hf_{}"),
            "named env": planted_secret("live env value by its name", "plain{}"),
            "annotation": planted_secret("annotation", "glpat-{}"),
            "reason": planted_secret("reason of a hold", "sk-{}"),
            "git": planted_secret(
                "credential of the repository", "https://bot:{}@git.example.com/x"
            ),
            "subject": planted_secret("subject of a commit", "ghp_{}bbbbbbbbbbbb"),
            "comment": planted_secret("comment", "password={}"),
            "stray": planted_secret("orphan Secret", "stray-{}"),
        }
        self.surfaces = Surfaces()
        self.git.commit({"secret.yaml": self._secret(), "deployment.yaml": self._deployment()})
        fetch = self.git.fetch

        async def subject(revision: str, **more: Any) -> Commit:  # Any: what the port takes
            found: Commit = await fetch(revision, **more)
            return replace(found, subject=f"use {self['subject']}", author=self["subject"])

        self.git._inner.fetch = subject

    def __getitem__(self, label: str) -> str:
        return self.canaries[label].value

    def _secret(self) -> str:
        return (
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n"
            f"stringData:\n  password: {self['declared']!r}\n"
        )

    def _deployment(self) -> str:
        return (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\n"
            f"  annotations:\n    note: {self['annotation']!r}\n"
            "spec:\n  selector: {matchLabels: {app: d}}\n  template:\n"
            "    metadata: {labels: {app: d}}\n    spec:\n      containers:\n"
            f"      - name: c\n        image: i\n        env:\n"
            f"        - {{name: LINK, value: {self['env']!r}}}\n"
            "        - {name: API_TOKEN, value: 'one'}\n"
        )

    async def codify(
        self, following: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        """What is written into files has a suite of its own."""
        return CodifyResult(files={"x.yaml": b"x"}, lines=(), layer="file", notes=("A note.",))

    def drift_everything(self, value: str) -> None:
        """Somebody changes the Secret, and puts credentials where they do not belong."""
        data = base64.b64encode(self[value].encode()).decode()
        self.kube.edit(_ref("v1", "Secret", "s"), lambda item: item["data"].update(password=data))

        def change(item: dict) -> None:  # type: ignore[type-arg]
            env = item["spec"]["template"]["spec"]["containers"][0]["env"]
            env[0]["value"], env[1]["value"] = self["live env"], self["named env"]
            item["metadata"]["annotations"]["note"] = self["annotation"] + "x"

        self.kube.edit(_ref("apps/v1", "Deployment", "d"), change)

    def stray(self) -> None:
        self.kube.create(
            {
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "stray", "namespace": NAMESPACE},
                "data": {"k": base64.b64encode(self["stray"].encode()).decode()},
            }
        )  # fmt: skip

    async def look_at_all(self) -> None:
        with self.caught("pass"):
            result = await self.fetch_and_reconcile()
            self.surfaces.add_value("result", result)
            self.surfaces.add("notes", *result.events)

    @contextlib.contextmanager
    def caught(self, where: str):  # type: ignore[no-untyped-def]
        """Keep what an exception shows of itself and of its causes."""
        try:
            yield
        except HoldfastError as error:
            self.surfaces.add(f"{where}: exception", error, repr(error))
            with contextlib.suppress(Exception):
                self.surfaces.add(f"{where}: pickle", pickle.dumps(error))
            self.surfaces.add(f"{where}: traceback", "".join(traceback.format_exception(error)))

    def leaks(self, log: str) -> list[str]:
        shown = self.surfaces
        shown.add("log", log)
        for name, kept in self.ledger._records.items():
            shown.add(f"record {name[0]}", name, kept.text)
        for line, detail in self.ledger._entries:
            shown.add("journal", repr(line), detail)
        for notice in self.notices:
            shown.add_value("notice", notice)
            shown.add("body of a webhook", json.dumps(cloud_event(notice)))
            shown.add("message to Slack", json.dumps(slack_message([notice])))
        if self.last_result is not None:
            shown.add("status", json.dumps(status_to_json(self.last_result.status)))
        for pull in self.hub.pulls.values():
            shown.add_value("pull request", pull)
        for number, comments in self.hub.comments.items():
            shown.add("comment", number, *comments)
        for branch, push in self.git.branches.items():
            shown.add("push", branch, push.message, repr(dict(push.files)))
        if self.context is not None:
            shown.add("memory", repr(self.context.object_states), repr(self.context.failed))
            shown.add("memory", repr(self.context.state.drifts), repr(self.context.desired))
        # What stands in the declared object's own place is not a leak.
        live = [item for item in self.kube._store.items.values() if item["kind"] != "Secret"]
        shown.add("applied marks", [item["metadata"]["annotations"].get("holdfast.dev/applied")
                                    for item in live])  # fmt: skip
        return shown.leaks(self.canaries.values())


async def _live(world: Planted) -> None:
    """Everything that a person and a cluster do in one remediation."""
    await world.look_at_all()
    world.drift_everything("live")
    world.stray()
    await world.look_at_all()
    review = world.review()
    for drift in world.drifts:
        with world.caught("approve"):
            await review.approve(
                PROJECT, drift.id, plan=drift.plan, actor="maria", comment=world["comment"]
            )
    await world.look_at_all()
    world.drift_everything("again")
    await world.look_at_all()
    for drift in world.drifts:
        with world.caught("reject"):
            await review.reject(PROJECT, drift.id, actor="joe", comment=world["comment"])
        with world.caught("reject, with a token"):
            await review.reject(PROJECT, drift.id, actor="joe", comment=world["env"])
    assert world.context is not None
    until = world.clock.now().replace(hour=23)
    await review.pause(world.context, actor="maria", reason=f"uses {world['reason']}", until=until)
    await world.look_at_all()


@pytest.mark.parametrize("pull", [None, PullRequestKind.REVERT])
@pytest.mark.parametrize("remediation", REMEDIATIONS)
async def test_no_secret_shows_whatever_is_done_about_drift(
    remediation: Remediation, pull: PullRequestKind | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = Planted(remediation, pull)
    await _live(world)
    assert world.ledger._entries
    assert world.leaks(caplog.text) == []


def _errors(world: Planted) -> Sequence[HoldfastError]:
    quoted = " and ".join(world[name] for name in ("declared", "live"))
    coded = base64.b64encode(world["live"].encode()).decode()
    return (
        ValidationError(f"Secret s is invalid: data: Invalid value: {quoted!r}, {coded}."),
        PermissionDenied(f"admission webhook denied the request: {quoted} is too weak ({coded})."),
    )


@pytest.mark.parametrize("which", [0, 1], ids=["invalid", "denied"])
@pytest.mark.parametrize("remediation", [Remediation.SELF_HEAL, Remediation.REVIEW])
async def test_no_secret_shows_when_a_server_quotes_it(
    remediation: Remediation, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = Planted(remediation)
    world.kube.fail_next("apply", _errors(world)[which], kind="Secret")
    for _ in range(2):
        await world.look_at_all()
    for _ in range(3):
        world.kube.fail_next("apply", _errors(world)[which], kind="Secret")
    await _live(world)
    actions = {line.action for line, _ in world.ledger._entries}
    assert actions >= {"sync-failed", "heal-failed"}
    assert world.leaks(caplog.text) == []


async def test_no_credential_of_a_repository_or_forge_shows_when_it_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    world = Planted(Remediation.PULL_REQUEST, PullRequestKind.REVERT)
    await world.look_at_all()
    world.drift_everything("live")
    told = f"fatal: unable to access {world['git']}: 403"

    async def refused(*_: object, **__: object) -> object:
        raise TargetUnavailable(told)

    world.hub.open = refused  # type: ignore[method-assign,assignment]
    await world.look_at_all()
    world.git._inner.down = told
    world.pass_time(100)
    await world.look_at_all()
    world.renderer.refused = SourceUnavailable(told)
    await world.start()
    await world.look_at_all()
    actions = {line.action for line, _ in world.ledger._entries}
    assert "source-stale" in actions
    assert world.leaks(caplog.text) == []


async def test_no_credential_in_the_reason_of_an_annotation_shows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    world = Planted(Remediation.SELF_HEAL)
    await world.look_at_all()
    ends = world.clock.now().replace(hour=23).isoformat()
    told = {PAUSED_UNTIL: ends, PAUSE_REASON: f"see {world['git']} and {world['reason']}"}
    world.kube.edit(
        _ref("apps/v1", "Deployment", "d"),
        lambda item: item["metadata"]["annotations"].update(told),
    )
    world.drift_everything("live")
    await world.look_at_all()
    assert DriftState.HELD in {drift.state for drift in world.drifts}
    assert world.leaks(caplog.text) == []


async def test_what_was_seen_of_a_secret_does_not_print_its_values() -> None:
    world = Planted(Remediation.REPORT)
    await world.look_at_all()
    world.drift_everything("live")
    assert world.context is not None
    seen = await world.observer.observe(world.context, None)
    (found,) = (each for each in seen if each.ref.kind == "Secret")
    assert found.live is not None
    world.surfaces.add_value("seen", found)
    kept = [world.canaries["declared"], world.canaries["live"]]
    assert world.surfaces.leaks(kept) == []


async def test_the_search_finds_what_it_is_for() -> None:
    """A search that finds nothing because it looks at nothing would pass everything."""
    world = Planted(Remediation.REPORT)
    await _live(world)
    world.ledger._entries.append(
        (replace(world.ledger._entries[0][0], summary=world["live"]), world["declared"])
    )
    world.notices[0] = replace(world.notices[0], text=world["env"], title=world["env"])
    found = world.leaks("")
    assert any("live Secret" in each for each in found)
    for surface in ("notice", "body of a webhook", "message to Slack"):
        assert any(each.startswith(f"{surface}: declared env") for each in found), surface
    assert any("declared Secret" in each for each in found)


def _ref(api_version: str, kind: str, name: str) -> ObjectRef:
    return ObjectRef(api_version=api_version, kind=kind, namespace=NAMESPACE, name=name)
