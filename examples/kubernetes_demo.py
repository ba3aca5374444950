"""The operator at work on a real Kubernetes control plane, on this machine, in about a minute.

Run it with `make demo-kubernetes`. It starts a cluster of its own (pods are scheduled but not
run), an operator beside it, and then does what people and autoscalers do to Deployments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster  # noqa: E402  # found by the line above
from tests.support.testbed import NoTestbed, find_or_build_testbed, say_on_stderr  # noqa: E402

KIND = "inferenceservices.holdfast.dev"
NAMESPACE = "demo"
OPERATOR = "holdfast-operator"
CHAT = {
    "apiVersion": "holdfast.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": NAMESPACE},
    "spec": {
        "modelRef": "Qwen/Qwen3-8B",
        "replicas": 4,
        "resources": {"cpu": "500m", "memory": "1Gi"},
        "env": {"VLLM_LOGGING_LEVEL": "INFO"},
    },
}
EMBED = {
    **CHAT,
    "metadata": {"name": "embed", "namespace": NAMESPACE},
    "spec": {
        "modelRef": "BAAI/bge-m3",
        "minReplicas": 1,
        "maxReplicas": 4,
        "resources": {"cpu": "100m", "memory": "256Mi"},
    },
}


class Demo:
    """One cluster, one operator, and a narrator."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._chapter = 0

    def title(self, text: str) -> None:
        self._chapter += 1
        print(f"\n{self._chapter}. {text}", flush=True)

    def run(self, *arguments: str, show: bool = True, **more: Any) -> str:  # Any: kubectl's input
        """Type a kubectl command, as a reader would."""
        print(f"   $ kubectl {' '.join(arguments)}", flush=True)
        said = self.cluster.kubectl(*arguments, **more).strip()
        if show and said:
            print("\n".join(f"     {line}" for line in said.splitlines()), flush=True)
        return said

    def wait(self, name: str, until: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        found = self.cluster.wait(
            KIND, name, NAMESPACE, lambda item: until(item.get("status") or {}), 60
        )
        status: dict[str, Any] = found["status"]
        return status

    def writes(self) -> int:
        """How often the operator wrote to Deployments, by the API server's own audit log."""
        found = self.cluster.audit_events(
            user_agent=OPERATOR, resource="deployments", namespace=NAMESPACE
        )
        return sum(event.wrote for event in found)


def tell(demo: Demo) -> None:
    cluster = demo.cluster
    demo.title("A service is declared, and its objects appear.")
    cluster.apply(CHAT)
    print("   $ kubectl apply --server-side -f chat.yaml")
    demo.wait("chat", lambda status: status.get("ready"))
    demo.run("get", "inferenceservices.holdfast.dev", "-n", NAMESPACE)
    demo.run("get", "deployments,services,pdb", "-n", NAMESPACE, "-o", "name")

    demo.title("Somebody edits the Deployment by hand. It is put back, and it says who it was.")
    before = cluster.get("deployment", "chat-primary", NAMESPACE)
    with tempfile.TemporaryDirectory() as folder:
        editor = Path(folder) / "editor"
        editor.write_text('#!/bin/sh\nsed -i "s/image: .*/image: my-own-build:latest/" "$1"\n')
        editor.chmod(0o755)
        os.environ["KUBE_EDITOR"] = str(editor)
        demo.run("edit", "deployment/chat-primary", "-n", NAMESPACE)
    began = time.monotonic()
    cluster.wait(
        "deployment", "chat-primary", NAMESPACE, lambda live: live["spec"] == before["spec"]
    )
    print(f"   The image was back {time.monotonic() - began:.1f} s after kubectl had ended.")
    status = demo.wait("chat", lambda status: drift(status)["reason"] == "Healed")
    print(f"   Status: {drift(status)['message']}")

    demo.title("An autoscaler changes the number of replicas. That is its job: it is left alone.")
    cluster.set_usage(NAMESPACE, cpu="80m", memory="100Mi")
    cluster.apply(EMBED)
    print("   $ kubectl apply --server-side -f embed.yaml      # minReplicas: 1, maxReplicas: 4")
    demo.wait("embed", lambda status: status.get("ready"))
    count = demo.writes()
    cluster.set_usage(NAMESPACE, cpu="300m", memory="100Mi")
    print("   ... the load rises ...", flush=True)
    demo.wait("embed", lambda status: status.get("replicas") == 4 and status["ready"])
    demo.run("get", "deployment/embed-primary", "-n", NAMESPACE)
    print(f"   Writes to Deployments by Holdfast meanwhile: {demo.writes() - count}")

    demo.title("A canary gets a share of the requests, and then a larger one.")
    for weight in (25, 50):
        change = {"spec": {"canary": {"modelRef": "Qwen/Qwen3-8B-AWQ", "weight": weight}}}
        demo.run("patch", KIND, "chat", "-n", NAMESPACE, "--type=merge", "-p", json.dumps(change))
        status = demo.wait("chat", lambda status, want=weight: status.get("canaryWeight") == want)
        print(f"   The canary gets {status['canaryWeight']} % ({status['splitMode']}).")

    demo.title("Everything that happened, as events.")
    demo.run(
        "get", "events", "-n", NAMESPACE, "--sort-by=.metadata.creationTimestamp",
        "--field-selector=involvedObject.kind=InferenceService",
        "-o", "custom-columns=REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message",
    )  # fmt: skip


def drift(status: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in status["conditions"] if each["type"] == "DriftDetected")


def main() -> None:
    try:
        find_or_build_testbed(say_on_stderr)
    except NoTestbed as missing:
        sys.exit(str(missing))
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        print("Starting a Kubernetes control plane and the operator ...", flush=True)
        cluster = Cluster.join(Path(folder) / "cluster")
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
        cluster.kubectl("create", "namespace", NAMESPACE)
        with (Path(folder) / "operator.log").open("wb") as log:
            operator = subprocess.Popen(
                [Path(sys.executable).with_name("holdfast"), "operator",
                 "--metrics-address", "127.0.0.1:0"],
                env=cluster.kubectl_environment(), stderr=log,
            )  # fmt: skip
        try:
            tell(Demo(cluster))
        finally:
            operator.terminate()
            operator.wait(30)
            cluster.stop()
    print("\nThe cluster is gone again. `make cluster` starts one to play with.")


if __name__ == "__main__":
    main()
