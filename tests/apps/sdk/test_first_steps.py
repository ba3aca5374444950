"""The snippet that everyone copies, as it stands, and what importing the package costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.server import RunningServer

import holdfast

SNIPPET = """
from holdfast import ManagementClient, WorkloadSpec, Backend, OnDrift

mgmt = ManagementClient.from_env(project="acme")
spec = WorkloadSpec(
    name="support-bot",
    slug="support-bot",
    model="meta-llama/Llama-3.1-8B-Instruct",
    backend=Backend.VLLM,
    command="vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192",
)
ref = mgmt.ensure(spec)                              # RECONCILE
ref = mgmt.ensure(spec, on_drift=OnDrift.DRY_RUN)
print(ref.project_slug, ref.workload_slug, ref.outcome, ref.plan)
"""
SAID = "acme support-bot unchanged No changes. 1 workload is as declared.\n"
NOT_LOADED = (
    "httpx2 httpcore2 anyio apsw yaml click starlette uvicorn uvloop aiohttp prometheus_client"
    " holdfast.adapters.store holdfast.adapters.http.sockets holdfast.apps.server"
).split()


def run_alone(code: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has this home and none of our settings."""
    clean = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("HOLDFAST_", "INFERENCEKEY_", "XDG_"))
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**clean, "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_snippet_runs_on_a_machine_where_nothing_is_set_up(tmp_path: Path) -> None:
    done = run_alone(SNIPPET, tmp_path)
    assert (done.stdout, done.stderr) == (SAID, "")
    assert (tmp_path / ".local/share/holdfast/holdfast.db").exists()


@pytest.mark.parametrize("style", ["HOLDFAST", "INFERENCEKEY"])
def test_the_snippet_runs_against_a_server(
    server: RunningServer, tmp_path: Path, style: str
) -> None:
    names = {
        "HOLDFAST": ("HOLDFAST_URL", "HOLDFAST_TOKEN"),
        "INFERENCEKEY": ("INFERENCEKEY_BASE_URL", "INFERENCEKEY_SDK_TOKEN"),
    }[style]
    settings = dict(zip(names, (server.url, server.token("acme")), strict=True))
    done = run_alone(SNIPPET, tmp_path, **settings)
    assert (done.stdout, done.stderr) == (SAID, "")
    assert not (tmp_path / ".local").exists()


@pytest.mark.parametrize(
    "code",
    [
        "import holdfast",
        "from holdfast import ManagementClient, AsyncManagementClient, DataClient, WorkloadSpec",
        "from holdfast import ManagementClient as C; C('https://h', token='ik_sdk_a_b')",
        "import holdfast.testing as t; t.memory_client().ensure(t.a_spec())",
    ],
)
def test_importing_and_building_loads_nothing_heavy(code: str, tmp_path: Path) -> None:
    loaded = f"{code}\nimport sys\nprint([n for n in {NOT_LOADED!r} if n in sys.modules])"
    done = run_alone(loaded, tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_importing_the_package_costs_little_cpu(tmp_path: Path) -> None:
    """The budget is 120 ms of CPU; the best of three runs, so a busy machine does not matter."""
    code = "import time; b = time.process_time(); import holdfast; print(time.process_time() - b)"
    assert min(float(run_alone(code, tmp_path).stdout) for _ in range(3)) < 0.12


def test_every_public_name_is_there_and_no_other() -> None:
    assert sorted(holdfast.__all__) == sorted(set(holdfast.__all__))
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(dir(holdfast)) == set(holdfast.__all__)
    homes = {name for names in holdfast._HOMES.values() for name in names.split()}
    assert homes | {"__version__"} == set(holdfast.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = holdfast.no_such_name
