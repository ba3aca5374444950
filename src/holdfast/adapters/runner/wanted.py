"""Turns stored fields into what one machine will run: groups, counts, judgement, notes.

Pure. The supervisor calls it on every change; `notes` say which declared values a single
machine does not honour, for the status.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.adapters.runner.backends import BackendFacts, facts_of
from holdfast.adapters.runner.values import CANARY, PRIMARY, Limits, RunSpec
from holdfast.core.plan import RESTARTING
from holdfast.core.quantity import parse_duration
from holdfast.core.tree import Fields, Tree

_FIXED_PORT = re.compile(r"--port[= ]\d")
_OVERRIDES = ("model", "command", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Replicas that are alike: the primary ones, or the canary's."""

    name: str
    replicas: int
    fields: Fields
    """Those whose change means new processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How a replica's health is asked and how patient to be."""

    path: str | None
    """None: whatever the backend is known to answer."""
    interval: float
    timeout: float
    startup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One workload as this machine will run it."""

    spec: RunSpec
    backend: BackendFacts
    groups: tuple[Group, ...]
    weight: int
    judgement: Judgement
    drain: float
    surge: int
    notes: tuple[str, ...]

    @property
    def replicas(self) -> int:
        """How many processes serve when all is well."""
        return sum(group.replicas for group in self.groups)


def wanted(spec: RunSpec, limits: Limits) -> Wanted:
    """Read the fields. They were checked before they were stored, so nothing is refused here."""
    fields = spec.fields
    facts = facts_of(_text(fields.get("backend")))
    count, notes = _count(fields)
    notes += _unused(fields)
    restarting = {name: value for name, value in fields.items() if name in RESTARTING}
    groups = [Group(name=PRIMARY, replicas=count, fields=restarting)]
    canary = _mapping(fields.get("canary"))
    own = {name: canary[name] for name in _OVERRIDES if canary.get(name) is not None}
    if own:  # else it is weight 0 and nothing more, which says that there is no canary
        inherited = dict(restarting)
        if "image" in own:
            inherited.pop("command", None)  # an image is what runs instead of a command
        groups.append(
            Group(
                name=CANARY,
                replicas=_whole(canary.get("replicas"), 1) if count else 0,
                fields=inherited | own,
            )
        )
        if canary.get("analysis"):
            notes.append("canary.analysis is not carried out here.")
    health, rollout = _mapping(fields.get("health")), _mapping(fields.get("rollout"))
    path = health.get("path")
    return Wanted(
        spec=spec,
        backend=facts,
        groups=tuple(groups),
        weight=_whole(canary.get("weight"), 0),
        judgement=Judgement(
            path=path if isinstance(path, str) else None,
            interval=_seconds(health.get("interval"), 5.0),
            timeout=_seconds(health.get("timeout"), 5.0),
            startup=_seconds(health.get("startup"), facts.startup),
        ),
        drain=_seconds(rollout.get("drain_timeout"), limits.drain),
        surge=max(1, _whole(rollout.get("max_surge"), 1)),
        notes=tuple(notes),
    )


def _count(fields: Fields) -> tuple[int, list[str]]:
    scale = _mapping(fields.get("autoscaling"))
    if scale:
        return _bounds(_whole(scale.get("min"), 0), _whole(scale.get("max"), 1))
    config = _mapping(fields.get("execution_policy_config"))
    match fields.get("execution_policy"):
        case "fixed":
            return _whole(config.get("replicas"), 1), []
        case "autoscaling":
            low, high = _whole(config.get("min_workers"), 0), _whole(config.get("max_workers"), 1)
            return _bounds(low, high)
        case "scheduled":
            return 1, ["The schedule is not followed here: one replica runs all the time."]
    return _whole(fields.get("replicas"), 1), []


def _bounds(low: int, high: int) -> tuple[int, list[str]]:
    if low == high:
        return low, []
    count = max(low, 1)
    return count, [f"Autoscaling is not done here: {count} of {low} to {high} replicas run."]


def _unused(fields: Fields) -> list[str]:
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


def _whole(value: Tree, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _seconds(value: Tree, default: float) -> float:
    seconds = parse_duration(value) if isinstance(value, str | int | float) else None
    return default if seconds is None else seconds
