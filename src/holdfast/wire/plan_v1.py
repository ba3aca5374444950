"""The versioned JSON form of a plan and of its steps.

Used by `holdfast plan --out`, by the control plane, and by anyone who reviews a plan.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.cost import Cost, CostKind, describe_cost
from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftedField, DriftKind
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId, is_slug
from holdfast.core.plan import Action, Disruption, Plan, Step
from holdfast.core.redact import quote_text, redact
from holdfast.core.tree import json_pointer, parse_pointer
from holdfast.wire.decode import as_fields, as_tree, prepare_type, reshape

API_VERSION = "holdfast.dev/v1"


class DeviceNeedForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a step needs of one extended resource, beside what is held already."""

    resource: str
    needed: int
    free: int | None = None
    added: int = 0
    pool: str = ""


class CostForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a step costs. Left out where nobody can tell."""

    kind: CostKind
    pods: int = 0
    added: int = 0
    devices: list[DeviceNeedForm] = []
    blocked: bool = False
    cold_start: float | None = None
    several: bool = False
    partial: bool = False


class WriterForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Who wrote a field: a tool and the credential it used."""

    manager: str
    actor: str | None = None
    operation: str = "update"
    subresource: str | None = None
    at: datetime | None = None


class ChangeForm(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One differing field; `path` is a JSON pointer into the canonical form."""

    path: str
    kind: DriftKind
    # A tree: any JSON value.
    desired: object = None
    live: object = None
    writer: WriterForm | None = None
    cause: Cause = Cause.UNKNOWN
    evidence: str = ""


class StepForm(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One action on one workload, guarded by the uid and version that were seen."""

    project: str
    slug: str
    action: Action
    reason: str = ""
    disruption: Disruption = Disruption.NONE
    changes: list[ChangeForm] = []
    write: dict[str, object] = {}
    uid: str | None = None
    version: str | None = None
    cost: CostForm | None = None


class PlanForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What will be done, and the digest of what it was computed from."""

    apiVersion: str = API_VERSION  # noqa: N815  # the name is the format's
    kind: str = "Plan"
    id: str = ""
    digest: str = ""
    steps: list[StepForm] = []


def plan_to_json(plan: Plan) -> PlanForm:
    """Write a plan."""
    return PlanForm(id=plan.id, digest=plan.digest, steps=[step_to_json(s) for s in plan.steps])


def plan_from_json(document: bytes | str) -> Plan:
    """Read a plan. Refused when it is of another version or was edited after it was made."""
    try:
        form = msgspec.json.decode(document, type=prepare_type(PlanForm))
    except (ValueError, RecursionError) as error:  # ValueError: also text that is no UTF-8
        reason = redact(str(error)).encode("ascii", "backslashreplace").decode()
        raise ValidationError(
            f"This is not a saved plan: {reason}.", hint="Make one with holdfast plan --out FILE."
        ) from None
    if form.apiVersion != API_VERSION or form.kind != "Plan":
        raise ValidationError(
            f"This is a {quote_text(form.kind)} of {quote_text(form.apiVersion)}, "
            f"not a Plan of {API_VERSION}.",
            hint="Make a new plan with this version of Holdfast.",
        )
    plan = Plan(steps=tuple(step_from_json(step) for step in form.steps))
    if (plan.id, plan.digest) != (form.id, form.digest):
        raise ValidationError(
            "The plan's digest does not match its steps: it was edited after it was made.",
            hint="Make a new plan.",
        )
    return plan


def step_to_json(step: Step) -> StepForm:
    """Write one step."""
    return StepForm(
        project=step.id.project,
        slug=step.id.slug,
        action=step.action,
        reason=step.reason,
        disruption=step.disruption,
        changes=[change_to_json(field) for field in step.fields],
        write=dict(step.write),
        uid=step.uid,
        version=step.version,
        cost=reshape(CostForm, step.cost) if step.cost else None,
    )


def step_from_json(form: StepForm) -> Step:
    """Read one step."""
    if not (is_slug(form.project) and is_slug(form.slug)):
        problem = Problem(
            field="steps.slug",
            reason=f"{quote_text(form.project)} and {quote_text(form.slug)} name no workload.",
            fix="Make a new plan.",
        )
        raise ValidationError(problems=[problem])
    return Step(
        id=WorkloadId(project=form.project, slug=form.slug),
        action=form.action,
        reason=form.reason,
        disruption=form.disruption,
        fields=tuple(_change_from_json(change) for change in form.changes),
        write=as_fields(form.write),
        uid=form.uid,
        version=form.version,
        cost=cost_from_json(form.cost),
    )


def change_to_json(field: DriftedField) -> ChangeForm:
    """Write one drifted field."""
    return ChangeForm(
        path=json_pointer(field.change.path),
        kind=field.kind,
        desired=field.change.desired,
        live=field.change.live,
        writer=reshape(WriterForm, field.writer) if field.writer else None,
        cause=field.cause,
        evidence=field.evidence,
    )


def _change_from_json(form: ChangeForm) -> DriftedField:
    path = parse_pointer(form.path)
    if not path or not form.path.startswith("/"):
        problem = Problem(
            field="changes.path", reason="it is not a JSON pointer.", fix="Make a new plan."
        )
        raise ValidationError(problems=[problem])
    return DriftedField(
        change=Change(path=path, desired=as_tree(form.desired), live=as_tree(form.live)),
        kind=form.kind,
        writer=reshape(Writer, form.writer) if form.writer else None,
        cause=form.cause,
        evidence=form.evidence,
    )


class StepCostForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a step would cost. Without `cost` nobody can tell."""

    cost: CostForm | None = None


def cost_from_json(form: CostForm | None) -> Cost | None:
    """Read a cost; None for one that is unknown."""
    return reshape(Cost, form) if form else None


def describe_form(form: CostForm | None) -> str:
    """Say a cost that came over the wire."""
    return describe_cost(cost_from_json(form))
