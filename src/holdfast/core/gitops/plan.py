"""Plans for the objects of an application: what a sync would do, or what would heal one drift.

A plan carries what it was computed from. It is kept by its digest alone: to carry it out it is
made anew, and when the digests differ the world has moved and it is refused as stale. So no
value of a Secret is ever stored with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import Application, ApplicationId
from holdfast.core.gitops.drift import ObjectDrift, entry_of
from holdfast.core.gitops.objects import (
    APPLICATION_LABEL,
    FIELD_MANAGER,
    ObservedObject,
    SyncStatus,
)
from holdfast.core.gitops.owners import foreign_settings_of
from holdfast.core.gitops.records import MAX_PLANNED_FIELDS, AppliedObject, PlannedField
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_plan import ObjectStep, StepReason, fields_to_show
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.managed_fields import is_ours, ownership_of
from holdfast.core.ownership.signals import APPLIED_PATH, FieldDrift
from holdfast.core.plan import Action, ReviewablePlan
from holdfast.core.policy import Circumstances, Decision, DecisionAction, Policy, decide
from holdfast.core.tree import Path, Tree, digest, plain_tree, show_path


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStep(ObjectStep):
    """One action on one object of an application, with what it was computed from."""

    uid: str | None
    """Of the object that was observed; None for an absent one."""
    state: str | None = None
    """What a reviewer's word depends on: the generation of the object where the server counts one,
    since its status moves by itself; otherwise the version."""
    leave: frozenset[Path] = frozenset()
    """Fields that keep their live value: drift that is on hold, or handled otherwise."""
    declared: DeclaredObject | None = None
    """What is applied; None for a deletion. Not part of the digest: its own digest is."""
    declaration: str = ""
    """The digest of what is applied. Secrets enter by their keyed mark."""
    claimed_by: str = ""
    """Who else lays claim to an object that is to be deleted, by a mark on it."""

    @property
    def entries(self) -> tuple[DriftEntry, ...]:
        """What will change, redacted."""
        return tuple(map(entry_of, self.fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan(ReviewablePlan[SyncStep]):
    """What will be done to the objects of an application, in order."""

    application: ApplicationId
    commit: str
    policy: str = ""
    """The digest of the application's spec: an approval under one policy is none under another."""

    @property
    def basis(self) -> Tree:
        steps = [_digest_basis(step) for step in self.steps]
        return [str(self.application), self.commit, self.policy, steps]


def planned_fields(plan: SyncPlan) -> tuple[PlannedField, ...]:
    """What a plan would change, field by field, redacted; as many as are kept of one."""
    found: list[PlannedField] = []
    for step in plan.changes:
        entries = step.entries or (_whole_object(step),)
        for entry in entries:
            if len(found) == MAX_PLANNED_FIELDS:
                return tuple(found)
            found.append(PlannedField(object=step.ref, action=step.action, entry=entry))
    return tuple(found)


def _whole_object(step: SyncStep) -> DriftEntry:
    return DriftEntry(
        path="",
        desired=None,
        live=None,
        kind=DriftKind.RESOURCE,
        cause=Cause.UNKNOWN,
        evidence=str(step.reason),
    )


def _digest_basis(step: SyncStep) -> Tree:
    return [
        step.ref.api_version,
        str(step.ref),
        step.action.value,
        step.uid,
        step.state,
        step.declaration,
        [".".join(path) for path in sorted(step.leave)],
        [[entry.path, entry.kind.value, entry.desired, entry.live] for entry in step.entries],
    ]


T = TypeVar("T")

_RANKS: tuple[frozenset[str], ...] = tuple(frozenset(line.split()) for line in (
    "Namespace",
    "CustomResourceDefinition.apiextensions.k8s.io",
    "PriorityClass.scheduling.k8s.io StorageClass.storage.k8s.io CSIDriver.storage.k8s.io"
    " RuntimeClass.node.k8s.io IngressClass.networking.k8s.io"
    " GatewayClass.gateway.networking.k8s.io ResourceQuota LimitRange"
    " NetworkPolicy.networking.k8s.io",
    "ServiceAccount",
    "ClusterRole.rbac.authorization.k8s.io Role.rbac.authorization.k8s.io",
    "ClusterRoleBinding.rbac.authorization.k8s.io RoleBinding.rbac.authorization.k8s.io",
    # Those that make Secrets stand with the Secrets: pods wait for what they make.
    "Secret ConfigMap SealedSecret.bitnami.com SecretStore.external-secrets.io"
    " ClusterSecretStore.external-secrets.io ExternalSecret.external-secrets.io"
    " ClusterExternalSecret.external-secrets.io Issuer.cert-manager.io"
    " ClusterIssuer.cert-manager.io Certificate.cert-manager.io",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Service Endpoints EndpointSlice.discovery.k8s.io",
    "",  # every built-in kind that is not named here
    "Deployment.apps StatefulSet.apps DaemonSet.apps ReplicaSet.apps ReplicationController"
    " Pod Job.batch CronJob.batch",
    "HorizontalPodAutoscaler.autoscaling VerticalPodAutoscaler.autoscaling.k8s.io"
    " ScaledObject.keda.sh PodDisruptionBudget.policy Ingress.networking.k8s.io"
    " Gateway.gateway.networking.k8s.io HTTPRoute.gateway.networking.k8s.io"
    " GRPCRoute.gateway.networking.k8s.io TCPRoute.gateway.networking.k8s.io"
    " TLSRoute.gateway.networking.k8s.io",
    "APIService.apiregistration.k8s.io",
    "MutatingWebhookConfiguration.admissionregistration.k8s.io"
    " ValidatingWebhookConfiguration.admissionregistration.k8s.io"
    " MutatingAdmissionPolicy.admissionregistration.k8s.io"
    " ValidatingAdmissionPolicy.admissionregistration.k8s.io",
    "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io"
    " ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
))  # fmt: skip
"""Kinds with their group, as `kubectl` writes them; the first line is applied first."""
_RANK = {kind: rank for rank, kinds in enumerate(_RANKS) for kind in kinds}
_BUILT_IN_RANK = _RANKS.index(frozenset())
_CUSTOM_RANK = len(_RANKS)


def apply_rank(ref: ObjectRef) -> int:
    """Return the place of a kind in the order: the lowest is applied first, and deleted last.

    The group counts: a `Service` of another group is a custom resource, and those come last.
    """
    known = _RANK.get(f"{ref.kind}.{ref.group}" if ref.group else ref.kind)
    if known is not None:
        return known
    built_in = "." not in ref.group or ref.group.endswith(".k8s.io")
    return _BUILT_IN_RANK if built_in else _CUSTOM_RANK


def in_apply_order(items: Iterable[T], ref: Callable[[T], ObjectRef]) -> list[T]:
    """Put things in the order in which they are applied; `ref` says which object each is about."""
    return sorted(items, key=lambda item: apply_rank(ref(item)))


def in_delete_order(items: Iterable[T], ref: Callable[[T], ObjectRef]) -> list[T]:
    """Put things in the order in which they are deleted: the other way round."""
    return in_apply_order(items, ref)[::-1]


DigestOf = Callable[[ObjectRef], str]
"""Gives the digest of what would be applied for an object."""


def make_sync_plan(
    application: Application,
    commit: str,
    observed: Iterable[ObservedObject],
    *,
    digests: DigestOf,
    inventory: Mapping[ObjectRef, AppliedObject],
    prune: bool,
    held: Collection[ObjectRef] = (),
) -> SyncPlan:
    """Plan what Git asks for anew, by the decision about each object. Drift beside it stays."""
    writes: list[SyncStep] = []
    deletes: list[SyncStep] = []
    for each in observed:
        decision = decide_object(each, held=each.ref in held)
        if not decision.action.writes:
            continue
        if each.sync_status is SyncStatus.PRUNABLE:
            if prune and _may_prune(each, inventory, application):
                claimed_by = _claimed_by(each, application)
                deletes.append(
                    _delete_step(each, StepReason.NO_LONGER_DECLARED, claimed_by=claimed_by)
                )
        elif decision.action is DecisionAction.CREATE:
            writes.append(_create_step(each, digests))
        else:
            writes.append(_update_step(each, digests))
    steps = (*in_apply_order(writes, _ref), *in_delete_order(deletes, _ref))
    return SyncPlan(
        application=application.id, commit=commit, steps=steps, policy=policy_digest(application)
    )


def decide_object(observed: ObservedObject, *, held: bool) -> Decision:
    """Say what a sync does about one object. Its drift is only reported: a route ends that.

    A write to what is no longer declared is its deletion.
    """
    circumstances = Circumstances(
        pending=bool(observed.pending), foreign=observed.owner is not None, held=held
    )
    return decide(observed.situation, Policy.REPORT, circumstances)


def make_heal_plan(
    application: Application,
    commit: str,
    observed: ObservedObject,
    drift: ObjectDrift,
    *,
    digests: DigestOf,
) -> SyncPlan:
    """Plan the end of one drift, leaving every other one of the same object as it is."""
    if observed.sync_status is SyncStatus.ORPHAN:
        step = _delete_step(observed, StepReason.ORPHAN)
    elif observed.live is None:
        step = _create_step(observed, digests)
    else:
        ours = {entry.path for entry in drift.entries}
        # Git may ask for more of the object by now. That is for a sync, and not in this plan.
        anew = (
            [found for found in observed.diff.field_drifts if found.pending]
            if observed.diff
            else []
        )
        # What pods run is no field of the object: it shields none from being put back.
        others = frozenset(
            found.change.path
            for found in (*(observed.diff.drifted if observed.diff else ()), *anew)
            if show_path(found.change.path) not in ours
        )
        mine = tuple(found for found in observed.drifted if show_path(found.change.path) in ours)
        step = _make_step(observed, Action.UPDATE, StepReason.DRIFTED, mine, digests, leave=others)
    return SyncPlan(
        application=application.id,
        commit=commit,
        steps=(step,),
        policy=policy_digest(application),
    )


_LATER = frozenset({"cost", "model_heads"})
"""Fields that earlier versions did not have."""


def policy_digest(application: Application) -> str:
    """The digest of everything that the owner decided.

    Without what only later versions know and nobody set: approvals of before hold after an upgrade.
    """

    def given(items: list[tuple[str, object]]) -> dict[str, object]:
        return {name: value for name, value in items if name not in _LATER or value is not None}

    return digest(plain_tree(asdict(application.spec, dict_factory=given)))


def _create_step(observed: ObservedObject, digests: DigestOf) -> SyncStep:
    reason = StepReason.DELETED if observed.applied else StepReason.ABSENT
    return _make_step(observed, Action.CREATE, reason, (), digests)


def _update_step(observed: ObservedObject, digests: DigestOf) -> SyncStep:
    """Write what was declared anew, and leave what drifted beside it."""
    assert observed.diff is not None  # noqa: S101  # what is there was compared
    reason = StepReason.DECLARED_ANEW if observed.applied else StepReason.TAKEN_OVER
    drifted = observed.diff.drifted if observed.applied else ()
    # Our own mark says what was applied last, whoever wrote another there.
    leave = frozenset(found.change.path for found in drifted) - {APPLIED_PATH}
    return _make_step(observed, Action.UPDATE, reason, observed.pending, digests, leave=leave)


def _make_step(
    observed: ObservedObject,
    action: Action,
    reason: StepReason,
    field_drifts: Iterable[FieldDrift],
    digests: DigestOf,
    *,
    leave: frozenset[Path] = frozenset(),
) -> SyncStep:
    shown = fields_to_show(field_drifts)
    creates = action is Action.CREATE
    return SyncStep(
        ref=observed.ref,
        action=action,
        reason=reason,
        fields=shown,
        cost=observed.cost if creates else observed.cost_of(shown),
        uid=_metadata(observed, "uid"),
        state=_reviewed_state(observed),
        leave=leave,
        declared=observed.declared,
        declaration=digests(observed.ref),
    )


def _delete_step(observed: ObservedObject, reason: StepReason, *, claimed_by: str = "") -> SyncStep:
    return SyncStep(
        claimed_by=claimed_by,
        ref=observed.ref,
        action=Action.DELETE,
        reason=reason,
        cost=observed.cost,
        uid=_metadata(observed, "uid"),
        state=_reviewed_state(observed),
    )


def _may_prune(
    observed: ObservedObject, inventory: Mapping[ObjectRef, AppliedObject], application: Application
) -> bool:
    """True for the very object that we applied and that nobody asked to keep.

    The record decides; a record that is damaged must not. So the object has to bear a trace of us
    as well: our label, or fields that we applied.
    """
    live, applied = observed.live, inventory.get(observed.ref)
    if live is None or applied is None or applied.uid != value_at(live, ("metadata", "uid")):
        return False
    labelled = value_at(live, ("metadata", "labels", APPLICATION_LABEL)) == application.id.label
    entries = ownership_of(live).entries
    if not labelled and not any(is_ours(entry, frozenset({FIELD_MANAGER})) for entry in entries):
        return False
    return (
        not foreign_settings_of(live).keep
        and value_at(live, ("metadata", "deletionTimestamp")) is None
    )


def _claimed_by(observed: ObservedObject, application: Application) -> str:
    """Say who claims an object of ours by a mark on it: another tool, or another application."""
    if observed.claimed_by is not None:
        return str(observed.claimed_by)
    label = (
        value_at(observed.live, ("metadata", "labels", APPLICATION_LABEL))
        if observed.live
        else None
    )
    return "" if label in (None, application.id.label) else f"the application {label}"


def _reviewed_state(observed: ObservedObject) -> str | None:
    counted = value_at(observed.live, ("metadata", "generation")) if observed.live else None
    return f"generation {counted}" if counted else _metadata(observed, "resourceVersion")


def _metadata(observed: ObservedObject, name: str) -> str | None:
    return str(value_at(observed.live, ("metadata", name))) if observed.live else None


def _ref(step: SyncStep) -> ObjectRef:
    return step.ref
