"""A user's shell on the test cluster, and what a test asks of the objects there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.processes import ROOT


class Shell:
    """A user's shell: kubectl, what else was added, and the cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._programs = folder / "bin"
        self._programs.mkdir()
        self.add("kubectl", Path(cluster.programs.path("kubectl")))
        self._environment = {
            **cluster.kubectl_environment(),
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "HOME": str(folder),
        }

    def add(self, name: str, program: Path) -> None:
        """Have a program found by its name."""
        (self._programs / name).symlink_to(program)

    def __call__(self, command: str, *, stdin: str = "") -> str:
        ran = subprocess.run(
            ["bash", "-euc", command],
            env=self._environment,
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def uid(found: dict[str, Any]) -> str:
    value: str = found["metadata"]["uid"]
    return value
