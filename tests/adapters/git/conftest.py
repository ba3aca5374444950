"""A remote repository on disk, and the same behind HTTP and a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.git.git_world import TOKEN, GitWorld
from tests.support.git_host import BareRepository, serve


@pytest.fixture
def world(tmp_path: Path) -> GitWorld:
    """A repository that is reached as a path."""
    return GitWorld(tmp_path, BareRepository(tmp_path / "origin.git"))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[GitWorld]:
    """A repository that is reached over HTTP."""
    root = tmp_path / "served"
    origin = BareRepository(root / "origin.git")
    with serve(root, token=TOKEN) as host:
        yield GitWorld(tmp_path, origin, host)
