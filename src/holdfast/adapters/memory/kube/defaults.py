"""What the API server fills in, for the kinds and fields that Holdfast writes.

Every function completes an object in place. Values are those that a real server stored; the
contract suite applies every child of an InferenceService to both and compares.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from holdfast.adapters.memory.kube.kinds import Object
from holdfast.core.quantity import parse_quantity

_OMITTED_WHEN_EMPTY = frozenset({
    "labels", "annotations", "finalizers", "ownerReferences", "nodeSelector", "tolerations",
    "imagePullSecrets", "initContainers", "volumes", "args", "command", "env", "envFrom", "ports",
    "volumeMounts", "limits", "requests", "data", "binaryData", "matchLabels",
})  # fmt: skip
"""What is not stored when it is empty."""
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def fill_defaults(item: Object, *, address: str) -> None:
    """Complete an object of a built-in kind. `address` is for a Service that has none."""
    if item["kind"] == "Service":
        _service(item, address)
    elif item["kind"] in _COMPLETE:
        _COMPLETE[item["kind"]](item)


def drop_empty_fields(value: Any) -> None:  # Any: a part of an object
    """Take out nulls, and what is not stored when it is empty."""
    if isinstance(value, dict):
        for name in list(value):
            drop_empty_fields(value[name])
            if value[name] is None or (name in _OMITTED_WHEN_EMPTY and value[name] in ({}, [])):
                del value[name]
    elif isinstance(value, list):
        for item in value:
            drop_empty_fields(item)


def canonical_quantity(value: str | int | float) -> str:
    """Write a quantity as the server stores it: `0.5` is 500m, `65536Ki` is 64Mi."""
    text = str(value)
    amount = parse_quantity(text)
    if amount is None or re.search(r"[eE][+-]?[0-9]", text):
        return text
    if text.endswith("i") and abs(amount) >= 1024 and amount == int(amount):
        power = 0
        while amount % 1024 == 0 and power < 6:
            amount, power = amount / 1024, power + 1
        return f"{int(amount)}{('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei')[power]}"
    if not amount:
        return "0"
    power = max((each for each in _DECIMAL if amount % Decimal(10) ** each == 0), default=-9)
    return f"{int(amount / Decimal(10) ** power)}{_DECIMAL[power]}"


def _set_defaults(target: Object, **values: Any) -> None:
    for name, value in values.items():
        if target.get(name) is None:
            target[name] = value


def _deployment(item: Object) -> None:
    spec = item["spec"]
    _set_defaults(
        spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={}
    )
    _set_defaults(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _set_defaults(spec["strategy"], rollingUpdate={})
        _set_defaults(spec["strategy"]["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")
    _pod_spec(spec["template"]["spec"])
    _set_defaults(item, status={})


def _replica_set(item: Object) -> None:
    _set_defaults(item["spec"], replicas=1)
    _pod_spec(item["spec"].get("template", {}).get("spec", {}))
    _set_defaults(item, status={"replicas": 0})


def _pod(item: Object) -> None:
    spec = item["spec"]
    _pod_spec(spec)
    _set_defaults(
        spec, enableServiceLinks=True, priority=0, preemptionPolicy="PreemptLowerPriority"
    )
    tolerations = spec.setdefault("tolerations", [])
    for reason in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{reason}"
        if not any(each.get("key") == key for each in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    _set_defaults(item, status={"phase": "Pending", "qosClass": "BestEffort"})


def _pod_spec(spec: Object) -> None:
    _set_defaults(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _container(container)
    for volume in spec.get("volumes", ()):
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if source in volume:
                _set_defaults(volume[source], defaultMode=420)
        if "sizeLimit" in (volume.get("emptyDir") or {}):
            volume["emptyDir"]["sizeLimit"] = canonical_quantity(volume["emptyDir"]["sizeLimit"])


def _container(container: Object) -> None:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    _set_defaults(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest else "IfNotPresent",
    )
    for port in container.get("ports", ()):
        _set_defaults(port, protocol="TCP")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in container:
            _probe(container[probe])
    for hook in container.get("lifecycle", {}).values():
        if "httpGet" in hook:
            _set_defaults(hook["httpGet"], path="/", scheme="HTTP")
    for amounts in ("requests", "limits"):
        for name, value in (container["resources"].get(amounts) or {}).items():
            container["resources"][amounts][name] = canonical_quantity(value)
    for variable in container.get("env", ()):
        if variable.get("value") == "":
            del variable["value"]
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            _set_defaults(source["fieldRef"], apiVersion="v1")


def _probe(probe: Object) -> None:
    _set_defaults(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if probe.get("initialDelaySeconds") == 0:
        del probe["initialDelaySeconds"]
    if "httpGet" in probe:
        _set_defaults(probe["httpGet"], path="/", scheme="HTTP")


def _service(item: Object, address: str) -> None:
    spec = item["spec"]
    _set_defaults(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports", ()):
        _set_defaults(port, protocol="TCP", targetPort=port.get("port"))
    if spec["type"] != "ExternalName":
        _set_defaults(spec, clusterIP=address)
        _set_defaults(
            spec,
            clusterIPs=[spec["clusterIP"]],
            ipFamilies=["IPv4"],
            ipFamilyPolicy="SingleStack",
            internalTrafficPolicy="Cluster",
        )
    _set_defaults(item, status={"loadBalancer": {}})


def _autoscaler(item: Object) -> None:
    target = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    item["spec"]["metrics"] = item["spec"].get("metrics") or [metric]
    _set_defaults(item["spec"], minReplicas=1)
    for each in item["spec"]["metrics"]:
        for source in each.values():
            if isinstance(source, dict):
                for amount in ("averageValue", "value"):
                    if amount in source.get("target", {}):
                        source["target"][amount] = canonical_quantity(source["target"][amount])
    _set_defaults(item, status={"desiredReplicas": 0})


def _budget(item: Object) -> None:
    zero = dict.fromkeys(
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
    )
    _set_defaults(item, status=zero)


def _secret(item: Object) -> None:
    _set_defaults(item, type="Opaque")
    for name, text in (item.pop("stringData", None) or {}).items():
        item.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


def _namespace(item: Object) -> None:
    labels = item["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = item["metadata"]["name"]
    _set_defaults(item, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})


_COMPLETE: dict[str, Callable[[Object], None]] = {
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "Pod": _pod,
    "HorizontalPodAutoscaler": _autoscaler,
    "PodDisruptionBudget": _budget,
    "Secret": _secret,
    "Namespace": _namespace,
}
