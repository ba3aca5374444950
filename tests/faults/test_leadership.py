"""One acts at a time; who was frozen and wakes too late changes nothing."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.kubernetes.harness import api_for, cluster_config, eventually
from tests.faults.converge import MANAGER, Converger, seen, text_of
from tests.faults.kube_faults import KubeFaults, calls
from tests.faults.leader import QUICK
from tests.support.cluster import Cluster
from tests.support.fault_proxy import When
from tests.support.processes import ROOT

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi, LeadershipLost
from holdfast.adapters.kubernetes.lease import LEASES, LeaderElection
from holdfast.reconcile.kube import KubeConflict, ref_of

LEASE = r"/leases"


class Leader:
    """A controller process and what it said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def says(self) -> str:
        return self._lines.get(timeout=40)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


@contextmanager
def leader(kubeconfig: Path, namespace: str, identity: str) -> Iterator[Leader]:
    command = [sys.executable, "-m", "tests.faults.leader", str(kubeconfig), namespace, identity]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Leader(process)
        finally:
            process.kill()


def ledger(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("configmap", "g-a", namespace)
    return str(found["data"]["text"])


@pytest.mark.long
def test_a_leader_frozen_beyond_its_lease_wakes_to_a_refused_write(
    cluster: Cluster, namespace: str
) -> None:
    async def prepare() -> None:
        async with api_for(cluster_config(cluster.kubeconfig)) as api:
            await Converger(api, namespace, "g").converge({"a": "nobody"})

    asyncio.run(prepare())
    with (
        leader(cluster.kubeconfig, namespace, "first") as first,
        leader(cluster.kubeconfig, namespace, "second") as second,
    ):
        # Whoever is elected has read and is frozen; the other one takes over, reads and writes.
        both = {"first": first, "second": second}
        elected = _who_read(both)
        frozen = both.pop(elected)
        frozen.process.send_signal(signal.SIGSTOP)
        ((heir, acting),) = both.items()
        assert acting.says() == "read"
        acting.go()
        assert acting.says() == "wrote leads=True"
        frozen.go()
        frozen.process.send_signal(signal.SIGCONT)
        said = {frozen.says(), frozen.says()}
        assert said == {"refused changed leads=False", "lost"}
        assert ledger(cluster, namespace) == heir


def _who_read(both: dict[str, Leader]) -> str:
    async def look() -> str:
        found = [""]

        def read() -> bool:
            for name, each in both.items():
                if not each._lines.empty():
                    found[0] = name
            return bool(found[0])

        await eventually(read, "a leader", seconds=40)
        return found[0]

    name = asyncio.run(look())
    assert both[name].says() == "read"
    return name


class Candidate:
    """An election in this process whose work notes when it begins and when it ends."""

    def __init__(self, api: KubeApi, namespace: str, identity: str, log: list[str]) -> None:
        self.identity = identity
        self.log = log
        self.election = LeaderElection(
            api, namespace=namespace, name="holdfast", identity=identity, timing=QUICK
        )
        self.task = asyncio.ensure_future(self.election.run(self._work))

    async def _work(self) -> None:
        self.log.append(f"{self.identity} begins")
        try:
            await asyncio.sleep(3600)
        finally:
            self.log.append(f"{self.identity} ends")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def never_two(log: list[str]) -> None:
    """Every work ends before the next begins."""
    acting = ""
    for entry in log:
        identity, _, what = entry.partition(" ")
        if what == "begins":
            assert not acting, f"two at once: {log}"
            acting = identity
        else:
            acting = ""


OUTAGES: dict[str, Callable[[KubeFaults, When], None]] = {
    "500": lambda kube, when: kube.answer(when, 500),
    "403": lambda kube, when: kube.answer(when, 403),
    "409": lambda kube, when: kube.answer(when, 409),
    "429 with a long wait": lambda kube, when: kube.answer(when, 429, retry_after=30),
    "a hang": lambda kube, when: kube.hang(when),
    "resets": lambda kube, when: kube.reset_connection(when),
    "lost answers": lambda kube, when: kube.lose_answer(when, 504),
}
HIDDEN = ("lost answers",)
"""The renewals hold, and only the leader does not know."""


@pytest.mark.parametrize(
    "outage",
    [pytest.param(name, marks=[] if name == "a hang" else pytest.mark.long) for name in OUTAGES],
)
def test_a_leader_that_cannot_renew_stops_before_another_begins(
    outage: str, kube: KubeFaults, cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        log: list[str] = []
        clock = SystemClock()
        async with (
            api_for(cluster_config(kube.kubeconfig), clock=clock) as cut,
            api_for(cluster_config(cluster.kubeconfig), clock=clock) as whole,
        ):
            first = Candidate(cut, namespace, "first", log)
            await eventually(lambda: log == ["first begins"], "the first leader")
            second = Candidate(whole, namespace, "second", log)
            OUTAGES[outage](kube, calls("PATCH" if outage in HIDDEN else "", LEASE, times=None))
            await eventually(lambda: "second begins" in log, "the second leader", seconds=40)
            with pytest.raises(LeadershipLost):
                await first.task
            assert log == ["first begins", "first ends", "second begins"]
            await first.stop()
            await second.stop()
            never_two(log)

    asyncio.run(story())


@pytest.mark.parametrize(
    "outage",
    [
        pytest.param(name, marks=[] if name == "409" else pytest.mark.long)
        for name in OUTAGES
        if not name.startswith("429")
    ],
)
def test_one_failed_renewal_costs_no_leadership(
    outage: str, kube: KubeFaults, namespace: str
) -> None:
    async def story() -> None:
        log: list[str] = []
        async with api_for(cluster_config(kube.kubeconfig), clock=SystemClock()) as api:
            only = Candidate(api, namespace, "only", log)
            await eventually(lambda: bool(log), "the leader")
            when = calls("PATCH", LEASE)
            OUTAGES[outage](kube, when)
            await eventually(lambda: when.seen > 3, "renewals after the failed one")
            assert log == ["only begins"] and not only.task.done()
            await only.stop()

    asyncio.run(story())


async def edit(api: KubeApi, namespace: str, spec: dict[str, Any]) -> None:
    await api.patch(LEASES.ref("holdfast", namespace), {"spec": spec}, manager="somebody")


@pytest.mark.long
def test_a_deleted_lease_is_made_again_without_two_acting(cluster: Cluster, namespace: str) -> None:
    async def story() -> None:
        log: list[str] = []
        config, clock = cluster_config(cluster.kubeconfig), SystemClock()
        async with api_for(config, clock=clock) as one, api_for(config, clock=clock) as two:
            first = Candidate(one, namespace, "first", log)
            await eventually(lambda: bool(log), "the first leader")
            second = Candidate(two, namespace, "second", log)
            await eventually(lambda: second.election._observed is not None, "the other's look")
            for _ in range(5):
                lease = await one.get(LEASES, "holdfast", namespace=namespace)
                await one.delete(LEASES, "holdfast", namespace=namespace)
                gone = lease["metadata"]["uid"]
                await eventually_lease(one, namespace, lambda found, gone=gone: found != gone)
            never_two(log)
            await first.stop()
            await second.stop()

    asyncio.run(story())


async def eventually_lease(api: KubeApi, namespace: str, holds: Callable[[str], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            found = (await api.list(LEASES.scope(namespace))).items
            if found and holds(found[0]["metadata"]["uid"]):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"holderIdentity": "somebody"}, marks=pytest.mark.long),
        {"renewTime": "2020-01-01T00:00:00.000000Z"},
    ],
    ids=["another holder", "our name, another's renewal"],
)
def test_an_edited_lease_makes_its_leader_yield_and_someone_leads_again(
    change: dict[str, Any], cluster: Cluster, namespace: str
) -> None:
    async def story() -> None:
        log: list[str] = []
        config, clock = cluster_config(cluster.kubeconfig), SystemClock()
        async with api_for(config, clock=clock) as one, api_for(config, clock=clock) as two:
            first = Candidate(one, namespace, "first", log)
            await eventually(lambda: bool(log), "the first leader")
            await edit(two, namespace, change)
            with pytest.raises(LeadershipLost):
                await first.task
            second = Candidate(two, namespace, "second", log)
            await eventually(lambda: "second begins" in log, "another leader", seconds=40)
            await first.stop()
            await second.stop()
            never_two(log)

    asyncio.run(story())


def test_a_label_on_the_lease_disturbs_nobody(cluster: Cluster, namespace: str) -> None:
    async def story() -> None:
        log: list[str] = []
        async with api_for(cluster_config(cluster.kubeconfig), clock=SystemClock()) as api:
            only = Candidate(api, namespace, "only", log)
            await eventually(lambda: bool(log), "the leader")
            labels = {"metadata": {"labels": {"team": "x"}}}
            marked = await api.patch(LEASES.ref("holdfast", namespace), labels)
            version = marked["metadata"]["resourceVersion"]

            async def renewed() -> bool:
                found = await api.get(LEASES.ref("holdfast", namespace))
                return bool(found["metadata"]["resourceVersion"] != version)

            async with asyncio.timeout(20):
                while not await renewed():  # noqa: ASYNC110  # the lease is polled
                    await asyncio.sleep(0.05)
            assert log == ["only begins"]
            await only.stop()

    asyncio.run(story())


@pytest.mark.long
def test_a_twin_with_the_same_name_waits_its_turn(cluster: Cluster, namespace: str) -> None:
    async def story() -> None:
        log: list[str] = []
        config, clock = cluster_config(cluster.kubeconfig), SystemClock()
        async with api_for(config, clock=clock) as one, api_for(config, clock=clock) as two:
            first = Candidate(one, namespace, "twin", log)
            await eventually(lambda: bool(log), "the first twin")
            second = Candidate(two, namespace, "twin", log)
            await eventually(lambda: second.election._observed is not None, "the other's look")
            assert log == ["twin begins"] and not second.election.leads
            await first.stop()
            await eventually(lambda: log.count("twin begins") == 2, "the second twin", seconds=40)
            await second.stop()
            assert log == ["twin begins", "twin ends"] * 2

    asyncio.run(story())


@pytest.mark.long
def test_two_controllers_without_an_election_lose_no_write(
    cluster: Cluster, namespace: str
) -> None:
    """Guards alone keep an object whole: each success builds on what was there before it."""

    async def story() -> None:
        config = cluster_config(cluster.kubeconfig)
        async with api_for(config) as one, api_for(config) as two:
            start = Converger(one, namespace, "g")
            await start.converge({"a": "0"})
            successes = 0

            async def count(api: KubeApi) -> None:
                nonlocal successes
                client = api
                for _ in range(30):
                    live = await client.get(ref_of(start.item("a", "")))
                    assert live is not None
                    more = start.item("a", str(int(text_of(live)) + 1))
                    try:
                        await client.apply(seen(more, live), manager=MANAGER, force=True)
                        successes += 1
                    except KubeConflict:
                        continue

            await asyncio.gather(count(one), count(two))
            assert await start.state() == {"a": str(successes)}

    asyncio.run(story())
