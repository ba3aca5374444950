"""Says in sentences what happened to an application; for Events, statuses and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.core.cost import describe_cost
from holdfast.core.gitops import facts
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.facts import ApplicationFact, JournalAction
from holdfast.core.gitops.objects import DuplicateDeclaration
from holdfast.core.gitops.plan import SyncStep
from holdfast.core.gitops.source import StaleReason, StaleSource
from holdfast.core.plan import Action
from holdfast.core.redact import redact
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Fields

MAX_MESSAGE = 1024
_MAX_NAMES = 4
_VERBS = {Action.CREATE: "+ create", Action.UPDATE: "~ update", Action.DELETE: "- delete"}


def describe_drift(drift: ObjectDrift) -> str:
    """What drifted, and by whose hand."""
    kinds = " and ".join(kind.value for kind in drift.kinds)
    names = drift_writers(drift)
    by = f" by {' and '.join(names)}" if names else ""
    fields = list_names([entry.path or "the whole object" for entry in drift.entries])
    return shorten(f"{drift.object}: {kinds} drift of {fields}{by}.")


def drift_writers(drift: ObjectDrift) -> tuple[str, ...]:
    """The tools that wrote it, as far as the API server knows them."""
    return tuple(sorted({str(entry.writer) for entry in drift.entries if entry.writer}))


def describe_step(step: SyncStep) -> str:
    """One step of a plan, as a reviewer reads it."""
    fields = list_names([entry.path for entry in step.entries])
    line = f"{_VERBS.get(step.action, str(step.action))} {step.ref}: {step.reason}"
    named = f"{line} ({fields})" if fields else line
    return shorten(f"{named}; cost: {describe_cost(step.cost)}")


def count_steps(steps: Iterable[SyncStep], *, done: bool = False) -> str:
    """How much a plan does, or did."""
    actions = [step.action for step in steps]
    created, updated, deleted = map(actions.count, _VERBS)
    if done:
        return f"{created} created, {updated} updated, {deleted} deleted"
    return f"{created} to create, {updated} to update, {deleted} to delete"


def list_names(names: Sequence[str]) -> str:
    """Some names, and how many more."""
    shown = ", ".join(names[:_MAX_NAMES])
    return f"{shown} and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else shown


def shorten(text: str) -> str:
    """Make a text fit to be shown anywhere, on one line."""
    text = escape_unprintable(redact(" ".join(text.split())), ascii_only=False)
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def describe_stale(stale: StaleSource | None) -> str:
    """Why the newest commit is not followed, or not known; empty where it is."""
    if stale is None:
        return ""
    if stale.reason is StaleReason.UNANSWERED:
        return "The repository has not answered since the controller started."
    return stale.detail


def describe_duplicate(duplicate: DuplicateDeclaration) -> str:
    """Why nothing of an application is applied that declares an object of another."""
    return (
        f"{duplicate.object} is declared by {duplicate.owner} too, which owns it:"
        " remove it from one of the two."
    )


_STATE_TEXT = {
    DriftState.AWAITING: "waiting for approval",
    DriftState.HEALING: "being put back",
    DriftState.FIGHTING: "fought over",
    DriftState.PULL_REQUEST: "in a pull request",
    DriftState.HELD: "on hold",
    DriftState.BLOCKED: "blocked",
}


def describe_state(state: DriftState) -> str:
    """Say a state so that it completes "it is …"."""
    return _STATE_TEXT.get(state, state.value)


_RESOLUTION_TEXT = {
    Resolution.CODIFIED: "is what Git declares now",
    Resolution.IGNORED: "differs still, and a rule hides it",
    Resolution.SUPERSEDED: "differs still, otherwise than this drift told",
    Resolution.GONE: "is no longer declared",
}
_DECISION_TEXT = {
    JournalAction.APPROVED: "its plan was approved",
    JournalAction.FIRST_APPROVED: "its plan was approved by the first of two",
    JournalAction.REJECTED: "its plan was rejected",
    JournalAction.SNOOZED: "the decision was put off",
    JournalAction.CODIFY_REQUESTED: "a pull request that declares it was asked for",
    JournalAction.REVERT_REQUESTED: "a revert was asked for",
}
_REFUSED_TEXT = {
    JournalAction.APPROVED: "approval",
    JournalAction.REJECTED: "rejection",
    JournalAction.SNOOZED: "snooze",
    JournalAction.CODIFY_REQUESTED: "pull request",
    JournalAction.REVERT_REQUESTED: "revert",
    JournalAction.IGNORED: "ignore rule",
}


def message_of(fact: ApplicationFact) -> str:
    """Say a fact in a sentence, for the journal and, unless `event_message` differs, the Event."""
    match fact:
        case facts.DriftDetected() | facts.DriftChanged():
            return describe_drift(fact.drift)
        case facts.DriftCorrected(drift=drift):
            back = "is as declared again" if drift.where else "is gone, as Git does not declare it"
            ended = _RESOLUTION_TEXT.get(drift.resolution, back) if drift.resolution else back
            return f"{drift.object} {ended} ({drift.resolution})."
        case facts.DriftAbandoned(drift=drift):
            return f"{drift.object}: its application no longer exists."
        case facts.ApprovalRequested(plan=plan):
            return f"{plan.id} waits for a review."
        case facts.HealStarted(plan=plan):
            return plan.id
        case facts.DriftDecided(drift=drift):
            return f"{drift.object}: {_DECISION_TEXT[fact.decision]} by {fact.actor}."
        case facts.DriftIgnored(drift=drift):
            return f"{', '.join(fact.paths)} of {drift.object} until {_stamp(fact.until)}."
        case facts.DecisionRefused():
            return f"Its {_REFUSED_TEXT[fact.decision]} was refused: {fact.reason}"
        case facts.PullRequestOpened(drift=drift):
            return f"{fact.url} proposes to {drift.pull} {drift.object}."
        case facts.DriftFact(drift=drift) | facts.PullRequestLeftAlone(drift=drift):
            return drift.note
        case facts.PullRequestMerged(pull=pull):
            return f"{pull.url} was merged."
        case facts.PullRequestRejected(pull=pull):
            return pull.stopped
        case facts.PullRequestClosed(pull=pull):
            return f"{pull.url} was closed. {fact.reason}"
        case facts.PullRequestOverdue():
            return OVERDUE
        case facts.SyncStarted(plan=plan):
            return f"{plan.id}: {count_steps(plan.changes)} from {plan.commit[:7]}."
        case facts.Synced(plan=plan):
            return f"Applied {plan.commit[:7]}: {count_steps(plan.changes, done=True)}."
        case facts.CommitAccepted():
            return f"{fact.actor} agreed to follow {fact.commit[:7]}."
        case facts.HealsBlocked():
            return fact.requirement.message
        case facts.PlanBlocked(plan=plan):
            return f"{plan.id} waits for a person: {_requirements(fact)}"
        case facts.PlanApproved(plan=plan):
            return f"{plan.id} was approved."
        case facts.PlanRejected(plan=plan):
            return f"{plan.id} was rejected."
        case facts.PlanApprovalExpired(plan=plan):
            return f"{plan.approved_by} may not approve any more, so {plan.id} waits again."
        case (
            facts.SyncFailed(reason=reason)
            | facts.ObjectAltered(reason=reason)
            | facts.PullRequestFailed(reason=reason)
        ):
            return reason
        case facts.SourceStale(stale=stale):
            return shorten(describe_stale(stale))
        case facts.ApplicationRefused(duplicate=duplicate):
            return describe_duplicate(duplicate)
        case facts.SourceRecovered():
            return f"{fact.revision} is {fact.commit[:7]}."
        case facts.ObjectMoved():
            return f"{fact.about} belongs to {fact.owner} now."
        case facts.HandedOver():
            return "The application belongs to another project now."
        case facts.ApplicationRetired(objects=objects):
            return f"The application no longer exists; {objects} objects stay as they are."
        case facts.RuleExpired(rule=rule):
            return f"{rule.path} is compared again."
        case facts.Paused(hold=hold):
            held = hold.object or hold.application
            return f"{held} until {_stamp(hold.until)}: {hold.reason}"
        case facts.PausedByAnnotation(hold=hold):
            limited = " (all that annotations are granted for it within a week)"
            return (
                f"{hold.object} is on hold until {_stamp(hold.until)}, asked for by"
                f" {hold.by}: {hold.reason}{limited if hold.cut_short else ''}"
            )
        case facts.Resumed(hold=hold):
            return f"{hold.object or hold.application} is no longer on hold."
        case facts.ResumedByAnnotation(hold=hold):
            return f"{hold.object}: the annotation is gone, or is not to count any more."
        case facts.HoldRefused(hold=hold):
            why = "annotations have held it for a day already"
            if fact.never:
                why = "annotations hold nothing here"
            return (
                f"{hold.by} asked by annotation for a hold of {hold.object}, and {why}. Its drift"
                " is handled as if there were no hold. `holdfast pause` takes a token, and has no"
                " such limit."
            )
        case facts.HoldExpired(hold=hold):
            return (
                f"The hold of {hold.by} ({hold.reason}) ended: what changed under it"
                f" {fact.follows}."
            )
        case _:
            raise NotImplementedError(f"nothing says {type(fact).__name__}")


OVERDUE = "Its pull request is open for longer than it should be."


def event_message(fact: ApplicationFact) -> str:
    """Say a fact in its Kubernetes Event, which stands apart and may say what to do next."""
    message = message_of(fact)
    match fact:
        case facts.ApprovalRequested(drift=drift):
            cost = f"Putting it back: {describe_cost(drift.cost)}."
            return shorten(f"{describe_drift(drift)} {cost} Next: holdfast approve {drift.id}")
        case facts.PlanBlocked(plan=plan):
            return f"{_requirements(fact)} Next: holdfast approve {plan.id}"
        case facts.ApprovalExpired(drift=drift):
            return f"{drift.id}: {message}"
        case facts.DecisionMerged(drift=drift):
            return f"{drift.object}: {message}"
        case facts.PullRequestLeftAlone(branch=branch):
            return f"{branch}: {message}"
        case facts.PullRequestOverdue(pull=pull):
            return f"{pull.url}: {message}"
        case facts.PullRequestClosed(pull=pull):
            return f"{pull.url}: {fact.reason}"
        case facts.ResumedByAnnotation(hold=hold):
            return f"{hold.object} is no longer on hold."
        case _:
            return message


def journal_detail(fact: ApplicationFact) -> Fields:
    """What a line of the journal keeps beside its sentence, for machines."""
    match fact:
        case facts.DriftDetected(drift=drift) | facts.DriftChanged(drift=drift):
            return {
                "object": str(drift.object),
                "kinds": [kind.value for kind in drift.kinds],
                "causes": [cause.value for cause in drift.causes],
                "fields": [entry.path for entry in drift.entries],
                "writers": list(drift_writers(drift)),
                "commit": drift.commit,
                "remediation": drift.remediation.value,
                "route": drift.route,
                "cost": drift.cost.kind.value if drift.cost else "unknown",
            }
        case facts.DriftCorrected(drift=drift):
            return {"resolution": str(drift.resolution), "plan": drift.plan}
        case facts.DriftAbandoned():
            return {"resolution": Resolution.GONE.value}
        case facts.ApprovalRequested(plan=plan):
            return {"plan": plan.digest, "steps": [describe_step(step) for step in plan.steps]}
        case facts.HealStarted(plan=plan):
            return {"plan": plan.digest}
        case facts.DriftDecided(drift=drift):
            return {"plan": drift.plan, "comment": fact.comment, "digest": drift.digest}
        case facts.SyncStarted(plan=plan):
            return {"plan": plan.digest, "commit": plan.commit}
        case facts.PlanRejected(plan=plan):
            return {"plan": plan.digest, "comment": plan.comment}
        case _:
            return {}


def _requirements(fact: facts.PlanBlocked) -> str:
    return " ".join(each.message for each in fact.requirements)


def _stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
