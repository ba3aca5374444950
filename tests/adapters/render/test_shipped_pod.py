"""The renderer in the security context of the shipped pod: it works, and reaches no network."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.render import shipped_pod
from tests.adapters.render.repo import Repo, config_map

from holdfast.install.deployments import container_security_context, pod_security_context

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="pods of the image run on Linux",
)

RENDER = """
import asyncio, ctypes, json, os, sys
from pathlib import Path
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.errors import HoldfastError
from holdfast.core.gitops.source import Renderer
from holdfast.reconcile.gitops.ports import SourceExport

program, root, scratch = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
status = dict(line.split(':\\t', 1) for line in Path('/proc/self/status').read_text().splitlines())
found = {key: status[key].strip() for key in ('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp')}
libc = ctypes.CDLL(None)
found['unshare'] = [libc.unshare(0x40000000), libc.unshare(0x50000000)]
try:
    (root / 'written').write_text('x')
    found['root'] = 'writable'
except OSError:
    found['root'] = 'read-only'
by = FileRenderer(key=b'key', kustomize=program, scratch=scratch)
export = SourceExport(commit='c' * 40, root=root, left_out={})
try:
    made = asyncio.run(by.render(export, '.', renderer=Renderer.AUTO, namespace='team'))
    found['objects'] = [each.ref.name for each in made.objects]
except HoldfastError as error:
    found['error'] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that another user may enter, which those of pytest are not."""
    found = Path(tempfile.mkdtemp(prefix="holdfast-pod-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


def rendered(program: str, root: Path, scratch: Path) -> dict[str, object]:
    """Render in the pod's context; as its user where this interpreter can be read by others."""
    scratch.mkdir()
    user = "-"
    if os.getuid() == 0 and _readable_by_all(Path(sys.executable).resolve()):
        user = str(pod_security_context()["runAsUser"])
        os.chown(scratch, int(user), int(user))
    inner = [sys.executable, "-c", RENDER, program, str(root), str(scratch)]
    done = subprocess.run(
        [sys.executable, "-IS", shipped_pod.__file__, user, str(scratch), *inner],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def _readable_by_all(path: Path) -> bool:
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (path, *path.parents))


def check_context(found: dict[str, object]) -> None:
    """The context is what the installation asks for, so that the rest means something."""
    confined = container_security_context()
    assert confined["capabilities"] == {"drop": ["ALL"]}
    assert int(str(found["CapEff"]), 16) == 0
    if os.getuid() == 0:
        assert int(str(found["CapBnd"]), 16) == 0
        assert confined["readOnlyRootFilesystem"] is True
        assert found["root"] == "read-only"
    assert confined["allowPrivilegeEscalation"] is False
    assert found["NoNewPrivs"] == "1"
    assert pod_security_context()["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["Seccomp"] == "2"
    assert found["unshare"] == [-1, -1], "there is no way to an own network in this context"


def test_kustomize_works_in_the_shipped_pod(place: Path, kubectl: str) -> None:
    repo = Repo(place / "files")
    repo.write({"kustomization.yaml": "resources: [a.yaml]", "a.yaml": config_map("a")})
    found = rendered(kubectl, repo.root, place / "scratch")
    check_context(found)
    assert found.get("objects") == ["a"], found


def test_nothing_that_renders_reaches_the_network_in_the_shipped_pod(place: Path) -> None:
    """Not by the checks before it: the program itself wants to, and a listener waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        program = place / "kustomize"
        program.write_text(
            f"#!{sys.executable} -IS\nimport socket, sys\n"
            f"try:\n    socket.create_connection({address!r}, 5)\n"
            "except OSError as error:\n    sys.exit(f'kept out by {error.errno}')\n"
            "sys.exit('connected')\n"
        )
        program.chmod(0o755)
        repo = Repo(place / "files").write({"kustomization.yaml": "resources: []"})
        found = rendered(str(program), repo.root, place / "scratch")
        check_context(found)
        assert "kept out by 13" in str(found.get("error")), found
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
