"""The forge of a test run, and a repository of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.gitea import Gitea, NoGitea
from tests.support.gitea_repository import GiteaRepository
from tests.support.missing import without

__all__ = ["gitea", "gitea_repository"]


@pytest.fixture(scope="session")
def gitea(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Gitea]:
    """The forge of this process: a start takes two seconds, less than sharing one would."""
    try:
        forge = Gitea(tmp_path_factory.mktemp("gitea"))
    except NoGitea as missing:
        without(pytestconfig, "a real forge", missing)
    try:
        forge.start()
        yield forge
    finally:
        forge.stop()


@pytest.fixture
def gitea_repository(gitea: Gitea) -> GiteaRepository:
    """A repository with an owner of its own and a first commit."""
    return GiteaRepository.create(gitea)
