"""Says what one machine cannot do for a workload, and what to write instead.

The embedded target refuses these fields at plan time, and so does a client of a control plane
that runs workloads on its own machine. Where the wire has to accept them, the same texts stand
in the workload's status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.errors import Problem
from holdfast.core.tree import Tree

_NO_WORKERS = "one machine has no workers to choose from."
_NO_LIMITS = "local processes are started as they are, so this limit would not be enforced."


def unsupported_fields(fields: Mapping[str, Tree]) -> list[Problem]:
    """List the declared fields that a single machine would have to drop."""
    return [
        *_process_problems(fields),
        *_scaling_problems(fields),
        *_resource_problems(fields),
        *_canary_problems(fields),
    ]


def _process_problems(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    if not fields.get("command"):
        for name in ("image", "args"):
            if fields.get(name) is not None:
                yield Problem(
                    field=name,
                    reason="there is no container engine here.",
                    fix="Give a command that starts the backend on this machine.",
                )
    for name in ("worker_id", "gpu_resource_id"):
        if fields.get(name) is not None:
            yield Problem(field=name, reason=_NO_WORKERS, fix="Leave it out.")


def _scaling_problems(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    scale = fields.get("autoscaling")
    if isinstance(scale, dict) and scale.get("min") != scale.get("max"):
        yield Problem(
            field="autoscaling",
            reason="nothing here changes the number of replicas by itself.",
            fix="Give replicas, or the same min and max.",
        )
    policy = fields.get("execution_policy")
    config = fields.get("execution_policy_config")
    limits = config if isinstance(config, dict) else {}
    if policy == "scheduled":
        yield Problem(
            field="execution_policy",
            reason="workloads run here all the time, not by a schedule.",
            fix="Use fixed, or give replicas.",
        )
    elif policy == "autoscaling" and limits.get("min_workers", 0) != limits.get("max_workers", 1):
        yield Problem(
            field="execution_policy",
            reason="nothing here changes the number of replicas by itself.",
            fix="Use fixed, or give the same min_workers and max_workers.",
        )


def _resource_problems(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    resources = fields.get("resources")
    for name, value in (resources if isinstance(resources, dict) else {}).items():
        if value is not None:
            yield Problem(
                field=f"resources.{name}",
                reason=_NO_LIMITS,
                fix="Leave it out, and limit the backend by its own flags or by the command.",
            )


def _canary_problems(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    canary = fields.get("canary")
    if not isinstance(canary, dict):
        return
    if canary.get("image") is not None:
        yield Problem(
            field="canary.image",
            reason="there is no container engine here.",
            fix="Give the canary a command.",
        )
    if canary.get("analysis") is not None:
        yield Problem(
            field="canary.analysis",
            reason="nothing here measures a canary.",
            fix="Leave it out and set the weight by hand.",
        )
