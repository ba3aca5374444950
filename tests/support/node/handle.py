"""A real node for tests and demos: a cluster whose pods run, and how to reach them.

The processes live in tests/support/node/process.py; this is the handle that tests hold. Called by
the node fixture, by end-to-end tests and by tools/node.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.node.inside import NODE, NODE_ADDRESS, REGISTRY
from tests.support.node.registry import set_tag

__all__ = ["NODE", "NODE_ADDRESS", "REGISTRY", "Node"]


class Node(Cluster):
    """A running cluster with one real node. One at a time runs on a machine."""

    process_module = "tests.support.node.process"

    def command_inside(self, *command: str) -> list[str]:
        """Give a command as it runs in the node's network, where pods and Services answer."""
        network = f"/proc/{self.pids['inside']}/ns/net"
        return ["nsenter", f"--net={network}", "--", *command]

    def run_inside(
        self, *command: str, timeout: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> str:
        """Run a command in the node's network and give what it printed."""
        ran = subprocess.run(
            self.command_inside(*command),
            env=None if environment is None else dict(environment),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if ran.returncode:
            raise AssertionError(f"{' '.join(command)}: {ran.stderr or ran.stdout}")
        return ran.stdout

    def set_tag(self, name: str, tag: str, archive: Path) -> str:
        """Offer an archive in the node's registry under a name and tag; give the full name."""
        set_tag(self.directory / "registry", name, tag, archive)
        return f"{REGISTRY}/{name}:{tag}"
