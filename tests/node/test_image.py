"""Holdfast's own image, and the bill of materials beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.go_programs import build_image_programs
from tests.support.node.handle import Node
from tests.support.node.holdfast_image import find_or_build_holdfast_image
from tests.support.processes import ROOT
from tests.support.testbed import cache_root, say_on_stderr
from tools.debian import package_versions, unpack_packages
from tools.image import PACKAGES, build_image

pytestmark = pytest.mark.timeout(600)  # the first to ask builds the image

LINUX = {"sys_platform": "linux", "python_full_version": "3.11.2", "python_version": "3.11"}


def locked_wheels() -> set[tuple[str, str]]:
    """Name and version of each requirement of the image that its platform has."""
    lines = (ROOT / "deploy" / "requirements.txt").read_text().splitlines()
    found = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    return {
        (each.name, str(each.specifier).removeprefix("=="))
        for each in found
        if each.marker is None or each.marker.evaluate(LINUX)
    }


def test_the_bill_of_materials_names_the_image_and_everything_in_it(node: Node) -> None:
    image = find_or_build_holdfast_image(say_on_stderr)
    archive = Path(image.archive)
    bill = json.loads(archive.with_name(archive.name + ".cdx.json").read_text())
    (told,) = bill["metadata"]["component"]["hashes"]
    assert f"sha256:{told['content']}" == image.digest
    listed = {each.get("purl", each["name"]) for each in bill["components"]}
    wheels = {f"pkg:pypi/{name}@{version}" for name, version in locked_wheels()}
    assert len(wheels) > 10
    assert wheels - listed == set()
    debian = package_versions(unpack_packages(PACKAGES, cache_root(), say_on_stderr))
    assert {f"pkg:deb/debian/{n}@{v}?arch=amd64" for n, v in debian.items()} - listed == set()
    assert any(each.startswith("pkg:pypi/holdfast-ml@") for each in listed)
    assert {"kustomize", "sops"} <= listed


@pytest.mark.long
def test_the_image_is_the_same_bytes_when_it_is_built_again(node: Node, tmp_path: Path) -> None:
    first = find_or_build_holdfast_image(say_on_stderr)
    again = build_image(
        "registry.test/holdfast:dev",
        tmp_path / "again.tar",
        cache_root(),
        build_image_programs(say_on_stderr),
        say_on_stderr,
    )
    assert again.digest == first.digest
    assert Path(again.archive).read_bytes() == Path(first.archive).read_bytes()
