"""Ordered steps, each with an action and a reason; the only input of apply.

A plan carries what it was computed from. Applying it to a world that has moved is refused. What
plans of workloads and of objects have in common is `StepPlan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from holdfast.core.cost import NO_COST, Cost, CostKind, total_cost
from holdfast.core.diff import same_value
from holdfast.core.drift import Drift, DriftedField, DriftKind, Situation, find_drift
from holdfast.core.errors import StalePlan
from holdfast.core.live import Absent, Live, Observation, Unknown, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.normalize import WORKLOAD_RULES
from holdfast.core.rules import scales_once
from holdfast.core.tree import Fields, Tree, digest, json_pointer
from holdfast.core.workload import Desired


class Action(StrEnum):
    """What a step will do."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    NOTHING = "nothing"


class Disruption(StrEnum):
    """What requests notice while a step is carried out."""

    NONE = "none"
    RESTART = "rolling-restart"
    """New processes start before the old ones end: slower for a while, nothing lost."""
    STOP = "stop"
    """For a while, or for good, nothing answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action on one workload.

    `write` holds the top-level fields to be written, whole. `uid` and `version` are what was
    seen; None means that nothing was there. `disruption` is what follows from the fields alone
    until the target has said what the step costs.
    """

    id: WorkloadId
    action: Action
    reason: str
    disruption: Disruption
    fields: tuple[DriftedField, ...] = ()
    write: Fields
    uid: str | None
    version: str | None
    cost: Cost | None = None
    """What carrying it out does to the replicas that answer now, by the word of the target; None
    where nobody was asked, or nobody can tell."""


class PlanStep(Protocol):
    """A step of any plan."""

    @property
    def action(self) -> Action: ...


S = TypeVar("S", bound=PlanStep)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan(Generic[S]):
    """Steps in the order in which they are carried out."""

    steps: tuple[S, ...]

    @property
    def changes(self) -> tuple[S, ...]:
        """The steps that do something."""
        return tuple(step for step in self.steps if step.action is not Action.NOTHING)

    def __bool__(self) -> bool:
        return bool(self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewablePlan(StepPlan[S]):
    """A plan that is approved and carried out later, named by its digest."""

    @property
    def basis(self) -> Tree:
        """What the digest covers: all that a reviewer is shown, so that what was approved is
        what was seen."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """Equal plans, computed from an equal world, have equal digests."""
        return digest(self.basis)

    @property
    def id(self) -> str:
        """A short name for the digest."""
        return "plan-" + self.digest.removeprefix("sha256:")[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ReviewablePlan[Step]):
    """What will be done to workloads, in order."""

    @property
    def basis(self) -> Tree:
        return [_digest_basis(step) for step in self.steps]

    @property
    def cost(self) -> Cost | None:
        """What its steps cost together; None where nobody can tell."""
        return total_cost(step.cost for step in self.changes)

    def __str__(self) -> str:
        from holdfast.core.show import plan_text  # the renderings need the values, not vice versa

        return plan_text(self)

    def to_markdown(self) -> str:
        """Render for a pull request or a chat."""
        from holdfast.core.show import plan_markdown

        return plan_markdown(self)

    def _repr_html_(self) -> str:
        from holdfast.core.show import plan_html

        return plan_html(self)


RESTART_FIELDS = frozenset(
    "model model_revision model_digest cache backend command image args env secrets config"
    " vllm_version worker_id gpu_resource_id resources adapters pod_template nodes".split()
)
"""Fields whose change means new processes."""
_PORTS = ("service", "ports")
"""Of what a Service has, the ports alone are a container's too."""

AMOUNT_FIELDS = ("replicas", "autoscaling", "execution_policy", "execution_policy_config")
"""Fields that say how many run. They exclude each other, so writing one clears the rest."""

START_FIELDS = ({"command"}, {"image", "args"})
"""Fields that say what is started. The two groups exclude each other."""

UNWRITTEN_KINDS = frozenset({DriftKind.RESOURCE, DriftKind.RUNTIME})
"""Drift that no write puts back: a replica is started, and told what to serve."""


def make_plan(drifts: Iterable[Drift]) -> Plan:
    """Turn drift into steps, ordered by workload. Raises nothing and reads nothing."""
    steps = [_step(drift) for drift in drifts if drift.situation is not Situation.UNKNOWN]
    return Plan(steps=tuple(sorted(steps, key=lambda step: step.id)))


def step_back(live: Live, declared: Fields) -> Step:
    """The step that writes a workload as it was declared last."""
    return _step(find_drift(desired=Desired(id=live.id, fields=declared), live=live))


def delete_plan(live: Live) -> Plan:
    """Plan the end of one workload."""
    return Plan(
        steps=(
            Step(
                id=live.id,
                action=Action.DELETE,
                reason="asked for",
                disruption=Disruption.STOP,
                write={},
                uid=live.uid,
                version=live.version,
            ),
        )
    )


_DISRUPTIONS = {
    CostKind.NONE: Disruption.NONE,
    CostKind.ROLLING: Disruption.RESTART,
    CostKind.GAP: Disruption.STOP,
    CostKind.RECREATE: Disruption.STOP,
}


def with_cost(step: Step, cost: Cost | None) -> Step:
    """Say of a step what it costs; the target knows better than its fields what it disrupts."""
    if step.action is Action.NOTHING:
        cost = NO_COST
    if cost is None:
        return step
    return replace(step, cost=cost, disruption=_DISRUPTIONS[cost.kind])


def check_fresh(plan: Plan, observed: Mapping[WorkloadId, Observation]) -> None:
    """Raise StalePlan, saying what moved, unless the world is as the plan saw it."""
    for step in plan.steps:
        now = observed.get(step.id)
        moved = None
        match now:
            case Live() if step.uid is None:
                moved = "was created meanwhile"
            case Live() if now.uid != step.uid:
                moved = "was replaced by another of the same slug"
            case Live() if now.version != step.version:
                writer = _last_writer(now)
                moved = "was changed meanwhile" + (f" by {writer}" if writer else "")
            case Absent() if step.uid is not None:
                moved = "was deleted meanwhile"
            case Unknown() | None:
                moved = "could not be observed"
        if moved:
            raise StalePlan(
                f"Workload {step.id} {moved}, so {plan.id} no longer describes it.",
                hint="Make a new plan and review it again.",
            )


def _step(drift: Drift) -> Step:
    where = drift.desired.id
    live = drift.live
    if not isinstance(live, Live):
        return Step(
            id=where,
            action=Action.CREATE,
            reason="it is declared and not there",
            disruption=Disruption.NONE,
            write=dict(drift.desired.fields),
            uid=None,
            version=None,
        )
    paths = [field.change.path for field in drift.fields if field.kind not in UNWRITTEN_KINDS]
    names = list(dict.fromkeys(path[0] for path in paths))
    write = _fields_to_write(names, desired=drift.desired.fields, live=live.fields)
    restart = any(path[0] in RESTART_FIELDS or path[:2] == _PORTS for path in paths)
    return Step(
        id=where,
        action=Action.UPDATE if drift.fields else Action.NOTHING,
        reason=_reason(drift.fields),
        disruption=Disruption.RESTART if restart else Disruption.NONE,
        fields=drift.fields,
        write=write,
        uid=live.uid,
        version=live.version,
    )


def _reason(fields: tuple[DriftedField, ...]) -> str:
    count = len(fields)
    if not count:
        return "it is as declared"
    if all(field.evidence for field in fields):
        return "it is written as declared and does not run so"
    return f"{count} {'field differs' if count == 1 else 'fields differ'}"


def _fields_to_write(names: list[str], *, desired: Fields, live: Fields) -> Fields:
    write: Fields = {}
    for name in names:
        if name in AMOUNT_FIELDS:
            write.update(_amount(desired, live))
        else:
            write[name] = _merge_field(name, desired[name], live.get(name))
        for mine, other in (START_FIELDS, START_FIELDS[::-1]):
            if name in mine:
                write.update({each: None for each in other if each in live})
    return write


def _amount(desired: Fields, live: Fields) -> Fields:
    """Write how many run: details of the same policy are merged, other policies are cleared.

    A fixed policy is all of it one number, with a default, so there nothing is left to others.
    """
    policy = desired.get("execution_policy")
    same = policy == live.get("execution_policy") and policy != "fixed"
    write: Fields = {name: None for name in AMOUNT_FIELDS if name in live}
    for name in AMOUNT_FIELDS:
        if name in desired:
            write[name] = _merge_field(name, desired[name], live.get(name) if same else None)
    scale = write.get("autoscaling")
    if isinstance(scale, dict):
        write["autoscaling"] = _one_way_to_scale(scale, desired.get("autoscaling"))
    return write


_SCALE_BY = ("metric", "target", "metrics", "preset")


def _one_way_to_scale(scale: Fields, desired: Tree) -> Fields:
    """Take out what of the live side cannot stand beside what is declared."""
    gone: set[str] = set()
    if scale.get("min") != 0:
        # How long nobody asked counts only where there may be no replicas, so it ends with that.
        gone.add("idle_after")
    if not scales_once(**{name: scale.get(name) for name in _SCALE_BY}):
        gone |= {name for name in _SCALE_BY if not isinstance(desired, dict) or name not in desired}
    return {key: item for key, item in scale.items() if key not in gone}


def _merge_field(name: str, desired: Tree, live: Tree) -> Tree:
    """Keep what the live side has and the declaration leaves open, unless declared whole."""
    whole = name in WORKLOAD_RULES.exclusive or name in WORKLOAD_RULES.commands
    if whole or not isinstance(desired, dict) or not isinstance(live, dict):
        return desired
    return {
        **live,
        **{key: _merge_field(key, item, live.get(key)) for key, item in desired.items()},
    }


def _digest_basis(step: Step) -> Tree:
    # Only where there is one: plans that were saved before it existed stay valid.
    cost: Fields = {"cost": list(step.cost.basis)} if step.cost else {}
    return {
        **cost,
        "id": str(step.id),
        "action": step.action.value,
        "reason": step.reason,
        "disruption": step.disruption.value,
        "changes": [
            [
                json_pointer(field.change.path),
                field.change.desired,
                field.change.live,
                field.kind.value,
                field.cause.value,
                _writer_basis(field.writer),
                # Only where there is one: plans that were saved before it existed stay valid.
                *([field.evidence] if field.evidence else []),
            ]
            for field in step.fields
        ],
        "write": step.write,
        "uid": step.uid,
        "version": step.version,
    }


def _writer_basis(writer: Writer | None) -> Tree:
    if writer is None:
        return None
    at = writer.at.isoformat() if writer.at else None
    return [writer.manager, writer.actor, writer.operation, writer.subresource, at]


def _last_writer(live: Live) -> str | None:
    dated = [(writer.at.timestamp(), str(writer)) for writer in live.writers.values() if writer.at]
    return max(dated)[1] if dated else None


_AMOUNT_GROUPS = (("replicas",), ("autoscaling",), ("execution_policy", "execution_policy_config"))
"""Three ways to say how many run; writing one clears the others."""


def fields_after_write(fields: Mapping[str, Tree], write: Mapping[str, Tree]) -> Fields:
    """Give the fields after a write of whole top-level fields; None removes one."""
    after = {**fields, **write}
    for group in _AMOUNT_GROUPS:
        if any(write.get(name) is not None for name in group):
            for other in AMOUNT_FIELDS:
                if other not in group and other not in write:
                    after.pop(other, None)
    return {name: value for name, value in after.items() if value is not None}


def declared_after_write(
    names: Iterable[str], *, declared: Mapping[str, Tree], before: Fields, after: Fields
) -> Fields:
    """Merge the fields that were just written into the declaration."""
    merged = dict(declared)
    for name in names:
        if name not in after:
            merged.pop(name, None)
        elif name in WORKLOAD_RULES.exclusive:
            merged[name] = after[name]
        else:
            merged[name] = _without_carried_along(after[name], merged.get(name), before.get(name))
    return merged


def _without_carried_along(wrote: Tree, declared: Tree, live: Tree) -> Tree:
    """Leave out what a writer only carried along: a key as it was, and never declared."""
    if not isinstance(wrote, dict) or not isinstance(live, dict):
        return wrote
    known = declared if isinstance(declared, dict) else {}
    return {
        key: _without_carried_along(value, known.get(key), live.get(key))
        for key, value in wrote.items()
        if key in known or not same_value(value, live.get(key))
    }
