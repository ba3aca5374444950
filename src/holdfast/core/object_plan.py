"""Steps on Kubernetes objects: what the plans of the operator and of GitOps have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.cost import Cost
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.signals import APPLIED_PATH, FieldDrift
from holdfast.core.plan import Action


class StepReason(StrEnum):
    """Why a step is in a plan."""

    ABSENT = "it is declared and not there"
    DELETED = "it was deleted"
    DRIFTED = "it drifted"
    DECLARED_ANEW = "it was declared anew"
    TAKEN_OVER = "it is there already and taken over"
    NO_LONGER_DECLARED = "it was applied before, and is no longer declared"
    ORPHAN = "it was created without Git"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStep:
    """One action on one object."""

    ref: ObjectRef
    action: Action
    reason: StepReason
    fields: tuple[FieldDrift, ...] = ()
    """What will change: the live value becomes the desired one. Not redacted."""
    cost: Cost | None = None
    """What it costs; None where nobody can tell. No part of a digest."""


def fields_to_show(fields: Iterable[FieldDrift]) -> tuple[FieldDrift, ...]:
    """Leave out our own mark of what was applied last, which tells a reader nothing."""
    return tuple(field for field in fields if field.change.path != APPLIED_PATH)
