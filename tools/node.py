"""Starts and ends a Kubernetes cluster with a real node and the operator in pods: `start`, `stop`.

Called by `make node` and `make node-stop`. Pods run, Services answer, and images come from a small
registry on the node; all of it inside namespaces of its own. Needs Linux, root and Debian packages.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import is_running  # noqa: E402  # found by the line above
from tests.support.go_programs import NotBuilt  # noqa: E402
from tests.support.node.handle import REGISTRY, Node  # noqa: E402
from tests.support.node.holdfast_image import install_holdfast  # noqa: E402
from tests.support.node.process import NoNode, check_machine, prepare  # noqa: E402
from tests.support.testbed import (  # noqa: E402
    NoTestbed,
    cache_root,
    find_or_build_testbed,
    say_on_stderr,
)
from tools.debian import NoPackages  # noqa: E402
from tools.image import ImageNotBuilt  # noqa: E402

DIRECTORY = cache_root() / "real-node"
USAGE = "usage: tools/node.py start|stop"


def start() -> None:
    check_machine()
    find_or_build_testbed(say_on_stderr)
    prepare(say_on_stderr)
    began = time.monotonic()
    node = Node.join(DIRECTORY, stay=True)
    install_holdfast(node, say_on_stderr)
    print(f"The node is ready at {node.server}, after {time.monotonic() - began:.0f} s.")
    kubectl = node.programs.path("kubectl")
    inside = " ".join(node.command_inside())
    print(
        f"""
To use it:

  export KUBECONFIG={node.kubeconfig}
  alias kubectl={kubectl}
  alias inside='{inside}'

The operator runs in pods, from an image of this tree. To serve a model:

  kubectl apply --server-side -f - <<END
  apiVersion: holdfast.dev/v1alpha1
  kind: InferenceService
  metadata: {{name: chat}}
  spec:
    backend: llamacpp
    modelRef: /srv/models/chat.gguf
    image: {REGISTRY}/llama:1
    replicas: 2
    resources: {{cpu: 100m, memory: 256Mi}}
  END
  kubectl get inferenceservices.holdfast.dev chat --watch
  inside curl http://$(kubectl get service chat-svc -o jsonpath='{{.spec.clusterIP}}'):8000\\
/v1/chat/completions -d '{{"messages": [{{"role": "user", "content": "hello"}}]}}'

Its network has no way in or out but `inside`. `make node-stop` ends all of it."""
    )


def stop() -> None:
    if not is_running(DIRECTORY):
        print("No node runs.")
        return
    Node.join(DIRECTORY, stay=True).stop()
    print("The node and everything in it are gone.")


COMMANDS = {"start": start, "stop": stop}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        print(USAGE, file=sys.stderr)
        sys.exit(64)
    try:
        COMMANDS[sys.argv[1]]()
    except (NoNode, NoTestbed, NoPackages, NotBuilt, ImageNotBuilt) as missing:
        print(missing, file=sys.stderr)
        sys.exit(1)
