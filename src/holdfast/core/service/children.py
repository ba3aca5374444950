"""The objects that one InferenceService stands for, as values and as Kubernetes writes them.

Pure: the service and a few facts in, its children out. The operator applies them; others may
render them to look at. Everything the API server would fill in where two writers care is
written out, so that no default ever looks like drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.backends import DEFAULT_BACKEND, POD_PORT
from holdfast.core.service.autoscaling import (
    MetricTarget,
    behavior_fields,
    hpa_metric,
    keda_trigger,
    metric_targets,
    needs_prometheus,
    uses_keda,
)
from holdfast.core.service.canary import canary_as_primary
from holdfast.core.service.model_cache import (
    DOWNLOAD_LABEL,
    MODELS,
    VOLUME,
    CachedModel,
    claim_name,
    claim_spec,
    job_name,
)
from holdfast.core.service.pod import (
    model_of,
    pod_template,
    pull_secrets,
    scheduling_fields,
    startup_seconds,
    worker_template,
)
from holdfast.core.service.pod_overlay import HTTP_PORT_NAME
from holdfast.core.service.spec import (
    API_VERSION,
    KIND,
    BehaviorSpec,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    PortProtocol,
    ResourceSpec,
    ServicePortSpec,
    ServiceSpec,
    ServiceType,
)
from holdfast.core.service.split import SplitMode, TrafficSplit, compute_split
from holdfast.core.tree import Fields, Tree, plain_tree

WORKLOAD_LABEL = "holdfast.dev/workload"
ROLE_LABEL = "holdfast.dev/role"
PRIMARY = "primary"
CANARY = "canary"
WORKER = "worker"
"""The role of pods that belong to a replica of the primary and answer no requests."""
DEPLOYMENT = ("apps/v1", "Deployment")
HORIZONTAL_POD_AUTOSCALER = ("autoscaling/v2", "HorizontalPodAutoscaler")
SCALED_OBJECT = ("keda.sh/v1alpha1", "ScaledObject")
LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")


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
    keda: bool = True
    """KEDA is installed. Only a service that asks for it depends on that."""
    prometheus: str | None = None
    """Where KEDA finds the metrics of pods."""
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
    nodes: int = 1
    """How many pods a replica has. More than one are a LeaderWorkerSet, and `template` is that of
    the pod that answers."""
    worker_template: Fields | None = None


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
    """The autoscaler of the primary. `metric` and `target` are the first of what it looks at."""

    name: str
    namespace: str
    target_ref: str
    target_kind: tuple[str, str]
    min: int
    max: int
    metric: str
    target: float
    metrics: tuple[MetricTarget, ...]
    behavior: BehaviorSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledObject:
    """The autoscaler of the primary where KEDA is to be it."""

    hpa: HPA
    """What is declared, whoever carries it out."""
    prometheus: str
    """Where KEDA asks for metrics of the pods; empty where none is needed."""


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
    scaled_object: ScaledObject | None = None
    """Instead of `hpa`."""


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
        hpa=None if uses_keda(service.spec) else _hpa(service),
        scaled_object=_scaled_object(service, facts),
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
    if canary:
        variant = canary_as_primary(service.spec)
        parts = replace(service.spec, env=variant.env, resources=variant.resources)
        service = replace(service, spec=parts)
    several = service.spec.multi_node
    return Deployment(
        name=f"{service.name}-{role}",
        namespace=service.namespace,
        role=role,
        replicas=replicas,
        model_ref=model_of(service, canary=canary),
        resources=service.spec.resources or ResourceSpec(),
        health_check=service.spec.health_check or HealthCheckSpec(),
        template=pod_template(service, canary=canary, labels=labels),
        nodes=service.spec.nodes or 1,
        worker_template=worker_template(service, labels=labels_of(service, WORKER))
        if several
        else None,
    )


def primary_kind(spec: InferenceServiceSpec) -> tuple[str, str]:
    """The API version and kind of what runs the primary's pods."""
    return LEADER_WORKER_SET if spec.multi_node else DEPLOYMENT


def _hpa(service: InferenceService) -> HPA | None:
    spec = service.spec
    if not spec.scales_by_load:
        return None
    metrics = metric_targets(spec)
    return HPA(
        name=f"{service.name}-hpa",
        namespace=service.namespace,
        target_ref=f"{service.name}-{PRIMARY}",
        target_kind=primary_kind(spec),
        min=spec.min_replicas or 1,
        max=spec.max_replicas or 1,
        metric=metrics[0].metric,
        target=metrics[0].target,
        metrics=metrics,
        behavior=spec.autoscaling.behavior if spec.autoscaling else None,
    )


def _scaled_object(service: InferenceService, facts: Facts) -> ScaledObject | None:
    """None without KEDA, and while it could not be told where to ask."""
    spec = service.spec
    hpa = _hpa(service) if uses_keda(spec) else None
    if hpa is None or not facts.keda or (needs_prometheus(spec) and not facts.prometheus):
        return None
    prometheus = facts.prometheus or ""
    return ScaledObject(hpa=replace(hpa, name=f"{service.name}-scaler"), prometheus=prometheus)


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
    objects = [_claim_manifest(service)] if service.spec.cache is not None else []
    objects += [_deployment_manifest(service, each) for each in children.deployments]
    objects += [_service_manifest(service, each) for each in children.services]
    if children.hpa is not None:
        objects.append(_hpa_manifest(service, children.hpa))
    if children.scaled_object is not None:
        objects.append(_scaled_object_manifest(service, children.scaled_object))
    objects.append(_budget_manifest(service))
    if children.route is not None:
        objects.append(_route_manifest(service, children.route))
    return tuple(objects)


def carried_labels(service: InferenceService) -> dict[str, str]:
    """The labels of a service that its children get too: the user's own.

    Not those by which Kubernetes, Holdfast, Helm, Argo CD and Flux tell what is whose: on a child
    they would say that it came from a chart or a repository.
    """
    return _without_domains(service.labels, _TOOL_DOMAINS)


def carried_annotations(service: InferenceService) -> dict[str, str]:
    """The annotations of a service that its children get too: the user's own.

    Not those in which tools keep what they applied: on a child they would make it look applied.
    """
    return _without_domains(service.annotations, (*_TOOL_DOMAINS, *_RECORD_DOMAINS))


_TOOL_DOMAINS = ("kubernetes.io", "k8s.io", "holdfast.dev", "helm.sh", "argoproj.io", "fluxcd.io")
_RECORD_DOMAINS = (
    *("kopf.zalando.org", "kopf.dev", "banzaicloud.com", "cattle.io"),
    *("k14s.io", "carvel.dev", "pulumi.com", "crossplane.io", "config-management.gke.io"),
)
"""Of frameworks and tools that keep what they last handled or applied in annotations."""


def _without_domains(given: Mapping[str, str], domains: Sequence[str]) -> dict[str, str]:
    """Leave out the names under some domains, and under what is below these."""
    ends = tuple(f".{each}" for each in domains)
    return {
        name: value
        for name, value in given.items()
        if "/" not in name or not f".{name.rpartition('/')[0]}".endswith(ends)
    }


def _object(
    service: InferenceService,
    api: str,
    kind: str,
    name: str,
    spec: Fields,
    role: str | None = None,
    notes: Mapping[str, str] | None = None,
) -> Fields:
    labels: Fields = {**carried_labels(service), **labels_of(service, role)}
    metadata: Fields = {
        "name": name,
        "namespace": service.namespace,
        "labels": dict(sorted(labels.items())),
        "annotations": {
            **carried_annotations(service),
            **(notes or {}),
            RENDERER_ANNOTATION: RENDERER_VERSION,
        },
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


def _claim_manifest(service: InferenceService) -> Fields:
    """Where models are kept for all pods. It goes with the service: what is in it is a copy."""
    spec = claim_spec(service)
    return _object(service, "v1", "PersistentVolumeClaim", claim_name(service), spec)


DOWNLOADER_USER = 65532
_HUB_VARIABLES = ("HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_NETWORK_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


def download_job(
    service: InferenceService, model: CachedModel, *, image: str, claim_uid: str
) -> Fields:
    """Render the Job that downloads a model into the claim. It is run once, and never compared.

    Its pod may run where the service's may, since the claim is made where it runs first.
    """
    arguments: list[Tree] = ["models", "download", model.repo, f"--revision={model.revision}"]
    arguments += [f"--to={MODELS}/{model.directory}", "--report=/dev/termination-log"]
    arguments += [f"--gguf={model.gguf}"] if model.gguf is not None else []
    arguments += [f"--digest={model.digest}"] if model.digest is not None else []
    container: Fields = {
        "name": "download",
        "image": image,
        "args": arguments,
        "env": _download_environment(service),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"mountPath": MODELS, "name": VOLUME}],
    }
    claim: Fields = {"claimName": claim_name(service)}
    pod: Fields = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": DOWNLOADER_USER,
            "runAsGroup": DOWNLOADER_USER,
            "fsGroup": DOWNLOADER_USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": claim}],
        **scheduling_fields(service),
        **pull_secrets(service),
    }
    name = job_name(service, model, claim_uid)
    labels: Fields = {"app.kubernetes.io/managed-by": "holdfast", DOWNLOAD_LABEL: service.name}
    spec: Fields = {
        "backoffLimit": 5,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    job = _object(service, "batch/v1", "Job", name, spec)
    metadata = job["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    return {**job, "metadata": {**metadata, "labels": labels}}


def _download_environment(service: InferenceService) -> list[Tree]:
    """Only what a download needs: the other secrets are none of its business."""
    spec, names = service.spec, (*_HUB_VARIABLES, *_NETWORK_VARIABLES)
    plain_values = {
        name: value for name, value in (spec.env or {}).items() if name.upper() in names
    }
    found: list[Tree] = [
        {"name": name, "value": plain_values[name]} for name in sorted(plain_values)
    ]
    for name, ref in sorted((spec.secrets or {}).items()):
        if name in names:
            source: Tree = {"secretKeyRef": {"key": ref.key, "name": ref.name}}
            found.append({"name": name, "valueFrom": source})
    return found


def _deployment_manifest(service: InferenceService, child: Deployment) -> Fields:
    if child.worker_template is not None:
        return _leader_worker_set_manifest(service, child, child.worker_template)
    spec: Fields = {
        "selector": {"matchLabels": plain_tree(selector(service.name, child.role))},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": rolling_limits(service, child.resources),
        },
        "progressDeadlineSeconds": progress_deadline(service),
        "template": child.template,
    }
    if child.replicas is not None:
        spec = {"replicas": child.replicas, **spec}
    return _object(service, *DEPLOYMENT, child.name, spec, child.role)


def _leader_worker_set_manifest(
    service: InferenceService, child: Deployment, worker: Fields
) -> Fields:
    """A replica is a group of pods that starts, rolls and restarts as one."""
    spec: Fields = {
        "leaderWorkerTemplate": {
            "size": child.nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": child.template,
            "workerTemplate": worker,
        },
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": rolling_limits(service, child.resources),
        },
        "startupPolicy": "LeaderCreated",
    }
    if child.replicas is not None:
        spec = {"replicas": child.replicas, **spec}
    return _object(service, *LEADER_WORKER_SET, child.name, spec, child.role)


def rolling_limits(service: InferenceService, resources: ResourceSpec) -> Fields:
    """Without a word from the user, a spare GPU is not counted on: the old pod goes first."""
    rollout = service.spec.rollout
    if rollout and rollout.max_surge is not None:
        return {"maxSurge": rollout.max_surge, "maxUnavailable": 0}
    if resources.needs_devices:
        return {"maxSurge": 0, "maxUnavailable": 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def _service_manifest(service: InferenceService, child: Service) -> Fields:
    declared = service.spec.service or ServiceSpec()
    entry = child.name == f"{service.name}-svc"
    kind = declared.type if entry else None
    http: Fields = {
        "name": HTTP_PORT_NAME,
        "port": POD_PORT,
        "protocol": "TCP",
        "targetPort": HTTP_PORT_NAME,
    }
    spec: Fields = {
        "type": str(kind or ServiceType.CLUSTER_IP),
        "selector": plain_tree(child.selector),
        "ports": [http, *map(_service_port, declared.ports or ())],
    }
    notes = declared.annotations if entry else None
    return _object(service, "v1", "Service", child.name, spec, notes=notes)


def _service_port(port: ServicePortSpec) -> Fields:
    target = port.target_port
    named = target is not None and not target.isdigit()
    return {
        "name": port.name,
        "port": port.port,
        "protocol": str(port.protocol or PortProtocol.TCP),
        "targetPort": target if named else int(target or port.port),
    }


def _hpa_manifest(service: InferenceService, child: HPA) -> Fields:
    version, kind = child.target_kind
    spec: Fields = {
        "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": child.target_ref},
        "minReplicas": child.min,
        "maxReplicas": child.max,
        "metrics": [hpa_metric(each) for each in child.metrics],
    }
    if child.behavior is not None:
        spec["behavior"] = behavior_fields(child.behavior)
    return _object(service, *HORIZONTAL_POD_AUTOSCALER, child.name, spec)


def _scaled_object_manifest(service: InferenceService, child: ScaledObject) -> Fields:
    hpa, prometheus = child.hpa, child.prometheus
    version, kind = hpa.target_kind
    tail = "[0-9]+" if hpa.target_kind == LEADER_WORKER_SET else "[a-z0-9]+-[a-z0-9]{5}"
    pods = f"{hpa.target_ref}-{tail}"
    spec: Fields = {
        "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": hpa.target_ref},
        "minReplicaCount": hpa.min,
        "maxReplicaCount": hpa.max,
        "triggers": [
            keda_trigger(each, prometheus=prometheus, namespace=service.namespace, pods=pods)
            for each in hpa.metrics
        ],
    }
    if hpa.behavior is not None:
        behavior: Fields = {"behavior": behavior_fields(hpa.behavior)}
        spec["advanced"] = {"horizontalPodAutoscalerConfig": behavior}
    return _object(service, *SCALED_OBJECT, hpa.name, spec)


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
