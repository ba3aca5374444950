"""Puts a user's `podTemplate` over the pod that Holdfast renders, as a strategic merge does.

Mappings are merged, lists whose items have a key are merged by that key, other lists are replaced;
null removes a field, and `$patch: delete` or `$patch: replace` an item, a mapping or a list. Where
Kubernetes allows one of several (the source of a volume, the handler of a probe, the value of a
variable), the given one takes the place of ours.
What the pods are found, routed and judged by cannot be changed here: `overlay_problems` says so.
Called by `pod` and by `validation`. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from holdfast.core.backends import POD_PORT, RESERVED_VARIABLES
from holdfast.core.errors import Problem
from holdfast.core.normalize import item_segment
from holdfast.core.ownership.canonical import OBJECT_RULES
from holdfast.core.scan import looks_secret, safe_name, secret_argument
from holdfast.core.service.spec import InferenceServiceSpec, PodTemplateSpec
from holdfast.core.tree import Fields, Tree, plain_tree

CONTAINER = "server"
"""The container that serves."""
HTTP_PORT_NAME = "http"
MAX_OVERLAY_BYTES = 65_536
_PATCH = "$patch"
_DIRECTIVES = ("delete", "merge", "replace")
_CONTAINER_LISTS = ("containers", "initContainers")
_KEYED_LISTS: Mapping[str, tuple[str, ...]] = {
    "spec": (
        *_CONTAINER_LISTS, "hostAliases", "imagePullSecrets", "resourceClaims", "schedulingGates",
        "topologySpreadConstraints", "volumes",
    ),
    **dict.fromkeys(_CONTAINER_LISTS, ("env", "ports", "volumeDevices", "volumeMounts")),
    "resources": ("claims",),
}  # fmt: skip
"""The lists of a pod that are merged, by what they are in."""
_MERGE_KEYS = {name: keys[0] for name, keys in OBJECT_RULES.keyed.items()} | {
    "claims": "name",
    "schedulingGates": "name",
}
_ONE_SOURCE_LISTS = frozenset({"volumes", "resourceClaims"})
"""Lists whose items say one of many things: of an item that is given, nothing of ours is kept."""
_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
_ALTERNATIVES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("startupProbe", "readinessProbe", "livenessProbe", "preStop", "postStart"), _HANDLERS
    ),
    "env": frozenset({"value", "valueFrom"}),
}
"""Fields of which Kubernetes takes one."""


def overlay_template(template: Fields, overlay: PodTemplateSpec | None) -> Fields:
    """Return a pod template with a valid overlay put over it."""
    if overlay is None:
        return template
    merged = dict(template)
    for part, given in (("metadata", overlay.metadata), ("spec", overlay.spec)):
        if given is not None:
            merged[part] = _merge(template.get(part), plain_tree(_plain(given)), part)
    return merged


def overlay_variables(spec: InferenceServiceSpec) -> frozenset[str]:
    """The variables that an overlay gives the server, of any shape: a command may refer to them."""
    found = spec.pod_template.spec if isinstance(spec.pod_template, PodTemplateSpec) else None
    server = _server(found if isinstance(found, Mapping) else {})
    return frozenset(
        str(item["name"]) for item in _items(server, "env") if item.get(_PATCH) != "delete"
    )


def _plain(given: object) -> object:
    if isinstance(given, Mapping):
        return given
    parts = ((name, getattr(given, name)) for name in type(given).__slots__)  # type: ignore[attr-defined]  # our dataclasses have slots
    return {name: value for name, value in parts if value is not None}


def _merge_key(parent: str, name: str) -> str | None:
    return _MERGE_KEYS[name] if name in _KEYED_LISTS.get(parent, ()) else None


def _merge(tree: Tree, part: Tree, name: str, parent: str = "") -> Tree:
    if isinstance(part, dict):
        replaces = part.get(_PATCH) == "replace"
        return _merge_mapping(tree if isinstance(tree, dict) and not replaces else {}, part, name)
    if isinstance(part, list):
        key = _merge_key(parent, name)
        if key is None:
            return [_merge(None, item, "") for item in part]
        return _merge_list(tree if isinstance(tree, list) else [], part, name, key)
    return part


def _merge_mapping(tree: Fields, part: Fields, name: str) -> Fields:
    given = {key for key, value in part.items() if value is not None}
    alternatives = _ALTERNATIVES.get(name, frozenset())
    dropped = alternatives - given if alternatives & given else frozenset()
    merged = {key: value for key, value in tree.items() if key not in dropped}
    for key, value in part.items():
        if key == _PATCH:
            continue
        if value is None or (isinstance(value, dict) and value.get(_PATCH) == "delete"):
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value, key, name)
    return merged


def _merge_list(tree: list[Tree], part: list[Tree], name: str, key: str) -> list[Tree]:
    replaces = {_PATCH: "replace"} in part
    merged = [] if replaces else list(tree)
    for item in part:
        if not isinstance(item, dict) or item == {_PATCH: "replace"}:
            continue
        segment = item_segment(item, key)
        found = (i for i, old in enumerate(merged) if item_segment(old, key) == segment)
        index = next(found, None)
        if item.get(_PATCH) == "delete":
            merged = [old for i, old in enumerate(merged) if i != index]
        elif index is None:
            merged.append(_merge(None, item, name))
        else:
            other = name in _ONE_SOURCE_LISTS and _keeps_no_source(merged[index], item)
            merged[index] = _merge(None if other else merged[index], item, name)
    return merged


def _keeps_no_source(old: Tree, item: Fields) -> bool:
    """True when an item names another source than the one that is there."""
    return isinstance(old, dict) and not (set(old) - {"name"}) & set(item)


def overlay_problems(spec: InferenceServiceSpec) -> Iterator[Problem]:
    """Say what an overlay must not have, and why. `spec` has the right types."""
    overlay = spec.pod_template
    if overlay is None:
        return
    pod = plain_tree(overlay.spec or {})
    size = len(json.dumps(pod, ensure_ascii=False).encode())
    if size > MAX_OVERLAY_BYTES:
        yield Problem(
            field="podTemplate",
            reason=f"it has {size} bytes, over {MAX_OVERLAY_BYTES}.",
            fix="Keep files in a ConfigMap, and mount that.",
        )
        return
    shapes = list(_shape_problems(pod, "podTemplate.spec", "spec"))
    yield from shapes
    yield from _metadata_problems(overlay)
    if not shapes and isinstance(pod, dict):
        yield from _pod_problems(pod)
        yield from _server_problems(spec, pod)
        yield from _container_problems(pod)


def _shape_problems(value: Tree, path: str, name: str, parent: str = "") -> Iterator[Problem]:
    key = _merge_key(parent, name)
    if key is not None and value is not None:
        yield from _list_problems(value, path, name, key)
    elif isinstance(value, dict):
        for inner, item in value.items():
            where = f"{path}.{safe_name(inner)}"
            if not inner.startswith("$"):
                yield from _shape_problems(item, where, inner, name)
            elif inner != _PATCH or item not in _DIRECTIVES:
                yield Problem(
                    field=where,
                    reason="there is no such directive.",
                    fix=f"Use {_PATCH} with {', '.join(_DIRECTIVES)}, or null to remove a field.",
                )
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _shape_problems(item, f"{path}[{place}]", "")


def _list_problems(value: Tree, path: str, name: str, key: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(field=path, reason="it is not a list.", fix="Give a list of mappings.")
        return
    for place, item in enumerate(value):
        where = f"{path}[{place}]"
        if item == {_PATCH: "replace"}:
            continue
        if item_segment(item, key) is None:
            asked = key.replace(",", " and ").partition("=")[0]
            yield Problem(field=where, reason=f"it has no {asked}.", fix="Items are matched by it.")
        else:
            yield from _shape_problems(item, where, name)


def _metadata_problems(overlay: PodTemplateSpec) -> Iterator[Problem]:
    given = overlay.metadata
    if given is None:
        return
    for group, held in (("labels", given.labels), ("annotations", given.annotations)):
        for name in held or {}:
            if name.startswith("holdfast.dev/") or name == "pod-template-hash":
                yield Problem(
                    field=f"podTemplate.metadata.{group}.{safe_name(name)}",
                    reason="it is what the pods of a service are told by.",
                    fix="Leave it out, or use a prefix of your own.",
                )


_OWN_FIELDS = {
    "affinity": ("it would take the place of what gpuMemory asks for.", "scheduling.affinity"),
    "serviceAccount": ("the API server keeps two copies of it.", "serviceAccountName"),
    "serviceAccountName": ("the API server keeps two copies of it.", "serviceAccountName"),
    "terminationGracePeriodSeconds": (
        "it has to be longer than requests may take to end.",
        "rollout.drainTimeout",
    ),
    "resourceClaims": ("rollouts have to know of devices.", "resources.claims"),
}
_OWN_SERVER_FIELDS = {
    "image": ("a canary may have its own.", "image"),
    "command": ("a canary may have its own.", "command"),
    "args": ("a canary may have its own.", "args"),
}


def _own_field_problems(
    fields: Mapping[str, object], own: Mapping[str, tuple[str, str]], path: str
) -> Iterator[Problem]:
    for name, (reason, field) in own.items():
        if name in fields:
            yield Problem(
                field=f"{path}.{name}", reason=reason, fix=f"Use spec.{field} for it instead."
            )


def _pod_problems(pod: Fields) -> Iterator[Problem]:
    yield from _own_field_problems(pod, _OWN_FIELDS, "podTemplate.spec")
    removed = {_PATCH: "replace"} in _list(pod, "containers") or pod.get(_PATCH) is not None
    if removed or ("containers" in pod and pod["containers"] is None):
        yield Problem(
            field="podTemplate.spec.containers",
            reason=f"the container {CONTAINER} cannot be removed: it serves the model.",
            fix="Name the containers that you add or change.",
        )


def _server(pod: Mapping[str, object]) -> Mapping[str, object]:
    found = _items(pod, "containers")
    return next((each for each in found if each.get("name") == CONTAINER), {})


def _server_problems(spec: InferenceServiceSpec, pod: Fields) -> Iterator[Problem]:
    server = _server(pod)
    path = f"podTemplate.spec.containers[name={CONTAINER}]"
    if server.get(_PATCH) in ("delete", "replace"):
        yield Problem(
            field=path,
            reason="it cannot be removed or replaced: it serves the model.",
            fix="Give the fields of it that you change.",
        )
    yield from _own_field_problems(server, _OWN_SERVER_FIELDS, path)
    probe = server.get("readinessProbe", {})
    if probe is None or (isinstance(probe, dict) and probe.get(_PATCH) == "delete"):
        yield Problem(
            field=f"{path}.readinessProbe",
            reason="without it a pod counts as ready before its model is loaded.",
            fix="Give another one, or healthCheck.path.",
        )
    if any(_takes_http_port(item) for item in _list(server, "ports")) or (
        "ports" in server and server["ports"] is None
    ):
        yield Problem(
            field=f"{path}.ports",
            reason=f"port {POD_PORT}, called {HTTP_PORT_NAME}, is the one that is served.",
            fix="Leave it as it is, and add others.",
        )
    taken = {*RESERVED_VARIABLES, *(spec.env or {}), *(spec.secrets or {})}
    if {_PATCH: "replace"} in _list(server, "env") or ("env" in server and server["env"] is None):
        yield Problem(
            field=f"{path}.env",
            reason="Holdfast sets variables too.",
            fix="Name the variables that you add.",
        )
    for item in _items(server, "env"):
        if item.get("name") in taken:
            yield Problem(
                field=f"{path}.env[name={safe_name(item['name'])}]",
                reason="it is one that Holdfast sets itself, or stands under env or secrets too.",
                fix="Keep one of the two.",
            )


def _takes_http_port(item: object) -> bool:
    """True for an item that would remove or rename the port, or take its name."""
    if item == {_PATCH: "replace"}:
        return True
    if not isinstance(item, dict):
        return False
    if item.get("containerPort") != POD_PORT or item.get("protocol", "TCP") != "TCP":
        return item.get("name") == HTTP_PORT_NAME
    named = item.get("name", HTTP_PORT_NAME) == HTTP_PORT_NAME
    return item.get(_PATCH) is not None or not named


def _container_problems(pod: Fields) -> Iterator[Problem]:
    for group in _CONTAINER_LISTS:
        for container in _items(pod, group):
            path = f"podTemplate.spec.{group}[name={safe_name(container.get('name'))}]"
            yield from _clear_secret_problems(container, path)
            yield from _device_problems(container, path)
            serves = group == "containers" and container.get("name") == CONTAINER
            named = [item for item in _items(container, "ports") if not serves]
            if any(item.get("name") == HTTP_PORT_NAME for item in named):
                yield Problem(
                    field=f"{path}.ports",
                    reason=f"{HTTP_PORT_NAME} is the name of the server's port.",
                    fix="Choose another name.",
                )


def _clear_secret_problems(container: Mapping[str, object], path: str) -> Iterator[Problem]:
    for item in _items(container, "env"):
        name, value = item.get("name"), item.get("value")
        if isinstance(name, str) and isinstance(value, str) and looks_secret(name, value):
            yield Problem(
                field=f"{path}.env[name={safe_name(name)}]",
                reason="it looks like a secret in clear.",
                fix="Keep it in a Secret, and write valueFrom: {secretKeyRef: {name: …, key: …}}.",
            )
    for line in ("command", "args"):
        words = [str(word) for word in _list(container, line)]
        name = secret_argument(words)
        if name is not None:
            yield Problem(
                field=f"{path}.{line}",
                reason=f"{safe_name(name) or 'it'} has a secret in clear.",
                fix="Give it as a variable from a Secret, and write $(VARIABLE) here.",
            )


def _device_problems(container: Mapping[str, object], path: str) -> Iterator[Problem]:
    resources = container.get("resources")
    held = resources if isinstance(resources, dict) else {}
    amounts = (held.get(group) for group in ("limits", "requests"))
    names = {name for amount in amounts if isinstance(amount, dict) for name in amount}
    if held.get("claims") or any("/" in name for name in names):
        yield Problem(
            field=f"{path}.resources",
            reason="rollouts have to know of devices: a spare one is not counted on.",
            fix="Use resources.gpu, resources.accelerators or resources.claims.",
        )


def _list(fields: Mapping[str, object], name: str) -> Sequence[object]:
    found = fields.get(name)
    return found if isinstance(found, list | tuple) else ()


def _items(fields: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = (item for item in _list(fields, name) if isinstance(item, Mapping))
    return [item for item in found if "name" in item]
