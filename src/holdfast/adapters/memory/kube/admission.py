"""What the API server does with an object before it stores it: fill in defaults, and refuse.

Defaults are those of the kinds and fields that Holdfast writes; the contract suite applies every
child of an InferenceService to a real server and compares. Refusals are those that a change of one
field by someone else can cause, since they decide whether a forced apply can repair it, and unknown
names and wrong types in our own custom resource. Other schemas, bounds and patterns are not
checked: a test may want an object that an older definition let through.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from holdfast.core.custom_resource import GROUP
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.ownership.server_side_apply import Object
from holdfast.core.quantity import parse_quantity
from holdfast.core.service.spec import KIND
from holdfast.reconcile.kube import ref_of
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd

_KINDS_WITH_SPEC = frozenset({"Service", "Pod", "ReplicaSet", "HorizontalPodAutoscaler"})


def check_object(new: Object, live: Object | None) -> None:
    """Raise ValidationError with every problem of an object that is about to be stored."""
    problems = [
        Problem(field=field, reason=reason, fix="")
        for field, reason in (*_kind_problems(new, live), *_metadata_problems(new, live))
    ]
    if problems:
        raise ValidationError(
            f"{ref_of(new)} is invalid.",
            problems=problems,
            hint="Fix the object and send it again.",
        )


def _metadata_problems(new: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    if live is None or "deletionTimestamp" not in live["metadata"]:
        return
    before = set(live["metadata"].get("finalizers", ()))
    if set(new["metadata"].get("finalizers", ())) - before:
        yield "metadata.finalizers", "Forbidden: no new finalizers can be added while it goes"


def _kind_problems(new: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    spec = new.get("spec") or {}
    if not spec and new["kind"] in _KINDS_WITH_SPEC:
        yield "spec", "Required value"
    match new["kind"]:
        case "Deployment":
            yield from _deployment_problems(spec, live)
        case "Service":
            yield from _port_problems(spec.get("ports", ()), "spec.ports", named=True)
        case "ConfigMap" | "Secret" if live is not None and live.get("immutable"):
            for field in ("data", "binaryData", "immutable"):
                if new.get(field) != live.get(field):
                    yield field, "Forbidden: field is immutable when `immutable` is set"


def _deployment_problems(spec: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    if not spec.get("selector"):
        yield "spec.selector", "Required value"
    elif live is not None and live["spec"]["selector"] != spec["selector"]:
        yield "spec.selector", "Invalid value: field is immutable"
    labels = (template.get("metadata") or {}).get("labels") or {}
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in selected.items()):
        yield "spec.template.metadata.labels", "Invalid value: `selector` does not match"
    if not pod.get("containers"):
        yield "spec.template.spec.containers", "Required value"
    ambiguous = set()
    for number, volume in enumerate(pod.get("volumes") or ()):
        for source in sorted(set(volume) - {"name"})[1:]:  # emptyDir comes first there, as here
            ambiguous.add(volume["name"])
            field = f"spec.template.spec.volumes[{number}].{source}"
            yield field, "Forbidden: may not specify more than 1 volume type"
    for number, container in enumerate(pod.get("containers") or ()):
        field = f"spec.template.spec.containers[{number}]"
        for place, mount in enumerate(container.get("volumeMounts", ())):
            if mount["name"] in ambiguous:
                yield f"{field}.volumeMounts[{place}].name", "Not found"
        if not container.get("image"):
            yield f"{field}.image", "Required value"
        yield from _port_problems(container.get("ports", ()), f"{field}.ports", named=False)


def _port_problems(ports: list[Object], field: str, *, named: bool) -> Iterator[tuple[str, str]]:
    seen = set()
    for number, port in enumerate(ports):
        name = port.get("name")
        if name is not None and name in seen:
            yield f"{field}[{number}].name", f'Duplicate value: "{name}"'
        if name is None and named and len(ports) > 1:
            yield f"{field}[{number}].name", "Required value"
        seen.add(name)


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_schema(item: Object) -> None:
    """Raise ValidationError for fields of an InferenceService that its schema does not know."""
    if item["kind"] != KIND or item["apiVersion"].partition("/")[0] != GROUP:
        return
    found = [
        problem
        for part in ("spec", "status")
        if part in item
        for problem in _schema_problems(item[part], _schema()[part], f".{part}")
    ]
    if found:
        raise ValidationError(
            f"{ref_of(item)} cannot be applied.",
            problems=found,
            hint="Fix the object and send it again.",
        )


@lru_cache
def _schema() -> Mapping[str, Any]:  # Any, here and below: a schema, and values under it
    definition: Any = make_crd(INFERENCE_SERVICE)
    found: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    known: Mapping[str, Any] = found["properties"]
    return known


def _schema_problems(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    expected = schema.get("type")
    if value is None or expected is None:
        return
    if type(value) not in _JSON_TYPES[expected]:
        yield Problem(field=path, reason=f"expected {expected}", fix="")
    elif expected == "array":
        for number, item in enumerate(value):
            yield from _schema_problems(item, schema["items"], f"{path}[{number}]")
    elif expected == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is None:
                yield Problem(field=f"{path}.{name}", reason="not declared in schema", fix="")
            else:
                yield from _schema_problems(item, inner, f"{path}.{name}")


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
        _default_service(item, address)
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


def _default_deployment(item: Object) -> None:
    spec = item["spec"]
    _set_defaults(
        spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={}
    )
    _set_defaults(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _set_defaults(spec["strategy"], rollingUpdate={})
        _set_defaults(spec["strategy"]["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")
    _default_pod_spec(spec["template"]["spec"])
    _set_defaults(item, status={})


def _default_replica_set(item: Object) -> None:
    _set_defaults(item["spec"], replicas=1)
    _default_pod_spec(item["spec"].get("template", {}).get("spec", {}))
    _set_defaults(item, status={"replicas": 0})


def _default_pod(item: Object) -> None:
    spec = item["spec"]
    _default_pod_spec(spec)
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


def _default_pod_spec(spec: Object) -> None:
    _set_defaults(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _default_container(container)
    for volume in spec.get("volumes", ()):
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if source in volume:
                _set_defaults(volume[source], defaultMode=420)
        if "sizeLimit" in (volume.get("emptyDir") or {}):
            volume["emptyDir"]["sizeLimit"] = canonical_quantity(volume["emptyDir"]["sizeLimit"])


def _default_container(container: Object) -> None:
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
            _default_probe(container[probe])
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


def _default_probe(probe: Object) -> None:
    _set_defaults(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if probe.get("initialDelaySeconds") == 0:
        del probe["initialDelaySeconds"]
    if "httpGet" in probe:
        _set_defaults(probe["httpGet"], path="/", scheme="HTTP")


def _default_service(item: Object, address: str) -> None:
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


def _default_autoscaler(item: Object) -> None:
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


def _default_budget(item: Object) -> None:
    zero = dict.fromkeys(
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
    )
    _set_defaults(item, status=zero)


def _default_secret(item: Object) -> None:
    _set_defaults(item, type="Opaque")
    for name, text in (item.pop("stringData", None) or {}).items():
        item.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


def _default_namespace(item: Object) -> None:
    labels = item["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = item["metadata"]["name"]
    _set_defaults(item, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})


_COMPLETE: dict[str, Callable[[Object], None]] = {
    "Deployment": _default_deployment,
    "ReplicaSet": _default_replica_set,
    "Pod": _default_pod,
    "HorizontalPodAutoscaler": _default_autoscaler,
    "PodDisruptionBudget": _default_budget,
    "Secret": _default_secret,
    "Namespace": _default_namespace,
}
