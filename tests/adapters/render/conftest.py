"""The real programs, and a place for files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo
from tests.support import sops as sops_support
from tests.support import testbed
from tests.support.missing import without
from tests.support.sops import Sops, sops

from holdfast.adapters.render.render import FileRenderer
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
        return testbed.find().path("kubectl")
    except testbed.NoTestbed as missing:
        without(pytestconfig, "Kustomize", missing)


@pytest.fixture
def kustomize(kubectl: str) -> FileRenderer:
    """A renderer with the real Kustomize."""
    return FileRenderer(key=KEY, kustomize=kubectl)


@pytest.fixture
def decryptor(sops: Sops) -> SopsDecryptor:
    """Opens what the test key can open."""
    return SopsDecryptor(age_key=Secret(sops_support.IDENTITY), program=sops.path)
