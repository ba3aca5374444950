"""What a piece of text means, and text that is safe to show. Needs nothing, so it loads at once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


class TextStyle(StrEnum):
    """What a piece of text means; the terminal decides on a colour."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    SECRET = "secret"
    FAINT = "faint"
    PLAIN = "plain"


Painter: TypeAlias = Callable[[str, TextStyle], str]


def no_paint(text: str, style: TextStyle) -> str:
    """Paint nothing."""
    return text


def escape_unprintable(text: str, *, ascii_only: bool = False) -> str:
    """Escape what a terminal or a reader could be misled by: control and direction characters."""
    return "".join(
        char
        if char.isprintable() and (char.isascii() or not ascii_only)
        else _escape_character(char)
        for char in text
    )


def _escape_character(char: str) -> str:
    return char.encode("unicode_escape").decode()
