"""`make demo-kubernetes` where pods run: the model answers, and nothing is lost by an edit."""

from __future__ import annotations

import re

import pytest
from examples import kubernetes_demo
from tests.support.node.handle import Node

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node


def test_the_demo_really_serves(
    operator_pods: Node, node_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = kubernetes_demo.Demo(operator_pods, node_namespace)
    kubernetes_demo.tell_on_node(demo, operator_pods)
    said = capsys.readouterr().out
    assert "abcdefghijklmnopqrstuvwxyz." in said, said
    assert "kubectl-edit changed" in said, said
    sent, lost = re.search(r"Meanwhile (\d+) prompts were sent.*; (\d+) were lost", said).groups()
    assert int(sent) > 0
    assert lost == "0", said
    old, new = re.search(r"the old model answered (\d+), the new (\d+)", said).groups()
    assert int(old) + int(new) == 40
    assert int(new) > 5, said  # half of them, by kube-proxy's dice
