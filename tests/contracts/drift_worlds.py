"""Every target, in both colours, beside another writer who moves things: for the OnDrift tables.

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

from holdfast import DriftError, DriftWarning, EndpointRef, Live, OnDrift, Plan, WorkloadSpec
from holdfast.adapters.store import Store
from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.live import Writer
from holdfast.core.service.spec import PLURAL
from holdfast.core.tree import Fields
from holdfast.testing import async_memory_client, drift, memory_client


class World(ABC):
    """One target: a client of one colour on it, and another writer who can move things."""

    # Any: either colour, under the same names.
    client: Any

    def written(self) -> int | None:
        """Say how many mutating requests were sent so far; None where there are no requests."""
        return None

    @abstractmethod
    def move(self, live: Live, fields: Fields, resource: Fields | None = None) -> None:
        """Change fields of the live workload behind Holdfast's back; None clears one.

        `resource` says it as a merge of the custom resource's spec, where that has other names.
        """


class Memory(World):
    def __init__(self, colour: str) -> None:
        sync = colour == "sync"
        self.client = memory_client("acme") if sync else DrivenClient(async_memory_client("acme"))

    def move(self, live: Live, fields: Fields, resource: Fields | None = None) -> None:
        drift(self.client, live.id.slug, by="curl", **fields)


class Embedded(World):
    def __init__(self, colour: str, home: Path) -> None:
        self._file = home / "holdfast.db"
        self.client = management_client(colour, f"sqlite:///{self._file}", project="acme")

    def move(self, live: Live, fields: Fields, resource: Fields | None = None) -> None:
        with Store.open(self._file) as store:
            _write_as_curl(store, live, fields)


class Remote(World):
    def __init__(self, colour: str, server: RunningServer, proxy: FaultProxy) -> None:
        self._server, self._proxy = server, proxy
        self.client = management_client(
            colour, proxy.url, project="acme", token=server.token("acme")
        )

    def written(self) -> int:
        asked = ("/cost",)  # a question with a body
        return sum(not each.path.endswith(asked) for each in self._proxy.mutating)

    def move(self, live: Live, fields: Fields, resource: Fields | None = None) -> None:
        """By the published API, where it has the field; else beside the server, in its store."""
        if fields.keys() != {"replicas"}:
            with self._server.admin() as store:
                _write_as_curl(store, live, fields)
            return
        config = {"execution_policy": "fixed", "execution_policy_config": fields}
        token = self._server.token("acme", name="ops")
        answer = httpx2.patch(
            f"{self._server.url}/api/workloads/{live.uid}",
            json=config,
            headers={**bearer(token), "User-Agent": "curl/8"},
        )
        assert answer.status_code == 200, answer.text


def _write_as_curl(store: Store, live: Live, fields: Fields) -> None:
    writer = Writer(manager="curl", actor="ops")
    store.write(
        lambda tx: tx.update_workload(live.uid, fields, version=None, writer=writer, declare=False)
    )


class Kubernetes(World):
    """No operator runs: the policy is about the declaration, which is the object itself."""

    def __init__(self, colour: str, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.client = management_client(colour, f"kubernetes:///{namespace}", project="acme")

    def move(self, live: Live, fields: Fields, resource: Fields | None = None) -> None:
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{self._namespace}/{PLURAL}/{live.id.slug}"
        self._cluster.api().request(
            "PATCH",
            f"{path}?fieldManager=curl",
            {"spec": resource if resource is not None else fields},
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


TARGETS = tuple(itertools.product(("memory", "embedded", "remote", "kubernetes"), CLIENT_KINDS))


def target_case(target: tuple[str, str], *more: str) -> Any:  # Any: as pytest has it
    """The parameters of one test on one target; those that need the real cluster are marked so."""
    marks = [pytest.mark.cluster] if target[0] == "kubernetes" else []
    return pytest.param(target, *more, marks=marks, id="-".join((*target, *more)))


@pytest.fixture(params=[target_case(each) for each in TARGETS])
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
