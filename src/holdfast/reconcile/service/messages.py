"""Says what happened to a service in words: which tool changed what, and when.

For conditions, events and the plan of a dry run. Values pass the mask for secrets first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import assert_never

from holdfast.core.cost import Cost, describe_cost
from holdfast.core.drift import Cause, DriftedField
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.live import Writer
from holdfast.core.object_plan import ObjectStep
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.managed_fields import MERGED_MANAGER, UNTRACKED_MANAGER
from holdfast.core.ownership.signals import FieldDrift
from holdfast.core.plan import StepPlan
from holdfast.core.redact import redact
from holdfast.core.service import facts
from holdfast.core.service.facts import ChildDrift, Note, ServiceFact, WriterChanges
from holdfast.core.service.pod_health import PodProblem
from holdfast.core.service.spec import CanaryEnding, InferenceService
from holdfast.core.show import show_value
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import show_path
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.observe import OPERATOR_MANAGER, PodReport, controller_of
from holdfast.reconcile.service.runtime import (
    NotAsked,
    NotAskedReason,
    ObstacleKind,
    RuntimeFindings,
    RuntimeObstacle,
)

_MAX_FIELDS = 5
"""Fields named in one sentence."""
_WIDTH = 80
PUT_BACK = "It was put back."
RECREATED = "It was created again."
LEFT_SUSPENDED = "It is left while the service is suspended."
LEFT_LARGER = (
    "It is left, since a claim cannot be made smaller: declare that size in cache, or delete the"
    " claim, after which the models are downloaded again."
)
MAX_MESSAGE = 1024
"""What an event's message may have at the most."""


def drift_of(child: ChildDecision, *, healed: bool = False) -> ChildDrift:
    """How a child drifted, by writer.

    With `healed`, only what was put back: not what the server stored otherwise again.
    """
    if child.deleted:
        return ChildDrift(ref=child.ref, deleted=True)
    left = {field.change.path for field in (*child.altered, *child.contested)} if healed else ()
    by_writer: dict[tuple[str, datetime | None], list[str]] = {}
    for field in child.drifted:
        if field.change.path not in left:
            at = field.writer.at if field.writer else None
            by_writer.setdefault((_by(field), at), []).append(_path(field))
    changes = (
        WriterChanges(writer=writer, at=at, paths=tuple(paths))
        for (writer, at), paths in by_writer.items()
    )
    return ChildDrift(ref=child.ref, changes=tuple(changes))


def describe_drift(children: Iterable[ChildDecision]) -> str:
    """Say what drifted of children, one sentence for each writer and object."""
    return describe_drifts(map(drift_of, children))


def describe_drifts(drifts: Iterable[ChildDrift]) -> str:
    """Say drifts, one sentence for each writer and object."""
    return truncate(" ".join(sentence for each in drifts for sentence in _sentences(each)))


def describe_foreign(foreign: Iterable[ChildDecision]) -> str:
    """Name the objects that have our names and are not ours."""
    named = []
    for each in foreign:
        by = controller_of(each.live) if each.live else None
        whose = f"belongs to {by}" if by else "was not made for this service"
        named.append(f"{each.ref.kind} {each.ref.name} {whose}.")
    return truncate(" ".join(named) + " It was not touched. Delete it, or rename the service.")


def change_paths(fields: Iterable[FieldDrift]) -> tuple[tuple[str, str], ...]:
    """Which fields, and who changed them, without the times: those move with every write."""
    return tuple((_path(field), writer_name(field.writer)) for field in fields)


def describe_altered(children: Iterable[ChildDecision]) -> str:
    """What cannot be as declared because the server stores it differently, and what helps."""
    sentences = [
        f"The API server stores {_join_paths([_path(found) for found in each.altered])} of"
        f" {each.ref.kind} {each.ref.name} differently from what was sent: an admission policy or"
        " webhook changes it."
        for each in children
        if each.altered
    ]
    helps = "It cannot be put back. Declare what is stored, or change the policy."
    return truncate(" ".join((*sentences, helps)))


def describe_fights(children: Iterable[ChildDecision]) -> str:
    """Who keeps changing what after it was put back, and until when it is left.

    Without the times of their writes: those change every second, and this is told once a round.
    """
    sentences = []
    for each in children:
        if each.fight_until is None:
            continue
        ref, left = f"{each.ref.kind} {each.ref.name}", _stamp(each.fight_until)
        others = " and ".join(sorted({writer_name(found.writer) for found in each.contested}))
        paths = _join_paths([_path(found) for found in each.contested])
        fight = f"{others} and {OPERATOR_MANAGER} keep changing {paths} of {ref}."
        if each.deleted:
            fight = f"Somebody deletes {ref} each time {OPERATOR_MANAGER} creates it."
        elif not each.contested:
            fight = f"Somebody wipes the record of who owns what of {ref} each time it is restored."
        sentences.append(f"{fight} It is left until {left}, and put back then.")
    return truncate(" ".join((*sentences, "Let one of the two set it.")))


def describe_delegated(children: Iterable[ChildDecision]) -> str:
    """Which fields differ that are left to an autoscaler or its like, and who wrote them."""
    sentences = []
    for each in children:
        by_writer: dict[str, list[str]] = {}
        for found in each.delegated:
            by_writer.setdefault(writer_name(found.writer), []).append(_path(found))
        sentences += [
            f"{name} sets {_join_paths(paths)} of {each.ref.kind} {each.ref.name}."
            for name, paths in by_writer.items()
        ]
    return truncate(" ".join(sentences))


def describe_unknown_fields(names: Sequence[str]) -> str:
    """What follows from fields that only a later version knows."""
    return truncate(
        f"This version of the operator does not know {_join_paths(names)}, so nobody looked at"
        " what is declared there. What it knows is kept as it was written, and nothing new is"
        " rolled out. Upgrade the operator, or take the fields out."
    )


def describe_postponed(declared: Sequence[ObjectRef], removed: Sequence[ObjectRef]) -> str:
    """What a suspension keeps from being written and deleted."""
    parts = [
        f"{_join_paths([f'{ref.kind} {ref.name}' for ref in refs])} {what}"
        for refs, what in (
            (declared, "waits to be made as declared"),
            (removed, "is no longer declared and waits to be deleted"),
        )
        if refs
    ]
    return truncate(". ".join(parts) + ". Nothing is written while the service is suspended.")


def plan_lines(plan: StepPlan[ObjectStep]) -> tuple[str, ...]:
    """Say a plan: one line for each field, live to declared, and one for what its step costs."""
    return tuple(line for step in plan.steps for line in _step_lines(step))


def describe_costs(children: Iterable[ChildDecision]) -> str:
    """Say what it costs to put children back, one sentence each."""
    return " ".join(_healing_cost(each.ref, each.cost) for each in children)


def _healing_cost(ref: ObjectRef, cost: Cost | None) -> str:
    return f"Putting {ref.kind} {ref.name} back: {describe_cost(cost)}."


def _step_lines(step: ObjectStep) -> Iterable[str]:
    for field in step.fields:
        yield _plan_line(step.ref, field)
    yield f"{step.ref.kind} {step.ref.name}: cost: {describe_cost(step.cost)}"


def note_of(fact: ServiceFact) -> Note:
    """Say a fact in words: the reason and message of its Event and of its line in the log."""
    warning, reason = fact.warning, fact.event
    match fact:
        case facts.ChildCreated(ref=ref):
            message = f"{ref.kind} {ref.name} was created."
        case facts.ChildUpdated(ref=ref, cost=cost):
            message = f"{ref.kind} {ref.name} was made as declared."
            if cost is not None and cost.blocked:
                message = truncate(f"{message} Its rollout {cost}.")
        case facts.ChildDeleted(ref=ref):
            message = f"{ref.kind} {ref.name} was deleted."
        case facts.DriftHealed(drift=drift, cost=cost):
            back = RECREATED if drift.deleted else PUT_BACK
            price = f" {_healing_cost(drift.ref, cost)}" if not drift.served else ""
            message = truncate(f"{describe_drifts([drift])} {back}{price}")
        case facts.ConditionChanged(condition=condition):
            message = condition.message
        case facts.ServiceResumed(expired=expired):
            why = "suspend.until has passed" if expired else "suspend was taken out of the spec"
            message = f"The service is reconciled again: {why}."
        case facts.DrainFailed(pods=pods):
            message = describe_failed_drain(pods, fact.message)
        case facts.CanaryMoved():
            warning, reason, message = fact.alarming, fact.reason, fact.message
        case facts.CanaryEnded(ending=ending):
            adopted = ending is CanaryEnding.ADOPTED
            why = "its variant is the primary's now" if adopted else "it is no longer declared"
            message = f"The canary is gone: {why}."
        case _:
            raise NotImplementedError(f"nothing says {type(fact).__name__}")
    return Note(warning=warning, reason=reason, message=message)


def describe_failed_drain(pods: Sequence[str], said: str) -> str:
    """Say which pods did not wait before they were stopped, and what helps."""
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    words = f": {said.rstrip('.')}" if said else ""
    message = (
        f"The preStop hook of pod {pods[0]}{more} failed{words}. Requests may have been cut off. "
        "Where the image has no /bin/sh, give lifecycle.preStop in podTemplate."
    )
    return truncate(escape_unprintable(redact(message), ascii_only=False))


def writer_name(writer: Writer | None) -> str:
    """Name a writer as far as the API server knows it."""
    if writer is None or writer.manager in (MERGED_MANAGER, UNTRACKED_MANAGER):
        return "somebody unknown"
    return escape_unprintable(redact(str(writer)), ascii_only=False)


def truncate(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def runtime_drifts(
    service: InferenceService, differences: Iterable[RuntimeDifference]
) -> tuple[ChildDrift, ...]:
    """What pods serve otherwise than declared, by pod."""
    by_pod: dict[str, list[RuntimeDifference]] = {}
    for each in differences:
        by_pod.setdefault(each.pod, []).append(each)
    return tuple(
        ChildDrift(
            ref=ObjectRef(api_version="v1", kind="Pod", namespace=service.namespace, name=pod),
            served=tuple(served),
        )
        for pod, served in by_pod.items()
    )


def describe_unverified(findings: RuntimeFindings) -> str:
    """Say what pods did not tell, each reason once, of the first three."""
    if findings.not_asked is not None:
        return truncate(describe_not_asked(findings.not_asked))
    by_reason: dict[str, list[str]] = {}
    for pod, verdict in findings.unknown_fields:
        by_reason.setdefault(verdict.reason, []).append(f"{verdict.field} of {pod}")
    shown = [f"{_join_paths(fields)}: {why}" for why, fields in by_reason.items()]
    more = f" And {len(shown) - 3} more." if len(shown) > 3 else ""
    return truncate(f"Unknown is {' '.join(shown[:3])}{more}")


def describe_not_asked(not_asked: NotAsked) -> str:
    """Say why nothing is known of what pods serve."""
    match not_asked.reason:
        case NotAskedReason.NOT_YET:
            return "Its pods have not been asked yet."
        case NotAskedReason.NO_QUESTIONS:
            return f"Nobody knows how to ask a {not_asked.backend} engine what it serves."
        case NotAskedReason.UNLISTED:
            return f"Its pods could not be listed: {not_asked.error}"
        case NotAskedReason.NONE_READY:
            return "No pod of its own is ready to be asked."
        case _:
            assert_never(not_asked.reason)


_OBSTACLES = {
    ObstacleKind.POLICY: "It is left, as onDrift says.",
    ObstacleKind.UNKNOWN_FIELDS: "It is left, since the spec has fields that this version does not "
    "know.",
    ObstacleKind.SUSPENDED: "It is left, since the service is suspended.",
    ObstacleKind.FIGHT: "It came back after each of several times that it was put back, so it is "
    "left until {until}.",
    ObstacleKind.RESTARTING: "It waits until the pod that is being restarted is there again.",
    ObstacleKind.RESTART_USELESS: "A pod was restarted because of it, and the new one serves the "
    "same, so no other is. Compare what is declared with what the engine says.",
    ObstacleKind.NEVER_RIGHT: "No pod has been seen to serve it as declared, so it is not known "
    "that a restart would help, and none is made. Delete the pod to try.",
    ObstacleKind.ROLLOUT: "It waits until the rollout is over.",
    ObstacleKind.WHOLE_GROUP: "With it all pods of its group would start anew, so it is not "
    "restarted. Delete the pod to do so.",
    ObstacleKind.NO_ANSWER: "Whether it loads them still is not known.",
    ObstacleKind.DELETE_FAILED: "The pod could not be deleted: {error}",
}


def describe_obstacle(obstacle: RuntimeObstacle) -> str:
    """Say why what a pod serves otherwise is left."""
    until = _stamp(obstacle.until) if obstacle.until is not None else ""
    left = _OBSTACLES[obstacle.kind].format(until=until, error=obstacle.error)
    return f"{obstacle.engine_said} {left}".strip()


def runtime_plan_lines(differences: Iterable[RuntimeDifference]) -> tuple[str, ...]:
    """Say what would be put back in pods, one line for each field, served to declared."""
    return tuple(
        f"Pod {each.pod}: {each.field}: {each.served or 'nothing'} → "
        f"{each.declared or 'nothing'} (by whoever told its engine)"
        for each in differences
    )


def _sentences(drift: ChildDrift) -> list[str]:
    child = f"{drift.ref.kind} {drift.ref.name}"
    if drift.served:
        return [f"Pod {each}." for each in drift.served]
    if drift.deleted:
        return [f"Somebody deleted {child}."]
    if not drift.changes:
        return [f"The record of who owns what of {child} is gone."]
    return [
        f"{each.writer} changed {_join_paths(each.paths)} of {child}"
        + (f" at {_stamp(each.at)}." if each.at else ".")
        for each in drift.changes
    ]


def _by(field: FieldDrift) -> str:
    """Say who changed a field; what admission changes has no writer, and is nobody's secret."""
    if field.cause is Cause.ADMISSION:
        return "an admission policy or webhook"
    return writer_name(field.writer)


def _join_paths(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_MAX_FIELDS])
    return f"{shown} and {len(paths) - _MAX_FIELDS} more" if len(paths) > _MAX_FIELDS else shown


def _stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _plan_line(ref: ObjectRef, field: FieldDrift) -> str:
    shown = DriftedField(change=field.change, kind=field.kind, writer=field.writer)
    live, desired = (show_value(shown, live=side, width=_WIDTH) for side in (True, False))
    by = "declared anew" if field.pending else f"by {_by(field)}"
    return f"{ref.kind} {ref.name}: {_path(field)}: {live} → {desired} ({by})"


def _path(field: FieldDrift) -> str:
    return (
        escape_unprintable(redact(show_path(field.change.path)), ascii_only=False)
        or "the whole object"
    )


EVENTS_UNREAD = "Events about nodes could not be read, so whether a GPU reported an Xid is unknown."
NODES_UNREAD = "Nodes could not be read, so whether hardware is the cause is unknown."


def describe_pods(pods: PodReport) -> str:
    """Say what keeps pods from being ready, and whether their nodes were asked."""
    flapping = {each.pod for each in pods.flapping}
    others = [each for each in pods.problems if each.pod not in flapping]
    said = describe_pod_problems([*pods.flapping, *others])
    if pods.nodes_unread:
        said = f"{said}. {NODES_UNREAD}"
    elif pods.events_unread:
        said = f"{said}. {EVENTS_UNREAD}"
    return truncate(said)


def describe_pod_problems(problems: Sequence[PodProblem]) -> str:
    """Say what keeps pods from being ready, of the first three."""
    shown = "; ".join(dict.fromkeys(map(str, problems[:3])))
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return truncate(escape_unprintable(redact(shown), ascii_only=False) + more)
