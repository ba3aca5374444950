"""Finds Helm, or builds it once per machine beside the test cluster. `make testbed` does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.testbed import NoTestbed, Say, cache_root, go_environment, go_program

MODULE = "helm.sh/helm/v3/cmd/helm"
VERSION = "v3.22.0"


class NoHelm(Exception):
    """It is not there; the text says why."""


def find() -> str:
    """Give the Helm that is there already. Never builds; raises NoHelm."""
    for candidate in (os.environ.get("HOLDFAST_HELM"), shutil.which("helm"), str(_built())):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise NoHelm("Helm is not built: `make testbed` builds it, in about two minutes.")


def find_or_build(say: Say) -> str:
    """Give Helm, building it first where it is missing; raises NoHelm."""
    try:
        return find()
    except NoHelm:
        say("Building Helm with Go: about two minutes, once ...")
    try:
        go = go_program(say)
    except NoTestbed as missing:
        raise NoHelm(str(missing)) from None
    _built().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=_built().parent) as scratch:
        own = {"GOBIN": scratch, "GOFLAGS": "", "GOWORK": "off"}
        ran = subprocess.run(
            [go, "install", "-trimpath", "-ldflags", "-s -w", f"{MODULE}@{VERSION}"],
            env={**go_environment(), **own},
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise NoHelm(f"Helm could not be built: {ran.stderr.strip()[-500:]}")
        (Path(scratch) / "helm").rename(_built())
    return str(_built())


def _built() -> Path:
    return cache_root() / "helm" / VERSION / "helm"
