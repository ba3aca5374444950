"""The notice of a fact, for those that people or machines outside should hear of.

Every id is made of the fact itself, so that telling the same again is telling it once. All text is
redacted here as well, and fixed: nothing of a notice is a template of somebody else's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import quote

from holdfast.core.cost import describe_cost
from holdfast.core.drift import DriftKind
from holdfast.core.fight import API_SERVER
from holdfast.core.gitops import facts
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.facts import CONTROLLER, ApplicationFact, JournalAction
from holdfast.core.gitops.notification import Notice, Severity
from holdfast.core.gitops.wording import drift_writers, message_of
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.page_links import application_link, drift_link, plan_link, project_link
from holdfast.core.redact import MASK, is_reference, names_a_secret, redact, redact_tree
from holdfast.core.show import readable_value
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Fields, Tree

_MAX_SHOWN_FIELDS = 5
"""Fields named in the text of a notice."""
_MAX_DATA_FIELDS = 50
"""Fields in its data."""
_MAX_VALUE = 60
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSubject:
    """What a notice is about: an application, or one drift of one of its objects."""

    application: str
    """`namespace/name`; `/name` for one from a file."""
    at: datetime
    object: ObjectRef | None = None
    drift: str = ""
    cluster: str = ""
    url: str = ""
    """Where a person can look at it. Only an address of the web is passed on."""

    def __str__(self) -> str:
        return str(self.object) if self.object else self.application


def link_of(fact: ApplicationFact, application: ApplicationId, project: str, base_url: str) -> str:
    """Where the page shows what a fact is about; empty where no base URL is set."""
    match fact:
        case facts.DriftFact(drift=drift) | facts.PullRequestLeftAlone(drift=drift):
            found = drift_link(base_url, project, drift.id)
        case facts.PullRequestFact(pull=pull):
            found = drift_link(base_url, project, pull.drift)
        case facts.PlanBlocked(plan=plan):
            found = plan_link(base_url, project, plan.id)
        case facts.PendingPlanFact(plan=pending):
            found = plan_link(base_url, project, pending.id)
        case facts.HoldFact():
            found = project_link(base_url, project, "holds")
        case _:
            found = application_link(base_url, project, application.label)
    return found or ""


def notice_of(
    fact: ApplicationFact,
    application: ApplicationId,
    at: datetime,
    cluster: str = "",
    link: str = "",
) -> Notice | None:
    """Make the notice of a fact; None for those that nobody outside is told of.

    `link` is where the page shows it; without one, a drift is linked to its pull request.
    """
    about = NoticeSubject(application=str(application), at=at, cluster=cluster, url=link)
    match fact:
        case facts.DriftFact(drift=drift) | facts.PullRequestFact(drift=ObjectDrift() as drift):
            about = replace(about, object=drift.object, drift=drift.id, url=link or drift.url)
            return _drift_notice(fact, drift, about)
        case facts.HealsBlocked():
            return _blocked(about, "", [fact.requirement.message], fact.count)
        case facts.PlanBlocked(plan=plan):
            reasons = [each.message for each in fact.requirements]
            return _blocked(about, plan.digest, reasons, len(plan.changes))
        case facts.SourceStale():
            return _notice(
                about,
                "source.stale",
                Severity.WARNING,
                *_source_marks(fact),
                title=f"The source of {about} is stale",
                text=f"{_sentence(message_of(fact))} Since {_format_time(fact.since)} the state of "
                f"{fact.revision} is unknown, so what was declared last still counts.",
                facts={**_source_facts(fact), "reason": message_of(fact)},
            )
        case facts.SourceRecovered():
            return _notice(
                about,
                "source.recovered",
                Severity.INFO,
                *_source_marks(fact),
                title=f"The source of {about} can be read again",
                text=f"{fact.revision} is at {fact.commit[:12]}.",
                facts={**_source_facts(fact), "commit": fact.commit},
            )
        case _:
            return None


def _drift_notice(fact: ApplicationFact, drift: ObjectDrift, about: NoticeSubject) -> Notice | None:
    match fact:
        case facts.DriftDetected():
            return _detected(drift, about)
        case facts.DriftCorrected(healed=True):
            return _healed(drift, about)
        case facts.DriftHeld():
            return _tolerated(drift, about)
        case facts.DriftDecided(decision=JournalAction.APPROVED):
            return _decided(fact, about, "approved", "comment", drift.plan)
        case facts.DriftDecided(decision=JournalAction.REJECTED):
            return _decided(fact, about, "rejected", "reason", drift.plan, fact.comment)
        case facts.PullRequestOpened(url=url):
            return _codified(about, url, merged=False)
        case facts.PullRequestMerged(pull=pull):
            return _codified(about, pull.url, merged=True)
        case facts.ToleranceExpired():
            return _expired(about, fact.ended, fact.follows, fact.reason)
        case facts.PullRequestOverdue():
            return _expired(about, fact.ended, "it waits for a reviewer", message_of(fact))
        case facts.HealFailed() | facts.AlteredByAdmission():
            return _notice(
                about,
                "drift.failed",
                Severity.WARNING,
                drift.note,
                title=f"{about} could not be put back",
                text=_sentence(drift.note),
                facts={"reason": drift.note},
            )
        case facts.FightDetected():
            return _fight(fact, about)
        case _:
            return None


def _detected(drift: ObjectDrift, about: NoticeSubject) -> Notice:
    writer = " and ".join(drift_writers(drift))
    by = f" by {writer}" if writer else ""
    title = f"{about} drifted ({', '.join(drift.kinds) or DriftKind.RESOURCE})"
    text = f"{about} of {about.application} was changed{by}. {drift.remediation.awaits}".rstrip()
    text += f"\n{_field_lines(drift.entries)}\nPutting it back: {describe_cost(drift.cost)}."
    if DriftKind.MODEL in drift.kinds:
        title = f"{about}: the branch of its model moved on"
        text = f"What runs of {about.application} is as Git says.\n{_field_lines(drift.entries)}"
    return _notice(
        about,
        "drift.detected",
        Severity.WARNING,
        title=title,
        text=text,
        facts={
            "kinds": [kind.value for kind in drift.kinds],
            "fields": _field_data(drift.entries),
            "writer": writer,
            "remediation": drift.remediation.value,
            "cost": drift.cost.kind.value if drift.cost else None,
        },
        who=writer,
    )


def _healed(drift: ObjectDrift, about: NoticeSubject) -> Notice:
    """A drift that comes back keeps its id, so each time counts for itself."""
    actor = drift.decided_by
    by = f" Approved by {actor}." if actor else ""
    return _notice(
        about,
        "drift.healed",
        Severity.INFO,
        about.at.isoformat(),
        title=f"{about} is as declared again",
        text=f"{about} of {about.application} was put back.{by}\n{_field_lines(drift.entries)}",
        facts={"actor": actor, "fields": _field_data(drift.entries)},
        who=actor,
    )


def _decided(
    fact: facts.DriftDecided, about: NoticeSubject, word: str, comment_key: str, *marks: str
) -> Notice:
    return _notice(
        about,
        f"drift.{word}",
        Severity.INFO,
        *marks,
        title=f"Plan for {about} was {word}",
        text=f"{fact.actor} {word} it. {_sentence(fact.comment)}",
        facts={"actor": fact.actor, "plan": fact.drift.plan, comment_key: fact.comment},
        who=fact.actor,
    )


def _tolerated(drift: ObjectDrift, about: NoticeSubject) -> Notice:
    until = drift.until
    end = f" until {_format_time(until)}" if until else ""
    return _notice(
        about,
        "drift.tolerated",
        Severity.INFO,
        drift.note,
        _iso(until) or "",
        title=f"Drift of {about} is tolerated{end}",
        text=_sentence(drift.note),
        facts={"reason": drift.note, "until": _iso(until), "actor": ""},
    )


def _codified(about: NoticeSubject, pull: str, *, merged: bool) -> Notice:
    done = "was merged" if merged else "is open"
    now = "The repository declares what runs now" if merged else "It would declare what runs"
    return _notice(
        about,
        "drift.codified",
        Severity.INFO,
        pull,
        done,
        title=f"Pull request for {about} {done}",
        text=f"{now}: {pull}",
        facts={"pull": pull, "merged": merged},
    )


def _expired(about: NoticeSubject, ended: datetime, follows: str, reason: str) -> Notice:
    why = f" It was tolerated because: {_sentence(reason)}" if reason else ""
    return _notice(
        about,
        "drift.expired",
        Severity.WARNING,
        ended.isoformat(),
        title=f"Drift of {about} is no longer tolerated",
        text=f"Its time ended at {_format_time(ended)}. {_sentence(follows)}{why}",
        facts={"ended": ended.isoformat(), "follows": follows, "reason": reason},
    )


def _fight(fact: facts.FightDetected, about: NoticeSubject) -> Notice:
    """Name who changes it. A server that stores a field differently is no second party."""
    others = ", ".join(fact.writers) or "somebody unknown"
    title, ways = f"{CONTROLLER} and {others} fight over {about}", "stop the other writer, "
    if fact.writers == (API_SERVER,):
        title, ways = f"{about} does not stay as it is written", ""
    rounds, since = len(fact.drift.rounds), fact.since
    often = "once" if rounds == 1 else f"{rounds} times"
    return _notice(
        about,
        "drift.fight",
        Severity.CRITICAL,
        since.isoformat(),
        title=title,
        text=f"{about} was put back {often} since {_format_time(since)} and changed each time by "
        f"{others}. It is left as it is until somebody decides: {ways}declare that value, or "
        "ignore the field.",
        facts={
            "ours": CONTROLLER,
            "theirs": list(fact.writers),
            "rounds": rounds,
            "since": since.isoformat(),
        },
        who=others,
    )


def _blocked(about: NoticeSubject, plan: str, reasons: Sequence[str], changes: int) -> Notice:
    waits = "change waits" if changes == 1 else "changes wait"
    return _notice(
        about,
        "plan.parked",
        Severity.CRITICAL,
        plan,
        title=f"{about} waits for a decision",
        text=f"{' '.join(map(_sentence, reasons))} {changes} {waits}, and nothing was done.",
        facts={"plan": plan, "reasons": list(reasons), "changes": changes},
    )


def _source_marks(fact: facts.SourceFact) -> tuple[str, ...]:
    return fact.repository, fact.revision, fact.since.isoformat()


def _source_facts(fact: facts.SourceFact) -> Fields:
    return {
        "repository": fact.repository,
        "revision": fact.revision,
        "since": fact.since.isoformat(),
        # One host down is one message, however many applications follow it.
        "cause": f"source {fact.repository}",
    }


def _notice(
    about: NoticeSubject,
    word: str,
    severity: Severity,
    *marks: str,
    title: str,
    text: str,
    facts: Fields,
    who: str = "",
) -> Notice:
    """`marks` tell this fact from others of its type. Its cause, unless the facts have one, is
    the application and `who`: one person's edits of ten objects are one thing to be told.
    """
    ref = about.object
    named = (ref.kind, ref.namespace, ref.name) if ref else ("Application", about.application)
    subject = "/".join(part for part in named if part)
    basis = json.dumps([word, about.application, subject, about.drift, *marks])
    head: Fields = {"application": about.application, "cluster": about.cluster}
    if ref:
        head["drift"] = about.drift
        head["object"] = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
        }
    head["cause"] = f"{about.application} {who}".rstrip()
    data = redact_tree({**head, **facts})
    assert isinstance(data, dict)  # noqa: S101  # a mapping is masked into a mapping
    namespace = about.application.rpartition("/")[0]
    source = f"/clusters/{quote(about.cluster, safe='') or 'local'}"
    return Notice(
        id=f"{word}-{hashlib.sha256(basis.encode()).hexdigest()[:24]}",
        type=f"dev.holdfast.{word}.v1",
        source=f"{source}/namespaces/{quote(namespace, safe='')}" if namespace else source,
        subject=_shorten(subject),
        at=about.at,
        severity=severity,
        title=_shorten(title),
        text="\n".join(_shorten(line, 4 * _MAX_TEXT) for line in text.strip().split("\n")),
        data=data,
        url=about.url if about.url.startswith(("https://", "http://")) else "",
    )


def _shorten(text: str, limit: int = _MAX_TEXT) -> str:
    text = escape_unprintable(redact(text))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else text + "."


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M %Z").rstrip()


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _field_lines(fields: Sequence[DriftEntry]) -> str:
    lines = []
    for entry in fields[:_MAX_SHOWN_FIELDS]:
        if not entry.path:
            lines.append(f"• the whole object: {entry.evidence or 'not as declared'}")
        elif _is_secret(entry):
            lines.append(f"• {entry.path}: changed (a secret)")
        else:
            live, declared = _shown_value(entry, entry.live), _shown_value(entry, entry.desired)
            lines.append(f"• {entry.path}: {live}, declared {declared}")
    if len(fields) > _MAX_SHOWN_FIELDS:
        lines.append(f"• … and {len(fields) - _MAX_SHOWN_FIELDS} more")
    return "\n".join(lines)


def _shown_value(entry: DriftEntry, value: Tree) -> str:
    if value is None:
        return "(not set)"
    value = readable_value(re.split(r"[./]", entry.path), redact_tree(value))
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    text = escape_unprintable(text)
    return (
        text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE // 2]}…{text[-_MAX_VALUE // 2 :]}"
    )


def _field_data(fields: Sequence[DriftEntry]) -> Tree:
    return [
        {
            "path": entry.path,
            "kind": entry.kind.value,
            "cause": entry.cause.value,
            "desired": _data_value(entry, entry.desired),
            "live": _data_value(entry, entry.live),
            "writer": str(entry.writer) if entry.writer else None,
        }
        for entry in fields[:_MAX_DATA_FIELDS]
    ]


def _data_value(entry: DriftEntry, value: Tree) -> Tree:
    """Values of secrets never, and long ones cut: a notice is no backup of an object."""
    if value is None:
        return None
    if _is_secret(entry) and not (isinstance(value, str) and is_reference(value)):
        return MASK
    value = redact_tree(value)
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _is_secret(entry: DriftEntry) -> bool:
    """By its kind, or by the name of any part of its path."""
    named = any(names_a_secret(part) for part in re.split(r"[/.\[\]=]+", entry.path))
    return named or entry.kind is DriftKind.SECRET
