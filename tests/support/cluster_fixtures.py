"""Fixtures and hooks for tests that need a real cluster: one per run, a namespace per test.

Tests that ask for the cluster get the mark `cluster`. Where the programs are not built they are
skipped, and one line says so; with HOLDFAST_REQUIRE_TESTBED=1 the programs are built first, and
the tests fail if that is impossible. The fixtures of Gitea, PostgreSQL and their like skip their
tests the same way, by `skip_without`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH
from tests.support.testbed import NoTestbed, find_or_build_testbed, find_testbed

from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.service.spec import PLURAL
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd

__all__ = [
    "cluster",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]

REQUIRED = "HOLDFAST_REQUIRE_TESTBED"
_SEEN = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs the real test cluster (`make testbed`)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark whatever asks for the cluster, before `-m` chooses."""
    if isinstance(item, pytest.Function) and "cluster" in item.fixturenames:
        item.add_marker("cluster")


@pytest.hookimpl(trylast=True)  # after `-m` and `-k` have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find or build the programs before the first test, whose time-out a build would exceed."""
    wanting = [item for item in items if item.get_closest_marker("cluster")]
    if not wanting or config.stash.get(_SEEN, False) or config.option.collectonly:
        return
    config.stash[_SEEN] = True
    required = os.environ.get(REQUIRED) == "1"
    try:
        if required:
            find_or_build_testbed(lambda text: _print_uncaptured(config, text))
        else:
            find_testbed()
    except NoTestbed as missing:
        # Where it is required the tests stay, and fail one by one when they ask for the cluster.
        for item in wanting if not required else ():
            item.add_marker(pytest.mark.skip(reason=str(missing)))
        if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
            fate = "CANNOT RUN" if required else "SKIPPED"
            _print_uncaptured(config, f"{fate}: {len(wanting)} tests on a real cluster. {missing}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of this test run, shared by all its workers."""
    held = Cluster.join(run_directory(tmp_path_factory) / "cluster")
    yield held
    held.leave()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of this test's own."""
    name = cluster.create_namespace()
    yield name
    cluster.delete_namespace(name)


def run_directory(factory: pytest.TempPathFactory) -> Path:
    """Give the directory that all workers of a run share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _print_uncaptured(config: pytest.Config, text: str) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        print(text, file=sys.stderr, flush=True)
        return
    with capture.global_and_fixture_disabled():
        print(f"\n{text}", file=sys.stderr, flush=True)


_MISSING_REPORTED = pytest.StashKey[set[str]]()


def skip_without(
    config: pytest.Config, what: str, reason: object, *, required: bool | None = None
) -> NoReturn:
    """Skip the test, and say so once in a run; fail it where every part is required."""
    if required is None:
        required = os.environ.get(REQUIRED) == "1"
    said = config.stash.setdefault(_MISSING_REPORTED, set())
    if what not in said:
        said.add(what)
        _print_uncaptured(
            config, f"{'CANNOT RUN' if required else 'SKIPPED'}: tests with {what}. {reason}"
        )
    if required:
        pytest.fail(str(reason))
    pytest.skip(str(reason))


__all__ = ["definitions", "kubeconfig"]


@pytest.fixture(scope="session")
def definitions(cluster: Cluster) -> Cluster:
    """The cluster with the custom resource installed and served."""
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))
    return cluster


@pytest.fixture
def kubeconfig(definitions: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, chosen the way a user chooses one."""
    monkeypatch.setenv("KUBECONFIG", str(definitions.kubeconfig))
    return definitions


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def create_inference_service(
    cluster: Cluster, namespace: str, name: str, spec: dict[str, Any], **labels: str
) -> None:
    """Create an InferenceService as somebody with kubectl would."""
    metadata = {"name": name, "labels": {f"holdfast.dev/{key}": labels[key] for key in labels}}
    document = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": spec,
    }
    cluster.api().request("POST", f"{path(namespace)}?fieldManager=kubectl-create", document)


def edit(
    cluster: Cluster, namespace: str, name: str, change: dict[str, Any], manager: str = "curl"
) -> dict[str, Any]:
    """Change an InferenceService past Holdfast."""
    where = f"{path(namespace)}/{name}?fieldManager={manager}"
    return cluster.api().request("PATCH", where, change, content_type=MERGE_PATCH)


def write_service_status(cluster: Cluster, namespace: str, name: str, **status: Any) -> None:
    """Write a status as the operator does."""
    where = f"{path(namespace)}/{name}/status?fieldManager=holdfast-operator"
    cluster.api().request("PATCH", where, {"status": status}, content_type=MERGE_PATCH)


def path(namespace: str) -> str:
    """Give the address of a namespace's InferenceServices."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
