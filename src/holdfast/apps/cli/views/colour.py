"""Decides on colour and on letters, once, from the flags, the environment and the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from holdfast.core.ink import Ink

CODES = {
    Ink.CREATE: "32",
    Ink.CHANGE: "33",
    Ink.REMOVE: "31",
    Ink.SECRET: "35",
    Ink.FAINT: "2",
}


def wants_colour(choice: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether to colour what goes to a stream.

    A flag beats NO_COLOR, which beats the variables that force colour; then comes the
    terminal itself.
    """
    if choice in ("always", "never"):
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def wants_ascii(stream: TextIO) -> bool:
    """True when the stream cannot carry our arrows and dots."""
    try:
        "→…·↻✓".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def painted(text: str, ink: Ink) -> str:
    """Colour a text."""
    code = CODES.get(ink)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text
