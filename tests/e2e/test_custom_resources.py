"""Custom resources of a real cluster: nulls as `kubectl apply` takes them, and what none takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.ownership import KEY, MANAGER, ResourceBench, run_on_cluster

from holdfast.adapters.clock import SystemClock
from holdfast.core.errors import ValidationError
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import declare
from holdfast.reconcile.objects.resource_manager import ResourceManager

pytestmark = pytest.mark.cluster

GROUP = "nulls.holdfast.dev"
SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "typed": {"type": "string"},
        "part": {"type": "object", "properties": {"size": {"type": "string"}}},
        "nullable": {"type": "string", "nullable": True},
        "values": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"gadgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Gadget", "plural": "gadgets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
            }
        ],
    },
}


def test_nulls_are_sent_where_they_mean_something_and_left_out_where_they_are_refused(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(DEFINITION)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/gadgets.{GROUP}")
    item: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gadget",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {
            "typed": None,
            "part": {"size": None},
            "nullable": None,
            "values": {"gone": None},
        },
    }

    async def story(bench: ResourceBench) -> None:
        keeper = ResourceManager(bench.client, manager=MANAGER, key=KEY, clock=SystemClock())
        declared = declare(item, MANAGER)
        made = await keeper.create(declared)
        assert made.live["spec"] == {"part": {}, "nullable": None, "values": {"gone": None}}
        assert made.altered == ()
        found = await keeper.diff(declared, made.live)
        assert found.state is ObjectState.IN_SYNC, found.field_drifts

    run_on_cluster(cluster, namespace, story)


def test_what_cannot_be_decoded_is_a_refusal_and_no_outage(
    cluster: Cluster, namespace: str
) -> None:
    """The server answers 500 to it, each time."""
    metadata = {"name": "bad", "namespace": namespace}
    item: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    async def story(bench: ResourceBench) -> None:
        with pytest.raises(ValidationError, match="illegal base64"):
            await bench.client.apply({**item, "binaryData": {"a": "%%%"}}, manager=MANAGER)

    run_on_cluster(cluster, namespace, story)
