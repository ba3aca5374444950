"""Whom an application tells, and that nobody hears who should not."""

from __future__ import annotations

import base64
from dataclasses import replace

from tests.support.gitops_world import World

from holdfast.apps.gitops.channels import Channels
from holdfast.apps.gitops.credentials import Credentials, SecretVault
from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.server.metrics import Metrics as ServerMetrics
from holdfast.core.gitops.application import Application, ChannelKind, ChannelSpec, KeyRef
from holdfast.core.gitops.notice import Notice, Severity

ADDRESS = "https://hooks.example.com/services/T0/B0/very-secret"


def channels(world: World) -> Channels:
    credentials = Credentials(SecretVault(world.kube))
    metrics = Metrics(ServerMetrics())
    return Channels(world.book, credentials, world.clock, metrics, key=b"k" * 32, private=False)


def with_secret(world: World, name: str = "hooks") -> None:
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "team"},
            "data": {"ops": base64.b64encode(ADDRESS.encode()).decode()},
        }
    )


def telling(world: World, *specs: ChannelSpec, name: str = "shop") -> Application:
    known = world.application
    return replace(known, id=replace(known.id, name=name), spec=replace(known.spec, notify=specs))


def slack(name: str = "ops", held_in: str = "hooks", least: Severity | None = None) -> ChannelSpec:
    url = KeyRef(name=held_in, key="ops")
    return ChannelSpec(name=name, kind=ChannelKind.SLACK, url=url, least=least)


def notice(world: World, severity: Severity = Severity.WARNING, id: str = "n-1") -> Notice:
    return Notice(
        id=id, type="dev.holdfast.drift.detected.v1", source="holdfast", subject="x",
        at=world.clock.now(), severity=severity, title="Drift", text="It moved.",
        data={"application": "team/shop"},
    )  # fmt: skip


def waiting(held: Channels) -> dict[str, int]:
    return {state.name: state.waiting for state in held.notifier.states()}


async def test_applications_with_one_destination_share_the_channel() -> None:
    world = World()
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
    world = World()
    with_secret(world)
    held = channels(world)
    application = telling(world, slack(least=Severity.CRITICAL))
    await held.tell(application, notice(world, Severity.WARNING))
    assert sum(waiting(held).values()) == 0
    await held.tell(application, notice(world, Severity.CRITICAL, id="n-2"))
    assert sum(waiting(held).values()) == 1


async def test_a_channel_without_its_secret_keeps_nothing_from_going_on() -> None:
    world = World()
    held = channels(world)
    application = telling(world, slack(), ChannelSpec(name="log", kind=ChannelKind.LOG))
    await held.tell(application, notice(world))
    assert waiting(held) == {"log": 1}


async def test_a_fact_is_told_once() -> None:
    world = World()
    with_secret(world)
    held = channels(world)
    application = telling(world, slack())
    await held.tell(application, notice(world))
    await held.tell(application, notice(world))
    assert sum(waiting(held).values()) == 1
