"""Five policies, three situations, every target, both colours: the table that we publish.

On the remote target a proxy counts what crosses the wire, and in a cluster the API server's audit
log does, so that "no change" means that no mutating request was even sent.
"""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.both_clients import CLIENT_KINDS, DrivenClient, management_client
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH
from tests.support.fault_proxy import FaultProxy
from tests.support.server import RunningServer, bearer, running_server

from holdfast import (
    DriftError,
    DriftWarning,
    EndpointRef,
    Live,
    OnDrift,
    Outcome,
    Plan,
    WorkloadSpec,
)
from holdfast.adapters.store import Store
from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.service.spec import PLURAL
from holdfast.testing import a_spec, async_memory_client, drift, memory_client

NUMBERS = itertools.count(1)
WANTED, MOVED = 2, 9


class World(ABC):
    """One target: a client of one colour on it, and another writer who can move things."""

    # Any: either colour, under the same names.
    client: Any

    def written(self) -> int | None:
        """Say how many mutating requests were sent so far; None where there are no requests."""
        return None

    @abstractmethod
    def move(self, live: Live) -> None:
        """Change the live workload behind Holdfast's back."""


class Memory(World):
    def __init__(self, colour: str) -> None:
        sync = colour == "sync"
        self.client = memory_client("acme") if sync else DrivenClient(async_memory_client("acme"))

    def move(self, live: Live) -> None:
        drift(self.client, live.id.slug, replicas=MOVED, by="curl")


class Embedded(World):
    def __init__(self, colour: str, home: Path) -> None:
        self._file = home / "holdfast.db"
        self.client = management_client(colour, f"sqlite:///{self._file}", project="acme")

    def move(self, live: Live) -> None:
        writer = Writer(manager="curl", actor="ops")
        with Store.open(self._file) as store:
            store.write(
                lambda tx: tx.update_workload(
                    live.uid, {"replicas": MOVED}, version=None, writer=writer, declare=False
                )
            )


class Remote(World):
    def __init__(self, colour: str, server: RunningServer, proxy: FaultProxy) -> None:
        self._server, self._proxy = server, proxy
        self.client = management_client(
            colour, proxy.url, project="acme", token=server.token("acme")
        )

    def written(self) -> int:
        asked = ("/cost",)  # a question with a body
        return sum(not each.path.endswith(asked) for each in self._proxy.mutating)

    def move(self, live: Live) -> None:
        config = {"execution_policy": "fixed", "execution_policy_config": {"replicas": MOVED}}
        token = self._server.token("acme", name="ops")
        answer = httpx2.patch(
            f"{self._server.url}/api/workloads/{live.uid}",
            json=config,
            headers={**bearer(token), "User-Agent": "curl/8"},
        )
        assert answer.status_code == 200, answer.text


class Kubernetes(World):
    """No operator runs: the policy is about the declaration, which is the object itself."""

    def __init__(self, colour: str, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.client = management_client(colour, f"kubernetes:///{namespace}", project="acme")

    def move(self, live: Live) -> None:
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{self._namespace}/{PLURAL}/{live.id.slug}"
        self._cluster.api().request(
            "PATCH",
            f"{path}?fieldManager=curl",
            {"spec": {"replicas": MOVED}},
            content_type=MERGE_PATCH,
        )

    def written(self) -> int:
        return len(
            self._cluster.audit_events(
                user_agent="holdfast-sdk",
                verbs=("create", "update", "patch", "delete", "deletecollection"),
                resource=PLURAL,
                namespace=self._namespace,
            )
        )


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, FaultProxy]]:
    with (
        running_server(tmp_path_factory.mktemp("server"), run=False) as server,
        FaultProxy(server.url) as proxy,
    ):
        yield server, proxy


TARGETS = [
    *itertools.product(("memory", "embedded", "remote"), CLIENT_KINDS),
    *(pytest.param(("kubernetes", colour), marks=pytest.mark.cluster) for colour in CLIENT_KINDS),
]


@pytest.fixture(params=TARGETS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    target, colour = request.param
    made: World
    if target == "memory":
        made = Memory(colour)
    elif target == "embedded":
        made = Embedded(colour, tmp_path)
    elif target == "remote":
        made = Remote(colour, *request.getfixturevalue("remote"))
    else:
        cluster = request.getfixturevalue("kubeconfig")
        made = Kubernetes(colour, cluster, request.getfixturevalue("namespace"))
    with made.client:
        yield made


def observed(
    world: World, spec: WorkloadSpec, policy: OnDrift
) -> tuple[str, EndpointRef | None, Plan | None]:
    """Ensure, and name what the caller noticed besides the answer; the plan, if one was given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DriftWarning)
        try:
            ref = world.client.ensure(spec, on_drift=policy)
        except DriftError as error:
            return "raised", None, error.plan
    return ("warned" if caught else "quiet"), ref, ref.plan


@pytest.mark.parametrize("policy", OnDrift)
@pytest.mark.parametrize("situation", ["absent", "in-sync", "drifted"])
def test_each_policy_does_in_each_situation_what_the_table_says(
    world: World, situation: str, policy: OnDrift
) -> None:
    spec = a_spec(name=f"chat-{next(NUMBERS)}", replicas=WANTED)
    where = WorkloadId(project="acme", slug=spec.slug)
    before: Live | None = None
    if situation != "absent":
        before = world.client.ensure(spec).live
        assert before is not None
    if situation == "drifted":
        assert before is not None
        world.move(before)
        before = world.client.get(where.slug)
        assert before is not None
        assert before.generation == 2
    written = world.written()

    noticed, ref, plan = observed(world, spec, policy)
    sent = None if written is None else (world.written() or 0) - written
    after = world.client.get(where.slug)

    if situation == "absent":
        assert (noticed, ref and ref.outcome) == ("quiet", Outcome.CREATED)
        assert after.generation == 1
        assert sent in (None, 1)
        return
    assert before is not None
    if situation == "in-sync":
        assert (noticed, ref and ref.outcome) == ("quiet", Outcome.UNCHANGED)
    elif policy is OnDrift.RECONCILE:
        assert (noticed, ref and ref.outcome) == ("quiet", Outcome.UPDATED)
        assert world.client.ensure(spec, on_drift="fail").outcome is Outcome.UNCHANGED
        assert (after.uid, after.generation) == (before.uid, 3)
        assert sent in (None, 1)
        assert [record.resolution for record in world.client.drifts(slug=where.slug)] == []
        (closed,) = world.client.drifts(slug=where.slug, include_resolved=True)
        assert closed.resolution == "reconciled"
        return
    else:
        expected = {
            OnDrift.FAIL: ("raised", None),
            OnDrift.DRY_RUN: ("quiet", Outcome.PLANNED),
            OnDrift.WARN: ("warned", Outcome.LEFT),
            OnDrift.IGNORE: ("quiet", Outcome.LEFT),
        }
        assert (noticed, ref and ref.outcome) == expected[policy]
        assert plan is not None
        assert plan.changes[0].write["replicas"] == WANTED
        (opened,) = world.client.drifts(slug=where.slug)
        assert opened.fields[0].writer is not None
        assert opened.fields[0].writer.manager == "curl"
    assert (after.version, after.fields) == (before.version, before.fields)
    assert sent in (None, 0)
