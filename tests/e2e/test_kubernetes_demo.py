"""`make demo-kubernetes` where pods are scheduled and not run; tests/node has the other story."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import kubernetes_demo
from tests.support.cluster import Cluster
from tests.support.controllers import running_operator
from tests.support.node.process import NoNode

from holdfast.wire.crd import INFERENCE_SERVICE, make_crd

pytestmark = pytest.mark.cluster


def test_the_demo_tells_the_whole_story(
    cluster: Cluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))
    with running_operator(cluster, namespace, tmp_path):
        kubernetes_demo.tell(kubernetes_demo.Demo(cluster, namespace))
    said = capsys.readouterr().out
    for part in (
        "kubectl-edit changed",
        "Writes to Deployments by Holdfast meanwhile: 0",
        "The canary gets 50 % (ReplicaRatio).",
        "DriftHealed",
    ):
        assert part in said, said


def test_without_a_node_the_first_line_says_that_pods_do_not_run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_node() -> None:
        raise NoNode("A real node needs root.")

    monkeypatch.setattr(kubernetes_demo, "check_machine", no_node)
    monkeypatch.setattr(kubernetes_demo, "play_scheduled", lambda: print("the story"))
    kubernetes_demo.main()
    assert capsys.readouterr().out.splitlines() == [
        "Pods are scheduled here but not run: A real node needs root.",
        "the story",
    ]
