"""Claims of devices (dynamic resource allocation) against a real API server and scheduler.

No driver runs: a test publishes the devices of a node as a driver would, and the cluster's own
controllers make the claims of a template, allocate devices and bind pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster_process import NODES
from tests.support.control_plane import ApiRequestFailed
from tests.support.inference_services import ACCEPTED, document
from tests.support.operator_world import NAME, OperatorWorld, OperatorWorlds

from holdfast.core.service.children import Facts, manifests
from holdfast.wire.inference_service_v1alpha1 import service_from_json

pytestmark = pytest.mark.cluster
API = "resource.k8s.io/v1"
PRIMARY = f"{NAME}-primary"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments?fieldValidation=Strict"


# Any: objects of the Kubernetes API, here and below.
def devices(namespace: str, *names: str) -> list[dict[str, Any]]:
    """A class of devices of this test's own, some of them on one node, and ways to claim them."""
    driver = f"{namespace}.example.com"
    node = NODES[0]
    request = {"name": "gpu", "exactly": {"deviceClassName": driver}}
    spec = {"devices": {"requests": [request]}}
    where = {"namespace": namespace}
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return [
        {
            "apiVersion": API,
            "kind": "DeviceClass",
            "metadata": {"name": driver},
            "spec": {"selectors": [selector]},
        },
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": namespace},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": name} for name in names],
            },
        },
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", **where},
            "spec": {"spec": spec},
        },
        {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": "fabric", **where},
            "spec": spec,
        },
    ]


@pytest.fixture
def world(definitions: Cluster, namespace: str) -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        yield worlds.real(definitions.kubeconfig, namespace)
    for kind in ("deviceclass", "resourceslice"):
        for name in (f"{namespace}.example.com", namespace):
            definitions.kubectl("delete", kind, name, "--ignore-not-found")


def claimed(namespace: str, **change: Any) -> Any:
    """The Deployment of a service with claims, as it is rendered."""
    spec = {**ACCEPTED["with claims"], **change}
    service = service_from_json(document(spec, namespace=namespace))
    return manifests(service, Facts())[0]


def test_a_rendered_pod_with_claims_is_taken_as_it_is_and_a_wrong_one_is_not(
    cluster: Cluster, namespace: str
) -> None:
    path = DEPLOYMENTS.format(namespace)
    api = cluster.api()
    mine = claimed(namespace)
    theirs = api.request("POST", f"{path}&dryRun=All", mine)
    pod, sent = theirs["spec"]["template"]["spec"], mine["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == sent["resourceClaims"]
    assert pod["containers"][0]["resources"] == sent["containers"][0]["resources"]
    sent["resourceClaims"] = sent["resourceClaims"][:1]
    with pytest.raises(ApiRequestFailed, match="claims"):
        api.request("POST", f"{path}&dryRun=All", mine)


def test_each_replica_gets_a_device_of_its_own_and_what_was_edited_is_put_back(
    world: OperatorWorld, definitions: Cluster, namespace: str
) -> None:
    definitions.apply(*devices(namespace, "gpu-0", "gpu-1", "gpu-2"))
    claims = [
        {"name": "gpu", "resourceClaimTemplateName": "one-gpu", "request": "gpu"},
        {"name": "shared", "resourceClaimName": "fabric"},
    ]
    world.declare({"resources": {"gpuMemory": None, "claims": claims}})
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")
    path = f"/apis/{API}/namespaces/{namespace}/resourceclaims"
    found = definitions.api().request("GET", path)["items"]
    made = [each for each in found if each["metadata"]["name"] != "fabric"]
    results = [each["status"]["allocation"]["devices"]["results"][0]["device"] for each in found]
    assert len(made) == 2
    assert sorted(results) == ["gpu-0", "gpu-1", "gpu-2"]
    (shared,) = [each for each in found if each["metadata"]["name"] == "fabric"]
    assert len(shared["status"]["reservedFor"]) == 2
    world.reconcile()
    assert world.client.writes == []
    path = "/spec/template/spec/resourceClaims/0/resourceClaimTemplateName"
    world.edit("Deployment", PRIMARY, {"op": "replace", "path": path, "value": "all-gpus"})
    world.reconcile()
    pod = world.primary()["spec"]["template"]["spec"]
    assert pod["resourceClaims"][0]["resourceClaimTemplateName"] == "one-gpu"
    assert "resourceClaims" in world.says("DriftDetected")
    assert world.condition("DriftDetected") == ("False", "Healed")


def test_a_replica_for_which_there_is_no_device_is_told_in_the_schedulers_words(
    world: OperatorWorld, definitions: Cluster, namespace: str
) -> None:
    definitions.apply(*devices(namespace, "gpu-0"))
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    world.declare({"resources": {"gpuMemory": None, "claims": claims}})
    world.reconcile()

    def told() -> bool:
        world.clock.time = world.clock.time.replace(hour=world.clock.time.hour % 23 + 1)
        world.reconcile()
        return "cannot allocate all claims" in world.says("Degraded")

    world.eventually(told, "the scheduler's words", 60)
    assert world.condition("Ready")[0] == "False"
    assert world.primary()["status"]["readyReplicas"] == 1
