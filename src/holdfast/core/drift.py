"""Gives changes a kind and a cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.diff import Change, diff, same_value
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.live import Absent, Live, Observation, Unknown, Writer
from holdfast.core.normalize import WORKLOAD_RULES, normalize_workload
from holdfast.core.tree import Fields, Path
from holdfast.core.workload import Desired


class DriftKind(StrEnum):
    """What sort of thing moved."""

    CONFIGURATION = "configuration"
    IMAGE = "image"
    RESOURCE = "resource"
    SECRET = "secret"
    MODEL = "model"
    """The branch of a pinned model moved on; nothing live differs by that."""
    RUNTIME = "runtime"
    """What a replica serves, by its engine's own word."""


OBJECT_DRIFT_KINDS = tuple(kind for kind in DriftKind if kind is not DriftKind.RUNTIME)
"""What an object can drift in. What its pods serve is the operator's to find."""


class Situation(StrEnum):
    """How the live side stands to what was declared."""

    ABSENT = "absent"
    IN_SYNC = "in-sync"
    PENDING = "pending"
    """Only what was declared anew differs. A workload has no record to tell that by."""
    DRIFTED = "drifted"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """What sort of writer moved it, by the tool it claimed to be."""

    PERSON = "person"
    AUTOSCALER = "autoscaler"
    CONTROLLER = "controller"
    ADMISSION = "admission"
    HARDWARE = "hardware"
    GITOPS = "gitops"
    UNKNOWN = "unknown"


_TOOLS = (
    (
        Cause.AUTOSCALER,
        ("horizontal-pod-autoscaler", "keda", "vpa-", "vertical-pod-autoscaler",
         "holdfast-autoscaler"),
    ),
    (
        # An install by Helm is a deployment, not an edit by hand.
        Cause.GITOPS,
        ("argocd", "flux", "kustomize-controller", "helm-controller", "helm"),
    ),
    (
        Cause.CONTROLLER,
        ("kube-controller-manager", "kube-scheduler", "kube-apiserver", "kubelet",
         "cloud-controller-manager", "holdfast-operator", "holdfast-runner",
         "holdfast-replicas", "cert-manager", "cainjector", "istio", "pilot-discovery",
         "linkerd", "flagger", "rollouts-controller"),
    ),
    (
        Cause.PERSON,
        ("kubectl", "curl", "mozilla", "httpie", "postman", "python", "openapi-generator",
         "kubernetes-client", "okhttp", "node-fetch", "k9s", "lens", "headlamp", "dashboard",
         "holdfast-cli", "holdfast-sdk", "inferencekey", "wget"),
    ),
)  # fmt: skip
_CONTROLLERS = ("-controller", "-operator", "-controller-manager", "-webhook")
"""How the managers of controllers that are in no table are usually called."""


_SPELLINGS = {"replicas": ("execution_policy_config", "execution_policy")}
"""Other fields that a canonical field may have been written as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftedField:
    """One change, its kind, and its writer where the target knows one."""

    change: Change
    kind: DriftKind
    writer: Writer | None = None
    cause: Cause = Cause.UNKNOWN
    evidence: str = ""
    """Why what is written does not run, where that is what differs. For people only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How one workload stands, with every field that moved."""

    desired: Desired
    live: Observation
    situation: Situation
    fields: tuple[DriftedField, ...] = ()

    @property
    def kinds(self) -> tuple[DriftKind, ...]:
        """The kinds of drift found, each once, in the order of the enum."""
        found = {field.kind for field in self.fields}
        return tuple(kind for kind in DriftKind if kind in found)


def find_drift(*, desired: Desired, live: Observation) -> Drift:
    """Compare one workload's declaration with what was observed."""
    match live:
        case Unknown():
            return Drift(desired=desired, live=live, situation=Situation.UNKNOWN)
        case Absent():
            return Drift(desired=desired, live=live, situation=Situation.ABSENT)
        case Live():
            changes = _changes(desired.fields, live.fields)
            written = tuple(drifted_field(change, live.writers) for change in changes)
            fields = (
                *written,
                *_not_running(desired, live, {each.path for each in changes}),
                *map(runtime_drift, live.status.runtime),
            )
            situation = Situation.DRIFTED if fields else Situation.IN_SYNC
            return Drift(desired=desired, live=live, situation=situation, fields=fields)


def _changes(desired: Fields, live: Fields) -> tuple[Change, ...]:
    if _equal(desired, live):
        return ()
    return diff(
        desired=normalize_workload(desired), live=normalize_workload(live), rules=WORKLOAD_RULES
    )


def _not_running(desired: Desired, live: Live, known: set[Path]) -> list[DriftedField]:
    """Find what is written and does not run, because the replicas that should run it failed.

    A rollout under way is no drift; one whose replicas fail is, until they serve. What the
    replicas in their place were started from is compared field by field; without any, or where
    it cannot be said in fields, each replica that failed is named.
    """
    if not live.status.failed:
        return []
    why = " ".join(f"Replica {each.name}: {each.reason}" for each in live.status.failed[:3])
    found: dict[Path, DriftedField] = {}
    in_fields = bool(live.status.outdated)
    for replica in live.status.outdated:
        if replica.fields is None:
            in_fields = False
            continue
        runs = {**live.fields, **replica.fields}
        runs = {name: value for name, value in runs.items() if value is not None}
        changes = [*_changes(desired.fields, runs)]
        declared = desired.fields.get("secrets")
        changes += [
            Change(path=("secrets", name), desired=declared[name], live="an earlier value")
            for name in replica.secrets
            if isinstance(declared, dict) and name in declared
        ]
        for change in changes:
            if change.path not in known:
                field = DriftedField(change=change, kind=kind_of(change.path), evidence=why)
                found.setdefault(change.path, field)
    if not in_fields:
        for failed in live.status.failed:
            path = ("replicas", failed.name)
            change = Change(
                path=path, desired=f"running generation {failed.generation}", live="not running"
            )
            found[path] = DriftedField(
                change=change, kind=DriftKind.RESOURCE, evidence=failed.reason
            )
    return [found[path] for path in sorted(found)]


def runtime_drift(difference: RuntimeDifference) -> DriftedField:
    """Give what a replica serves otherwise than declared its place among the other fields."""
    return DriftedField(
        change=Change(
            path=("runtime", difference.pod, difference.field),
            desired=difference.declared,
            live=difference.served,
        ),
        kind=DriftKind.RUNTIME,
        evidence="told by its engine",
    )


def _equal(desired: Fields, live: Fields) -> bool:
    """True when every declared field stands there to the letter, which needs no canonical form.

    The common case of a workload that is as declared, and several times cheaper.
    """
    return all(name in live and same_value(value, live[name]) for name, value in desired.items())


def drifted_field(change: Change, writers: Mapping[str, Writer]) -> DriftedField:
    """Give a change its kind, and the last writer of the field it lies in."""
    spellings = (change.path[0], *_SPELLINGS.get(change.path[0], ()))
    writer = next((writers[name] for name in spellings if name in writers), None)
    return DriftedField(
        change=change, kind=kind_of(change.path), writer=writer, cause=cause_of(writer)
    )


def kind_of(path: Path) -> DriftKind:
    """Say what sort of thing a path addresses."""
    if "secrets" in path:
        return DriftKind.SECRET
    if path[-1] in ("image", "vllm_version"):
        return DriftKind.IMAGE
    return DriftKind.CONFIGURATION


def cause_of(writer: Writer | None) -> Cause:
    """Judge a writer by its tool. Unknown rather than a guess."""
    if writer is None:
        return Cause.UNKNOWN
    name = writer.manager.lower()
    for cause, tools in _TOOLS:
        if name.startswith(tools):
            # All built-in controllers share one name; the one that scales is an autoscaler.
            scaled = writer.subresource == "scale" and cause is Cause.CONTROLLER
            return Cause.AUTOSCALER if scaled else cause
    return Cause.CONTROLLER if name.endswith(_CONTROLLERS) else Cause.UNKNOWN
