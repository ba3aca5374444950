"""What the command line does for applications without asking a controller."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.apps.cli.conftest import Holdfast

APPLICATION = """\
apiVersion: holdfast.dev/v1alpha1
kind: Application
metadata: {name: shop, namespace: team}
spec:
  project: ml-platform
  source: {url: https://git.example.com/acme/deploy.git, path: prod}
"""


def test_applications_are_validated_beside_specs(holdfast: Holdfast, chat: Path) -> None:
    Path("shop.yaml").write_text(APPLICATION)
    run = holdfast("validate", "-f", "shop.yaml", "-f", str(chat))
    assert run.code == 0, run.screen
    assert re.search(r"team/shop +ml-platform +https://git.example.com/acme/deploy.git main prod",
                     run.out)  # fmt: skip
    assert "1 workload, no problem." in run.out
    wrong = APPLICATION.replace("ml-platform", "ML Platform").replace("path:", "pth:")
    run = holdfast("validate", "-f", "-", stdin=wrong)
    assert run.code == 1
    assert "stdin:5: project" in run.err
    assert "pth" in run.err


def test_kubectl_leaves_the_controllers_address_alone() -> None:
    from holdfast.apps.cli.kubectl import _split_flags

    line = _split_flags(["approve", "drf-1", "-n", "chat"])
    assert (line.rest, line.session.flags) == (["approve", "drf-1"], {})
    assert _split_flags(["status"]).session.flags == {"url": "kubernetes:///"}


def test_windows_need_the_extra_that_reads_schedules_and_the_error_names_it(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "holdfast.core.gitops.window", raising=False)
    Path("shop.yaml").write_text(APPLICATION)
    assert holdfast("validate", "-f", "shop.yaml").code == 0
    windows = "  sync: {windows: [{kind: allow, schedule: 0 22 * * 1-5, duration: 2h}]}\n"
    Path("shop.yaml").write_text(APPLICATION + windows)
    run = holdfast("validate", "-f", "shop.yaml")
    assert run.code != 0
    assert "needs cronsim, which is not installed" in run.err
    assert "pip install 'holdfast-ml[gitops]'" in run.err
