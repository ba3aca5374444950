"""Many clients, in several processes, declare one workload at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import kill_group, wait_until
from tests.support.server import RunningServer

from holdfast import ManagementClient
from holdfast.apps.sdk.settings import resolve_connection

CHILD = """
import json, pathlib, sys, threading, time
from holdfast import ManagementClient
from holdfast.testing import a_spec

url, slug, gate, count, own = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), *sys.argv[4:6]
outcomes, gates = [], threading.Barrier(int(count))
pathlib.Path(f"{gate}.{own}").touch()
while not gate.exists():
    time.sleep(0.005)

client = ManagementClient(url, project="acme", timeout=60)

def declare():
    gates.wait()
    ref = client.ensure(a_spec(name=slug, replicas=2))
    outcomes.append([ref.outcome, ref.live.generation])

threads = [threading.Thread(target=declare) for _ in range(int(count))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(outcomes))
"""


def declared_at_once(
    url: str, slug: str, directory: Path, *, processes: int, each: int, token: str = ""
) -> list[tuple[str, int]]:
    """Start the processes, let them all go together, and gather what each call said."""
    gate = directory / "go"
    environment = {**os.environ, **({"HOLDFAST_TOKEN": token} if token else {})}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, url, slug, str(gate), str(each), str(number)],
            env=environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for number in range(processes)
    ]
    try:
        waiting = [directory / f"go.{number}" for number in range(processes)]
        wait_until(lambda: all(path.exists() for path in waiting), 60, "the processes to start")
        gate.touch()
        said = [child.communicate(timeout=90)[0] for child in children]
        assert [child.returncode for child in children] == [0] * processes
    finally:
        for child in children:
            kill_group(child)
            assert child.stdout
            child.stdout.close()
    return [(outcome, generation) for text in said for outcome, generation in json.loads(text)]


@pytest.mark.parametrize(("processes", "each"), [(2, 1), (4, 16)])
def test_on_a_server_exactly_one_creates(
    server: RunningServer, slug: str, tmp_path: Path, processes: int, each: int
) -> None:
    token = server.token("acme")
    said = declared_at_once(server.url, slug, tmp_path, processes=processes, each=each, token=token)
    assert len(said) == processes * each
    assert sorted(said)[0] == ("created", 1)
    assert set(sorted(said)[1:]) == {("unchanged", 1)}
    with ManagementClient(server.url, project="acme", token=token) as client:
        assert [row.action for row in client.history(slug=slug)] == ["created"]


@pytest.mark.parametrize(("processes", "each"), [(2, 1), (4, 4)])
def test_on_an_embedded_file_that_is_not_there_yet_exactly_one_creates(
    tmp_path: Path, processes: int, each: int
) -> None:
    url = f"sqlite:///{tmp_path}/fresh/holdfast.db"
    assert resolve_connection(url, environ={}).path == tmp_path / "fresh" / "holdfast.db"
    said = declared_at_once(url, "chat", tmp_path, processes=processes, each=each)
    assert len(said) == processes * each
    assert sorted(said)[0] == ("created", 1)
    assert set(sorted(said)[1:]) == {("unchanged", 1)}
    with ManagementClient(url, project="acme") as client:
        assert [row.action for row in client.history(slug="chat")] == ["created"]
