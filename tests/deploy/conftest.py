"""A place on the real cluster for the controllers to be installed in."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest
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
        cluster.kubectl(
            *(
                "delete",
                "clusterrole,clusterrolebinding",
                "-l",
                "app.kubernetes.io/part-of=holdfast",
            )
        )
        cluster.delete_namespace(name)
