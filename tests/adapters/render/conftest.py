"""The real programs, and a place for files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo
from tests.support import testbed
from tests.support.cluster_fixtures import skip_without
from tests.support.go_programs import IDENTITY, Sops, sops

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.adapters.render.sops import SopsDecryptor
from holdfast.core.redact import Secret

__all__ = ["sops"]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "export")


@pytest.fixture(scope="session")
def kubectl(pytestconfig: pytest.Config) -> str:
    """The kubectl of the test cluster, which has Kustomize inside."""
    try:
        return testbed.find_testbed().path("kubectl")
    except testbed.NoTestbed as missing:
        skip_without(pytestconfig, "Kustomize", missing)


@pytest.fixture
def kustomize(kubectl: str) -> FileRenderer:
    """A renderer with the real Kustomize."""
    return FileRenderer(key=KEY, kustomize=kubectl)


@pytest.fixture
def decryptor(sops: Sops) -> SopsDecryptor:
    """Opens what the test key can open."""
    return SopsDecryptor(age_key=Secret(IDENTITY), program=sops.path)
