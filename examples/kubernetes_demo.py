"""The operator at work on a real Kubernetes control plane, on this machine, in about a minute.

Run it with `make demo-kubernetes`. It starts a cluster of its own and the operator, and then does
what people and autoscalers do to Deployments. Where the machine can (Linux, root, Debian packages)
the cluster has a real node: the operator runs in pods and a small model really answers. Elsewhere
pods are scheduled but not run, and the first line says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster  # noqa: E402  # found by the line above
from tests.support.go_programs import NotBuilt  # noqa: E402
from tests.support.node.handle import REGISTRY, Node  # noqa: E402
from tests.support.node.holdfast_image import (  # noqa: E402
    find_or_build_holdfast_image,
    install_holdfast,
)
from tests.support.node.process import NoNode, check_machine, prepare  # noqa: E402
from tests.support.testbed import NoTestbed, find_or_build_testbed, say_on_stderr  # noqa: E402
from tools.debian import NoPackages  # noqa: E402
from tools.image import ImageNotBuilt  # noqa: E402

KIND = "inferenceservices.holdfast.dev"
NAMESPACE = "demo"
OPERATOR = "holdfast-operator"
CHAT = {
    "apiVersion": "holdfast.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {
        "modelRef": "Qwen/Qwen3-8B",
        "replicas": 4,
        "resources": {"cpu": "500m", "memory": "1Gi"},
        "env": {"VLLM_LOGGING_LEVEL": "INFO"},
    },
}
SERVED = {
    **CHAT,
    "spec": {
        "backend": "llamacpp",
        "modelRef": "/srv/models/chat.gguf",
        "image": f"{REGISTRY}/llama:1",
        "replicas": 4,
        "resources": {"cpu": "100m", "memory": "256Mi"},
        "args": ["--alias", "old"],
    },
}
PROMPT = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
EMBED = {
    **CHAT,
    "metadata": {"name": "embed"},
    "spec": {
        "modelRef": "BAAI/bge-m3",
        "minReplicas": 1,
        "maxReplicas": 4,
        "resources": {"cpu": "100m", "memory": "256Mi"},
    },
}


class Demo:
    """One cluster, one operator, and a narrator."""

    def __init__(self, cluster: Cluster, namespace: str = NAMESPACE) -> None:
        self.cluster = cluster
        self.namespace = namespace
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
            KIND, name, self.namespace, lambda item: until(item.get("status") or {}), 60
        )
        status: dict[str, Any] = found["status"]
        return status

    def writes(self) -> int:
        """How often the operator wrote to Deployments, by the API server's own audit log."""
        found = self.cluster.audit_events(
            user_agent=OPERATOR, resource="deployments", namespace=self.namespace
        )
        return sum(event.wrote for event in found)


def tell(demo: Demo) -> None:
    """Play the story where pods are scheduled but not run."""
    declare(demo, CHAT)
    edit(demo)
    autoscale(demo)
    shift_to_canary(demo, {"modelRef": "Qwen/Qwen3-8B-AWQ"})
    show_events(demo)


def tell_on_node(demo: Demo, node: Node) -> None:
    """Play the story where pods run, and a model answers."""
    declare(demo, SERVED)
    address = node.get("service", "chat-svc", demo.namespace)["spec"]["clusterIP"]
    url = f"http://{address}:8000/v1"
    print(f"   $ curl {url}/chat/completions -d '{PROMPT}'")
    answer = json.loads(node.run_inside("curl", "-s", f"{url}/chat/completions", "-d", PROMPT))
    print(f"     {answer['choices'][0]['message']['content']}")
    with asking(node, f"{url}/chat/completions"):
        edit(demo)
    shift_to_canary(demo, {"args": ["--alias", "new"]})
    for name in ("chat-primary", "chat-canary"):
        node.wait("deployment", name, demo.namespace, has_two_pods)
    time.sleep(2)  # until kube-proxy has heard of it
    asked = node.run_inside("sh", "-c", f"for i in $(seq 40); do curl -s {url}/models; done")
    counts = {name: asked.count(f'"id":"{name}"') for name in ("old", "new")}
    print(f"   Of 40 requests the old model answered {counts['old']}, the new {counts['new']}.")
    show_events(demo)


def has_two_pods(deployment: dict[str, Any]) -> bool:
    status = deployment["status"]
    return status.get("replicas") == status.get("readyReplicas") == 2


@contextmanager
def asking(node: Node, url: str) -> Iterator[None]:
    """Send one prompt after another inside the block, and say afterwards how many were answered."""
    ask = f"curl -s -m 20 -o /dev/null -w '%{{http_code}}\\n' {url} -d '{PROMPT}'"
    command = node.command_inside("sh", "-c", f"while true; do {ask}; done")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.terminate()  # the shell; the prompt that is on its way is still answered
        assert process.stdout is not None
        codes = process.stdout.read().split()
    lost = len(codes) - codes.count("200")
    print(f"   Meanwhile {len(codes)} prompts were sent, one after another; {lost} were lost.")


def declare(demo: Demo, service: dict[str, Any]) -> None:
    demo.title("A service is declared, and its objects appear.")
    demo.cluster.apply(_in(demo, service))
    print("   $ kubectl apply --server-side -f chat.yaml")
    demo.wait("chat", lambda status: status.get("ready"))
    demo.run("get", "inferenceservices.holdfast.dev", "-n", demo.namespace)
    demo.run("get", "deployments,services,pdb", "-n", demo.namespace, "-o", "name")


def edit(demo: Demo) -> None:
    cluster, namespace = demo.cluster, demo.namespace
    demo.title("Somebody edits the Deployment by hand. It is put back, and it says who it was.")
    before = cluster.get("deployment", "chat-primary", namespace)
    with tempfile.TemporaryDirectory() as folder:
        editor = Path(folder) / "editor"
        editor.write_text('#!/bin/sh\nsed -i "s/image: .*/image: my-own-build:latest/" "$1"\n')
        editor.chmod(0o755)
        os.environ["KUBE_EDITOR"] = str(editor)
        demo.run("edit", "deployment/chat-primary", "-n", namespace)
    began = time.monotonic()
    cluster.wait(
        "deployment", "chat-primary", namespace, lambda live: live["spec"] == before["spec"]
    )
    print(f"   The image was back {time.monotonic() - began:.1f} s after kubectl had ended.")
    status = demo.wait("chat", lambda status: drift(status)["reason"] == "Healed")
    print(f"   Status: {drift(status)['message']}")


def autoscale(demo: Demo) -> None:
    cluster = demo.cluster
    demo.title("An autoscaler changes the number of replicas. That is its job: it is left alone.")
    cluster.set_usage(demo.namespace, cpu="80m", memory="100Mi")
    cluster.apply(_in(demo, EMBED))
    print("   $ kubectl apply --server-side -f embed.yaml      # minReplicas: 1, maxReplicas: 4")
    demo.wait("embed", lambda status: status.get("ready"))
    count = demo.writes()
    cluster.set_usage(demo.namespace, cpu="300m", memory="100Mi")
    print("   ... the load rises ...", flush=True)
    demo.wait("embed", lambda status: status.get("replicas") == 4 and status["ready"])
    demo.run("get", "deployment/embed-primary", "-n", demo.namespace)
    print(f"   Writes to Deployments by Holdfast meanwhile: {demo.writes() - count}")


def shift_to_canary(demo: Demo, canary: dict[str, Any]) -> None:
    demo.title("A canary gets a share of the requests, and then a larger one.")
    for weight in (25, 50):
        change = json.dumps({"spec": {"canary": {**canary, "weight": weight}}})
        demo.run("patch", KIND, "chat", "-n", demo.namespace, "--type=merge", "-p", change)
        status = demo.wait("chat", lambda status, want=weight: status.get("canaryWeight") == want)
        print(f"   The canary gets {status['canaryWeight']} % ({status['splitMode']}).")


def show_events(demo: Demo) -> None:
    demo.title("Everything that happened, as events.")
    demo.run(
        "get", "events", "-n", demo.namespace, "--sort-by=.metadata.creationTimestamp",
        "--field-selector=involvedObject.kind=InferenceService",
        "-o", "custom-columns=REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message",
    )  # fmt: skip


def _in(demo: Demo, service: dict[str, Any]) -> dict[str, Any]:
    return {**service, "metadata": {**service["metadata"], "namespace": demo.namespace}}


def drift(status: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in status["conditions"] if each["type"] == "DriftDetected")


def main() -> None:
    try:
        find_or_build_testbed(say_on_stderr)
    except NoTestbed as missing:
        sys.exit(str(missing))
    try:
        check_machine()
        prepare(say_on_stderr)
        find_or_build_holdfast_image(say_on_stderr)
    except (NoNode, NoPackages, NotBuilt, ImageNotBuilt) as missing:
        print(f"Pods are scheduled here but not run: {missing}", flush=True)
        play_scheduled()
    else:
        play_on_node()


def play_on_node() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        print("Starting Kubernetes with a real node, and the operator in its pods ...", flush=True)
        node = Node.join(Path(folder) / "node")
        try:
            install_holdfast(node, say_on_stderr)
            node.kubectl("create", "namespace", NAMESPACE)
            tell_on_node(Demo(node), node)
        finally:
            node.stop()
    print("\nThe cluster is gone again. `make node` starts one to play with.")


def play_scheduled() -> None:
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
