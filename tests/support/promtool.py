"""Finds promtool, which checks Prometheus's rules, or builds it once per machine.

`make testbed` builds it. Tests take it from the fixture `promtool`.
"""

from __future__ import annotations

import os
import shutil

import pytest
from tests.support import go_module
from tests.support.missing import without
from tests.support.testbed import Say

__all__ = ["promtool"]

PROGRAM = go_module.GoProgram(
    name="promtool",
    title="promtool",
    module="github.com/prometheus/prometheus",
    version="v0.313.0",
    package="./cmd/promtool",
    # Without the clients of every cloud that Prometheus finds its targets in.
    tags="netgo,remove_all_sd",
    lasting="about two minutes",
)


class NoPromtool(go_module.NotBuilt):
    """It is not there; the text says why."""


def find() -> str:
    """Give the promtool that is there already. Never builds; raises NoPromtool."""
    for candidate in (
        os.environ.get("HOLDFAST_PROMTOOL"),
        shutil.which("promtool"),
        str(PROGRAM.path),
    ):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise NoPromtool(f"promtool is not built: `make testbed` builds it, in {PROGRAM.lasting}.")


def find_or_build(say: Say) -> str:
    """Give promtool, building it first where it is missing; raises NotBuilt."""
    try:
        return find()
    except NoPromtool:
        return str(go_module.build(PROGRAM, say))


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> str:
    """The path of promtool."""
    try:
        return find()
    except NoPromtool as missing:
        without(pytestconfig, "promtool", missing)
