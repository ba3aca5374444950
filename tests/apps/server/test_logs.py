"""What the server logs of an exception: where it came from, and nothing that a request carried."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from holdfast.adapters.log_stream import JsonFormat
from holdfast.core.errors import StoreUnavailable


def logged(error: Exception) -> dict[str, object]:
    try:
        raise error
    except type(error):
        record = logging.LogRecord(
            "holdfast.server", logging.ERROR, __file__, 1, "request_failed", None, sys.exc_info()
        )
    found: dict[str, object] = json.loads(JsonFormat().format(record))
    return found


@pytest.mark.parametrize("error", [ValueError("canary-1"), KeyError("canary-1")])
def test_the_message_of_an_exception_of_others_is_not_logged(error: Exception) -> None:
    line = logged(error)
    assert line["exception"] == type(error).__name__
    assert "test_logs.py" in str(line["frames"])
    assert "canary-1" not in json.dumps(line)


def test_our_own_and_the_systems_words_are_logged() -> None:
    assert "The disk is full." in str(logged(StoreUnavailable("The disk is full."))["reason"])
    assert "No space left" in str(logged(OSError(28, "No space left on device"))["reason"])
