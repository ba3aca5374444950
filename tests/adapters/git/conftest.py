"""A remote repository on disk, and the same behind HTTP and a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.git_host import Origin, serve
from tests.support.git_world import TOKEN, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A repository that is reached as a path."""
    return World(tmp_path, Origin(tmp_path / "origin.git"))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[World]:
    """A repository that is reached over HTTP."""
    root = tmp_path / "served"
    origin = Origin(root / "origin.git")
    with serve(root, token=TOKEN) as host:
        yield World(tmp_path, origin, host)
