"""The Gateway API on the test cluster: its real definitions, and a controller that tests play.

The definitions come from the project's Go module. No gateway runs: a test says when a route is
accepted, and so decides what the operator gets to see. Used through the fixture `gateway_api`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import skip_without
from tests.support.control_plane import MERGE_PATCH
from tests.support.go_modules import DefinitionModule, NoDefinitions

__all__ = ["GatewayController", "gateway_api"]

GROUP = "gateway.networking.k8s.io"
MODULE = DefinitionModule(
    name="gateway-api",
    module="sigs.k8s.io/gateway-api",
    version="v1.7.0",
    sha256="f9041f93ad3b2572089afa858ceac74e0545e7769490ae774039ed0f841f3d6d",
    folder="config/crd/standard",
    files=(f"{GROUP}_gateways.yaml", f"{GROUP}_httproutes.yaml"),
)


class GatewayController:
    """What a gateway's controller would say about routes, said by the test."""

    def __init__(self, cluster: Cluster, name: str = "holdfast.dev/played-by-a-test") -> None:
        self._api = cluster.api()
        self._name = name

    # Any: objects of the Kubernetes API as they come over the wire, here and below.
    def route(self, namespace: str, name: str) -> dict[str, Any]:
        return self._api.request("GET", self._path(namespace, name))

    def accept(self, namespace: str, name: str) -> None:
        """Take the route over as it is now, for every parent it names."""
        self._say(namespace, name, {"Accepted": "True", "ResolvedRefs": "True"})

    def refuse(self, namespace: str, name: str) -> None:
        """Say that its backends cannot be found."""
        self._say(namespace, name, {"Accepted": "True", "ResolvedRefs": "False"})

    def weights(self, namespace: str, name: str) -> dict[str, int]:
        """The shares on the live route, by the name of the Service."""
        (rule,) = self.route(namespace, name)["spec"]["rules"]
        return {each["name"]: each["weight"] for each in rule["backendRefs"]}

    def _say(self, namespace: str, name: str, said: dict[str, str]) -> None:
        route = self.route(namespace, name)
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": kind if status == "True" else "BackendNotFound",
                "message": "",
                "observedGeneration": route["metadata"]["generation"],
                "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            for kind, status in said.items()
        ]
        parents = [
            {"parentRef": ref, "controllerName": self._name, "conditions": conditions}
            for ref in route["spec"]["parentRefs"]
        ]
        self._api.request(
            "PATCH",
            self._path(namespace, name) + "/status",
            {"status": {"parents": parents}},
            content_type=MERGE_PATCH,
        )

    def _path(self, namespace: str, name: str) -> str:
        return f"/apis/{GROUP}/v1/namespaces/{namespace}/httproutes/{name}"


@pytest.fixture(scope="session")
def gateway_api(cluster: Cluster, pytestconfig: pytest.Config) -> GatewayController:
    """The cluster with the Gateway API in it, and the hand that plays its gateways."""
    try:
        documents = gateway_definitions()
    except NoDefinitions as missing:
        skip_without(pytestconfig, "the Gateway API", missing)
    cluster.install_definitions(*documents)
    return GatewayController(cluster)


def gateway_definitions() -> list[dict[str, Any]]:
    """Give the CustomResourceDefinitions, fetching the module where it is not cached."""
    return MODULE.definitions()
