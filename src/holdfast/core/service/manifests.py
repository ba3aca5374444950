"""Writes the children of an InferenceService as Kubernetes objects, in the order of application.

Called by the operator, which applies them, and by whoever wants to see them first.
"""

from __future__ import annotations

from decimal import Decimal

from holdfast.core.service.children import (
    HPA,
    Children,
    Deployment,
    Facts,
    Route,
    Service,
    children_of,
    labels_of,
    progress_deadline,
    selector,
)
from holdfast.core.service.engines import PORT
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService
from holdfast.core.tree import Fields, Tree, plain

RENDERER = "holdfast.dev/renderer"
"""Says which rendering made an object. It stays when the rendering of a template stays."""
RENDERER_VERSION = "1"


def manifests(service: InferenceService, facts: Facts) -> tuple[Fields, ...]:
    """Render all children of a valid service: what requests reach first comes last."""
    return manifests_of(service, children_of(service, facts))


def manifests_of(service: InferenceService, children: Children) -> tuple[Fields, ...]:
    """Write down children that were already chosen."""
    objects = [_deployment(service, each) for each in children.deployments]
    objects += [_service(service, each) for each in children.services]
    if children.hpa is not None:
        objects.append(_hpa(service, children.hpa))
    objects.append(_budget(service))
    if children.route is not None:
        objects.append(_route(service, children.route))
    return tuple(objects)


def _object(
    service: InferenceService, api: str, kind: str, name: str, spec: Fields, role: str | None = None
) -> Fields:
    metadata: Fields = {
        "name": name,
        "namespace": service.namespace,
        "labels": labels_of(service, role),
        "annotations": {RENDERER: RENDERER_VERSION},
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


def _deployment(service: InferenceService, child: Deployment) -> Fields:
    spec: Fields = {
        "selector": {"matchLabels": plain(selector(service.name, child.role))},
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


def _service(service: InferenceService, child: Service) -> Fields:
    spec: Fields = {
        "type": "ClusterIP",
        "selector": plain(child.selector),
        "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http"}],
    }
    return _object(service, "v1", "Service", child.name, spec)


def _hpa(service: InferenceService, child: HPA) -> Fields:
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


def _budget(service: InferenceService) -> Fields:
    """One pod at a time may be taken away; a single replica never blocks a node's drain."""
    spec: Fields = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": plain(selector(service.name))},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _object(service, "policy/v1", "PodDisruptionBudget", f"{service.name}-pdb", spec)


def _route(service: InferenceService, child: Route) -> Fields:
    parent: Fields = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": child.gateway.namespace,
        "name": child.gateway.name,
    }
    if child.gateway.section is not None:
        parent["sectionName"] = child.gateway.section
    backends: list[Tree] = [
        {"group": "", "kind": "Service", "name": each.name, "port": PORT, "weight": each.weight}
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
