"""Whom an application tells, and that nobody hears who should not."""

from __future__ import annotations

import base64
from dataclasses import replace

from tests.support.gitops_world import GitopsWorld

from holdfast.apps.gitops.credentials import ApplicationCredentials, SecretCredentialStore
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.gitops.reporting import NotificationChannels
from holdfast.apps.server.metrics import ServerMetrics as ServerMetrics
from holdfast.core.gitops.application import Application, ChannelKind, ChannelSpec, SecretKeyRef
from holdfast.core.gitops.notification import Notice, Severity

ADDRESS = "https://hooks.example.com/services/T0/B0/very-secret"


def channels(world: GitopsWorld) -> NotificationChannels:
    credentials = ApplicationCredentials(SecretCredentialStore(world.kube))
    metrics = GitopsMetrics(ServerMetrics())
    return NotificationChannels(
        world.ledger_store, credentials, world.clock, metrics, key=b"k" * 32, private=False
    )


def with_secret(world: GitopsWorld, name: str = "hooks") -> None:
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "team"},
            "data": {"ops": base64.b64encode(ADDRESS.encode()).decode()},
        }
    )


def telling(world: GitopsWorld, *specs: ChannelSpec, name: str = "shop") -> Application:
    known = world.application
    return replace(known, id=replace(known.id, name=name), spec=replace(known.spec, notify=specs))


def slack(name: str = "ops", held_in: str = "hooks", least: Severity | None = None) -> ChannelSpec:
    url = SecretKeyRef(name=held_in, key="ops")
    return ChannelSpec(name=name, kind=ChannelKind.SLACK, url=url, least=least)


def notice(world: GitopsWorld, severity: Severity = Severity.WARNING, id: str = "n-1") -> Notice:
    return Notice(
        id=id,
        type="dev.holdfast.drift.detected.v1",
        source="holdfast",
        subject="x",
        at=world.clock.now(),
        severity=severity,
        title="Drift",
        text="It moved.",
        data={"application": "team/shop"},
    )


def waiting(held: NotificationChannels) -> dict[str, int]:
    return {state.name: state.waiting for state in held.notifier.states()}


async def test_applications_with_one_destination_share_the_channel() -> None:
    world = GitopsWorld()
    with_secret(world)
    with_secret(world, "same")
    held = channels(world)
    one, two = telling(world, slack()), telling(world, slack("other", "same"), name="web")
    await held.tell(one, notice(world))
    await held.tell(two, notice(world, id="n-2"))
    ((name, count),) = waiting(held).items()
    assert count == 2
    assert "secret" not in name and "hooks.example" not in name


async def test_what_is_too_quiet_for_a_channel_is_not_sent_there() -> None:
    world = GitopsWorld()
    with_secret(world)
    held = channels(world)
    application = telling(world, slack(least=Severity.CRITICAL))
    await held.tell(application, notice(world, Severity.WARNING))
    assert sum(waiting(held).values()) == 0
    await held.tell(application, notice(world, Severity.CRITICAL, id="n-2"))
    assert sum(waiting(held).values()) == 1


async def test_a_channel_without_its_secret_keeps_nothing_from_going_on() -> None:
    world = GitopsWorld()
    held = channels(world)
    application = telling(world, slack(), ChannelSpec(name="log", kind=ChannelKind.LOG))
    await held.tell(application, notice(world))
    assert waiting(held) == {"log": 1}


async def test_a_fact_is_told_once() -> None:
    world = GitopsWorld()
    with_secret(world)
    held = channels(world)
    application = telling(world, slack())
    await held.tell(application, notice(world))
    await held.tell(application, notice(world))
    assert sum(waiting(held).values()) == 1
