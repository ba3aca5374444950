"""A place on the real cluster for the controllers to be installed in."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.shell import Shell
from tests.support.cluster import Cluster


@pytest.fixture
def place(cluster: Cluster) -> Iterator[str]:
    """A namespace for controllers of this test's own; what they have in no namespace is shared.

    So one test at a time installs, whichever worker runs it.
    """
    with (cluster.directory / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        name = cluster.create_namespace("holdfast")
        yield name
        ours = ("-l", f"app.kubernetes.io/instance={name}")
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", *ours)
        cluster.kubectl("delete", "role,rolebinding", "-n", "default", *ours)
        cluster.delete_namespace(name)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of this test's own: it removes the definitions, which other tests need."""
    found = Cluster.join(tmp_path / "cluster")
    yield found
    found.stop()


@pytest.fixture
def kubectl_shell(own: Cluster, tmp_path: Path) -> Shell:
    return Shell(own, tmp_path)
