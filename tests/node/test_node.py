"""The node of the test bed itself: pods run, Services answer, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.node.handle import REGISTRY, Node
from tests.support.node.images import find_or_build_images
from tests.support.node.process import CGROUP_PREFIX, CGROUPS
from tests.support.processes import ROOT, is_alive, wait_until
from tests.support.testbed import say_on_stderr
from tools.oci import ImageConfig, write_image

from holdfast.core.backends import POD_HOST

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

PROMPT = json.dumps({"messages": [{"role": "user", "content": "hello"}]})


def pod(name: str, image: str, **container: object) -> dict[str, object]:
    server = {
        "name": "server",
        "image": image,
        "args": ["--model", "/srv/models/chat.gguf", "--host", POD_HOST, "--port", "8080"],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 1},
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [server], "terminationGracePeriodSeconds": 1},
    }


def is_ready(found: dict) -> bool:
    conditions = found["status"].get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def test_a_pod_from_the_registry_answers_a_prompt_through_its_service(
    node: Node, node_namespace: str
) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": node_namespace},
        "spec": {"selector": {"app": "chat"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    chat = pod("chat", f"{REGISTRY}/llama:1")
    chat["metadata"]["namespace"] = node_namespace
    node.apply(chat, service)
    running = node.wait("pod", "chat", node_namespace, is_ready, 60)
    digest = next(i.digest for i in find_or_build_images(say_on_stderr) if "llama" in i.name)
    assert running["status"]["containerStatuses"][0]["imageID"] == f"{REGISTRY}/llama@{digest}"
    assert node.run_inside("true") == ""
    address = node.get("service", "chat", node_namespace)["spec"]["clusterIP"]
    url = f"http://{address}/v1/chat/completions"
    answer = wait_until(lambda: node.run_inside("curl", "-s", "-m", "10", url, "-d", PROMPT), 10)
    assert "abcdefghijklmnopqrstuvwxyz." in answer


def test_a_moved_tag_is_pulled_again_with_its_own_digest(
    node: Node, node_namespace: str, tmp_path: Path
) -> None:
    digests = []
    for version in ("1", "2"):
        root = tmp_path / version
        root.mkdir()
        (root / "version").write_text(version)
        archive = tmp_path / f"{version}.tar"
        image = write_image("moving:1", archive, [root], ImageConfig(entrypoint=["/absent"]))
        name = node.set_tag("moving", "1", archive)
        document = pod(f"moved-{version}", name, imagePullPolicy="Always", args=[])
        document["metadata"]["namespace"] = node_namespace
        node.apply(document)
        # The image has no program, so that the container never starts; but it was pulled.
        found = node.wait(
            "pod",
            f"moved-{version}",
            node_namespace,
            lambda item: (item["status"].get("containerStatuses") or [{}])[0].get("imageID"),
        )
        digests.append(found["status"]["containerStatuses"][0]["imageID"])
        assert digests[-1].endswith(image.digest)
    assert digests[0] != digests[1]


def test_an_image_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    archives = []
    for number in (1, 2):
        root = tmp_path / str(number)
        (root / "bin").mkdir(parents=True)
        program = root / "bin" / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700 if number == 1 else 0o755)
        os.utime(program, (number, number))
        (root / "link").symlink_to("bin/program")
        archives.append(tmp_path / f"{number}.tar")
        write_image("same:1", archives[-1], [root], ImageConfig(entrypoint=["/bin/program"]))
    assert archives[0].read_bytes() == archives[1].read_bytes()


KILLED = """
import sys, time
from pathlib import Path
from tests.support.node.handle import Node
node = Node.join(Path(sys.argv[1]))
print(node.keeper, node.pids["inside"], flush=True)
time.sleep(600)
"""


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose name leaves room for sockets: theirs may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def test_a_killed_node_leaves_no_process_and_the_next_one_removes_its_cgroups(
    node: Node, short_directory: Path
) -> None:
    """A second node runs beside that of the run: its namespaces are its own."""
    command = [sys.executable, "-c", KILLED, str(short_directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        keeper, inside = map(int, process.stdout.readline().split())
        children = Path(f"/proc/{inside}/task/{inside}/children").read_text().split()
        assert len(children) > 5
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: not any(is_alive(int(pid)) for pid in (inside, *children)), 10)
        process.kill()
    name = f"{CGROUP_PREFIX}{keeper}"
    other = Node.join(short_directory)
    assert not [*CGROUPS.glob(name), *CGROUPS.glob(f"*/{name}")]  # in one tree, or in many
    other.stop()
    assert node.kubectl("get", "nodes", "--no-headers").split()[1] == "Ready"
