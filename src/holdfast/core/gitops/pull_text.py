"""What a pull request about a drift says: title, body, commit message, and the decision file.

Values in a drift are masked already. Everything else that somebody else wrote is made harmless
before it becomes Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.gitops.application import PullKind
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.ink import clean
from holdfast.core.ledger import DriftEntry
from holdfast.core.redact import redact
from holdfast.core.tree import Fields, Tree

DECISIONS = ".holdfast/decisions"
PREFIX = "holdfast/"
_MOST = 20
_WIDTH = 120
_ABSENT = "(absent)"


def branch_of(drift: ObjectDrift) -> str:
    """Name the branch: the same object has the same one, so that a pull request is updated."""
    if drift.pull is PullKind.REVERT:
        return f"{PREFIX}revert/{drift.id}"
    ref = drift.object
    parts = (ref.namespace, ref.kind.lower(), ref.name)
    name = "-".join(part for part in parts if part)
    return f"{PREFIX}codify/{''.join(c if c.isalnum() or c in '-_' else '-' for c in name)}"


def decision_file(drift: ObjectDrift) -> str:
    """Where the decision about a drift stands, from the root of the repository."""
    return f"{DECISIONS}/{drift.id}.yaml"


def decision(drift: ObjectDrift, expires: datetime) -> Fields:
    """The decision whose merge is the approval; it holds for what was reviewed, and for a time."""
    return {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "DriftDecision",
        "drift": drift.id,
        "decision": "revert",
        "application": str(drift.application),
        "object": str(drift.object),
        "digest": drift.digest,
        "expires": expires.isoformat(timespec="seconds"),
    }


def title_of(drift: ObjectDrift) -> str:
    """One line: what is done to which fields."""
    fields = [entry.path.rpartition(".")[2] or "the object" for entry in drift.entries[:3]]
    more = f" and {len(drift.entries) - 3} more" if len(drift.entries) > 3 else ""
    return _plain(f"{drift.pull}: {drift.object}: {', '.join(fields)}{more}", _WIDTH)


def labels_of(drift: ObjectDrift, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The labels of a pull request."""
    return ("holdfast", *(f"drift/{kind}" for kind in drift.kinds), *more)


def commit_message(drift: ObjectDrift) -> str:
    """The message, with the trailer that marks the commit as ours."""
    lines = [title_of(drift), "", _sentence(drift), "", f"Holdfast-Drift: {drift.id}"]
    return "\n".join(lines) + "\n"


def body_of(drift: ObjectDrift, *, notes: Sequence[str] = ()) -> str:
    """The description: what differs, who did it, what merging and closing mean."""
    rows = [
        "| field | live | git | kind |",
        "|---|---|---|---|",
        *(_row(entry) for entry in drift.entries[:_MOST]),
    ]
    if len(drift.entries) > _MOST:
        rows.append(f"\n{len(drift.entries) - _MOST} more fields: `holdfast drift show {drift.id}`")
    seen = f"{drift.first_seen:%Y-%m-%d %H:%M:%SZ}"
    where = f" Git declares it in `{_code(drift.where)}`." if drift.where else ""
    return "\n".join(
        [
            _sentence(drift),
            "",
            *rows,
            "",
            f"First seen {seen}.{where}",
            *(f"- {_plain(note, 500)}" for note in notes),
            "",
            *_effects(drift),
            "",
            marker_of(drift),
        ]
    )


def marker_of(drift: ObjectDrift) -> str:
    """What a body ends with: by it a pull request is known to be about exactly this."""
    return f"<!-- holdfast:drift={drift.id} digest={drift.digest} -->"


def is_about(body: str, drift: str) -> bool:
    """True for the body of a pull request of ours about a drift, as it was at any time."""
    return f"<!-- holdfast:drift={drift} " in body


def _effects(drift: ObjectDrift) -> list[str]:
    if drift.pull is PullKind.REVERT:
        return [
            "**Merging** approves that Holdfast puts the declared values back, if nothing has "
            "moved since. **Closing** leaves the live side as it is.",
        ]
    effect = "nothing is restarted" if drift.healable else "its pods are replaced once"
    return [
        f"**Merging** makes Git declare what runs now: {effect}. **Closing** leaves "
        f"Git as it is; to put the declared values back instead: `holdfast revert {drift.id}`.",
    ]


def _sentence(drift: ObjectDrift) -> str:
    kinds = " and ".join(kind.value for kind in drift.kinds)
    writers = sorted({str(entry.writer) for entry in drift.entries if entry.writer})
    by = f" by {' and '.join(writers)}" if writers else ""
    what = f"{drift.object} of application {drift.application} differs from Git ({kinds})"
    return _plain(f"{what}, changed{by or ' by somebody who left no trace'}.", 500)


def _row(entry: DriftEntry) -> str:
    cells = (entry.path or "the whole object", _value(entry.live), _value(entry.desired))
    return f"| {' | '.join(f'`{_code(cell)}`' for cell in cells)} | {entry.kind} |"


def _value(value: Tree) -> str:
    return _ABSENT if value is None else str(value)


def _code(text: str) -> str:
    """Text inside back-ticks in a table: nothing of it can end either."""
    shown = clean(redact(text), ascii_only=False).replace("`", "'").replace("|", "¦")
    shown = " ".join(shown.split())
    return shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 1]}…"


def _plain(text: str, width: int) -> str:
    """Text outside: no markup, no mention of people, no end of the marker."""
    shown = clean(redact(text), ascii_only=False)
    for sign in "<>`[]|*@":
        shown = shown.replace(sign, " " if sign == "@" else "'")
    shown = " ".join(shown.split())
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"
