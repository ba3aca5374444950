"""Holdfast's own image of this tree on the real node, and its controllers installed from it."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from tests.support.go_programs import build_image_programs
from tests.support.node.handle import Node
from tests.support.processes import ROOT
from tests.support.testbed import Say, cache_root
from tools.image import build_image
from tools.oci import Image, read_image

NAMESPACE = "holdfast-system"
ROLLOUT_TIMEOUT = "120s"


def find_or_build_holdfast_image(say: Say) -> Image:
    """Give the image of this tree, building it first where another tree was the last."""
    directory = cache_root() / "node" / "holdfast"
    directory.mkdir(parents=True, exist_ok=True)
    archive = directory / f"{_key()}.tar"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            say("Building Holdfast's image from this tree ...")
            for old in directory.glob("*.tar*"):  # 200 MB each
                old.unlink()
            build_image(
                "registry.test/holdfast:dev", archive, cache_root(), build_image_programs(say), say
            )
    return read_image(archive)


def install_holdfast(node: Node, say: Say, *options: str, namespace: str = NAMESPACE) -> None:
    """Install the controllers as a user would, from our image, and wait until they are ready."""
    holdfast = Path(sys.executable).with_name("holdfast")
    manifests = subprocess.run(
        [holdfast, "install", "--export", "--namespace", namespace,
         "--image", offer_holdfast_image(node, say), *options],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    node.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
    wait_for_rollouts(node, namespace)


def wait_for_rollouts(node: Node, namespace: str) -> None:
    """Wait until every Deployment of a namespace has its pods."""
    for deployment in node.objects("deployments", namespace):
        node.kubectl(
            *["rollout", "status", f"deployment/{deployment['metadata']['name']}"],
            *["-n", namespace, f"--timeout={ROLLOUT_TIMEOUT}"],
        )


def offer_holdfast_image(node: Node, say: Say) -> str:
    """Have the node's registry offer our image; gives its name there."""
    image = find_or_build_holdfast_image(say)
    return node.set_tag("holdfast", image.digest.removeprefix("sha256:")[:12], image.archive)


def _key() -> str:
    digest = hashlib.sha256()
    inputs = [
        *sorted((ROOT / "src").rglob("*.py")),
        *sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".json", ".yaml")),
        *sorted(path for path in (ROOT / "web").rglob("*") if path.is_file()),
        *sorted((ROOT / "clients" / "javascript" / "src").rglob("*.js")),
        ROOT / "pyproject.toml",
        ROOT / "deploy" / "requirements.txt",
        ROOT / "tools" / "image.py",
        ROOT / "tools" / "oci.py",
    ]
    for path in inputs:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
