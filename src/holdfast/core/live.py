"""The live side: what was observed, by whom it was written, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who wrote a field: a tool and a credential, which is a claim and not a person."""

    manager: str
    """The tool, such as `kubectl-edit` or `holdfast-sdk`."""
    actor: str | None = None
    """The credential or account it used, where the target knows it."""
    operation: str = "update"
    subresource: str | None = None
    at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.manager} ({self.actor})" if self.actor else self.manager


class Phase(StrEnum):
    """How far a workload is on its way to serving."""

    SCHEDULING = "scheduling"
    PROVISIONING = "provisioning"
    BOOTSTRAPPING = "bootstrapping"
    READY = "ready"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplica:
    """A replica that should run what is written and could not be brought to."""

    name: str
    generation: int
    """What it should have been started from."""
    reason: str
    """What became of the last attempt: the exit code and the last lines of its log. Redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutdatedReplica:
    """A replica that serves, and was started from something else than what is written now."""

    name: str
    generation: int
    """What it was started from; 0 where that was not kept."""
    fields: Fields | None
    """The written fields as this replica runs them, where the two differ; None as a value is a
    field that it runs without. None as a whole: it is not known, or is no field of the workload."""
    secrets: tuple[str, ...] = ()
    """The names of the secrets of which it has another value than the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the workload is doing, as its target reports it."""

    phase: Phase = Phase.SCHEDULING
    message: str = ""
    ready: int = 0
    """Replicas that serve."""
    wanted: int = 0
    canary_weight: int = 0
    """The share of requests that the canary gets now, which is 0 until it is ready."""
    endpoint: str | None = None
    failed: tuple[FailedReplica, ...] = ()
    """Replicas that do not run what is written, although they were tried."""
    outdated: tuple[OutdatedReplica, ...] = ()
    """Replicas that run something else: during a rollout, and for good once it has failed."""
    suspended: str = ""
    """Why, and until when, nothing is written to its objects; empty while that is not so."""
    scaled_to_zero: str = ""
    """Since when it has no replicas because nobody asks, in words; empty while that is not so."""
    wake_budget: int | None = None
    """Seconds within which a request starts a workload without replicas; None where none does."""
    drift_unknown: str = ""
    """Why nobody can say whether its objects have drifted; empty where that is not in doubt."""
    runtime: tuple[RuntimeDifference, ...] = ()
    """What replicas serve otherwise than it was declared, by their engines' own word."""
    runtime_unknown: str = ""
    """What replicas serve that nobody could tell, and why; empty where all of it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One readiness update."""

    phase: Phase
    message: str
    elapsed_ms: int = 0
    step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A workload that was seen.

    `version` changes with every write and guards the next one; it is not an order and
    must not be compared with anything but itself.
    """

    id: WorkloadId
    uid: str
    version: str
    generation: int
    fields: Fields
    writers: Mapping[str, Writer] = field(default_factory=dict)
    """Last writer of each top-level field."""
    status: Status = field(default_factory=Status)
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """The target answered: there is no such workload."""

    id: WorkloadId


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The target did not answer. Never to be taken as absent."""

    id: WorkloadId
    reason: str


Observation: TypeAlias = Live | Absent | Unknown
