"""The objects that one InferenceService stands for, as values and as Kubernetes writes them.

Pure: the service and a few facts in, its children out. The operator applies them; others may
render them to look at. Everything the API server would fill in where two writers care is
written out, so that no default ever looks like drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from holdfast.core.backends import DEFAULT_BACKEND, POD_PORT
from holdfast.core.service.canary import canary_as_primary
from holdfast.core.service.pod import model_of, pod_template, startup_seconds
from holdfast.core.service.spec import (
    API_VERSION,
    KIND,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    ResourceSpec,
)
from holdfast.core.service.split import SplitMode, TrafficSplit, compute_split
from holdfast.core.tree import Fields, Tree, plain_tree

WORKLOAD_LABEL = "holdfast.dev/workload"
ROLE_LABEL = "holdfast.dev/role"
PRIMARY = "primary"
CANARY = "canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Where routes attach: a Gateway of the Gateway API, and the domain its hosts are under."""

    name: str
    namespace: str
    domain: str
    section: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rendering depends on besides the service itself."""

    gateway: Gateway | None = None
    """None where the Gateway API is not installed or no gateway is set up."""
    canary_ready: bool = False
    """All the canary's pods are ready. Unknown counts as not ready."""
    primary_replicas: int | None = None
    """How many the primary has now, for a canary beside a primary that others scale."""
    split: TrafficSplit | None = None
    """The division that was decided, on the way to the declared one. None has it worked out."""
    canary_applied: bool = True
    """False while a declared canary is to be away, or left as it is."""
    promoted: bool = False
    """The primary runs what is declared for the canary."""
    replicas_free: bool = False
    """Somebody else chooses the primary's number although one is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One variant. `replicas` of None is someone else's to choose."""

    name: str
    namespace: str
    role: str
    replicas: int | None
    model_ref: str
    resources: ResourceSpec
    health_check: HealthCheckSpec
    template: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedTarget:
    """A share of the requests, in percent."""

    name: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An address. `weights` is empty where it has only one kind of pod behind it."""

    name: str
    namespace: str
    selector: dict[str, str]
    weights: tuple[WeightedTarget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HPA:
    """The autoscaler of the primary."""

    name: str
    namespace: str
    target_ref: str
    min: int
    max: int
    metric: str
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Weighted requests through a gateway. A share of 0 is left out: some gateways leak it."""

    name: str
    namespace: str
    gateway: Gateway
    targets: tuple[WeightedTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """Everything one service stands for, in the order in which it is applied."""

    deployments: tuple[Deployment, ...]
    services: tuple[Service, ...]
    hpa: HPA | None
    route: Route | None
    split: TrafficSplit


def selector(name: str, role: str | None = None) -> dict[str, str]:
    """What tells the pods of a service, or of one variant, from all others. Never changes."""
    return {WORKLOAD_LABEL: name} if role is None else {WORKLOAD_LABEL: name, ROLE_LABEL: role}


def labels_of(service: InferenceService, role: str | None = None) -> Fields:
    """The labels of a child."""
    labels: Fields = {
        "app.kubernetes.io/instance": service.name,
        "app.kubernetes.io/managed-by": "holdfast",
        "app.kubernetes.io/name": service.spec.backend or DEFAULT_BACKEND,
        "app.kubernetes.io/part-of": "holdfast",
        **selector(service.name, role),
    }
    if role is not None:
        labels["app.kubernetes.io/component"] = role
    return dict(sorted(labels.items()))


def children_of(service: InferenceService, facts: Facts) -> Children:
    """Say what there has to be for a valid service."""
    split = facts.split or split_of(service.spec, facts)
    number = None if facts.replicas_free else split.primary
    # Rendered as if it had been declared, so that declaring it later restarts nothing.
    main = replace(service, spec=canary_as_primary(service.spec)) if facts.promoted else service
    deployments = [_deployment(main, PRIMARY, number)]
    services = [_service(service, PRIMARY)]
    if service.spec.canary is not None and facts.canary_applied:
        deployments.append(_deployment(service, CANARY, split.canary))
        services.append(_service(service, CANARY))
    targets = _targets(service, split)
    services.append(_entry_service(service, split, targets))
    route = None
    if facts.gateway is not None:
        route = Route(
            name=service.name,
            namespace=service.namespace,
            gateway=facts.gateway,
            targets=tuple(target for target in targets if target.weight),
        )
    return Children(
        deployments=tuple(deployments),
        services=tuple(services),
        hpa=_hpa(service),
        route=route,
        split=split,
    )


def split_of(spec: InferenceServiceSpec, facts: Facts) -> TrafficSplit:
    """How many pods each variant has, and the share that the canary gets."""
    declared = None if spec.autoscaled else spec.replicas
    if spec.canary is None:
        return TrafficSplit(mode=SplitMode.NONE, primary=declared, canary=None, weight=0)
    return compute_split(
        weight=spec.canary.weight,
        gateway=facts.gateway is not None,
        ready=facts.canary_ready,
        declared=declared,
        observed=facts.primary_replicas or spec.min_replicas,
        canary=spec.canary.replicas,
    )


def _targets(service: InferenceService, split: TrafficSplit) -> tuple[WeightedTarget, ...]:
    primary = WeightedTarget(name=f"{service.name}-{PRIMARY}", weight=100 - split.weight)
    if service.spec.canary is None and not split.weight:
        return (primary,)
    return (primary, WeightedTarget(name=f"{service.name}-{CANARY}", weight=split.weight))


def _entry_service(
    service: InferenceService, split: TrafficSplit, targets: tuple[WeightedTarget, ...]
) -> Service:
    """The address that callers inside the cluster use; it survives every promotion."""
    role: str | None = PRIMARY
    if split.mode is SplitMode.REPLICA_RATIO and split.weight:
        role = CANARY if split.weight == 100 else None
    return Service(
        name=f"{service.name}-svc",
        namespace=service.namespace,
        selector=selector(service.name, role),
        weights=targets if len(targets) > 1 else (),
    )


def _service(service: InferenceService, role: str) -> Service:
    return Service(
        name=f"{service.name}-{role}",
        namespace=service.namespace,
        selector=selector(service.name, role),
    )


def _deployment(service: InferenceService, role: str, replicas: int | None) -> Deployment:
    canary = role == CANARY
    labels = labels_of(service, role)
    return Deployment(
        name=f"{service.name}-{role}",
        namespace=service.namespace,
        role=role,
        replicas=replicas,
        model_ref=model_of(service, canary=canary),
        resources=service.spec.resources or ResourceSpec(),
        health_check=service.spec.health_check or HealthCheckSpec(),
        template=pod_template(service, canary=canary, labels=labels),
    )


def _hpa(service: InferenceService) -> HPA | None:
    spec = service.spec
    if not spec.autoscaled:
        return None
    metric = (spec.autoscaling and spec.autoscaling.metric) or "cpu"
    target = spec.autoscaling.target if spec.autoscaling else None
    return HPA(
        name=f"{service.name}-hpa",
        namespace=service.namespace,
        target_ref=f"{service.name}-{PRIMARY}",
        min=spec.min_replicas or 1,
        max=spec.max_replicas or 1,
        metric=metric,
        target=80.0 if target is None else target,
    )


def progress_deadline(service: InferenceService) -> int:
    """Longer than a model may take to load, or a slow start would count as a failed rollout."""
    return startup_seconds(service) + 600


RENDERER_ANNOTATION = "holdfast.dev/renderer"
"""Says which rendering made an object. It stays when the rendering of a template stays."""
RENDERER_VERSION = "1"


def manifests(service: InferenceService, facts: Facts) -> tuple[Fields, ...]:
    """Render all children of a valid service: what requests reach first comes last."""
    return manifests_of(service, children_of(service, facts))


def manifests_of(service: InferenceService, children: Children) -> tuple[Fields, ...]:
    """Write down children that were already chosen."""
    objects = [_deployment_manifest(service, each) for each in children.deployments]
    objects += [_service_manifest(service, each) for each in children.services]
    if children.hpa is not None:
        objects.append(_hpa_manifest(service, children.hpa))
    objects.append(_budget_manifest(service))
    if children.route is not None:
        objects.append(_route_manifest(service, children.route))
    return tuple(objects)


def _object(
    service: InferenceService, api: str, kind: str, name: str, spec: Fields, role: str | None = None
) -> Fields:
    metadata: Fields = {
        "name": name,
        "namespace": service.namespace,
        "labels": labels_of(service, role),
        "annotations": {RENDERER_ANNOTATION: RENDERER_VERSION},
    }
    if service.uid:
        metadata["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": service.name,
                "uid": service.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _deployment_manifest(service: InferenceService, child: Deployment) -> Fields:
    spec: Fields = {
        "selector": {"matchLabels": plain_tree(selector(service.name, child.role))},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(service)},
        "progressDeadlineSeconds": progress_deadline(service),
        "template": child.template,
    }
    if child.replicas is not None:
        spec = {"replicas": child.replicas, **spec}
    return _object(service, "apps/v1", "Deployment", child.name, spec, child.role)


def _rolling(service: InferenceService) -> Fields:
    """Without a word from the user, a spare GPU is not counted on: the old pod goes first."""
    rollout, resources = service.spec.rollout, service.spec.resources
    if rollout and rollout.max_surge is not None:
        return {"maxSurge": rollout.max_surge, "maxUnavailable": 0}
    if resources and resources.gpus:
        return {"maxSurge": 0, "maxUnavailable": 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def _service_manifest(service: InferenceService, child: Service) -> Fields:
    spec: Fields = {
        "type": "ClusterIP",
        "selector": plain_tree(child.selector),
        "ports": [{"name": "http", "port": POD_PORT, "protocol": "TCP", "targetPort": "http"}],
    }
    return _object(service, "v1", "Service", child.name, spec)


def _hpa_manifest(service: InferenceService, child: HPA) -> Fields:
    metric: Fields
    if child.metric in ("cpu", "memory"):
        target: Fields = {"type": "Utilization", "averageUtilization": max(1, round(child.target))}
        metric = {"type": "Resource", "resource": {"name": child.metric, "target": target}}
    else:
        average: Fields = {"type": "AverageValue", "averageValue": _quantity(child.target)}
        pods: Fields = {"metric": {"name": child.metric}, "target": average}
        metric = {"type": "Pods", "pods": pods}
    spec: Fields = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": child.target_ref},
        "minReplicas": child.min,
        "maxReplicas": child.max,
        "metrics": [metric],
    }
    return _object(service, "autoscaling/v2", "HorizontalPodAutoscaler", child.name, spec)


def _quantity(number: float) -> str:
    """Write a number as the API server would: thousandths where it is not whole."""
    thousandths = round(Decimal(str(number)) * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def _budget_manifest(service: InferenceService) -> Fields:
    """One pod at a time may be taken away; a single replica never blocks a node's drain."""
    spec: Fields = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": plain_tree(selector(service.name))},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _object(service, "policy/v1", "PodDisruptionBudget", f"{service.name}-pdb", spec)


def _route_manifest(service: InferenceService, child: Route) -> Fields:
    parent: Fields = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": child.gateway.namespace,
        "name": child.gateway.name,
    }
    if child.gateway.section is not None:
        parent["sectionName"] = child.gateway.section
    backends: list[Tree] = [
        {"group": "", "kind": "Service", "name": each.name, "port": POD_PORT, "weight": each.weight}
        for each in child.targets
    ]
    spec: Fields = {
        "parentRefs": [parent],
        "hostnames": [f"{service.name}.{service.namespace}.{child.gateway.domain}"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "timeouts": {"request": "0s"},  # streams outlive every default
                "backendRefs": backends,
            }
        ],
    }
    return _object(service, "gateway.networking.k8s.io/v1", "HTTPRoute", child.name, spec)
