"""Starts and ends a Kubernetes cluster to play with: `build`, `start`, `stop`, `status`.

Called by `make testbed`, `make cluster` and `make cluster-stop`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.cluster import Cluster, is_running
from tests.support.testbed import NoTestbed, cache_root, find_or_build, say_on_stderr

DIRECTORY = cache_root() / "cluster"
USAGE = "usage: tools/cluster.py build|start|stop|status"


def build() -> None:
    print(find_or_build(say_on_stderr).directory)


def start() -> None:
    find_or_build(say_on_stderr)
    began = time.monotonic()
    was_running = is_running(DIRECTORY)
    cluster = Cluster.join(DIRECTORY, stay=True)
    if was_running:
        print(f"The cluster runs already at {cluster.server}.")
    else:
        print(
            f"The cluster runs at {cluster.server} (started in {time.monotonic() - began:.1f} s)."
        )
    _explain(cluster)


def stop() -> None:
    if not is_running(DIRECTORY):
        print("No cluster runs.")
        return
    Cluster.join(DIRECTORY, stay=True).stop()
    print("The cluster is gone.")


def status() -> None:
    if not is_running(DIRECTORY):
        print("No cluster runs. `make cluster` starts one.")
        sys.exit(1)
    cluster = Cluster.join(DIRECTORY, stay=True)
    print(f"The cluster runs at {cluster.server}.")
    for name, pid in {"keeper": cluster.keeper, **cluster.pids}.items():
        print(f"  {name:<24} pid {pid:<8} {_resident_megabytes(pid):>4} MB")
    _explain(cluster)


def _explain(cluster: Cluster) -> None:
    kubectl = cluster.programs.path("kubectl")
    print(
        f"""
To use it:

  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={kubectl}
  kubectl get nodes

Two nodes offer 8 GPUs each. Pods are scheduled for real but not run; annotations on them say how
they behave, for example testbed.holdfast.dev/load-seconds: "30" (all of them: testbed/stages/).
Logs and the audit log: {cluster.directory}
`make cluster-stop` ends it."""
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
    except NoTestbed as missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
