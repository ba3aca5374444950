"""What belongs to other controllers is recognised without being told, and left to them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.edits import DEPLOYMENT, EDITS, with_change
from tests.support.ownership import MANAGER, diff_as_operator

from holdfast.core.live import Writer
from holdfast.core.ownership.delegated import OwnershipContext, delegated_by_writer
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.tree import Path, show_path


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def live_after(name: str) -> dict[str, Any]:
    [edit] = (edit for edit in EDITS if edit.name == name)
    live: dict[str, Any] = json.loads(edit.file.read_text())["live"]
    return live


REPLICAS: Path = ("spec", "replicas")
CPU: Path = ("spec", "containers", "[name=app]", "resources", "requests", "cpu")
BUNDLE: Path = ("webhooks", "[name=w]", "clientConfig", "caBundle")
SIDECAR: Path = ("spec", "containers", "[name=istio-proxy]")
WEIGHT: Path = ("spec", "rules", "[0]", "backendRefs", "[name=canary]", "weight")
HPA = Writer(manager="kube-controller-manager", subresource="scale")
PERSON = Writer(manager="kubectl-edit")


@pytest.mark.parametrize(
    ("path", "writer", "context", "left"),
    [
        (REPLICAS, HPA, OwnershipContext(), True),
        (REPLICAS, Writer(manager="keda-operator"), OwnershipContext(), True),
        (REPLICAS, Writer(manager="kubectl", subresource="scale"), OwnershipContext(), False),
        (REPLICAS, None, OwnershipContext(), False),
        (REPLICAS, None, OwnershipContext(autoscaler="ScaledObject/bot"), True),
        (REPLICAS, HPA, OwnershipContext(autoscaler=""), False),
        (CPU, Writer(manager="vpa-updater"), OwnershipContext(), True),
        (CPU, PERSON, OwnershipContext(), False),
        (CPU, None, OwnershipContext(vertical="VerticalPodAutoscaler/bot"), True),
        (BUNDLE, Writer(manager="cainjector"), OwnershipContext(), True),
        (BUNDLE, PERSON, OwnershipContext(), False),
        (SIDECAR, None, OwnershipContext(), True),
        (SIDECAR, PERSON, OwnershipContext(), False),
        (WEIGHT, PERSON, OwnershipContext(), False),
        (
            WEIGHT,
            PERSON,
            OwnershipContext(delegated=("spec.rules[*].backendRefs[*].weight",)),
            True,
        ),
    ],
)
def test_a_field_of_another_controller_is_recognised(
    path: Path, writer: Writer | None, context: OwnershipContext, left: bool
) -> None:
    assert (delegated_by_writer(path, writer, context) is not None) is left


def test_an_injected_sidecar_without_an_owner_is_no_drift() -> None:
    """What admission adds has no owner, so nothing would ever say who put it there."""
    live = live_after("nothing")
    live["spec"]["template"]["spec"]["containers"].append({"name": "istio-proxy", "image": "i:1"})
    assert diff_as_operator(DEPLOYMENT, live).state is ObjectState.IN_SYNC


def test_a_sidecar_of_its_injector_is_delegated_and_of_a_person_is_drift() -> None:
    live = live_after("a container and a privilege added by another manager")
    template = live["spec"]["template"]["spec"]
    del template["hostNetwork"]
    for each in template["containers"]:
        each["name"] = each["name"].replace("miner", "istio-proxy")
    text = json.dumps(live).replace('{\\"name\\":\\"miner\\"}', '{\\"name\\":\\"istio-proxy\\"}')
    for manager, state in (
        ("istio-operator", ObjectState.IN_SYNC),
        ("kubectl-edit", ObjectState.DRIFTED),
    ):
        injected = json.loads(text.replace("miner-operator", manager))
        assert diff_as_operator(DEPLOYMENT, injected).state is state


WEBHOOK: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "w"},
    "webhooks": [
        {"name": "w.example.com", "clientConfig": {"url": "https://w", "caBundle": "eA=="}}
    ],
}


@pytest.mark.parametrize(
    ("manager", "left"), [("cainjector", True), ("cert-manager-cainjector", True), ("curl", False)]
)
def test_a_certificate_authority_is_left_to_its_injector(manager: str, left: bool) -> None:
    bundle = {'k:{"name":"w.example.com"}': {"f:clientConfig": {"f:caBundle": {}}}}
    live = with_change(
        WEBHOOK, lambda it: it["webhooks"][0]["clientConfig"].update(caBundle="eQ==")
    )
    live["metadata"]["managedFields"] = [
        entry(MANAGER, "Apply", WEBHOOK, {'k:{"name":"w.example.com"}': {
            ".": {}, "f:name": {}, "f:clientConfig": {"f:url": {}}}}),
        entry(manager, "Update", WEBHOOK, bundle),
    ]  # fmt: skip
    found = diff_as_operator(WEBHOOK, live)
    assert found.state is (ObjectState.IN_SYNC if left else ObjectState.DRIFTED)


def entry(
    manager: str, operation: str, item: dict[str, Any], webhooks: dict[str, Any]
) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": item["apiVersion"],
        "fieldsV1": {"f:webhooks": webhooks},
    }


def route(primary: int, canary: int, path: str = "/") -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "bot"},
        "spec": {
            "rules": [
                {
                    "matches": [{"path": {"value": path}}],
                    "backendRefs": [
                        {"name": "bot", "port": 80, "weight": primary},
                        {"name": "bot-canary", "port": 80, "weight": canary},
                    ],
                }
            ]
        },
    }


@pytest.mark.parametrize(
    ("live", "delegated", "state"),
    [
        (route(80, 20), ("spec.rules[*].backendRefs[*].weight",), ObjectState.IN_SYNC),
        (route(80, 20, path="/v2"), ("spec.rules[*].backendRefs[*].weight",), ObjectState.DRIFTED),
        (route(80, 20), (), ObjectState.DRIFTED),
        (route(80, 20), ("spec.rules[*].matches",), ObjectState.DRIFTED),
    ],
)
def test_weights_of_a_route_are_delegated_although_its_rules_are_one_value(
    live: dict[str, Any], delegated: tuple[str, ...], state: ObjectState
) -> None:
    item = route(100, 0)
    rules = {"f:spec": {"f:rules": {}}}
    live["metadata"]["managedFields"] = [
        entry(MANAGER, "Apply", item, {}) | {"fieldsV1": {"f:metadata": {"f:labels": {}}}},
        entry("flagger", "Update", item, {}) | {"fieldsV1": rules},
    ]
    found = diff_as_operator(item, live, context=OwnershipContext(delegated=delegated))
    assert found.state is state
    assert [show_path(each.change.path) for each in found.field_drifts] == ["spec.rules"]
