"""What one machine cannot do for a workload, each with the reason.

The embedded target refuses these fields at plan time, and so does a client of a control plane that
runs workloads on its own machine. Where the wire has to accept them, the same texts stand in the
workload's status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.errors import Problem
from holdfast.core.model import revision_refusal
from holdfast.core.tree import Tree

_NO_WORKERS = "one machine has no workers to choose from."
_NO_LIMITS = "local processes are started as they are, so this limit would not be enforced."


def unsupported_fields(fields: Mapping[str, Tree]) -> list[Problem]:
    """List the declared fields that a single machine would have to drop."""
    return [
        *_unsupported_process(fields),
        *_unsupported_cache(fields),
        *_unused_revisions(fields),
        *_unsupported_scaling(fields),
        *_unenforced_resources(fields),
        *_unsupported_canary(fields),
        *_unsupported_suspension(fields),
    ]


def _unsupported_process(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    if not fields.get("command"):
        for name in ("image", "args"):
            if fields.get(name) is not None:
                yield Problem(
                    field=name,
                    reason="there is no container engine here.",
                    fix="Give a command that starts the backend on this machine.",
                )
    if fields.get("pod_template") is not None:
        yield Problem(
            field="pod_template",
            reason="there are no pods here.",
            fix="Leave it out, or run the workload on Kubernetes.",
        )
    if fields.get("service") is not None:
        yield Problem(
            field="service",
            reason="there is no Service of Kubernetes here: callers ask the data plane.",
            fix="Leave it out, or run the workload on Kubernetes.",
        )
    for name in ("worker_id", "gpu_resource_id"):
        if fields.get(name) is not None:
            yield Problem(field=name, reason=_NO_WORKERS, fix="Leave it out.")
    if fields.get("nodes") not in (None, 1):
        yield Problem(field="nodes", reason="one machine is one node.", fix="Leave it out.")


def _unsupported_cache(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    canary = fields.get("canary")
    own = canary if isinstance(canary, dict) else {}
    if fields.get("cache") is not None:
        yield Problem(
            field="cache",
            reason="nothing here downloads a model for several replicas.",
            fix="Leave it out, and give the path that holdfast models download wrote to.",
        )
    for path, held in (("model_digest", fields), ("canary.model_digest", own)):
        if held.get("model_digest") is not None:
            yield Problem(
                field=path,
                reason="nothing here would check it.",
                fix="Leave it out, and check it with holdfast models download --digest.",
            )


def _unused_revisions(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    """A revision that a process would not be started with."""
    canary = fields.get("canary")
    own = canary if isinstance(canary, dict) else {}
    model, backend = fields.get("model"), fields.get("backend")
    if not isinstance(model, str) or not isinstance(backend, str):
        return  # parts of a workload, checked by themselves
    for path, value, held in (
        ("model_revision", fields.get("model_revision"), fields),
        ("canary.model_revision", own.get("model_revision"), {**fields, **own}),
    ):
        if value is not None:
            reason, fix = revision_refusal(
                str(held.get("model")), backend, own_command=bool(held.get("command"))
            )
            if reason:
                yield Problem(field=path, reason=reason, fix=fix)


def _unsupported_scaling(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    scale = fields.get("autoscaling")
    if isinstance(scale, dict) and (
        scale.get("min") != scale.get("max")
        or any(scale.get(name) is not None for name in ("idle_after", "scaler"))
    ):
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


def _unenforced_resources(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    resources = fields.get("resources")
    for name, value in (resources if isinstance(resources, dict) else {}).items():
        if value is None:
            continue
        if name == "claims":
            yield Problem(
                field="resources.claims",
                reason="nothing here allocates devices.",
                fix="Leave it out, or run the workload on Kubernetes.",
            )
        else:
            yield Problem(
                field=f"resources.{name}",
                reason=_NO_LIMITS,
                fix="Leave it out, and limit the backend by its own flags or by the command.",
            )


def _unsupported_canary(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    canary = fields.get("canary")
    if not isinstance(canary, dict):
        return
    if canary.get("image") is not None:
        yield Problem(
            field="canary.image",
            reason="there is no container engine here.",
            fix="Give the canary a command.",
        )
    if canary.get("env") is not None:
        yield Problem(
            field="canary.env",
            reason="a canary runs here in the primary's environment.",
            fix="Give the canary a command that sets it.",
        )
    if canary.get("resources") is not None:
        yield Problem(field="canary.resources", reason=_NO_LIMITS, fix="Leave it out.")
    if canary.get("analysis") is not None:
        yield Problem(
            field="canary.analysis",
            reason="nothing here measures a canary.",
            fix="Leave it out and set the weight by hand.",
        )


def _unsupported_suspension(fields: Mapping[str, Tree]) -> Iterator[Problem]:
    if fields.get("suspend") is not None:
        yield Problem(
            field="suspend",
            reason="it holds back the operator of a cluster, and there is none here.",
            fix="Leave it out.",
        )
