"""What a pull request about a drift says: title, body, commit message, and the decision file.

Values in a drift are masked already. Everything else that somebody else wrote is made harmless
before it becomes Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from holdfast.core.cost import describe_cost
from holdfast.core.drift import DriftKind
from holdfast.core.gitops.application import PullRequestKind
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import redact
from holdfast.core.show import readable_value
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Fields, Tree

DECISION_DIRECTORY = ".holdfast/decisions"
BRANCH_PREFIX = "holdfast/"
_MAX_ROWS = 20
_MAX_WIDTH = 120
_ABSENT = "(absent)"
_WITH_PODS = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Rollout"}
)
"""Kinds whose pods are made anew when what they refer to has another name."""


def branch_of(drift: ObjectDrift) -> str:
    """Name the branch: the same object has the same one, so that a pull request is updated."""
    if drift.pull is PullRequestKind.REVERT:
        return f"{BRANCH_PREFIX}revert/{drift.id}"
    ref = drift.object
    parts = (ref.namespace, ref.kind.lower(), ref.name)
    name = "-".join(part for part in parts if part)
    return f"{BRANCH_PREFIX}codify/{''.join(c if c.isalnum() or c in '-_' else '-' for c in name)}"


def kind_of_branch(branch: str) -> PullRequestKind:
    """What the pull request of a branch proposes."""
    revert = branch.startswith(f"{BRANCH_PREFIX}revert/")
    return PullRequestKind.REVERT if revert else PullRequestKind.CODIFY


def decision_file(drift: ObjectDrift) -> str:
    """Where the decision about a drift stands, from the root of the repository."""
    return f"{DECISION_DIRECTORY}/{drift.id}.yaml"


def decision_document(drift: ObjectDrift, expires: datetime) -> Fields:
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


def pull_request_title(drift: ObjectDrift) -> str:
    """One line: what is done to which fields."""
    fields = [entry.path.rpartition(".")[2] or "the object" for entry in drift.entries[:3]]
    more = f" and {len(drift.entries) - 3} more" if len(drift.entries) > 3 else ""
    return _plain_text(f"{drift.pull}: {drift.object}: {', '.join(fields)}{more}", _MAX_WIDTH)


def pull_request_labels(drift: ObjectDrift, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The labels of a pull request."""
    return ("holdfast", *(f"drift/{kind}" for kind in drift.kinds), *more)


def commit_message(drift: ObjectDrift) -> str:
    """The message, with the trailer that marks the commit as ours."""
    lines = [pull_request_title(drift), "", _sentence(drift), "", f"Holdfast-Drift: {drift.id}"]
    return "\n".join(lines) + "\n"


def pull_request_body(
    drift: ObjectDrift,
    *,
    notes: Sequence[str] = (),
    repointed: Sequence[ObjectRef] = (),
    link: str = "",
) -> str:
    """The description: what differs, who did it, what merging and closing mean.

    `repointed` are objects that change with it, as they refer to it by a hash of its content.
    `link` is where the page shows the drift.
    """
    seen = f"{drift.first_seen:%Y-%m-%d %H:%M:%SZ}"
    where = f" Git declares it in `{_code_text(drift.where)}`." if drift.where else ""
    return "\n".join(
        [
            _sentence(drift),
            "",
            *_table(drift),
            "",
            f"First seen {seen}.{where}" + (f" [See it in Holdfast]({link})." if link else ""),
            *(f"- {_plain_text(note, 500)}" for note in notes),
            "",
            *_effects(drift, repointed),
            "",
            marker_of(drift),
        ]
    )


def left_alone_comment(drift: ObjectDrift) -> str:
    """The comment under a pull request whose branch a person pushed to: it is theirs now.

    It says nothing about what merging does: only that person knows what the branch declares.
    """
    merging = (
        "**Merging** approves what the decision in this branch was written for, and no more."
        if drift.pull is PullRequestKind.REVERT
        else "**Merging** makes Git declare what this branch says, which need not be these "
        "values; what still differs then is reported again. **Closing** leaves Git as it is."
    )
    return "\n".join(
        [
            "A person has pushed to this branch, so Holdfast leaves it as it is, though it would "
            "propose something else by now. What differs:",
            "",
            *_table(drift),
            "",
            merging,
        ]
    )


def _table(drift: ObjectDrift) -> list[str]:
    rows = [
        "| field | live | git | kind |",
        "|---|---|---|---|",
        *(_row(entry) for entry in drift.entries[:_MAX_ROWS]),
    ]
    if len(drift.entries) > _MAX_ROWS:
        rows.append(
            f"\n{len(drift.entries) - _MAX_ROWS} more fields: `holdfast drift show {drift.id}`"
        )
    return rows


def marker_of(drift: ObjectDrift) -> str:
    """What a body ends with: by it a pull request is known to be about exactly this."""
    return f"<!-- holdfast:drift={drift.id} digest={drift.digest} -->"


def is_about_drift(body: str, drift: str) -> bool:
    """True for the body of a pull request of ours about a drift, as it was at any time."""
    return f"<!-- holdfast:drift={drift} " in body


def _effects(drift: ObjectDrift, repointed: Sequence[ObjectRef]) -> list[str]:
    if drift.pull is PullRequestKind.REVERT:
        return [
            "**Merging** approves that Holdfast puts the declared values back, if nothing has "
            f"moved since. That costs, as things stand: {_cost(drift)}. **Closing** leaves the "
            "live side as it is.",
        ]
    if DriftKind.MODEL in drift.kinds:
        return [
            "**Merging** makes Git declare the new commit. Once that is synced, the new weights "
            "are downloaded and the pods of the service are replaced. **Closing** leaves the pin "
            "as it is, until the branch moves again.",
        ]
    return [
        f"**Merging** makes Git declare what runs now: {_restarts(drift, repointed)}. "
        "**Closing** leaves "
        f"Git as it is; to put the declared values back instead: `holdfast revert {drift.id}` "
        f"(cost: {_cost(drift)}).",
    ]


def _cost(drift: ObjectDrift) -> str:
    return _plain_text(describe_cost(drift.cost), 300)


def _restarts(drift: ObjectDrift, repointed: Sequence[ObjectRef]) -> str:
    """What merging does to what runs."""
    if not drift.healable:
        return "its pods are replaced once"
    if not repointed:
        return "nothing is restarted"
    names = _plain_text(" and ".join(f"{ref.kind} {ref.name}" for ref in repointed), 300)
    if any(ref.kind in _WITH_PODS for ref in repointed):
        return f"it gets a new name, to which {names} then refers, so pods of it are replaced"
    return f"it gets a new name, to which {names} then refers"


def _sentence(drift: ObjectDrift) -> str:
    if DriftKind.MODEL in drift.kinds:
        what = f"The branch of the model that {drift.object} of application {drift.application}"
        return _plain_text(f"{what} pins has moved on. What runs is as Git says.", 500)
    kinds = " and ".join(kind.value for kind in drift.kinds)
    writers = sorted({str(entry.writer) for entry in drift.entries if entry.writer})
    by = f" by {' and '.join(writers)}" if writers else ""
    what = f"{drift.object} of application {drift.application} differs from Git ({kinds})"
    return _plain_text(f"{what}, changed{by or ' by somebody who left no trace'}.", 500)


def _row(entry: DriftEntry) -> str:
    live, declared = _shown_value(entry, entry.live), _shown_value(entry, entry.desired)
    cells = (entry.path or "the whole object", live, declared)
    return f"| {' | '.join(f'`{_code_text(cell)}`' for cell in cells)} | {entry.kind} |"


def _shown_value(entry: DriftEntry, value: Tree) -> str:
    return _ABSENT if value is None else str(readable_value(re.split(r"[./]", entry.path), value))


def _code_text(text: str) -> str:
    """Text inside back-ticks in a table: nothing of it can end either."""
    shown = escape_unprintable(redact(text), ascii_only=False).replace("`", "'").replace("|", "¦")
    shown = " ".join(shown.split())
    return shown if len(shown) <= _MAX_WIDTH else f"{shown[: _MAX_WIDTH - 1]}…"


def _plain_text(text: str, width: int) -> str:
    """Text outside: no markup, no mention of people, no end of the marker."""
    shown = escape_unprintable(redact(text), ascii_only=False)
    for sign in "<>`[]|*@":
        shown = shown.replace(sign, " " if sign == "@" else "'")
    shown = " ".join(shown.split())
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"
