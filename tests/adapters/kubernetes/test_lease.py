"""One leader at a time: handed over when released, taken over when silent, given up in time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import api_for, cluster_config, eventually, serving, status
from tests.support.cluster import Cluster

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.lease import (
    LEASES,
    LeaderElection,
    LeadershipLost,
    LeaseHeld,
    LeaseTiming,
    find_lease_namespace,
)
from holdfast.core.errors import ConfigurationError

QUICK = LeaseTiming(duration=2.0, renew_within=1.2, every=0.2)


class Candidate:
    """An election whose work only notes that it runs."""

    def __init__(self, api: KubeApi, namespace: str, identity: str) -> None:
        self.election = LeaderElection(
            api, namespace=namespace, name="holdfast", identity=identity, timing=QUICK
        )
        self.working = False
        self.task = asyncio.ensure_future(self.election.run(self._work))

    async def _work(self) -> None:
        self.working = True
        try:
            await asyncio.sleep(3600)
        finally:
            self.working = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Leases:
    """An API server with one lease in memory. `refusing` makes it answer 503 to everything."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.refusing = False
        self.losing = 0
        """How many writes take effect but get a 504 for an answer."""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.refusing:
            return web.json_response(status(503, "ServiceUnavailable"), status=503)
        if request.method == "GET":
            if self.lease is None:
                return web.json_response(status(404, "NotFound"), status=404)
            return web.json_response(self.lease)
        sent = json.loads(await request.read())
        if request.method == "PATCH":
            assert self.lease is not None
            held = self.lease["metadata"]
            if sent["metadata"]["resourceVersion"] != held["resourceVersion"]:
                return web.json_response(status(409, "Conflict"), status=409)
            sent["spec"] = {**self.lease["spec"], **sent["spec"]}
        self.write(sent["spec"])
        if self.losing:
            self.losing -= 1
            return web.json_response(status(504, "Timeout"), status=504)
        return web.json_response(self.lease)

    def write(self, spec: dict[str, Any]) -> None:
        version = 1 + int(self.lease["metadata"]["resourceVersion"]) if self.lease else 1
        metadata = {"name": "holdfast", "uid": "u", "resourceVersion": str(version)}
        self.lease = {"metadata": metadata, "spec": spec}


async def holder(api: KubeApi, namespace: str) -> str:
    lease = await api.get(LEASES.ref("holdfast", namespace))
    found: str = lease["spec"].get("holderIdentity", "")
    return found


def test_a_lease_is_handed_over_at_once_when_its_leader_stops(
    cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        config = cluster_config(cluster.kubeconfig)
        async with api_for(config, clock=SystemClock()) as api:
            first = Candidate(api, namespace, "first")
            await eventually(lambda: first.working, "the first leader")
            second = Candidate(api, namespace, "second")
            assert await holder(api, namespace) == "first"
            await first.stop()
            assert not first.election.leads
            await eventually(lambda: second.working, "the second leader")
            assert await holder(api, namespace) == "second"
            await second.stop()
            assert await holder(api, namespace) == ""

    asyncio.run(story())


def test_a_lease_whose_holder_fell_silent_is_taken_over_and_counted(
    cluster: Cluster, namespace: str
) -> None:
    """The holder's time of day does not matter: this one says it will renew next century."""

    async def story() -> None:
        config = cluster_config(cluster.kubeconfig)
        async with api_for(config, clock=SystemClock()) as api:
            spec = {
                "holderIdentity": "dead",
                "leaseDurationSeconds": 1,
                "leaseTransitions": 4,
                "renewTime": "2126-01-01T00:00:00.000000Z",
            }
            metadata = {"name": "holdfast", "namespace": namespace}
            await api.create(
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": metadata,
                    "spec": spec,
                }
            )
            heir = Candidate(api, namespace, "heir")
            await eventually(lambda: heir.working, "the heir")
            lease = await api.get(LEASES.ref("holdfast", namespace))
            assert lease["spec"]["holderIdentity"] == "heir"
            assert lease["spec"]["leaseTransitions"] == 5
            await heir.stop()

    asyncio.run(story())


def test_a_leader_that_cannot_renew_stops_before_its_lease_ends() -> None:
    async def story() -> None:
        leases = Leases()
        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            leader = Candidate(api, "shop", "leader")
            await eventually(lambda: leader.working, "the leader")
            leases.refusing = True
            with pytest.raises(LeadershipLost):
                await leader.task
            assert not leader.working and not leader.election.leads

    asyncio.run(story())


def test_a_leader_whose_lease_was_taken_stops_at_its_next_look() -> None:
    async def story() -> None:
        leases = Leases()
        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            leader = Candidate(api, "shop", "leader")
            await eventually(lambda: leader.working, "the leader")
            leases.write({"holderIdentity": "thief", "leaseDurationSeconds": 15})
            with pytest.raises(LeadershipLost):
                await leader.task
            assert not leader.working
            assert leases.lease is not None
            assert leases.lease["spec"]["holderIdentity"] == "thief"

    asyncio.run(story())


def test_a_renewal_whose_answer_was_lost_still_counts_as_ours() -> None:
    async def story() -> None:
        leases = Leases()
        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            leader = Candidate(api, "shop", "leader")
            await eventually(lambda: leader.working, "the leader")
            leases.losing = 1
            await eventually(lambda: not leases.losing, "the lost answer")
            assert leases.lease is not None
            before = int(leases.lease["metadata"]["resourceVersion"])

            def renewed() -> bool:
                assert leases.lease is not None
                return int(leases.lease["metadata"]["resourceVersion"]) > before + 1

            await eventually(lambda: renewed() or leader.task.done(), "further renewals")
            assert leader.working
            assert leases.lease["spec"]["leaseTransitions"] == 0
            await leader.stop()
            assert leases.lease["spec"]["holderIdentity"] == ""

    asyncio.run(story())


def test_a_record_with_our_name_that_we_did_not_write_is_anothers() -> None:
    async def story() -> None:
        leases = Leases()
        leases.write({"holderIdentity": "twin", "leaseDurationSeconds": 60, "renewTime": "then"})
        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            twin = LeaderElection(api, namespace="shop", name="holdfast", identity="twin")
            assert not await twin._attempt()
            assert not twin.leads

    asyncio.run(story())


def holding(leases: Leases, count: int = 0) -> None:
    """Write the lease as the operator that is installed does."""
    leases.write(
        {"holderIdentity": "installed", "leaseDurationSeconds": 2, "renewTime": f"{count}"}
    )


@pytest.mark.parametrize("elect", [True, False])
def test_who_may_not_wait_is_refused_while_another_renews(elect: bool) -> None:
    """`--once`, with an election or without, beside an operator that is at work."""

    async def story() -> None:
        leases = Leases()
        holding(leases)
        began: list[str] = []

        async def work() -> None:
            began.append("work")

        async def renewing() -> None:
            for count in range(1, 1000):
                await asyncio.sleep(0.1)
                holding(leases, count)

        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            other = asyncio.ensure_future(renewing())
            election = LeaderElection(
                api, namespace="shop", name="holdfast", identity="me", timing=QUICK
            )
            ours = election.run(work, wait=False) if elect else election.run_without(work)
            with pytest.raises(LeaseHeld) as refused:
                await asyncio.wait_for(ours, 10)
            other.cancel()
            assert not began
            assert "installed" in str(refused.value)
            assert leases.lease is not None
            assert leases.lease["spec"]["holderIdentity"] == "installed"

    asyncio.run(story())


@pytest.mark.parametrize("elect", [True, False])
def test_a_lease_that_nobody_renews_stops_no_single_look(elect: bool) -> None:
    async def story() -> None:
        leases = Leases()
        holding(leases)
        began: list[str] = []

        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            election = LeaderElection(
                api, namespace="shop", name="holdfast", identity="me", timing=QUICK
            )

            async def work() -> None:
                began.append("work" if election.leads else "nobody's turn")

            ours = election.run(work, wait=False) if elect else election.run_without(work)
            await asyncio.wait_for(ours, 10)
            assert began == ["work"]
            assert not election.leads

    asyncio.run(story())


def test_who_works_without_a_lease_stops_when_somebody_takes_it() -> None:
    async def story() -> None:
        leases = Leases()
        async with serving(leases) as url, api_for(url, clock=SystemClock()) as api:
            election = LeaderElection(
                api, namespace="shop", name="holdfast", identity="me", timing=QUICK
            )
            working = asyncio.Event()

            async def work() -> None:
                working.set()
                await asyncio.sleep(3600)

            leases.refusing = True
            task = asyncio.ensure_future(election.run_without(work))
            await asyncio.sleep(0.3)
            assert not working.is_set() and not election.leads, "an open question is no yes"
            leases.refusing = False
            await asyncio.wait_for(working.wait(), 10)
            assert election.leads and leases.lease is None
            leases.refusing = True
            await asyncio.sleep(0.5)
            assert election.leads, "a lease that cannot be read was taken by nobody"
            leases.refusing = False
            holding(leases)
            with pytest.raises(LeadershipLost):
                await asyncio.wait_for(task, 10)
            assert not election.leads

    asyncio.run(story())


class Places:
    """An API server with namespaces and leases."""

    def __init__(self, *namespaces: str, **holders: str) -> None:
        self.namespaces = namespaces
        self.closed = False
        self.items = [
            {"metadata": {"namespace": place}, "spec": {"holderIdentity": holder}}
            for place, holder in holders.items()
        ]

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis/coordination.k8s.io/v1/leases":
            assert request.query["fieldSelector"] == "metadata.name=holdfast-operator"
            return web.json_response({"items": self.items})
        if "/leases/" in request.path and self.closed:
            return web.json_response(status(403, "Forbidden"), status=403)
        if request.path.rpartition("/")[2] in self.namespaces:
            return web.json_response({"kind": "Namespace"})
        return web.json_response(status(404, "NotFound"), status=404)


def place(
    server: Places, *, chosen: str | None = None, in_pod: bool = False, namespace: str = "mine"
) -> str:
    async def found() -> str:
        async with serving(server) as url, api_for(url) as api:
            config = replace(api.connection.config, namespace=namespace, in_pod=in_pod)
            return await find_lease_namespace(api, config, name="holdfast-operator", chosen=chosen)

    return asyncio.run(found())


def test_the_lease_of_a_controller_run_by_hand_has_one_place_whatever_the_kubeconfig() -> None:
    installed = Places("holdfast-system")
    assert {place(installed, namespace=each) for each in ("default", "team-a")} == {
        "holdfast-system"
    }
    bare = Places()
    assert {place(bare, namespace=each) for each in ("kube-system", "team-a")} == {"default"}
    assert place(installed, chosen="team-a") == "team-a"
    assert place(installed, in_pod=True, namespace="ml") == "ml"


def test_a_lease_that_is_held_elsewhere_is_not_overlooked() -> None:
    with pytest.raises(ConfigurationError) as refused:
        place(Places("holdfast-system", ml="pod-1"))
    assert "--lease-namespace ml" in refused.value.hint
    assert place(Places("holdfast-system", ml="")) == "holdfast-system"


def test_a_lost_lease_is_not_told_as_another_writer() -> None:
    assert LeadershipLost("x").summary == "Leadership was lost"
    assert "writer" not in str(LeadershipLost("The lease a/b could not be renewed by c."))


def test_who_may_not_read_the_lease_is_told_what_to_choose() -> None:
    places = Places("holdfast-system")
    places.closed = True
    with pytest.raises(ConfigurationError) as refused:
        place(places)
    assert "--lease-namespace" in refused.value.hint
    assert place(places, chosen="mine") == "mine"
