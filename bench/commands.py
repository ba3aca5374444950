"""Start-up of the command line against a bare interpreter and kubectl."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Row, median_ms

SPEC = """\
name: support-bot
model: meta-llama/Llama-3.1-8B-Instruct
backend: vllm
command: vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192
"""


def measure() -> list[Row]:
    """Run each command many times; the ratio is peer time over ours."""
    holdfast = str(Path(sys.executable).parent / "holdfast")
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch) / "spec.yaml"
        spec.write_text(SPEC)
        env = {"PATH": "/usr/bin:/bin", "HOME": scratch, "HOLDFAST_HOME": scratch}

        def run(*command: str) -> float:
            return median_ms(
                lambda: subprocess.run(command, env=env, check=True, capture_output=True),
                rounds=15,
            )

        bare = run(sys.executable, "-c", "pass")
        version = run(holdfast, "version")
        plan = run(holdfast, "plan", "-f", str(spec))
        rows = [
            _row("`holdfast version` against bare Python", version, bare),
            _row("`holdfast plan` of one file against bare Python", plan, bare),
        ]
        kubectl = shutil.which("kubectl")
        if kubectl:
            peer = run(kubectl, "version", "--client")
            rows.append(
                _row("`holdfast version` against `kubectl version --client`", version, peer)
            )
            rows.append(_row("`holdfast plan` against `kubectl version --client`", plan, peer))
        return rows


def _row(what: str, ours: float, peer: float) -> Row:
    return Row(what=what, ours=f"{ours:.0f} ms", peer=f"{peer:.0f} ms", ratio=peer / ours)
