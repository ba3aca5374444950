"""What is kept of applications as JSON: in the ledger and over HTTP.

Values that are plain all through are written as they are; a drift has a form of its own, since
it holds trees. Both are allow-lists: what is not a field of theirs is neither stored nor sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from holdfast.core.errors import ValidationError
from holdfast.core.gitops.application import ApplicationId, PullRequestKind, Remediation
from holdfast.core.gitops.drift import DriftReason, DriftState, ObjectDrift, Resolution
from holdfast.core.tree import Fields
from holdfast.wire.decode import as_fields, reshape
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import CostForm

F = TypeVar("F")


class ObjectForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One object by name."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str


class ApplicationDriftForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One drift of an application."""

    id: str
    application: str
    project: str
    object: ObjectForm
    uid: str = ""
    kinds: list[str]
    entries: list[DriftEntryForm]
    where: str = ""
    cost: CostForm | None = None
    commit: str
    remediation: Remediation
    pull: PullRequestKind = PullRequestKind.CODIFY
    route: str = ""
    chosen_by: str = ""
    healable: bool = True
    found: bool = False
    fought: bool = False
    state: DriftState
    note: str = ""
    reason: DriftReason | None = None
    first_seen: datetime
    last_seen: datetime
    rounds: list[datetime] = []
    plan: str = ""
    requested_by: str = ""
    first_approver: str = ""
    first_plan: str = ""
    decided_by: str = ""
    comment: str = ""
    until: datetime | None = None
    url: str = ""
    resolved_at: datetime | None = None
    resolution: Resolution | None = None
    digest: str = ""
    """What an approval has to name; made from the rest, and not read."""


def encode_record(value: object) -> Fields:
    """Write a form, or a value that needs none, as a plain tree."""
    return as_fields(msgspec.to_builtins(value))


def decode_record(kind: type[F], value: Mapping[str, object]) -> F:
    """Read it back; fields of a later version are passed over. Raises ValidationError."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValidationError(
            f"A record of the ledger cannot be read: {error}.",
            hint="It was written by another version, or edited. Upgrade, or restore it.",
        ) from None


def parse_app_id(text: str) -> ApplicationId:
    """Read `namespace/name`."""
    namespace, _, name = text.rpartition("/")
    return ApplicationId(namespace=namespace, name=name)


def drift_to_json(drift: ObjectDrift) -> ApplicationDriftForm:
    """Write one drift."""
    given: dict[str, object] = {
        name: getattr(drift, name) for name in ApplicationDriftForm.__struct_fields__
    }
    given["application"] = str(drift.application)
    given["kinds"] = [kind.value for kind in drift.kinds]
    return reshape(ApplicationDriftForm, given)


def drift_from_json(form: ApplicationDriftForm) -> ObjectDrift:
    """Read one drift."""
    given = {name: getattr(form, name) for name in ApplicationDriftForm.__struct_fields__}
    return reshape(ObjectDrift, given | {"application": parse_app_id(form.application)})
