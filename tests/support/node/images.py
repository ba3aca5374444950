"""The images that the real node runs: the sandbox of a pod, and a model server.

Written by tools/oci.py out of Debian packages, wheels and a tiny model; the same bytes each time
for the same packages. The server is llama.cpp's own, of examples/backends/llama_server.py, and runs
as a user other than root.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.processes import ROOT
from tests.support.testbed import SOURCE, Say, cache_root, go_environment, go_program
from tools.debian import unpack_packages
from tools.image import ImageNotBuilt, install_wheels
from tools.oci import Image, ImageConfig, read_image, write_image

PAUSE = "registry.k8s.io/pause:3.10"
MODEL_SERVER = "registry.test/llama:1"
PYTHON_PACKAGES = (
    "busybox-static",
    "libgomp1",
    "libpython3.11-stdlib",
    "libstdc++6",
    "python3.11-minimal",
)
MODEL_SERVER_USER = 10001
SERVER = ROOT / "examples" / "backends" / "llama_server.py"
MODEL = ROOT / "examples" / "backends" / "tiny_model.py"


def find_or_build_images(say: Say) -> list[Image]:
    """Give the archives, building them first where they are missing; raises ImageNotBuilt."""
    directory = cache_root() / "node" / "images" / _key()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            say("Making the images of the real node: about a minute, once ...")
            with tempfile.TemporaryDirectory(dir=directory.parent, prefix="making-") as scratch:
                made = Path(scratch) / "images"
                _build_pause(made / "pause.tar", Path(scratch) / "pause", say)
                _build_model_server(made / "llama.tar", Path(scratch) / "llama", say)
                made.rename(directory)
    return [read_image(archive) for archive in sorted(directory.glob("*.tar"))]


def _key() -> str:
    digest = hashlib.sha256("\n".join(PYTHON_PACKAGES).encode())
    for source in (Path(__file__), ROOT / "tools" / "oci.py", SERVER, MODEL):
        digest.update(source.read_bytes())
    digest.update((SOURCE / "pause" / "main.go").read_bytes())
    digest.update(_locked_requirement("xllamacpp").encode())
    return digest.hexdigest()[:16]


def _build_pause(archive: Path, root: Path, say: Say) -> None:
    root.mkdir()
    _run(
        go_program(say), "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
        "-o", str(root / "pause"), "./pause",
        cwd=SOURCE, environment=go_environment(),
    )  # fmt: skip
    write_image(PAUSE, archive, [root], ImageConfig(entrypoint=["/pause"], user="65535:65535"))


def _build_model_server(archive: Path, root: Path, say: Say) -> None:
    base = unpack_packages(PYTHON_PACKAGES, cache_root(), say)
    site, models = root / "srv" / "packages", root / "srv" / "models"
    for directory in (site, models, root / "etc"):
        directory.mkdir(parents=True)
    (root / "tmp").mkdir(mode=0o1777)
    (root / "tmp").chmod(0o1777)
    user = f"model:x:{MODEL_SERVER_USER}:{MODEL_SERVER_USER}::/nonexistent:/bin/false\n"
    (root / "etc" / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{user}")
    install_wheels(_locked_requirement("xllamacpp"), site)
    _run(sys.executable, str(MODEL), str(models / "chat.gguf"))
    _run(sys.executable, str(MODEL), str(models / "sql.gguf"), "--adapter")
    # Where the image of llama.cpp has it, with a shell and a few small programs beside.
    program = root / "app" / "llama-server"
    program.parent.mkdir()
    program.write_text(f"#!/usr/bin/python3.11\n{SERVER.read_text()}")
    program.chmod(0o755)
    (root / "bin").mkdir()
    for name in ("sh", "sleep", "wget", "cat", "kill", "grep"):
        (root / "bin" / name).symlink_to("busybox")
    write_image(
        MODEL_SERVER,
        archive,
        [base, root],
        ImageConfig(
            entrypoint=["/app/llama-server"],
            user=f"{MODEL_SERVER_USER}:{MODEL_SERVER_USER}",
            environment={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": "/srv/packages",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
            },
        ),
    )


def _locked_requirement(name: str) -> str:
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"{name}=="))
    end = start
    while lines[end].endswith("\\"):
        end += 1
    return "\n".join(lines[start : end + 1]) + "\n"


def _run(*command: str, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    ran = subprocess.run(
        command, cwd=cwd, env=environment or dict(os.environ), capture_output=True, text=True
    )
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()[-600:]
        raise ImageNotBuilt(
            f"The images of the real node could not be made: {command[0]} said: {said}"
        )
