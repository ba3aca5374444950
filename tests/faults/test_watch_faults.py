"""Whatever becomes of a watch, the copy ends as the cluster is, and nobody acts on less."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.adapters.kubernetes.harness import (
    CONFIG_MAPS,
    Script,
    api_for,
    cluster_config,
    config_map,
    eventually,
    listing,
    serving,
    status,
)
from tests.faults.converge import Converger, text_of
from tests.faults.kube_faults import (
    Change,
    Event,
    KubeFaults,
    calls,
    coalesce_events,
    duplicate_event,
    swap_events,
)
from tests.support.cluster import Cluster
from tests.support.fault_proxy import When

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.core.errors import PermissionDenied
from holdfast.reconcile.kube import ConflictReason, KubeConflict, ref_of

WATCH = "watch=true"


class World:
    """The real state, changed past the proxy, and a copy that is kept through it."""

    def __init__(self, direct: KubeApi, informer: Informer, namespace: str) -> None:
        self.informer = informer
        self.controller = Converger(direct, namespace, "g")
        self.told: list[tuple[str, str]] = []
        """What handlers heard: the name and `added`, `changed` or `gone`."""
        informer.add_handler(self._hear)

    def _hear(self, old: Event | None, new: Event | None) -> None:
        item = new or old or {}
        kind = "added" if old is None else "gone" if new is None else "changed"
        self.told.append((item["metadata"]["name"].removeprefix("g-"), kind))

    async def become(self, **wanted: str) -> None:
        await self.controller.converge(wanted)

    def copy(self) -> dict[str, str]:
        return {
            item["metadata"]["name"].removeprefix("g-"): text_of(item) for item in self.informer
        }

    async def follows(self, **wanted: str) -> None:
        await eventually(lambda: self.copy() == wanted, f"a copy of {wanted}", seconds=40)


@asynccontextmanager
async def world(
    kube: KubeFaults, cluster: Cluster, namespace: str, *, silence: float = 75.0
) -> AsyncIterator[World]:
    async with (
        api_for(cluster_config(cluster.kubeconfig)) as direct,
        api_for(cluster_config(kube.kubeconfig)) as api,
    ):
        scope = ResourceScope(resource=CONFIG_MAPS, namespace=namespace, labels="group=g")
        informer = Informer(api, scope, silence=silence)
        shown = World(direct, informer, namespace)
        running = asyncio.ensure_future(informer.run())
        try:
            await informer.wait_synced(20)
            yield shown
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def watches(kube: KubeFaults) -> int:
    return sum(call.watch for call in kube.calls)


BREAKS: dict[str, Callable[[KubeFaults, When], None]] = {
    **{
        str(code): lambda kube, when, code=code: kube.answer(when, code)
        for code in (401, 403, 404, 410, 429, 500, 503, 504)
    },
    "502 of a gateway": lambda kube, when: kube.answer(when, 502, html=True),
    "200 of a gateway": lambda kube, when: kube.answer(when, 200, html=True),
    "410 in the stream": lambda kube, when: kube.expire(when, after=1),
    "half an event": lambda kube, when: kube.cut_response(when, after_bytes=700),
    "a reset": lambda kube, when: kube.reset_connection(when),
    "no connection": lambda kube, when: kube.drop_request(when),
}


SMOKE = ("410 in the stream", "half an event", "a reset")


@pytest.mark.parametrize(
    "broken",
    [pytest.param(name, marks=[] if name in SMOKE else pytest.mark.long) for name in BREAKS],
)
def test_a_watch_that_breaks_loses_nothing_not_even_a_deletion_in_the_gap(
    broken: str, kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        # The first watch ends at once, so that the broken ones are those after it.
        kube.cut_response(calls(watch=True), after_bytes=1)
        when = calls(path=WATCH, nth=2, times=3)
        BREAKS[broken](kube, when)
        async with world(kube, cluster, namespace) as shown:
            await shown.become(a="1", b="1", c="1")
            await shown.become(a="2", c="1")
            await shown.become(c="1")
            await shown.follows(c="1")
            await eventually(lambda: when.hit, "the broken watches")
            await shown.become(c="2", d="1")
            await shown.follows(c="2", d="1")
            assert shown.informer.error is None

    asyncio.run(story())


def test_a_deletion_while_the_version_expired_is_reported_by_the_new_list(
    kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        kube.expire(calls(path=WATCH), after=2)
        async with world(kube, cluster, namespace) as shown:
            await shown.become(a="1", b="1")
            await shown.follows(a="1", b="1")
            # The next event, of the deletion, ends the open watch; every other is refused.
            refused = calls(path=WATCH, times=None)
            kube.answer(refused, 410)
            await shown.become(b="1")
            await shown.become(b="1", c="1")
            await shown.follows(b="1", c="1")
            await eventually(lambda: refused.hit, "a watch that is refused")
            assert shown.told.count(("a", "gone")) == 1
            assert shown.told.count(("b", "added")) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    "after", [1, pytest.param(0, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]
)
def test_a_watch_that_falls_silent_is_replaced_and_the_gap_is_found(
    after: int, kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        kube.silence(calls(watch=True), after=after)
        async with world(kube, cluster, namespace, silence=2.0) as shown:
            await shown.become(a="1", b="1")
            await shown.become(b="2", c="1")
            await eventually(lambda: watches(kube) >= 2, "a second watch")
            await shown.follows(b="2", c="1")

    asyncio.run(story())


@pytest.mark.long
def test_a_watch_cut_at_any_byte_is_taken_up_again(
    kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        for nth, after in enumerate(range(100, 2400, 130), start=1):
            kube.cut_response(calls(path=WATCH, nth=nth), after_bytes=after)
        async with world(kube, cluster, namespace) as shown:
            for text in "123456":
                await shown.become(a=text, b=text)
                await shown.become(b=text)
            await shown.follows(b="6")

    asyncio.run(story())


def overwritten(event: Event) -> list[Event]:
    """Lose what a later event makes up for: all but the last text of each object."""
    last = event["type"] in ("DELETED", "BOOKMARK") or event["object"]["data"]["text"] == "9"
    return [event] if last else []


@pytest.mark.parametrize(
    "make",
    [lambda: overwritten, lambda: duplicate_event, swap_events, coalesce_events],
    ids=["lost", "doubled", "swapped", "coalesced"],
)
def test_events_that_are_lost_doubled_swapped_or_joined_lead_to_the_same_copy(
    make: Callable[[], Change], kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        kube.change_events(calls(path=WATCH, times=None), make)
        async with world(kube, cluster, namespace, silence=2.0) as shown:
            for text in ("1", "2"):
                await shown.become(a=text, b=text, c=text)
                await shown.become(b=text)
            await shown.become(a="9", b="9", d="9")
            # What is held back for its successor is found when the silence is noticed.
            await shown.follows(a="9", b="9", d="9")

    asyncio.run(story())


def test_a_forbidden_list_leaves_the_copy_as_it_was_and_says_why(
    kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    """What may not be listed is unknown, not gone."""

    async def story() -> None:
        kube.expire(calls(path=WATCH), after=2)
        async with world(kube, cluster, namespace) as shown:
            await shown.become(a="1", b="1")
            await shown.follows(a="1", b="1")
            refused = calls("GET", r"/configmaps", times=None)
            kube.answer(refused, 403)
            await shown.become(b="1")
            await eventually(lambda: refused.seen > 2, "lists that are refused")
            assert shown.copy() == {"a": "1", "b": "1"}
            assert isinstance(shown.informer.error, PermissionDenied)
            kube.heal()
            await shown.follows(b="1")
            assert shown.informer.error is None

    asyncio.run(story())


def test_a_stale_list_after_a_restart_makes_no_wrong_write(
    kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    """A server left behind shows an object that was deleted and made anew under its name."""

    async def story() -> None:
        async with (
            api_for(cluster_config(cluster.kubeconfig)) as direct,
            api_for(cluster_config(kube.kubeconfig)) as api,
        ):
            real = Converger(direct, namespace, "g")
            await real.converge({"a": "1", "b": "1"})
            ours = Converger(api, namespace, "g")
            kube.freeze(calls("GET", r"/configmaps", times=None))
            old = (await ours.client.list(ours.scope)).items
            await real.converge({})
            await real.converge({"a": "1", "b": "2"})
            before = await real.state()

            # A controller that starts now sees the frozen world, in lists and in single reads.
            stale = (await ours.client.list(ours.scope)).items
            assert [each["metadata"] for each in stale] == [each["metadata"] for each in old]
            for item in stale:
                metadata = item["metadata"]
                assert isinstance(metadata, dict)
                for guards in (
                    {"uid": str(metadata["uid"])},
                    {"version": str(metadata["resourceVersion"])},
                ):
                    with pytest.raises(KubeConflict):
                        await ours.client.delete(ref_of(item), **guards)
                wrong = {**ours.item("a", "wrong"), "metadata": metadata}
                metadata.pop("managedFields", None)
                with pytest.raises(KubeConflict):
                    await ours.client.apply(wrong, manager="us", force=True)
            with pytest.raises(KubeConflict) as raised:
                await ours.client.apply(ours.item("b", "wrong"), manager="us", absent=True)
            assert raised.value.reason is ConflictReason.EXISTS
            assert await real.state() == before
            kube.heal()
            await ours.converge({"a": "1"})
            assert await real.state() == {"a": "1"}

    asyncio.run(story())


def test_an_informer_that_starts_on_a_stale_list_catches_up(
    kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        kube.freeze(calls("GET", r"/configmaps\?labelSelector", times=2, watch=False))
        async with world(kube, cluster, namespace) as first:
            await first.become(a="1", b="1")
            await first.follows(a="1", b="1")
            await first.become(b="2")
        async with world(kube, cluster, namespace) as second:
            await second.follows(b="2")

    asyncio.run(story())


def test_a_list_of_a_restored_cluster_counts_although_its_objects_look_older() -> None:
    """By the time of the list, the restored cluster has written past the last version seen."""

    async def story() -> None:
        script = Script(
            lists=[
                listing(950, config_map("a", 900, text="lost")),
                listing(1000, config_map("a", 500, text="restored")),
            ],
            watches=[[status(410, "Expired")], ["hang"]],
        )
        async with serving(script) as url, api_for(url) as api:
            informer = Informer(api, ResourceScope(resource=CONFIG_MAPS))
            running = asyncio.ensure_future(informer.run())
            try:

                def text() -> str:
                    found = informer.get("a", "shop")
                    return "" if found is None else str(found["data"]["text"])

                await eventually(lambda: text() == "restored", "what the new list says")
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
