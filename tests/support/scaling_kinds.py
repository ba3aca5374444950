"""LeaderWorkerSets and KEDA on the test cluster: their real definitions, without controllers.

A test plays the controllers: it writes the statuses that they would.
"""

from __future__ import annotations

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import skip_without
from tests.support.go_modules import DefinitionModule, NoDefinitions

__all__ = ["keda", "leader_worker_sets"]

LEADER_WORKER_SETS = DefinitionModule(
    name="lws",
    module="sigs.k8s.io/lws",
    version="v0.9.0",
    sha256="350a5fd1739c6caaa5bcf22f1fc29357fda4de66cdf572468b60aebeb976eef1",
    folder="config/crd/bases",
    files=("leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
)

KEDA = DefinitionModule(
    name="keda",
    module="github.com/kedacore/keda/v2",
    version="v2.21.0",
    sha256="74b59fe16144250748b716d6dc8789dee52d26164daab732145bed60456013a4",
    folder="config/crd/bases",
    files=("keda.sh_scaledobjects.yaml",),
)


@pytest.fixture(scope="session")
def keda(cluster: Cluster, pytestconfig: pytest.Config) -> Cluster:
    """The cluster with KEDA's ScaledObjects."""
    return _installed(cluster, pytestconfig, KEDA)


@pytest.fixture(scope="session")
def leader_worker_sets(cluster: Cluster, pytestconfig: pytest.Config) -> Cluster:
    """The cluster with LeaderWorkerSets."""
    return _installed(cluster, pytestconfig, LEADER_WORKER_SETS)


def _installed(cluster: Cluster, config: pytest.Config, module: DefinitionModule) -> Cluster:
    try:
        documents = module.definitions()
    except NoDefinitions as missing:
        skip_without(config, f"the definitions of {module.module}", missing)
    cluster.install_definitions(*documents)
    return cluster
