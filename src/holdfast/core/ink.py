"""What a piece of text means, and text that is safe to show. Needs nothing, so it loads at once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


class Ink(StrEnum):
    """What a piece of text means; the terminal decides on a colour."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    SECRET = "secret"
    FAINT = "faint"
    PLAIN = "plain"


Paint: TypeAlias = Callable[[str, Ink], str]


def no_paint(text: str, ink: Ink) -> str:
    """Paint nothing."""
    return text


def clean(text: str, *, ascii_only: bool = False) -> str:
    """Escape what a terminal or a reader could be misled by: control and direction characters."""
    return "".join(
        char if char.isprintable() and (char.isascii() or not ascii_only) else _escaped(char)
        for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
