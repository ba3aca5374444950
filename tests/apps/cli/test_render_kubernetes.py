"""`holdfast render` shows, offline, what Kubernetes would get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tests.support.inference_services import canary, document


def kinds(text: str) -> list[tuple[str, str]]:
    return [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text)]


def test_a_workload_is_rendered_as_its_objects(holdfast: Any, chat: Path) -> None:
    run = holdfast("render", "-f", str(chat), "--as", "objects", "-n", "team-a")
    assert run.code == 0, run.err
    assert kinds(run.out) == [
        ("Deployment", "support-bot-primary"),
        ("Service", "support-bot-primary"),
        ("Service", "support-bot-svc"),
        ("PodDisruptionBudget", "support-bot-pdb"),
    ]
    assert {each["metadata"]["namespace"] for each in yaml.safe_load_all(run.out)} == {"team-a"}


def test_a_workload_is_rendered_as_its_custom_resource_and_back(holdfast: Any, chat: Path) -> None:
    run = holdfast("render", "-f", str(chat), "--as", "inferenceservice")
    service = yaml.safe_load(run.out)
    assert service["apiVersion"] == "holdfast.dev/v1alpha1"
    assert service["spec"]["modelRef"] == "llama-3.1-8b"
    assert set(service) == {"apiVersion", "kind", "metadata", "spec"}
    back = holdfast("render", "-f", "-", "--as", "workload", stdin=run.out)
    again = holdfast("render", "-f", "-", "--as", "inferenceservice", stdin=back.out)
    assert again.out == run.out


def test_an_inference_service_is_rendered_as_its_objects(holdfast: Any) -> None:
    run = holdfast("render", "-f", "-", stdin=json.dumps(document(canary())))
    assert ("Deployment", "my-llama-canary") in kinds(run.out)
    assert "before it is ready" in run.err


def test_a_gateway_adds_the_route(holdfast: Any, chat: Path) -> None:
    run = holdfast(
        *("render", "-f", str(chat), "--as", "objects"),
        *("--gateway", "infra/public", "--domain", "models.example"),
    )
    assert kinds(run.out)[-1] == ("HTTPRoute", "support-bot")


def test_without_a_form_a_workload_is_printed_as_before(holdfast: Any, chat: Path) -> None:
    assert yaml.safe_load(holdfast("render", "-f", str(chat)).out)["kind"] == "Workload"


def test_what_kubernetes_cannot_honour_is_refused_with_the_reason(holdfast: Any) -> None:
    spec = "name: a\nmodel: m\nbackend: vllm\nworker_id: node-7\n"
    run = holdfast("render", "-f", "-", "--as", "objects", stdin=spec)
    assert run.code == 1 and "worker_id" in run.err and run.out == ""
    assert holdfast("render", "-f", "-", stdin=spec).code == 0


def test_a_wrong_inference_service_is_refused_with_its_line(holdfast: Any) -> None:
    text = yaml.safe_dump(document({"replicas": 0}), sort_keys=False)
    run = holdfast("render", "-f", "-", stdin=text)
    assert run.code == 1 and "replicas" in run.err and "stdin:" in run.err


def test_other_commands_do_not_take_an_inference_service_for_a_workload(holdfast: Any) -> None:
    run = holdfast("plan", "-f", "-", stdin=json.dumps(document()))
    assert run.code == 1 and "kind" in run.err
