"""Whose a field is: ours to put back, another controller's by design, or only to be reported.

Delegation is recognised by itself, from the writer and from the objects around it, so
that an autoscaler and Holdfast never fight over one number. `object_diff` asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from holdfast.core.diff import same_value
from holdfast.core.drift import Cause, cause_of
from holdfast.core.live import Writer
from holdfast.core.ownership.ignore import concerns_security
from holdfast.core.tree import Fields, Path, Tree, show_path

REPLICA_SEED_MANAGER = "holdfast-replicas"
"""Our own manager that holds a number of replicas until an autoscaler takes it over.

It counts as trusted for replicas, whoever else is: an apply of the rest must neither take them
back nor prune them. Being only a name, it is trusted with nothing else.
"""


class FieldClass(StrEnum):
    """What Holdfast does about a field that differs."""

    OWNED = "owned"
    DELEGATED = "delegated"
    OBSERVED = "observed"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipContext:
    """What is known of the other objects that touch this one."""

    autoscaler: str | None = None
    """The HPA or KEDA object that sets its replicas, such as `HorizontalPodAutoscaler/bot`.

    None when it is not known: then the last writer decides. "" when there is none: replicas that a
    former autoscaler left behind are ours again.
    """
    vertical: str | None = None
    """The VPA that sets its resources."""
    delegated: tuple[str, ...] = ()
    """Path globs declared as another's, such as the weights of a route under a canary."""
    trusted: frozenset[str] = frozenset()
    """Managers whose additions are welcome."""


NO_CONTEXT = OwnershipContext()
_SYSTEM_MANAGERS = frozenset({
    "kube-controller-manager", "kube-scheduler", "kube-apiserver", "kubelet",
    "cloud-controller-manager",
})  # fmt: skip
_SIDECAR_CONTAINERS = frozenset({
    "istio-proxy", "istio-init", "istio-validation", "linkerd-proxy", "linkerd-init",
    "vault-agent", "vault-agent-init", "daprd", "consul-dataplane", "envoy-sidecar",
})  # fmt: skip
SCALED_PATHS = (("spec", "replicas"), ("spec", "parallelism"))
"""Numbers that autoscalers set."""


def delegated_by_writer(path: Path, writer: Writer | None, context: OwnershipContext) -> str | None:
    """Say to whom a field is left, or None when it is ours."""
    cause = cause_of(writer)
    if path in SCALED_PATHS:
        if context.autoscaler is not None:
            return context.autoscaler or None
        return str(writer) if cause is Cause.AUTOSCALER else None
    if "resources" in path and _in_container(path):
        if context.vertical:
            return context.vertical
        return str(writer) if cause is Cause.AUTOSCALER else None
    if path[-1:] == ("caBundle",) and cause is not Cause.PERSON:
        return str(writer) if writer else "whoever injects the certificate authority"
    if writer is None or cause is Cause.CONTROLLER:
        sidecar = next(
            (name for name in map(_container_name, path) if name in _SIDECAR_CONTAINERS), None
        )
        if sidecar:
            return f"the injector of {sidecar}"
    glob = _matching_glob(path, context.delegated)
    return f"the delegation {glob}" if glob else None


def delegated_by_kind(path: Path, desired: Fields) -> str | None:
    """Say which of the cluster's own controllers a field is left to, by what was declared.

    A role that gathers others has its rules written by it, whatever anybody else writes there.
    """
    if path[:1] == ("rules",) and desired.get("kind") == "ClusterRole":
        return "the aggregation of roles" if desired.get("aggregationRule") else None
    return None


def delegated_inside_list(
    path: Path, desired: Tree, live: Tree, context: OwnershipContext
) -> str | None:
    """Say to whom a list is left that is written as a whole, and differs in their fields alone.

    A route's weights under a canary have no owner of their own: the API server knows only one of
    all its rules.
    """
    if not context.delegated or not isinstance(desired, list) or not isinstance(live, list):
        return None
    globs = context.delegated
    if same_value(_without_delegated(desired, path, globs), _without_delegated(live, path, globs)):
        return f"the delegation {', '.join(globs)}"
    return None


def is_accepted_addition(
    path: Path, writer: Writer, context: OwnershipContext, *, map_declared: bool
) -> bool:
    """True for an addition beside ours that is no drift: the cluster's own, or mere metadata.

    A person's label counts once the labels were declared; a controller's never does. A restart
    by kubectl leaves an annotation on the template, which says nothing about the workload.
    """
    if writer.manager in context.trusted:
        return True
    if writer.manager in _SYSTEM_MANAGERS:
        # Anyone may take that name, and none of these adds a container or a right.
        return not _in_container(path) and not concerns_security(path, "")
    if path in SCALED_PATHS or (writer.subresource == "status" and path[0] != "metadata"):
        return True  # a number of replicas that was not declared is nobody's drift
    if path[-1] == "kubectl.kubernetes.io/restartedAt":
        return True
    if path[0] == "metadata":
        if cause_of(writer) not in (Cause.PERSON, Cause.UNKNOWN):
            return True
        if path[1:2] not in (("labels",), ("annotations",)):
            return True
        return not map_declared or path[-1].startswith("holdfast.dev/")
    return path[0] == "status"


def _matching_glob(path: Path, globs: tuple[str, ...]) -> str | None:
    text = show_path(path)
    # Brackets are part of a path here, not a class of characters.
    return next((glob for glob in globs if fnmatchcase(text, glob.replace("[", "[[]"))), None)


def _without_delegated(tree: Tree, path: Path, globs: tuple[str, ...]) -> Tree:
    if isinstance(tree, list):
        return [_without_delegated(item, (*path, f"[{at}]"), globs) for at, item in enumerate(tree)]
    if isinstance(tree, dict):
        return {
            name: _without_delegated(value, (*path, name), globs)
            for name, value in tree.items()
            if not _matching_glob((*path, name), globs)
        }
    return tree


def _in_container(path: Path) -> bool:
    return "containers" in path or "initContainers" in path


def _container_name(segment: str) -> str:
    return segment.removeprefix("[name=").removesuffix("]") if segment.startswith("[name=") else ""
