"""Emergency changes: takes up holds from annotations, and sees to it that none is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.core.gitops import facts
from holdfast.core.gitops.application import AnnotationHolds, HoldEnd, PullRequestKind, Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import (
    BREAK_GLASS,
    MIN_GRANTED,
    PAUSE_REASON,
    PAUSED_UNTIL,
    Hold,
    budget_left,
)
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.managed_fields import ownership_of
from holdfast.core.redact import redact
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.reporting import PassReporter

MAX_HOLD = timedelta(days=30)
"""No hold lasts longer: what is meant for good belongs in Git."""
_MAX_REASON = 200
_BY_ANNOTATION = "an annotation"
_BY_GIT = "Git"
_REFUSAL_PERIOD = timedelta(days=1)
"""A writer who asks for more holds than are granted is told of so often."""


async def follow_annotations(
    context: ApplicationContext,
    observed: Iterable[ObservedObject],
    reporter: PassReporter,
    allowed: AnnotationHolds = AnnotationHolds.LIMITED,
) -> None:
    """Begin, change and end the holds that stand on objects themselves.

    Who may edit an object may write the annotation, so together they hold it for a day within a
    week and no longer, however often it is renewed. `allowed` counts for an application that does
    not say otherwise.
    """
    state, spec = context.state, context.application.spec.drift
    allowed = (spec.annotation_holds if spec else None) or allowed
    for each in observed:
        if each.live is None:
            continue
        known = state.holds.get(_hold_id(each.live))
        desired = _annotated_hold(context, each, reporter.now)
        if desired is not None and state.expired.get(desired.id) == desired.asked:
            continue  # it ended already: a clock that is set back does not revive it
        if desired is not None and desired.by != _BY_GIT:
            never = allowed is AnnotationHolds.NEVER
            if known is not None and known.asked == desired.asked and not never:
                continue  # it was granted already
            used = known.used if known else state.hold_times.get(each.ref, ())
            begun = known.since if known else reporter.now
            left = timedelta(0) if never else budget_left(used, reporter.now)
            desired = replace(desired, used=used, until=min(desired.until, begun + left))
            if known is None and left < MIN_GRANTED:
                await _refuse_hold(context, desired, never=never, reporter=reporter)
                continue
            if never and known is not None:
                desired = None
            elif desired.until <= reporter.now:
                continue  # it ends now, and is not begun anew
        if desired is not None and known is not None and known.until == desired.until:
            if known.asked != desired.asked:  # more was asked for, and no more is granted
                state.put_hold(replace(known, asked=desired.asked))
        elif desired is not None:
            state.put_hold(replace(desired, since=known.since) if known else desired)
            await reporter.tell(facts.PausedByAnnotation(hold=desired, actor=desired.by))
        elif desired is None and known is not None and known.until > reporter.now:
            state.put_hold(known, ended=True)
            await reporter.tell(facts.ResumedByAnnotation(hold=known))


async def _refuse_hold(
    context: ApplicationContext, hold: Hold, *, never: bool, reporter: PassReporter
) -> None:
    """Put on record that somebody asked for a hold which is not granted. Told once a day."""
    state, ref = context.state, hold.object
    assert ref is not None  # noqa: S101  # an annotation stands on an object
    last = state.holds_refused.get(ref)
    state.put_hold(replace(hold, until=reporter.now, since=reporter.now, refused=True), ended=True)
    if last is not None and reporter.now - last < _REFUSAL_PERIOD:
        return
    await reporter.tell(facts.HoldRefused(hold=hold, never=never, actor=hold.by))


async def expire_holds(context: ApplicationContext, reporter: PassReporter) -> None:
    """End the holds whose time is over, and send their changes where the policy says.

    What changed under a hold goes to a pull request or is put back; either way it is on record.
    Where putting back needs a review, the end of a hold is none.
    """
    state, spec = context.state, context.application.spec.drift
    four_eyes = bool(spec and spec.four_eyes)
    for hold in [each for each in state.holds.values() if each.until <= reporter.now]:
        back_port = hold.end is HoldEnd.PULL_REQUEST
        follows = "goes to Git by a pull request" if back_port else "is put back"
        if hold.cut_short:
            follows = "goes the way of its route again"
        for drift in list(state.drifts.values()):
            if hold.object not in (None, drift.object):
                continue
            # What was not seen before came about under the hold, as far as can be told.
            unseen = back_port and drift.first_seen == reporter.now
            if drift.state is not DriftState.HELD and not unseen:
                continue
            if context.hold_of(drift.object, reporter.now) is not None:
                continue  # another hold goes on
            # No change under the hold, or a hold that somebody wanted for longer than annotations
            # are granted: it goes its own way again.
            if drift.last_seen < hold.since or hold.cut_short:
                state.put_drift(replace(drift, state=DriftState.DETECTED, note="", until=None))
                continue
            after = replace(drift, state=DriftState.DETECTED, chosen_by=f"the end of {hold.id}")
            after = replace(after, note=f"Its hold ended: it {follows}.", until=None)
            if back_port:
                after = replace(
                    after, remediation=Remediation.PULL_REQUEST, pull=PullRequestKind.CODIFY
                )
            elif drift.remediation is Remediation.REVIEW or four_eyes:
                # An annotation says which tool wrote it, and not who.
                asked = "" if hold.from_annotation else hold.by
                after = replace(after, remediation=Remediation.REVIEW, requested_by=asked)
            else:
                after = replace(after, state=DriftState.APPROVED, plan="", decided_by=hold.by)
            state.put_drift(after)
            await reporter.tell(
                facts.ToleranceExpired(
                    drift=after, ended=hold.until, follows=f"it {follows}", reason=hold.reason
                )
            )
        state.put_hold(hold, ended=True)
        await reporter.tell(facts.HoldExpired(hold=hold, follows=follows))


def _annotated_hold(
    context: ApplicationContext, observed: ObservedObject, now: datetime
) -> Hold | None:
    live = observed.live or {}
    until = _parse_time(value_at(live, ("metadata", "annotations", PAUSED_UNTIL)))
    known = context.state.holds.get(_hold_id(live))
    begun = known.since if known else now
    if until is None or until <= now:
        return None
    asked, until = until, min(until, begun + MAX_HOLD)
    path = ("metadata", "annotations", PAUSED_UNTIL)
    declared = observed.declared is not None and value_at(observed.declared.item, path) == value_at(
        live, path
    )
    reason = value_at(live, ("metadata", "annotations", PAUSE_REASON))
    incident = value_at(live, ("metadata", "annotations", BREAK_GLASS))
    message = " ".join(redact(str(part))[:_MAX_REASON] for part in (incident, reason) if part)
    spec = context.application.spec.drift
    return Hold(
        id=_hold_id(live),
        application=context.application.id,
        object=observed.ref,
        reason=message or "no reason was given",
        by=_BY_GIT if declared else _annotation_writer(live),
        since=now,
        until=until,
        end=(spec.hold_end if spec else None) or HoldEnd.PULL_REQUEST,
        from_annotation=True,
        asked=asked,
    )


def _hold_id(live: Fields) -> str:
    return f"hold-{str(value_at(live, ('metadata', 'uid')))[:8]}"


def _parse_time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _annotation_writer(live: Fields) -> str:
    path = ("metadata", "annotations", PAUSED_UNTIL)
    entries = ownership_of(live).entries
    return next((str(entry.writer) for entry in entries if path in entry.paths), _BY_ANNOTATION)
