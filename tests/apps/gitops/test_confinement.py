"""A controller whose renderer cannot be kept from the network says so when it starts."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.apps.gitops import main
from holdfast.apps.gitops.settings import GitopsSettings


@pytest.mark.parametrize(
    ("confines", "unconfined", "told"),
    [
        (True, False, []),
        (True, True, []),
        (False, False, [("renderer-refused", logging.ERROR)]),
        (False, True, [("renderer-unconfined", logging.WARNING)]),
    ],
)
def test_it_is_logged_aloud(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    confines: bool,
    unconfined: bool,
    told: list[tuple[str, int]],
) -> None:
    async def answer() -> bool:
        return confines

    monkeypatch.setattr(main, "can_confine", answer)
    with caplog.at_level(logging.INFO, logger="holdfast.server"):
        settings = GitopsSettings(db=Path("unused.db"), unconfined=unconfined)
        asyncio.run(main._log_confinement(settings))
    assert [(each.message, each.levelno) for each in caplog.records] == told
