"""What goes into the runner and what comes out, apart from requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields

PRIMARY = "primary"
CANARY = "canary"

EventKind: TypeAlias = Literal[
    "started", "ready", "exited", "replaced", "stopped", "failed", "adopted", "secret-changed"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What should run, as it was stored."""

    id: WorkloadId
    uid: str
    generation: int
    fields: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened to a replica. Every text is redacted.

    `exited` is the end of a process nobody asked to end; `failed` is a start that did not
    succeed or a replica that stopped answering.
    """

    uid: str
    kind: EventKind
    replica: str
    message: str
    evidence: str = ""
    generation: int = 0
    """What the replica should run; 0 where the event is about none."""
    instead: str = ""
    """What serves in place of a replica that failed; empty when it is only tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds and sizes in bytes that a workload does not declare itself."""

    drain: float = 30.0
    """How long requests may take to end, unless the rollout says otherwise."""
    grace: float = 10.0
    """Between SIGTERM and SIGKILL."""
    back_off: float = 1.0
    back_off_max: float = 60.0
    steady: float = 60.0
    """A replica that was ready for so long is no longer held to its earlier crashes."""
    quick_crashes: int = 3
    """So many failures in a row and the workload is in error; the attempts go on."""
    misses: int = 3
    """So many failed probes in a row and the replica is replaced."""
    recheck: float = 1.0
    """Between probes of a replica that let a request down."""
    tick: float = 1.0
    secrets_every: float = 5.0
    log_bytes: int = 8 * 1024 * 1024
    """Size of one log file; each replica keeps two."""
    kept_logs: int = 3
    """Logs of replaced replicas that a workload keeps."""
