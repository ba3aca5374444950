"""`kubectl holdfast` is the same program, on the cluster that kubectl uses."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import write_service_status
from tests.support.inference_services import document

from holdfast.wire.crd import INFERENCE_SERVICE, make_crd

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {"kubectl-holdfast": "main", "kubectl_complete-holdfast": "complete"}


class Kubectl:
    """kubectl with the plugin on its PATH."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._program = cluster.programs.path("kubectl")
        self._environ = cluster.kubectl_environment()
        for name, function in SCRIPTS.items():
            script = folder / name
            code = f"from holdfast.apps.cli.kubectl import {function}; {function}()"
            script.write_text(f"#!{sys.executable}\n{code}\n")
            script.chmod(0o755)
        self._environ["PATH"] = f"{folder}:{self._environ['PATH']}"
        self._environ["HOME"] = str(folder)
        for name in [name for name in self._environ if name.startswith("HOLDFAST_")]:
            del self._environ[name]

    def __call__(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *args],
            input=stdin,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Kubectl:
    cluster.apply(make_crd(INFERENCE_SERVICE))
    cluster.kubectl(
        *("wait", "--for=condition=Established", "--timeout=30s"),
        "crd/inferenceservices.holdfast.dev",
    )
    return Kubectl(cluster, tmp_path)


def test_the_scripts_are_installed_under_the_names_that_kubectl_looks_for() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, function in SCRIPTS.items():
        assert scripts[name] == f"holdfast.apps.cli.kubectl:{function}"


def test_kubectl_lists_it_and_its_help_says_how_it_is_called(kubectl: Kubectl) -> None:
    assert "kubectl-holdfast" in kubectl("plugin", "list").stdout
    shown = kubectl("holdfast", "plan", "--help").stdout
    assert "Usage: kubectl holdfast plan" in shown
    assert "  kubectl holdfast plan -f" in shown
    assert "Usage: kubectl holdfast" in kubectl("holdfast").stdout


def test_it_reads_the_namespace_that_kubectl_users_name(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    cluster.apply(document({}, namespace=namespace))
    named = kubectl("holdfast", "status", "-n", namespace, "-o", "name")
    assert named.returncode == 0, named.stderr
    assert "my-llama" in named.stdout
    context = cluster.kubectl("config", "current-context").strip()
    for flags in (
        ("--namespace", namespace, "--context", context),
        (f"--namespace={namespace}", f"--context={context}"),
        (f"-n{namespace}",),
    ):
        assert "my-llama" in kubectl("holdfast", *flags, "status", "-o", "name").stdout
    elsewhere = kubectl("holdfast", "status", "-n", "kube-public", "-o", "name")
    assert elsewhere.returncode == 0 and "my-llama" not in elsewhere.stdout
    unknown = kubectl("holdfast", "status", "--context", "nowhere")
    assert unknown.returncode == 1 and "nowhere" in unknown.stderr


def test_what_runs_in_the_cluster_is_imported(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    made = kubectl("holdfast", "render", "-f", "-", "-n", namespace, stdin=json.dumps(document({})))
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=made.stdout)
    found = kubectl("holdfast", "import", "deployment/my-llama-primary", "-n", namespace)
    assert found.returncode == 0, found.stderr
    spec = yaml.safe_load(found.stdout)
    assert (spec["model"], spec["backend"], spec["replicas"]) == ("llama3-8b-q4", "vllm", 2)
    assert spec["resources"]["gpu_memory"] == "24Gi"
    again = kubectl(
        *("holdfast", "render", "-f", "-", "--as", "objects", "-n", namespace), stdin=found.stdout
    )
    assert again.stdout == made.stdout
    absent = kubectl("holdfast", "import", "deploy/nothing", "-n", namespace)
    assert absent.returncode == 1 and "There is no Deployment nothing" in absent.stderr


def test_a_service_in_the_cluster_is_imported(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    cluster.apply(document({}, namespace=namespace))
    found = kubectl("holdfast", "import", "hold/my-llama", "-n", namespace)
    assert found.returncode == 0, found.stderr
    assert yaml.safe_load(found.stdout)["project"] == namespace


def test_an_edit_with_kubectl_is_explained_with_its_tool_and_time(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    spec = "name: bot\nmodel: org/m\nbackend: vllm\nreplicas: 2\n"
    done = kubectl("holdfast", "ensure", "-f", "-", "-n", namespace, stdin=spec)
    assert done.returncode == 0, done.stderr
    assert "Next: kubectl holdfast" in done.stderr
    cluster.kubectl(
        *("patch", "inferenceservices.holdfast.dev", "bot", "-n", namespace, "--type=merge"),
        *("-p", '{"spec":{"replicas":5}}', "--field-manager=kubectl-edit"),
    )
    differs = kubectl("holdfast", "diff", "-f", "-", "-n", namespace, stdin=spec)
    assert "kubectl-edit" in differs.stdout and "5" in differs.stdout
    listed = kubectl("holdfast", "drift", "list", "-n", namespace)
    assert "kubectl-edit" in listed.stdout and "person" in listed.stdout
    explained = kubectl("holdfast", "drift", "explain", "bot", "-n", namespace).stdout
    assert "replicas is 5; 2 is declared." in explained
    assert "kubectl-edit wrote it at 20" in explained and "people" in explained


def test_drift_that_nobody_looked_for_is_unknown_and_not_absent(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    cluster.apply(document({}, namespace=namespace))
    condition = {
        "type": "DriftDetected",
        "status": "Unknown",
        "reason": "InvalidSpec",
        "message": "The spec was refused, so nobody looked.",
        "lastTransitionTime": "2026-10-01T10:00:00Z",
    }
    write_service_status(cluster, namespace, "my-llama", conditions=[condition])
    for form in ("table", "json"):
        listed = kubectl("holdfast", "drift", "list", "-n", namespace, "-o", form)
        assert listed.returncode == 0, listed.stderr
        assert "No drift.\n" not in listed.stdout
        assert "my-llama has drifted is unknown: The spec was refused, so nobody" in listed.stderr
    assert kubectl("holdfast", "drift", "list", "-n", namespace, "--exit-code").returncode == 1
    explained = kubectl("holdfast", "drift", "explain", "my-llama", "-n", namespace)
    assert "my-llama has drifted is unknown:" in explained.stderr


def test_the_operators_word_on_its_objects_is_shown_in_sentences(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    cluster.apply(document({}, namespace=namespace))
    said = (
        "kubectl-edit changed spec.template.spec.containers[name=server].image of Deployment "
        "my-llama-primary at 2026-10-01T10:00:00Z. It was left, as onDrift: warn says."
    )
    condition = {
        "type": "DriftDetected",
        "status": "True",
        "reason": "Left",
        "message": said,
        "lastTransitionTime": "2026-10-01T10:00:02Z",
    }
    cluster.kubectl(
        *("patch", "inferenceservices.holdfast.dev", "my-llama", "-n", namespace),
        *("--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": {"conditions": [condition]}})),
    )
    shown = kubectl("holdfast", "drift", "explain", "my-llama", "-n", namespace).stdout
    assert "of Deployment my-llama-primary at 2026-10-01T10:00:00Z." in shown
    assert "\n    It was left, as onDrift: warn says.\n" in shown


def test_the_shell_completes_commands_flags_contexts_and_names(
    kubectl: Kubectl, cluster: Cluster, namespace: str
) -> None:
    cluster.apply(document({}, namespace=namespace))
    context = cluster.kubectl("config", "current-context").strip()
    for words, expected in (
        (("stat",), "status"),
        (("status", "--names"), "--namespace"),
        (("status", "--context", ""), context),
        (("status", "-n", namespace, "my"), "my-llama"),
    ):
        shown = kubectl("__complete", "holdfast", *words).stdout.splitlines()
        assert any(line.partition("\t")[0] == expected for line in shown), (words, shown)
