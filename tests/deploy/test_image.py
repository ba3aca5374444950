"""The recipe of the image fits the manifests and the locked requirements.

The image itself is not built here: that needs a container engine.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from holdfast.doors.operator.metrics import Metrics
from holdfast.install.monitoring import FIGURES
from holdfast.install.operator import PORT, USER

ROOT = Path(__file__).resolve().parents[2]
RECIPE = (ROOT / "deploy" / "Containerfile").read_text()


def pins(path: str) -> dict[str, str]:
    text = (ROOT / path).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


def test_the_images_packages_are_locked_to_the_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["kubernetes"]]
    locked = pins("deploy/requirements.txt")
    assert {re.split(r"[<>=~]", each)[0] for each in needed} <= set(locked)
    tested = pins("requirements/dev.txt")
    for name, version in (locked | pins("deploy/requirements-build.txt")).items():
        assert tested[name] == version, name


def test_every_requirement_is_installed_by_its_hash() -> None:
    installs = re.findall(r"pip install (.*?)(?=&&|\nRUN|\nCOPY|\n\n)", RECIPE, flags=re.DOTALL)
    assert len(installs) == 4
    for line in installs:
        assert "--require-hashes" in line or line.strip().endswith("--no-deps dist/*.whl"), line


def test_the_image_runs_as_the_user_and_on_the_port_of_the_manifests() -> None:
    assert f"USER {USER}:{USER}" in RECIPE and f"EXPOSE {PORT}" in RECIPE
    bases = re.findall(r"^FROM (\S+)", RECIPE, flags=re.MULTILINE)
    assert all(re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-\w+", base) for base in bases)


def test_every_file_that_is_copied_exists() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)", RECIPE, flags=re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name


def test_the_operator_reports_every_figure_that_an_alert_asks_for() -> None:
    metrics = Metrics()
    metrics.leader.labels("holdfast-operator").set(0)
    shown = metrics.render().decode()
    for figure in FIGURES:
        assert f"\n# TYPE {figure.removesuffix('_total')}" in f"\n{shown}", figure


def test_the_operator_counts_the_services_that_differ() -> None:
    metrics = Metrics()
    drifted = {
        "metadata": {"namespace": "chat", "name": "bot"},
        "status": {"conditions": [{"type": "DriftDetected", "status": "True"}]},
    }
    metrics.watch_drift(None, drifted)
    assert "\nholdfast_drift_active 1.0\n" in metrics.render().decode()
    metrics.watch_drift(drifted, drifted | {"status": {}})
    assert "\nholdfast_drift_active 0.0\n" in metrics.render().decode()
    metrics.watch_drift(None, drifted)
    metrics.watch_drift(drifted, None)
    assert "\nholdfast_drift_active 0.0\n" in metrics.render().decode()
