"""Shows drifts by what caused them: forty objects that one upgrade moved are one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.forms import show_list
from holdfast.apps.cli.views.text import age, columns, count

_HEADS = ["CAUSE", "DRIFTS", "TYPE", "FIRST SEEN", "EXAMPLE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """As much of a drift as is needed to put it with others."""

    cause: str
    """Who moved it, and what sort of writer that is."""
    kinds: tuple[str, ...]
    first_seen: datetime
    what: str
    id: str


def show_causes(screen: Screen, drifts: Sequence[Moved], *, now: datetime) -> None:
    """Write one row for each cause, the one with the most drifts first."""
    groups: dict[str, list[Moved]] = {}
    for each in drifts:
        groups.setdefault(each.cause, []).append(each)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    rows = [_row(cause, found, now) for cause, found in ordered]
    match screen.output:
        case "table" | "wide":
            for line in columns(_HEADS, rows) if rows else ():
                screen.line(line)
            told = f"{count(len(drifts), 'drift')} of {count(len(groups), 'cause')}"
            screen.line(told if drifts else "No drift.")
        case _:
            show_list(
                screen,
                "DriftCauseList",
                heads=_HEADS,
                rows=rows,
                names=(cause for cause, _ in ordered),
                bodies=(_body(*group) for group in ordered),
            )


def _row(cause: str, found: Sequence[Moved], now: datetime) -> list[str]:
    first = min(found, key=lambda each: each.first_seen)
    return [
        cause, str(len(found)), ",".join(_kinds(found)), f"{age(first.first_seen, now)} ago",
        f"{first.what} ({first.id})",
    ]  # fmt: skip


def _body(cause: str, found: Sequence[Moved]) -> Mapping[str, object]:
    return {
        "cause": cause,
        "kinds": _kinds(found),
        "firstSeen": min(each.first_seen for each in found),
        "drifts": [each.id for each in found],
    }


def _kinds(found: Sequence[Moved]) -> list[str]:
    return list(dict.fromkeys(kind for each in found for kind in each.kinds))
