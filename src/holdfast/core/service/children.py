"""The objects that one InferenceService stands for, as values and as Kubernetes writes them.

Pure: the service and a few facts in, its children out. The operator applies them; others may
render them to look at. Everything the API server would fill in where two writers care is
written out, so that no default ever looks like drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.service.engines import DEFAULT_BACKEND
from holdfast.core.service.pod import model_of, pod_template, startup_seconds
from holdfast.core.service.spec import (
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    ResourceSpec,
)
from holdfast.core.service.split import Split, SplitMode, divide
from holdfast.core.service.variant import canary_as_primary
from holdfast.core.tree import Fields

WORKLOAD = "holdfast.dev/workload"
ROLE = "holdfast.dev/role"
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
    split: Split | None = None
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
    split: Split


def selector(name: str, role: str | None = None) -> dict[str, str]:
    """What tells the pods of a service, or of one variant, from all others. Never changes."""
    return {WORKLOAD: name} if role is None else {WORKLOAD: name, ROLE: role}


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
    services.append(_front(service, split, targets))
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


def split_of(spec: InferenceServiceSpec, facts: Facts) -> Split:
    """How many pods each variant has, and the share that the canary gets."""
    declared = None if spec.autoscaled else spec.replicas
    if spec.canary is None:
        return Split(mode=SplitMode.NONE, primary=declared, canary=None, weight=0)
    return divide(
        weight=spec.canary.weight,
        gateway=facts.gateway is not None,
        ready=facts.canary_ready,
        declared=declared,
        seen=facts.primary_replicas or spec.min_replicas,
        canary=spec.canary.replicas,
    )


def _targets(service: InferenceService, split: Split) -> tuple[WeightedTarget, ...]:
    primary = WeightedTarget(name=f"{service.name}-{PRIMARY}", weight=100 - split.weight)
    if service.spec.canary is None and not split.weight:
        return (primary,)
    return (primary, WeightedTarget(name=f"{service.name}-{CANARY}", weight=split.weight))


def _front(service: InferenceService, split: Split, targets: tuple[WeightedTarget, ...]) -> Service:
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
