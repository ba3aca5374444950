"""The apps on a real cluster, as a user opens them: an address, a kubeconfig, and that is all."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import edit, write_service_status

from holdfast import ManagementClient, WorkloadFailed
from holdfast.apps.cli.main import cli
from holdfast.testing import a_spec

pytestmark = pytest.mark.cluster


def test_the_command_line_keeps_workloads_in_a_cluster(
    kubeconfig: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No project is named, so it is the namespace."""
    monkeypatch.setenv("HOLDFAST_URL", f"kubernetes:///{namespace}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.yaml").write_text("name: chat\nmodel: m\nbackend: vllm\nreplicas: 2\n")

    def holdfast(*arguments: str, code: int = 0) -> str:
        ran = CliRunner().invoke(cli, arguments)
        assert ran.exit_code == code, ran.output
        return ran.stdout

    holdfast("plan", "-f", "chat.yaml", "--exit-code", code=2)
    holdfast("ensure", "-f", "chat.yaml")
    found = kubeconfig.get("inferenceservice", "chat", namespace)
    assert found["metadata"]["labels"] == {"holdfast.dev/project": namespace}
    managers = {entry["manager"] for entry in found["metadata"]["managedFields"]}
    assert managers == {"holdfast-cli"}
    edit(kubeconfig, namespace, "chat", {"spec": {"replicas": 9}}, manager="kubectl-edit")
    (seen,) = json.loads(holdfast("status", "-o", "json"))["items"]
    assert (seen["slug"], seen["sync"]) == ("chat", "drifted")
    assert "kubectl-edit" in holdfast("drift", "list", "-o", "wide")
    assert "no operator" in holdfast("doctor")
    holdfast("ensure", "-f", "chat.yaml")
    assert json.loads(holdfast("status", "-o", "json"))["items"][0]["sync"] == "synced"
    holdfast("delete", "chat", "--yes")
    assert kubeconfig.objects("inferenceservice", namespace) == []


def test_a_sync_client_waits_and_watches_while_the_operator_reports(
    kubeconfig: Cluster, namespace: str
) -> None:
    with ManagementClient(f"kubernetes:///{namespace}") as client:
        client.ensure(a_spec(name="chat"))
        changes = client.watch(timeout=60)
        assert next(changes).kind == "present"
        reported = {"observedGeneration": 1, "replicas": 1, "message": "serving"}
        threading.Timer(
            0.5, write_service_status, (kubeconfig, namespace, "chat"), {**reported, "ready": True}
        ).start()
        assert client.wait_until_ready("chat", timeout=60, silent=True).message == "serving"
        change = next(changes)
        assert (change.kind, change.live.status.phase) == ("updated", "ready")
        changes.close()  # type: ignore[attr-defined]  # it is a generator
        invalid = {"type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "no"}
        invalid["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        write_service_status(
            kubeconfig, namespace, "chat", ready=False, message="no", conditions=[invalid]
        )
        with pytest.raises(WorkloadFailed, match="no"):
            client.wait_until_ready("chat", timeout=60, silent=True)
