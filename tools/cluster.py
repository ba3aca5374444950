"""Starts and ends a Kubernetes cluster with an operator: `build`, `start`, `stop`, `status`.

Called by `make testbed`, `make cluster` and `make cluster-stop`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import gateway
from tests.support.cluster import Cluster, is_running
from tests.support.gitea import find_or_build_gitea
from tests.support.go_modules import NoDefinitions
from tests.support.go_programs import (
    HELM,
    PROMTOOL,
    SOPS,
    NotBuilt,
)
from tests.support.node.holdfast_image import find_or_build_holdfast_image
from tests.support.node.process import NoNode, check_machine, prepare
from tests.support.processes import is_alive, wait_until
from tests.support.scaling_kinds import KEDA, LEADER_WORKER_SETS
from tests.support.testbed import NoTestbed, cache_root, find_or_build_testbed, say_on_stderr
from tools.debian import NoPackages
from tools.image import ImageNotBuilt

DIRECTORY = cache_root() / "cluster"
CRDS = Path(__file__).resolve().parents[1] / "deploy" / "crds"
DEFINITION = "crd/inferenceservices.holdfast.dev"
MISSING = (NoTestbed, NoNode, NoPackages, ImageNotBuilt, NoDefinitions, NotBuilt)
USAGE = "usage: tools/cluster.py build|start|stop|status"


def build() -> None:
    print(find_or_build_testbed(say_on_stderr).directory)
    print(HELM.find_or_build(say_on_stderr))
    for module in (gateway.MODULE, LEADER_WORKER_SETS, KEDA):
        module.definitions()
    print(PROMTOOL.find_or_build(say_on_stderr))
    print(SOPS.find_or_build(say_on_stderr))
    print(find_or_build_gitea(say_on_stderr))
    _prepare_node()


def _prepare_node() -> None:
    """Make what the tests on a real node need, where one can run; say why where none can."""
    try:
        check_machine()
        prepare(say_on_stderr)
        print(find_or_build_holdfast_image(say_on_stderr).archive)
    except (NoNode, NoPackages, NotBuilt, ImageNotBuilt) as missing:
        if os.environ.get("HOLDFAST_REQUIRE_NODE") == "1":
            raise
        say_on_stderr(f"SKIPPED: the real node, and the tests under tests/node. {missing}")


def start() -> None:
    find_or_build_testbed(say_on_stderr)
    began = time.monotonic()
    was_running = is_running(DIRECTORY)
    cluster = Cluster.join(DIRECTORY, stay=True)
    if was_running:
        print(f"The cluster runs already at {cluster.server}.")
    else:
        print(
            f"The cluster runs at {cluster.server} (started in {time.monotonic() - began:.1f} s)."
        )
    _start_operator(cluster)
    _explain(cluster)


def stop() -> None:
    if not is_running(DIRECTORY):
        print("No cluster runs.")
        return
    _stop_operator()
    Cluster.join(DIRECTORY, stay=True).stop()
    print("The cluster and the operator are gone.")


def status() -> None:
    if not is_running(DIRECTORY):
        print("No cluster runs. `make cluster` starts one.")
        sys.exit(1)
    cluster = Cluster.join(DIRECTORY, stay=True)
    print(f"The cluster runs at {cluster.server}.")
    pids = {"keeper": cluster.keeper, **cluster.pids, "operator": _operator() or 0}
    for name, pid in pids.items():
        print(f"  {name:<24} pid {pid:<8} {_resident_megabytes(pid):>4} MB")
    _explain(cluster)


def _start_operator(cluster: Cluster) -> None:
    """Install the definitions and run the operator beside the cluster, unless it runs."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", DEFINITION, "--timeout=30s")
    if _operator() is not None:
        return
    with (DIRECTORY / "operator.log").open("ab") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("holdfast"), "operator",
             "--metrics-address", "127.0.0.1:0"],
            env=cluster.kubectl_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )  # fmt: skip
    (DIRECTORY / "operator.pid").write_text(str(process.pid))


def _stop_operator() -> None:
    pid = _operator()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid), 30, "the operator to end")
    (DIRECTORY / "operator.pid").unlink(missing_ok=True)


def _operator() -> int | None:
    """Return the process id of the operator; a number that is somebody else's by now is not it."""
    with suppress(OSError, ValueError):
        pid = int((DIRECTORY / "operator.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if is_alive(pid) and b"operator" in command:
            return pid
    return None


def _explain(cluster: Cluster) -> None:
    kubectl = cluster.programs.path("kubectl")
    print(
        f"""
To use it:

  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={kubectl}

The operator runs too. To see it work:

  kubectl apply --server-side -f - <<END
  apiVersion: holdfast.dev/v1alpha1
  kind: InferenceService
  metadata: {{name: chat}}
  spec: {{modelRef: Qwen/Qwen3-8B, replicas: 2, resources: {{cpu: 500m, memory: 1Gi}}}}
  END
  kubectl get inferenceservices.holdfast.dev chat --watch
  kubectl set image deployment/chat-primary '*=my-own-build'
  kubectl describe inferenceservices.holdfast.dev chat
  kubectl delete inferenceservices.holdfast.dev chat

Two nodes offer 8 GPUs each. Pods are scheduled for real but not run; annotations on them say how
they behave, for example testbed.holdfast.dev/load-seconds: "30" (all of them: testbed/stages/).
Logs and the audit log: {cluster.directory}
`make cluster-stop` ends both."""
    )


def _resident_megabytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # gone, or no /proc here
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) // 1024 if found else 0


COMMANDS = {"build": build, "start": start, "stop": stop, "status": status}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        print(USAGE, file=sys.stderr)
        sys.exit(64)
    try:
        COMMANDS[sys.argv[1]]()
    except MISSING as missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
