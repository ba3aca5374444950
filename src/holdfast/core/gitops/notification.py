"""One notice for people or machines outside, and how waiting notices are grouped into messages.

Notices of one cause that arrive close together are one message. What exceeds the limits of a
channel becomes one digest with counts and the first few titles. A subject that flaps is reported
twice, and then only once it is quiet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from operator import attrgetter

from holdfast.core.tree import Fields, Tree


class Severity(StrEnum):
    """How loud a notice is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell, already redacted."""

    id: str
    """Equal for the same fact, so that it is told once."""
    type: str
    """A CloudEvents type: `dev.holdfast.drift.detected.v1`."""
    source: str
    subject: str
    at: datetime
    severity: Severity
    title: str
    text: str
    data: Fields
    """The facts as JSON, for machines."""
    url: str = ""


def loudest(notices: Iterable[Notice]) -> Severity:
    """Return the highest severity among some notices."""
    order = list(Severity)
    return max((notice.severity for notice in notices), key=order.index, default=Severity.INFO)


DIGEST_TYPE = "dev.holdfast.digest.v1"
_MAX_TITLES = 10
_MAX_APPLICATIONS = 20
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """How much a channel gets, in seconds and numbers."""

    window: float = 60.0
    """How long a group is collected. Something critical ends the wait of its group."""
    group: int = 20
    """Notices in one message; more become a digest."""
    flood: int = 50
    """When more than this is due together, all but the critical groups become one digest."""
    burst: int = 10
    """Messages that may follow each other at once."""
    every: float = 6.0
    """Seconds after which one more message is allowed."""
    waiting: int = 1000
    """Notices kept apart for a channel that is down; beyond it the older become a digest."""
    repeats: int = 2
    """How often the same may be told of one subject within `flapping` seconds."""
    flapping: float = 600.0
    longest_hold: float = 3600.0
    """After this long, a subject that still flaps is told of once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNotice:
    """A notice on its way to one channel."""

    notice: Notice
    since: float
    """When it came, in seconds of a clock that never runs backwards."""
    held: bool = False
    """True when its subject flaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeBatch:
    """What a channel should get now. `digest` holds none, or at least two."""

    groups: tuple[tuple[WaitingNotice, ...], ...] = ()
    digest: tuple[WaitingNotice, ...] = ()
    again_in: float | None = None
    """Seconds until more is due; None when nothing else waits for its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBucket:
    """A rate: so many messages at once, then one in every so many seconds."""

    tokens: float
    at: float

    def filled(self, now: float, limits: ChannelLimits) -> MessageBucket:
        """Return it with what came in since."""
        gained = max(0.0, now - self.at) / limits.every
        return MessageBucket(tokens=min(float(limits.burst), self.tokens + gained), at=now)

    @property
    def whole(self) -> int:
        """Messages that are allowed now. A hair's breadth less than one counts as one."""
        return int(self.tokens + _EPSILON)

    def taken(self) -> MessageBucket:
        """Return it with one message less."""
        return MessageBucket(tokens=self.tokens - 1, at=self.at)

    def wait(self, limits: ChannelLimits) -> float:
        """Seconds until a message is allowed."""
        return 0.0 if self.whole else (1 - self.tokens) * limits.every


def notice_cause(notice: Notice) -> str:
    """Return what a notice is grouped by: its cause where it names one, its type otherwise."""
    cause = notice.data.get("cause")
    return cause if isinstance(cause, str) and cause else notice.type


def repeat_key(notice: Notice) -> tuple[str, str, str]:
    """Return what two notices have in common when they tell the same of one subject."""
    return notice.source, notice.subject, notice.type


def make_batch(
    waiting: Sequence[WaitingNotice],
    *,
    now: float,
    limits: ChannelLimits,
    tokens: int,
    force: bool = False,
) -> NoticeBatch:
    """Say what is sent now, in at most `tokens` messages. `force` ends every wait.

    Everything due is in the answer once: apart, or in the digest.
    """
    due: list[tuple[WaitingNotice, ...]] = []
    again: float | None = None
    for group in _groups(waiting):
        wait = 0.0 if force else _due_in(group, now, limits)
        if wait <= 0:
            due.append(group)
        elif again is None or wait < again:
            again = wait
    if not due or tokens < 1:
        return NoticeBatch(again_in=again)
    total = sum(len(group) for group in due)
    apart: list[tuple[WaitingNotice, ...]] = []
    folded: list[WaitingNotice] = []
    for group in due:
        flapped = group[0].held and len(group) > 1
        flooding = total > limits.flood and not _is_critical(group)
        if flapped or flooding or len(group) > limits.group:
            folded += group
        else:
            apart.append(group)
    if len(apart) + bool(folded) > tokens:
        folded += [each for group in apart[tokens - 1 :] for each in group]
        apart = apart[: tokens - 1]
    if len(folded) == 1:  # alone in a flood of critical groups
        apart.append(tuple(folded))
        folded = []
    return NoticeBatch(groups=tuple(apart), digest=tuple(folded), again_in=again)


def overflowing(
    waiting: Sequence[WaitingNotice], limits: ChannelLimits
) -> tuple[WaitingNotice, ...]:
    """Return the older half when more waits than is kept, so that it happens rarely."""
    if len(waiting) <= limits.waiting:
        return ()
    oldest = sorted(waiting, key=attrgetter("since"))
    return tuple(oldest[: max(2, len(waiting) - limits.waiting // 2)])


def make_digest(notices: Sequence[Notice], *, channel: str, at: datetime) -> Notice:
    """Tell of many notices in one. Digests among them are added up, not nested."""
    types: Counter[str] = Counter()
    for notice in notices:
        types.update(_count_types(notice))
    total = sum(types.values())
    # Those that are digests already come last: their own titles say more than theirs.
    first = sorted(
        notices, key=lambda each: (each.type == DIGEST_TYPE, -_severity_rank(each), each.at)
    )
    titles = [each.title for each in first[:_MAX_TITLES] if each.type != DIGEST_TYPE]
    lines = [
        ", ".join(f"{count} × {_type_text(name)}" for name, count in types.most_common(8)) + "."
    ]
    lines += [f"• {title}" for title in titles]
    if total > len(titles):
        lines.append(f"… and {total - len(titles)} more.")
    applications = sorted({name for each in notices for name in _application_names(each)})
    marks = "\n".join([channel, *sorted(each.id for each in notices)])
    named: list[Tree] = list(applications[:_MAX_APPLICATIONS])
    subject = _common_value([each.subject for each in notices], "")
    return Notice(
        id="digest-" + hashlib.sha256(marks.encode()).hexdigest()[:24],
        type=DIGEST_TYPE,
        source=_common_value([each.source for each in notices], "/"),
        subject=subject or "digest",
        at=at,
        severity=loudest(notices),
        title=f"{total} more notices" + (f" about {subject}" if subject else ""),
        text="\n".join(lines),
        data={
            "count": total,
            "types": dict(types.most_common()),
            "applications": named,
            "since": min(each.at for each in notices).isoformat(),
            "until": max(each.at for each in notices).isoformat(),
        },
    )


def _groups(waiting: Sequence[WaitingNotice]) -> list[tuple[WaitingNotice, ...]]:
    """Part what waits by cause, what flaps by subject; the loudest and oldest groups first."""
    found: dict[tuple[str, ...], list[WaitingNotice]] = {}
    for each in waiting:
        key = repeat_key(each.notice) if each.held else (notice_cause(each.notice),)
        found.setdefault(key, []).append(each)
    groups = [tuple(sorted(group, key=attrgetter("since"))) for group in found.values()]
    return sorted(groups, key=lambda group: (not _is_critical(group), group[0].since))


def _due_in(group: Sequence[WaitingNotice], now: float, limits: ChannelLimits) -> float:
    if group[0].held:
        quiet = group[-1].since + limits.flapping
        return min(quiet, group[0].since + limits.longest_hold) - now
    return 0.0 if _is_critical(group) else group[0].since + limits.window - now


def _is_critical(group: Sequence[WaitingNotice]) -> bool:
    return any(each.notice.severity is Severity.CRITICAL for each in group)


def _severity_rank(notice: Notice) -> int:
    return list(Severity).index(notice.severity)


def _count_types(notice: Notice) -> Counter[str]:
    types = notice.data.get("types")
    if notice.type != DIGEST_TYPE or not isinstance(types, dict):
        return Counter({notice.type: 1})
    return Counter({name: count for name, count in types.items() if isinstance(count, int)})


def _application_names(notice: Notice) -> list[str]:
    named = notice.data.get("applications" if notice.type == DIGEST_TYPE else "application")
    names = named if isinstance(named, list) else [named]
    return [name for name in names if isinstance(name, str) and name]


def _type_text(type_: str) -> str:
    """`dev.holdfast.drift.detected.v1` is shown as `drift detected`."""
    return " ".join(type_.removeprefix("dev.holdfast.").rpartition(".v")[0].split(".")) or type_


def _common_value(values: Sequence[str], otherwise: str) -> str:
    return values[0] if len(set(values)) == 1 else otherwise
