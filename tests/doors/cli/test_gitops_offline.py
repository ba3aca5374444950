"""What the command line does for applications without asking a controller."""

from __future__ import annotations

import re
from pathlib import Path

from tests.doors.cli.conftest import Holdfast

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
    from holdfast.doors.cli.kubectl import _read

    assert _read(["approve", "drf-1", "-n", "chat"]).arguments == ["approve", "drf-1"]
    assert _read(["status"]).arguments[:2] == ["--url", "kubernetes:///"]
