"""Workloads on the HTTP wire: the names that the InferenceKey client knows, and our own.

Every answer carries both: the wire's fields at the top, so that the published client can read
it, and `spec` with the fields under the names of `WorkloadSpec`, which our SDK reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from holdfast.core.live import Live, Phase, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields
from holdfast.wire.decode import as_fields, reshape
from holdfast.wire.plan_v1 import WriterForm

_SHARED = (
    "name description task_type backend worker_id gpu_resource_id"
    " execution_policy execution_policy_config"
).split()
_FOLDED = ("command", "vllm_version")
"""Fields that this wire keeps inside `config`."""


class CreateForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a create, as the published client sends it."""

    name: str
    backend: str
    model_name: str
    slug: str = ""
    description: str | None = None
    task_type: str | None = None
    config: dict[str, object] | None = None
    worker_id: str | None = None
    gpu_resource_id: str | None = None
    execution_policy: str | None = None
    execution_policy_config: dict[str, object] | None = None


class UpdateForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a partial update; a field that is left out is not touched."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    backend: str | msgspec.UnsetType = msgspec.UNSET
    model_name: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType | None = msgspec.UNSET
    config: dict[str, object] | msgspec.UnsetType | None = msgspec.UNSET
    worker_id: str | msgspec.UnsetType | None = msgspec.UNSET
    gpu_resource_id: str | msgspec.UnsetType | None = msgspec.UNSET
    execution_policy: str | msgspec.UnsetType | None = msgspec.UNSET
    execution_policy_config: dict[str, object] | msgspec.UnsetType | None = msgspec.UNSET


class FailedReplicaForm(msgspec.Struct, kw_only=True):
    """A replica that should run what is written and could not be brought to."""

    name: str
    generation: int
    reason: str


class OutdatedReplicaForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A replica that serves something else than what is written."""

    name: str
    generation: int
    fields: dict[str, object] | None = None
    secrets: list[str] = []


class RuntimeDifferenceForm(msgspec.Struct, kw_only=True):
    """What a replica serves otherwise than it was declared."""

    pod: str
    field: str
    declared: str | None = None
    served: str | None = None


class StatusForm(msgspec.Struct, kw_only=True):
    """How the workload is doing."""

    phase: Phase
    message: str = ""
    ready: int = 0
    wanted: int = 0
    canary_weight: int = 0
    endpoint: str | None = None
    failed: list[FailedReplicaForm] = []
    outdated: list[OutdatedReplicaForm] = []
    suspended: str = ""
    runtime: list[RuntimeDifferenceForm] = []
    runtime_unknown: str = ""


class WorkloadForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A workload in an answer."""

    id: str
    project_id: str
    name: str
    slug: str
    task_type: str
    backend: str
    model_name: str
    created_at: datetime
    updated_at: datetime
    description: str | None = None
    config: dict[str, object] | None = None
    worker_id: str | None = None
    gpu_resource_id: str | None = None
    execution_policy: str | None = None
    execution_policy_config: dict[str, object] | None = None
    project_slug: str = ""
    workload_slug: str = ""
    generation: int = 0
    version: str = ""
    spec: dict[str, object] = {}
    writers: dict[str, WriterForm] = {}
    status: StatusForm | None = None


def workload_to_json(live: Live, *, project_id: str) -> WorkloadForm:
    """Write a live workload under both sets of names."""
    fields = live.fields
    shared = {name: fields[name] for name in _SHARED if fields.get(name) is not None}
    shared.setdefault("name", live.id.slug)
    shared.setdefault("task_type", "text2text")
    shared.setdefault("backend", "custom")
    replicas = fields.get("replicas")
    if replicas is not None and "execution_policy" not in shared:
        shared |= {"execution_policy": "fixed", "execution_policy_config": {"replicas": replicas}}
    extra = fields.get("config")
    config = {**(extra if isinstance(extra, dict) else {})}
    config |= {name: fields[name] for name in _FOLDED if fields.get(name) is not None}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return WorkloadForm(
        **shared,  # type: ignore[arg-type]  # the store keeps checked specs only
        id=live.uid,
        project_id=project_id,
        slug=live.id.slug,
        model_name=str(fields.get("model", "")),
        config=dict(config) if config else None,
        created_at=live.created_at or epoch,
        updated_at=live.updated_at or epoch,
        project_slug=live.id.project,
        workload_slug=live.id.slug,
        generation=live.generation,
        version=live.version,
        spec=dict(fields),
        writers={name: reshape(WriterForm, writer) for name, writer in live.writers.items()},
        status=reshape(StatusForm, live.status),
    )


def workload_from_json(form: WorkloadForm) -> Live:
    """Read a workload that a Holdfast control plane answered."""
    return Live(
        id=WorkloadId(project=form.project_slug, slug=form.workload_slug or form.slug),
        uid=form.id,
        version=form.version,
        generation=form.generation,
        fields=as_fields(form.spec),
        writers={name: reshape(Writer, writer) for name, writer in form.writers.items()},
        status=reshape(Status, form.status) if form.status else Status(),
        created_at=form.created_at,
        updated_at=form.updated_at,
    )


def create_fields(form: CreateForm) -> tuple[str, Fields]:
    """Read a create: the slug as it was sent, and the fields under our names."""
    sent = msgspec.to_builtins(form)
    fields = {name: sent[name] for name in _SHARED if sent.get(name) is not None}
    fields["model"] = form.model_name
    fields |= {
        name: value for name, value in _unfold_config(form.config).items() if value is not None
    }
    return form.slug or form.name, fields


def update_fields(form: UpdateForm) -> Fields:
    """Read a partial update: the fields to be written, None for one to be cleared."""
    fields: Fields = {
        name: getattr(form, name)
        for name in _SHARED
        if getattr(form, name, msgspec.UNSET) is not msgspec.UNSET
    }
    if form.model_name is not msgspec.UNSET:
        fields["model"] = form.model_name
    if form.config is not msgspec.UNSET:
        fields |= _unfold_config(form.config)
    return fields


def _unfold_config(config: Mapping[str, object] | None) -> Fields:
    """Take the folded fields out of `config`. The wire replaces `config` whole, so all are set."""
    rest = as_fields(config or {})
    folded = {name: rest.pop(name, None) for name in _FOLDED}
    return {**folded, "config": rest or None}
