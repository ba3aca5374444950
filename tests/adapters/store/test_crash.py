"""The store under `kill -9`: what was acknowledged is there, the rest is whole or absent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from itertools import accumulate
from pathlib import Path

import apsw
import pytest
from tests.adapters.store.crash_driver import NEWER
from tests.adapters.store.store_script import dump, make_first_version
from tests.support.processes import ROOT

from holdfast.adapters.store import Store
from holdfast.adapters.store.schema import MIGRATIONS, migrate_schema, schema_version
from holdfast.core.errors import StoreUnavailable

MEMORY = Path("/dev/shm")
"""A killed process loses nothing that it handed to the kernel, so no real disk is needed."""


def kill_at(
    mode: str, *, first: int = 1, last: int = 100_000, stride: int = 1
) -> dict[str, object]:
    points = [str(number) for number in (first, last, stride)]
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as home:
        done = subprocess.run(
            [sys.executable, "-m", "tests.adapters.store.crash_driver", mode, home, *points],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("first", [1, 5])
def test_a_killed_store_keeps_what_it_acknowledged_and_tears_nothing(first: int) -> None:
    found = kill_at("sequence", first=first, stride=8)
    assert found["problems"] == []
    assert int(str(found["points"])) >= 75
    assert found["ended"], "the last point must lie beyond the end, or some were left out"


def test_clients_that_share_a_commit_lose_nothing_acknowledged_to_a_kill() -> None:
    found = kill_at("group", stride=11)
    assert found["problems"] == []
    assert int(str(found["points"])) >= 20


def test_a_migration_killed_at_any_call_ends_complete_at_the_next_start() -> None:
    found = kill_at("migration")
    assert found["problems"] == []
    assert found["ended"]
    assert int(str(found["points"])) >= 20


def test_the_harness_notices_an_answer_that_came_before_its_commit() -> None:
    found = kill_at("hasty", first=150, last=200, stride=9)
    assert found["problems"]


@pytest.mark.parametrize("cut", range(sum(map(len, NEWER[1:])) + 1))
def test_a_migration_cut_at_any_statement_leaves_one_version_or_the_next(
    cut: int, tmp_path: Path
) -> None:
    path = tmp_path / "holdfast.db"
    make_first_version(path)
    before = dump(path)
    ends = [*accumulate(map(len, NEWER[1:]))]
    connection = apsw.Connection(str(path))
    with pytest.raises(apsw.SQLError) if cut < ends[-1] else nullcontext():
        migrate_schema(connection, [*MIGRATIONS[:1], *_cut(cut)])
    version = schema_version(connection)
    connection.close()
    assert version == 1 + sum(cut >= end for end in ends)
    assert dump(path) == before
    Store.open(path, migrations=NEWER).close()
    assert dump(path) == before


def _cut(at: int) -> list[list[str]]:
    """The newer migrations with a statement that fails in place of one of theirs."""
    cut: list[list[str]] = []
    for statements in NEWER[1:]:
        cut.append([*statements])
        if 0 <= at < len(statements):
            cut[-1][at] = "SELECT no_such_function()"
        at -= len(statements)
    return cut


def test_an_older_program_refuses_a_newer_file_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    Store.open(path, migrations=NEWER).close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=f"newer Holdfast: its schema is {len(NEWER)}"):
        Store.open(path)
    assert path.read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_every_single_call_is_a_safe_place_to_be_killed(part: int) -> None:
    found = kill_at("sequence", first=part + 1, stride=4)
    assert found["problems"] == []


@pytest.mark.long
@pytest.mark.parametrize("round_", range(12))
def test_every_call_of_a_crowd_is_a_safe_place_to_be_killed(round_: int) -> None:
    """How the clients fall into commits differs from run to run, so it is run often."""
    found = kill_at("group")
    assert found["problems"] == []
