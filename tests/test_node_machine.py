"""Which machines can run the real node of the test bed, told from their cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.node import process
from tests.support.node.process import NoNode, check_cgroups, make_cgroups


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(process, "CGROUPS", tmp_path)
    return tmp_path


def one_tree(root: Path, offered: str) -> Path:
    (root / "cgroup.controllers").write_text(offered)
    passed_on = root / "cgroup.subtree_control"
    passed_on.write_text("")
    return passed_on


def test_version_2_is_one_group_and_passes_controllers_on(cgroups: Path) -> None:
    passed_on = one_tree(cgroups, "cpuset cpu io memory hugetlb pids")
    check_cgroups()
    assert passed_on.read_text() == "+cpu +cpuset +hugetlb +memory +pids"
    make_cgroups("holdfast-node-1")
    assert [each.name for each in cgroups.iterdir() if each.is_dir()] == ["holdfast-node-1"]


def test_version_2_without_its_controllers_is_refused_by_name(cgroups: Path) -> None:
    one_tree(cgroups, "cpu pids")
    with pytest.raises(NoNode, match=r"controllers cpuset, memory, and .* does not pass"):
        check_cgroups()


def test_a_tree_whose_own_processes_are_in_the_way_is_refused_by_name(cgroups: Path) -> None:
    passed_on = one_tree(cgroups, "cpuset cpu memory pids")
    passed_on.unlink()
    passed_on.mkdir()  # no write succeeds, as with a group that has processes
    with pytest.raises(NoNode, match="cpu, cpuset, memory, pids"):
        check_cgroups()


def test_without_cgroups_it_is_refused(cgroups: Path) -> None:
    with pytest.raises(NoNode, match="cgroups that it may write"):
        check_cgroups()
