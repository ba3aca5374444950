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
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.wire.decode import as_fields
from holdfast.wire.ledger_v1 import DriftEntryForm, entry_from_json, entry_to_json

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


def object_to_json(ref: ObjectRef) -> ObjectForm:
    """Write the name of an object."""
    return ObjectForm(
        api_version=ref.api_version, kind=ref.kind, namespace=ref.namespace, name=ref.name
    )


def object_from_json(form: ObjectForm) -> ObjectRef:
    """Read the name of an object."""
    return ObjectRef(
        api_version=form.api_version, kind=form.kind, namespace=form.namespace, name=form.name
    )


def drift_to_json(drift: ObjectDrift) -> ApplicationDriftForm:
    """Write one drift."""
    return ApplicationDriftForm(
        id=drift.id, application=str(drift.application), project=drift.project,
        object=object_to_json(drift.object), uid=drift.uid,
        kinds=[kind.value for kind in drift.kinds],
        entries=[entry_to_json(entry) for entry in drift.entries],
        where=drift.where, commit=drift.commit, remediation=drift.remediation, pull=drift.pull,
        route=drift.route, chosen_by=drift.chosen_by, healable=drift.healable,
        found=drift.found, fought=drift.fought,
        state=drift.state, note=drift.note,
        first_seen=drift.first_seen, last_seen=drift.last_seen, rounds=list(drift.rounds),
        plan=drift.plan, requested_by=drift.requested_by,
        first_approver=drift.first_approver, first_plan=drift.first_plan,
        decided_by=drift.decided_by,
        comment=drift.comment, until=drift.until, url=drift.url, resolved_at=drift.resolved_at,
        resolution=drift.resolution, digest=drift.digest,
    )  # fmt: skip


def drift_from_json(form: ApplicationDriftForm) -> ObjectDrift:
    """Read one drift."""
    return ObjectDrift(
        id=form.id, application=parse_app_id(form.application), project=form.project,
        object=object_from_json(form.object), uid=form.uid,
        entries=tuple(entry_from_json(entry) for entry in form.entries),
        where=form.where, commit=form.commit, remediation=form.remediation, pull=form.pull,
        route=form.route, chosen_by=form.chosen_by, healable=form.healable,
        found=form.found, fought=form.fought,
        state=form.state, note=form.note,
        first_seen=form.first_seen, last_seen=form.last_seen, rounds=tuple(form.rounds),
        plan=form.plan, requested_by=form.requested_by,
        first_approver=form.first_approver, first_plan=form.first_plan,
        decided_by=form.decided_by,
        comment=form.comment, until=form.until, url=form.url, resolved_at=form.resolved_at,
        resolution=form.resolution,
    )  # fmt: skip
