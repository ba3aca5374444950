"""Text that is safe and fits: control characters escaped, columns aligned, ages in words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.core.redact import redact
from holdfast.core.text_style import escape_unprintable

_ASCII = str.maketrans({"→": "->", "…": "...", "·": "-", "↻": "r", "✓": "ok", "×": "x", "—": "-"})


def printable(text: str) -> str:
    """Escape what a terminal would act on, and mask credentials, in text from outside."""
    return "\n".join(escape_unprintable(line) for line in redact(text).split("\n"))


def one_line(text: str) -> str:
    """Like `printable`, on one line."""
    return printable(text).replace("\n", " ")


def to_ascii(text: str) -> str:
    """Write our own symbols in ASCII, and escape any other letter outside it."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def display_width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows under their heads. Cells are made safe here, so no caller can forget it."""
    table = [list(heads), *[[one_line(cell) or "-" for cell in row] for row in rows]]
    widths = [max(display_width(row[index]) for row in table) for index in range(len(heads))]
    return [
        "  ".join(
            cell + " " * (widths[index] - display_width(cell)) for index, cell in enumerate(row)
        ).rstrip()
        for row in table
    ]


def format_markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write rows as a Markdown table, with cells made safe as in `columns`."""
    table = [[one_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [list(heads), *table]]
    return [lines[0], "|" + "---|" * len(heads), *lines[1:]]


def format_time(at: datetime) -> str:
    """Write a time."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def age(since: datetime | None, now: datetime) -> str:
    """Say how long ago something was: 5s, 14m, 2h, 3d."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def time_left(until: datetime | None, now: datetime) -> str:
    """Say how long something still lasts: 6d 23h, 1h 59m, 38m, 5s."""
    if until is None:
        return "-"
    seconds = max(0, round((until - now).total_seconds()))
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    for index, (unit, size) in enumerate(units):
        if seconds >= size:
            rest = seconds % size
            smaller = units[index + 1] if index + 1 < len(units) else None
            more = f" {rest // smaller[1]}{smaller[0]}" if smaller and rest >= smaller[1] else ""
            return f"{seconds // size}{unit}{more}"
    return f"{seconds}s"


def count(number: int, noun: str) -> str:
    """Write `1 workload`, `2 workloads`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
