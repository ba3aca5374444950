"""Emergency changes: takes up holds from annotations, and sees to it that none is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.core.gitops import message
from holdfast.core.gitops.application import HoldEnd, PullKind, Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import BREAK_GLASS, PAUSE_REASON, PAUSED_UNTIL, Hold
from holdfast.core.gitops.standing import Seen
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.owned import read_ownership
from holdfast.core.redact import redact
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.result import Voice

LONGEST = timedelta(days=30)
"""No hold lasts longer: what is meant for good belongs in Git."""
_TEXT = 200
_BY_ANNOTATION = "an annotation"


def follow_annotations(following: Following, seen: Iterable[Seen], voice: Voice) -> None:
    """Begin, change and end the holds that stand on objects themselves."""
    shelf = following.shelf
    for each in seen:
        if each.live is None:
            continue
        known = shelf.holds.get(_id(each.live))
        wanted = _annotated(following, each, voice.now)
        if wanted is not None and shelf.expired.get(wanted.id) == wanted.asked:
            continue  # it ended already: a clock that is set back does not revive it
        if wanted is not None and (known is None or known.until != wanted.until):
            shelf.put_hold(replace(wanted, since=known.since) if known else wanted)
            told = f"{each.ref} is on hold until {wanted.until:%Y-%m-%dT%H:%M:%SZ}: {wanted.reason}"
            shelf.note("paused", told, subject=wanted.id, actor=wanted.by)
            voice.event("Paused", told, object=each.ref)
        elif wanted is None and known is not None and known.until > voice.now:
            shelf.put_hold(known, ended=True)
            shelf.note("resumed", f"{each.ref}: the annotation is gone.", subject=known.id)
            voice.event("Resumed", f"{each.ref} is no longer on hold.", object=each.ref)


async def expire(following: Following, voice: Voice) -> None:
    """End the holds whose time is over, and send their changes where the policy says.

    What changed under a hold goes to a pull request or is put back; either way it is on record.
    Where putting back needs a review, the end of a hold is none.
    """
    shelf, spec = following.shelf, following.application.spec.drift
    four_eyes = bool(spec and spec.four_eyes)
    for hold in [each for each in shelf.holds.values() if each.until <= voice.now]:
        back_port = hold.end is HoldEnd.PULL_REQUEST
        follows = "goes to Git by a pull request" if back_port else "is put back"
        for drift in list(shelf.drifts.values()):
            if hold.object not in (None, drift.object):
                continue
            # What was not seen before came about under the hold, as far as can be told.
            unseen = back_port and drift.first_seen == voice.now
            if drift.state is not DriftState.HELD and not unseen:
                continue
            if following.hold_of(drift.object, voice.now) is not None:
                continue  # another hold goes on
            if drift.last_seen < hold.since:  # no change under the hold: it goes its own way again
                shelf.put_drift(replace(drift, state=DriftState.DETECTED, note="", until=None))
                continue
            after = replace(drift, state=DriftState.DETECTED, chosen_by=f"the end of {hold.id}")
            after = replace(after, note=f"Its hold ended: it {follows}.", until=None)
            if back_port:
                after = replace(after, remediation=Remediation.PULL_REQUEST, pull=PullKind.CODIFY)
            elif drift.remediation is Remediation.REVIEW or four_eyes:
                after = replace(after, remediation=Remediation.REVIEW, requested_by=hold.by)
            else:
                after = replace(after, state=DriftState.APPROVED, plan="", decided_by=hold.by)
            shelf.put_drift(after)
            await voice.notice(
                message.drift_expired(
                    voice.about(after), ended=hold.until, follows=f"it {follows}",
                    reason=hold.reason,
                )
            )  # fmt: skip
        told = f"The hold of {hold.by} ({hold.reason}) ended: what changed under it {follows}."
        shelf.put_hold(hold, ended=True)
        shelf.note("pause-expired", told, subject=hold.id)
        voice.event("PauseExpired", told, object=hold.object)


def _annotated(following: Following, seen: Seen, now: datetime) -> Hold | None:
    live = seen.live or {}
    until = _time(at(live, ("metadata", "annotations", PAUSED_UNTIL)))
    known = following.shelf.holds.get(_id(live))
    begun = known.since if known else now
    if until is None or until <= now:
        return None
    asked, until = until, min(until, begun + LONGEST)
    reason = at(live, ("metadata", "annotations", PAUSE_REASON))
    incident = at(live, ("metadata", "annotations", BREAK_GLASS))
    told = " ".join(redact(str(part))[:_TEXT] for part in (incident, reason) if part)
    spec = following.application.spec.drift
    return Hold(
        id=_id(live), application=following.application.id, object=seen.ref,
        reason=told or "no reason was given", by=_writer(live), since=now, until=until,
        end=(spec.hold_end if spec else None) or HoldEnd.PULL_REQUEST, from_annotation=True,
        asked=asked,
    )  # fmt: skip


def _id(live: Fields) -> str:
    return f"hold-{str(at(live, ('metadata', 'uid')))[:8]}"


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _writer(live: Fields) -> str:
    path = ("metadata", "annotations", PAUSED_UNTIL)
    entries = read_ownership(at(live, ("metadata", "managedFields"))).entries
    return next((str(entry.writer) for entry in entries if path in entry.paths), _BY_ANNOTATION)
