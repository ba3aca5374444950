"""The recipe of the image fits the manifests and the locked requirements.

What `deploy/Containerfile` makes is not built here, as that needs a container engine; the image
that `tools/image.py` makes without one is, for the tests on a real node.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from prometheus_client import generate_latest
from tests.support.go_programs import SOPS

from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.install.deployments import HTTP_PORT, RUN_AS_USER

ROOT = Path(__file__).resolve().parents[2]
RECIPE = (ROOT / "deploy" / "Containerfile").read_text()


def pins(path: str) -> dict[str, str]:
    text = (ROOT / path).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


def test_the_images_packages_are_locked_to_the_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = ("server", "kubernetes", "gitops", "postgres")
    needed = [*project["dependencies"], *(each for name in wanted for each in extras[name])]
    names = {re.split(r"[<>=~\[]", each)[0] for each in needed} - {"holdfast-ml"}
    locked = pins("deploy/requirements.txt")
    assert names <= set(locked)
    tested = pins("requirements/dev.txt")
    for name, version in (locked | pins("deploy/requirements-build.txt")).items():
        assert tested[name] == version, name


def test_every_requirement_is_installed_by_its_hash() -> None:
    installs = re.findall(r"pip install (.*?)(?=&&|\nRUN|\nCOPY|\n\n)", RECIPE, flags=re.DOTALL)
    assert len(installs) == 4
    for line in installs:
        assert "--require-hashes" in line or line.strip().endswith("--no-deps dist/*.whl"), line


def test_the_image_runs_as_the_user_and_on_the_port_of_the_manifests() -> None:
    assert f"USER {RUN_AS_USER}:{RUN_AS_USER}" in RECIPE and f"EXPOSE {HTTP_PORT}" in RECIPE
    assert f"--uid {RUN_AS_USER} --gid {RUN_AS_USER}" in RECIPE
    bases = re.findall(r"^FROM (\S+)", RECIPE, flags=re.MULTILINE)
    python = re.compile(r"docker\.io/library/python:3\.\d+-slim-\w+")
    assert python.fullmatch(bases[-1])
    assert all(python.fullmatch(base) or base.endswith("golang:1.27") for base in bases)


def test_the_image_has_the_programs_of_the_gitops_controller() -> None:
    """Those that are built are of the versions that were tested, where the tests have one."""
    (packages,) = re.findall(r"apt-get install (.*?) \\", RECIPE)
    assert {"git", "openssh-client", "ca-certificates"} <= set(packages.split())
    built = dict(re.findall(r"go install .*?([\w./]+)@(v[\d.]+)", RECIPE))
    assert set(built) == {
        "sigs.k8s.io/kustomize/kustomize/v5",
        f"{SOPS.module}/cmd/sops",
    }
    assert built[f"{SOPS.module}/cmd/sops"] == SOPS.version


def test_every_file_that_is_copied_exists() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)", RECIPE, flags=re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name


def test_the_operator_counts_the_services_that_differ() -> None:
    metrics = OperatorMetrics()
    drifted = {
        "metadata": {"namespace": "chat", "name": "bot"},
        "status": {"conditions": [{"type": "DriftDetected", "status": "True"}]},
    }
    metrics.watch_drift(None, drifted)
    assert "\nholdfast_drift_active 1.0\n" in generate_latest(metrics.registry).decode()
    metrics.watch_drift(drifted, drifted | {"status": {}})
    assert "\nholdfast_drift_active 0.0\n" in generate_latest(metrics.registry).decode()
    metrics.watch_drift(None, drifted)
    metrics.watch_drift(drifted, None)
    assert "\nholdfast_drift_active 0.0\n" in generate_latest(metrics.registry).decode()
