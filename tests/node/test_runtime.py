"""What pods really serve, asked of real llama.cpp on the real node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.node.test_serving import CHAT, KIND, Status, condition, is_ready
from tests.support.cluster_fixtures import create_inference_service
from tests.support.node.handle import Node

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

SQL = "/srv/models/sql.gguf"


def is_verified(found: Status) -> bool:
    return condition(found, "RuntimeVerified").get("status") == "True"


def adapters(node: Node, address: str) -> Any:  # Any: JSON
    return json.loads(node.run_inside("curl", "-s", f"{address}/lora-adapters"))


def test_an_adapter_scaled_by_hand_is_found_within_a_minute_and_put_back(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    spec = {
        **CHAT,
        "replicas": 1,
        "args": ["--parallel", "2", "--ctx-size", "2048", "--alias", "chat"],
        "adapters": [{"name": "sql", "source": SQL, "scale": 0.5}],
    }
    create_inference_service(node, node_namespace, "chat", spec)
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    found = node.wait(KIND, "chat", node_namespace, is_verified, 30)
    said = condition(found, "RuntimeVerified")["message"]
    assert said == "1 replica is serving what is declared: model, names, maxLength, adapters."
    (pod,) = node.objects("pods", node_namespace)
    address = f"http://{pod['status']['podIP']}:8000"
    assert [(each["path"], each["scale"]) for each in adapters(node, address)] == [(SQL, 0.5)]

    body = json.dumps([{"id": 0, "scale": 0.0}])
    node.run_inside("curl", "-s", f"{address}/lora-adapters", "-d", body)
    assert adapters(node, address)[0]["scale"] == 0.0
    found = node.wait(
        KIND,
        "chat",
        node_namespace,
        lambda each: condition(each, "DriftDetected").get("reason") == "Healed",
        70,
    )
    assert adapters(node, address)[0]["scale"] == 0.5
    told = condition(found, "DriftDetected")["message"]
    name = pod["metadata"]["name"]
    assert told == (
        f"Pod {name} serves adapters.sql.scale 0, and 0.5 is declared. It was put back."
    )
    (same,) = node.objects("pods", node_namespace)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"], "it was not restarted"
