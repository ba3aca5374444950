"""The form in which two Kubernetes objects are compared.

One is a declaration, the other what the API server has: with its defaults, its own spelling of
quantities, rounded amounts, and its own bookkeeping in the metadata. None of that is drift.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal

from holdfast.core.diff import Change, diff, same_value
from holdfast.core.normalize import Rules, item_segment, normalize
from holdfast.core.ownership.managed_fields import Ownership, keyed_lists
from holdfast.core.quantity import parse_quantity
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields, Path, Tree

OBJECT_RULES = Rules(
    keyed={
        "containers": ("name",),
        "initContainers": ("name",),
        "ephemeralContainers": ("name",),
        "env": ("name",),
        "volumes": ("name",),
        "volumeMounts": ("mountPath",),
        "volumeDevices": ("devicePath",),
        "ports": ("containerPort,protocol=TCP", "port,protocol=TCP", "name"),
        "imagePullSecrets": ("name",),
        "secrets": ("name",),
        "hostAliases": ("ip",),
        "resourceClaims": ("name",),
        "topologySpreadConstraints": ("topologyKey,whenUnsatisfiable",),
        "ownerReferences": ("uid",),
        "webhooks": ("name",),
        "listeners": ("name",),
        "validations": ("expression",),
        "matchConditions": ("name",),
    },
    quantities=frozenset({
        "requests", "limits", "hard", "capacity", "allocatable", "podFixed", "sizeLimit", "divisor",
    }),
    exclusive=frozenset({
        "selector", "nodeSelector", "podSelector", "namespaceSelector", "objectSelector",
        "labelSelector", "secretKeyRef", "configMapKeyRef",
    }),
    opaque=frozenset({
        "labels", "annotations", "data", "binaryData", "matchLabels", "nodeSelector",
        "parameters",
    }),
)  # fmt: skip
"""The lists, quantities and undivided mappings of the built-in kinds."""

FINGERPRINT_PREFIX = "hmac:"
"""How a fingerprint begins, which stands for a value of a Secret."""
SERVER_METADATA = frozenset({
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink",
})  # fmt: skip
BOOKKEEPING_ANNOTATIONS = frozenset({
    # The last two hold copies of the whole object, for a Secret in the clear.
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "kubectl.kubernetes.io/last-applied-configuration",
    "objectset.rio.cattle.io/applied",
})  # fmt: skip
"""Annotations that a tool or a controller keeps for itself: never compared and never shown."""

_ATOMIC_LISTS = {"NetworkPolicy": {"ports"}, "Ingress": {"ports"}, "EndpointSlice": {"ports"}}
"""Lists of these kinds that share a name with a keyed one, and are written as a whole."""
_QUANTITY_FIELDS = {
    "LimitRange": {"min", "max", "default", "defaultRequest", "maxLimitRequestRatio"},
    "HorizontalPodAutoscaler": {"target"},
    "CSIStorageCapacity": {"maximumVolumeSize"},
}
"""Fields of these kinds whose children are quantities, and that mean other things elsewhere."""
PRESENCE_FIELDS = frozenset({"emptyDir"})
"""Mappings that say something by being there, although they are empty."""

_DEFAULTS: dict[str, frozenset[Tree]] = {
    name: frozenset(values)
    for name, values in {
        "imagePullPolicy": ("IfNotPresent", "Always"),
        "terminationMessagePath": ("/dev/termination-log",),
        "terminationMessagePolicy": ("File",),
        "restartPolicy": ("Always",),
        "dnsPolicy": ("ClusterFirst",),
        "schedulerName": ("default-scheduler",),
        "terminationGracePeriodSeconds": (30,),
        "revisionHistoryLimit": (10,),
        "progressDeadlineSeconds": (600,),
        "maxSurge": ("25%",),
        "maxUnavailable": ("25%", 1),
        "protocol": ("TCP",),
        "sessionAffinity": ("None",),
        "internalTrafficPolicy": ("Cluster",),
        "ipFamilyPolicy": ("SingleStack",),
        "ipFamilies": (),
        "clusterIP": (),
        "clusterIPs": (),
        "type": ("", "ClusterIP", "RollingUpdate", "Opaque"),
        "replicas": (1,),
        "minReplicas": (1,),
        "defaultMode": (420,),
        "failureThreshold": (3,),
        "periodSeconds": (10,),
        "successThreshold": (1,),
        "timeoutSeconds": (1,),
        "initialDelaySeconds": (0,),
        "scheme": ("HTTP",),
        "apiVersion": ("v1",),
        "divisor": ("0",),
        "volumeMode": ("Filesystem",),
        "podManagementPolicy": ("OrderedReady",),
        "partition": (0,),
        "parallelism": (1,),
        "completions": (1,),
        "backoffLimit": (6, 2**31 - 1),
        "suspend": (False,),
        "completionMode": ("NonIndexed",),
        "manualSelector": (False,),
        "concurrencyPolicy": ("Allow",),
        "successfulJobsHistoryLimit": (3,),
        "failedJobsHistoryLimit": (1,),
        "pathType": ("ImplementationSpecific",),
        "enableServiceLinks": (True,),
        "externalTrafficPolicy": ("Cluster",),
        "podReplacementPolicy": ("TerminatingOrFailed", "Failed"),
        "whenDeleted": ("Retain",),
        "whenScaled": ("Retain",),
        "selectPolicy": ("Max",),
        "stabilizationWindowSeconds": (0, 300),
        "service": ("",),
    }.items()
}
"""What the API server fills in. An empty set means that any value is its own choice."""
_SCALE_AT_ONCE: Tree = {"type": "Percent", "value": 100, "periodSeconds": 15}
_DEFAULT_LISTS: dict[str, tuple[list[Tree], ...]] = {
    "policies": (
        [_SCALE_AT_ONCE],
        [{"type": "Pods", "value": 4, "periodSeconds": 15}, _SCALE_AT_ONCE],
    ),
    "metrics": (
        [{
            "type": "Resource",
            "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": "80"},
            },
        }],
    ),
}  # fmt: skip
"""The same of lists that are written as a whole: an autoscaler's."""


def object_kind(live: Fields) -> str:
    """Return the kind, or "" for an item of a list that was not identified."""
    return str(live.get("kind") or "")


def rules_for(kind: str, api_version: str, ownership: Ownership) -> Rules:
    """Return the rules of a kind.

    What the built-in table cannot know, the lists of a custom resource, is read from the
    object's own ownership; a custom resource has no undivided mapping that we could know of.
    """
    rules = OBJECT_RULES
    if kind in _ATOMIC_LISTS:
        kept = {name: keys for name, keys in rules.keyed.items() if name not in _ATOMIC_LISTS[kind]}
        rules = replace(rules, keyed=kept)
    if kind in _QUANTITY_FIELDS:
        rules = replace(rules, quantities=rules.quantities | _QUANTITY_FIELDS[kind])
    if is_custom(api_version):
        learned = {name: (key,) for name, key in keyed_lists(ownership).items()}
        rules = replace(rules, keyed=dict(rules.keyed) | learned, exclusive=frozenset())
    return rules


def is_custom(api_version: str) -> bool:
    """True for a kind that a definition brought, whose schema we do not know."""
    group = api_version.rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def canonical_object(item: Fields, rules: Rules, *, key: bytes) -> Fields:
    """Return the comparable form: no server-owned metadata, no status, no secret.

    Values of a Secret become fingerprints, so nothing made from this form can reveal one.
    Doing it twice gives the same as doing it once, save for the fingerprints.
    """
    tree = {name: value for name, value in item.items() if name != "status"}
    metadata = tree.get("metadata")
    if isinstance(metadata, dict):
        kept = {name: value for name, value in metadata.items() if name not in SERVER_METADATA}
        annotations = kept.get("annotations")
        if isinstance(annotations, dict):
            kept["annotations"] = {
                name: value
                for name, value in annotations.items()
                if name not in BOOKKEEPING_ANNOTATIONS
            }
        tree["metadata"] = kept
    if object_kind(item) == "Secret":
        tree = secret_as_stored(tree)
        data = tree.get("data")
        if isinstance(data, dict):
            tree["data"] = {name: _fingerprint(value, key) for name, value in data.items()}
    result = normalize(tree, rules)
    assert isinstance(result, dict)  # noqa: S101  # a mapping stays a mapping
    return result


def secret_as_stored(item: Fields) -> Fields:
    """Return a Secret as the server keeps it: `stringData` is only another way to write `data`."""
    tree = dict(item)
    values: Fields = {}
    for field, encoded in (("data", True), ("stringData", False)):
        found = tree.pop(field, None)
        for name, value in found.items() if isinstance(found, dict) else ():
            text = value if isinstance(value, str) else str(value or "")
            values[name] = _base64_form(text, encoded)
    return {**tree, "data": values} if values else tree


def compare_objects(*, desired: Fields, live: Fields, rules: Rules) -> tuple[Change, ...]:
    """Return the declared fields that differ, between two objects in canonical form."""
    fitted = _without_defaults(desired, live)
    assert isinstance(fitted, dict)  # noqa: S101  # a mapping stays a mapping
    missing = tuple(
        Change(path=path, desired={}, live=None)
        for path in leaf_paths(desired)
        if path[-1] in PRESENCE_FIELDS and value_at(live, path) is None
    )
    return (*diff(desired=desired, live=fitted, rules=rules), *missing)


def leaf_paths(tree: Fields, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value, and of every mapping that is empty."""
    for name, value in tree.items():
        here = (*path, name)
        if isinstance(value, dict) and value:
            yield from leaf_paths(value, here)
        else:
            yield here


def value_at(tree: Tree, path: Path) -> Tree:
    """Return what stands at a path; None when nothing does.

    Inside a list that is written as a whole nothing has a path of its own.
    """
    for segment in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(segment)
    return tree


def raw_value_at(tree: Tree, path: Path, rules: Rules) -> Tree:
    """Return what stands at a path of an object as the server has it, lists being lists."""
    name = ""
    for segment in path:
        if isinstance(tree, dict):
            tree = tree.get(segment)
        elif isinstance(tree, list):
            tree = next((item for item in tree if is_item(item, segment, name, rules)), None)
        else:
            return None
        name = segment
    return tree


def is_item(item: Tree, segment: str, name: str, rules: Rules) -> bool:
    """True for the item of the list of that name which a path segment means."""
    return any(item_segment(item, key) == segment for key in rules.keyed.get(name, ()))


def addition_root(desired: Fields, path: Path) -> Path | None:
    """Where an addition begins: at a list item, or at a field that nobody declared."""
    tree: Tree = desired
    for length, segment in enumerate(path, 1):
        if not isinstance(tree, dict):
            return None  # inside a value that was declared whole
        tree = tree.get(segment)
        if tree is None:
            items = (end for end in range(length, len(path) + 1) if path[end - 1].startswith("["))
            return path[: next(items, len(path))]
    return None


def is_default(path: Path, value: Tree) -> bool:
    """True for a value that the API server may have filled in for a field nobody declared."""
    if not OBJECT_RULES.opaque.isdisjoint(path[:-1]):
        return False  # a name that the user chose, and not a field
    if isinstance(value, dict):
        return all(is_default((*path, name), item) for name, item in value.items())
    if isinstance(value, list) and value in _DEFAULT_LISTS.get(path[-1], ()):
        return True
    if path[-1] == "maxSurge" and "updateStrategy" in path:
        return value == 0  # of a DaemonSet
    known = _DEFAULTS.get(path[-1])
    if known is None:
        return value is None or value == []
    return not known or (not isinstance(value, list) and value in known)


def is_zero(value: Tree) -> bool:
    """True for what the API server does not store in most fields of the built-in kinds."""
    return value in ("", 0, [], {}, None)  # False is among them, since it equals 0


def path_of_pointer(item: Fields, pointed: Path, rules: Rules) -> Path:
    """Write a JSON pointer, which counts list items, as a path, which names them by key."""
    path: list[str] = []
    here: Tree = item
    name = ""
    for part in pointed:
        if isinstance(here, list):
            found = here[int(part)] if part.isdigit() and int(part) < len(here) else None
            named = (item_segment(found, key) for key in rules.keyed.get(name, ()))
            path.append(next((segment for segment in named if segment), f"[{part}]"))
            here = found
        else:
            path.append(part)
            here = here.get(part) if isinstance(here, dict) else None
            name = part
    return tuple(path)


def _without_defaults(desired: Tree, live: Tree) -> Tree:
    """Leave out of the live side what the server filled in where only whole values compare.

    An item of a list that is written as a whole has defaults too; they count as little as
    those of a field. An empty value that was declared is the same as one that is not there, and
    inside such a list so is a zero, which the server does not store.
    """
    if isinstance(desired, dict) and isinstance(live, dict):
        fitted = {
            key: _without_defaults(desired[key], value) if key in desired else value
            for key, value in live.items()
        }
        return fitted | _empty_fields(desired, live)
    if isinstance(desired, list) and isinstance(live, list) and len(live) == len(desired):
        return [
            _declared_fields_only(wanted, seen) for wanted, seen in zip(desired, live, strict=True)
        ]
    return live


def _declared_fields_only(desired: Tree, live: Tree) -> Tree:
    if isinstance(desired, dict) and isinstance(live, dict):
        fitted = {
            key: _declared_fields_only(value, live[key])
            for key, value in desired.items()
            if key in live
        }
        return fitted | {
            key: value for key, value in desired.items() if key not in live and is_zero(value)
        }
    return _without_defaults(desired, live)


def _empty_fields(desired: Fields, live: Fields) -> Fields:
    return {key: value for key, value in desired.items() if value in ([], {}) and key not in live}


def _fingerprint(value: Tree, key: bytes) -> str:
    text = value if isinstance(value, str) else str(value or "")
    return FINGERPRINT_PREFIX + Secret(text).fingerprint(key)


def _base64_form(text: str, encoded: bool) -> str:
    """Write a value in one base64 form, since line ends and padding are no part of it."""
    raw = text.encode()
    if encoded:
        try:
            raw = base64.b64decode("".join(text.split()), validate=True)
        except binascii.Error:
            return text
    return base64.b64encode(raw).decode()


_UNSET_BY_ZERO = frozenset({
    "periodSeconds", "timeoutSeconds", "failureThreshold", "successThreshold",
})  # fmt: skip
"""Numbers that are not optional in the built-in kinds, so that zero means the default."""
_BYTES_FIELDS = ("binaryData", "caBundle")
_SMALLEST_QUANTITY = Decimal("0.001")
"""What amounts of resources are rounded up to."""


def is_stored_form(change: Change, api_version: str, kind: str, rules: Rules) -> bool:
    """True when the server stores the declared value in this other form."""
    path, desired, live = change.path, change.desired, change.live
    if kind == "Pod" and path[:2] == ("spec", "nodeSelector") and desired is None:
        return True  # by its runtime class; whoever adds to it later takes all of it from us
    if desired is None or live is None:
        return False
    if path == ("metadata", "finalizers") or (kind == "Pod" and path == ("spec", "tolerations")):
        return _is_sublist(desired, live)
    if is_custom(api_version):
        return False
    if isinstance(desired, bool) or not isinstance(desired, str | int):
        return False
    if desired == "":
        return is_default(path, live)
    if desired == 0:
        by_zero = path[-1] in _UNSET_BY_ZERO and is_default(path, live)
        return by_zero or (kind == "Service" and path[-1] == "targetPort" and _is_port(path, live))
    if not rules.quantities.isdisjoint(path[-2:]):
        return _rounded_quantity(desired) == _rounded_quantity(live)
    return not set(_BYTES_FIELDS).isdisjoint(path[-2:]) and _decoded_bytes(
        desired
    ) == _decoded_bytes(live)


def is_derived(path: Path, value: Tree, live: Fields) -> bool:
    """True for a value that the server itself takes from what stands beside it.

    Whoever creates an object by other means than an apply owns these, and did not write them.
    """
    match path[-1]:
        case "serviceAccount":
            return same_value(value_at(live, (*path[:-1], "serviceAccountName")), value)
        case "targetPort":
            return _is_port(path, value)
        case "policyTypes":
            both = value_at(live, ("spec", "egress")) is not None
            return value == (["Ingress", "Egress"] if both else ["Ingress"])
        case "selector" if live.get("kind") == "ReplicationController":
            return same_value(value_at(live, ("spec", "template", "metadata", "labels")), value)
    return False


def _is_sublist(desired: Tree, live: Tree) -> bool:
    """True when something was only added to a list, as admission does to every Pod and claim."""
    if not isinstance(desired, list) or not isinstance(live, list):
        return False
    rest = iter(live)
    return all(any(same_value(wanted, seen) for seen in rest) for wanted in desired)


def _is_port(path: Path, live: Tree) -> bool:
    """True for the port's own number, which its item is named by."""
    return path[-2].startswith(f"[port={live},")


def _rounded_quantity(value: Tree) -> Decimal | None:
    amount = parse_quantity(value) if isinstance(value, str) else None
    return amount.quantize(_SMALLEST_QUANTITY, ROUND_CEILING) if amount is not None else None


def _decoded_bytes(value: Tree) -> bytes | None:
    try:
        return base64.b64decode("".join(str(value).split()), validate=True)
    except binascii.Error:
        return None
