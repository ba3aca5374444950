"""In which order the objects of an application are applied, and deleted.

What others need comes first: a namespace before what is in it, a definition before its objects,
an account before who runs under it. Webhooks come late, so that none of an application's own
objects waits for a webhook whose pods are among them. Objects of one rank keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from holdfast.core.objects import ObjectRef

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
_BUILT_IN = _RANKS.index(frozenset())
_CUSTOM = len(_RANKS)


def rank(ref: ObjectRef) -> int:
    """Return the place of a kind in the order: the lowest is applied first, and deleted last.

    The group counts: a `Service` of another group is a custom resource, and those come last.
    """
    known = _RANK.get(f"{ref.kind}.{ref.group}" if ref.group else ref.kind)
    if known is not None:
        return known
    built_in = "." not in ref.group or ref.group.endswith(".k8s.io")
    return _BUILT_IN if built_in else _CUSTOM


def for_apply(items: Iterable[T], ref: Callable[[T], ObjectRef]) -> list[T]:
    """Put things in the order in which they are applied; `ref` says which object each is about."""
    return sorted(items, key=lambda item: rank(ref(item)))


def for_delete(items: Iterable[T], ref: Callable[[T], ObjectRef]) -> list[T]:
    """Put things in the order in which they are deleted: the other way round."""
    return for_apply(items, ref)[::-1]
