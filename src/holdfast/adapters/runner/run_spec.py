"""What should run, and what one machine makes of it: groups, counts, health check, notes.

Pure. The supervisor calls `make_desired_run` on every change; `notes` name the declared values that
a single machine does not honour, for the status.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.backends import BackendProfile, backend_profile
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.names import WorkloadId
from holdfast.core.plan import RESTART_FIELDS
from holdfast.core.quantity import parse_duration
from holdfast.core.tree import Fields, Tree

PRIMARY = "primary"
CANARY = "canary"

EventKind: TypeAlias = Literal[
    "started",
    "ready",
    "exited",
    "replaced",
    "stopped",
    "failed",
    "adopted",
    "secret-changed",
    "runtime-drifted",
    "runtime-verified",
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
    differences: tuple[RuntimeDifference, ...] = ()
    """What the replica serves otherwise than declared, where the event is about that."""
    instead: str = ""
    """What serves in place of a replica that failed; empty when it is only tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLimits:
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
    runtime_every: float = 60.0
    """Between two questions to an engine what it serves."""
    log_bytes: int = 8 * 1024 * 1024
    """Size of one log file; each replica keeps two."""
    kept_logs: int = 3
    """Logs of replaced replicas that a workload keeps."""


_FIXED_PORT = re.compile(r"--port[= ]\d")
_OVERRIDES = ("model", "model_revision", "command", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """Replicas that are alike: the primary ones, or the canary's."""

    name: str
    replicas: int
    fields: Fields
    """Those whose change means new processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """How a replica's health is asked and how patient to be."""

    path: str | None
    """None: whatever the backend is known to answer."""
    interval: float
    timeout: float
    startup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRun:
    """One workload as this machine will run it."""

    spec: RunSpec
    backend: BackendProfile
    groups: tuple[ReplicaGroup, ...]
    weight: int
    health_check: HealthCheck
    drain: float
    surge: int
    notes: tuple[str, ...]

    @property
    def replicas(self) -> int:
        """How many processes serve when all is well."""
        return sum(group.replicas for group in self.groups)


def make_desired_run(spec: RunSpec, limits: RunnerLimits) -> DesiredRun:
    """Read the fields. They were checked before they were stored, so nothing is refused here."""
    fields = spec.fields
    backend = backend_profile(_text(fields.get("backend")))
    count, notes = _replica_count(fields)
    notes += _unenforced_fields(fields)
    restarting = {name: value for name, value in fields.items() if name in RESTART_FIELDS}
    groups = [ReplicaGroup(name=PRIMARY, replicas=count, fields=restarting)]
    canary = _mapping(fields.get("canary"))
    own = {name: canary[name] for name in _OVERRIDES if canary.get(name) is not None}
    if own:  # else it is weight 0 and nothing more, which says that there is no canary
        inherited = dict(restarting)
        if "image" in own:
            inherited.pop("command", None)  # an image is what runs instead of a command
        if "model" in own:
            inherited.pop("model_revision", None)  # it is of another model
        groups.append(
            ReplicaGroup(
                name=CANARY,
                replicas=_integer(canary.get("replicas"), 1) if count else 0,
                fields=inherited | own,
            )
        )
        if canary.get("analysis"):
            notes.append("canary.analysis is not carried out here.")
    health, rollout = _mapping(fields.get("health")), _mapping(fields.get("rollout"))
    path = health.get("path")
    return DesiredRun(
        spec=spec,
        backend=backend,
        groups=tuple(groups),
        weight=_integer(canary.get("weight"), 0),
        health_check=HealthCheck(
            path=path if isinstance(path, str) else None,
            interval=_seconds(health.get("interval"), 5.0),
            timeout=_seconds(health.get("timeout"), 5.0),
            startup=_seconds(health.get("startup"), backend.process_startup),
        ),
        drain=_seconds(rollout.get("drain_timeout"), limits.drain),
        surge=max(1, _integer(rollout.get("max_surge"), 1)),
        notes=tuple(notes),
    )


def _replica_count(fields: Fields) -> tuple[int, list[str]]:
    scale = _mapping(fields.get("autoscaling"))
    if scale:
        return _autoscaling_count(_integer(scale.get("min"), 0), _integer(scale.get("max"), 1))
    config = _mapping(fields.get("execution_policy_config"))
    match fields.get("execution_policy"):
        case "fixed":
            return _integer(config.get("replicas"), 1), []
        case "autoscaling":
            low, high = (
                _integer(config.get("min_workers"), 0),
                _integer(config.get("max_workers"), 1),
            )
            return _autoscaling_count(low, high)
        case "scheduled":
            return 1, ["The schedule is not followed here: one replica runs all the time."]
    return _integer(fields.get("replicas"), 1), []


def _autoscaling_count(low: int, high: int) -> tuple[int, list[str]]:
    if low == high:
        return low, []
    count = max(low, 1)
    return count, [f"Autoscaling is not done here: {count} of {low} to {high} replicas run."]


def _unenforced_fields(fields: Fields) -> list[str]:
    names = ("resources", "config", "vllm_version", "worker_id", "gpu_resource_id")
    set_here = [name for name in names if fields.get(name) not in (None, {})]
    notes = [f"Not enforced on local processes: {', '.join(set_here)}."] if set_here else []
    if _FIXED_PORT.search(_text(fields.get("command"))):
        notes.append("The command's own port is replaced: each replica gets one.")
    return notes


def _mapping(value: Tree) -> Fields:
    return value if isinstance(value, dict) else {}


def _text(value: Tree) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: Tree, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _seconds(value: Tree, default: float) -> float:
    seconds = parse_duration(value) if isinstance(value, str | int | float) else None
    return default if seconds is None else seconds
