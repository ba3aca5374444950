"""Says what becomes of tests whose outside program is not on this machine.

Called by the fixtures of Gitea, PostgreSQL and their like.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import pytest
from tests.support.cluster_fixture import REQUIRED

_SAID = pytest.StashKey[set[str]]()


def without(config: pytest.Config, what: str, reason: object) -> NoReturn:
    """Skip the test, and say so once in a run; fail it where every part is required."""
    required = os.environ.get(REQUIRED) == "1"
    said = config.stash.setdefault(_SAID, set())
    if what not in said:
        said.add(what)
        _say(config, f"{'CANNOT RUN' if required else 'SKIPPED'}: tests with {what}. {reason}")
    if required:
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def _say(config: pytest.Config, text: str) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        print(text, file=sys.stderr, flush=True)
        return
    with capture.global_and_fixture_disabled():
        print(f"\n{text}", file=sys.stderr, flush=True)
