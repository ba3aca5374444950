"""The CustomResourceDefinition of InferenceService, made from the types and the rules.

`tools/crd.py` writes it to deploy/crds/. Nothing is defaulted in the schema: a default would be
written into the user's object, and show up as drift in every Git repository that declares it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.service.check import NAME, NAME_PROBLEM, SECRET_KEY, VARIABLE
from holdfast.core.service.rule import Rule
from holdfast.core.service.rules import IMMUTABLE, RULES
from holdfast.core.service.shapes import Member, Shape, members
from holdfast.core.service.spec import (
    KIND,
    MAX_NAME,
    Form,
    InferenceServiceSpec,
    InferenceServiceStatus,
)
from holdfast.core.tree import Fields, Tree
from holdfast.core.workload import SecretRef

GROUP = "holdfast.dev"
VERSION = "v1alpha1"
PLURAL = "inferenceservices"
_MAX_ITEMS = 128
_COLUMNS = (
    ("Backend", "string", ".spec.backend", 0),
    ("Model", "string", ".spec.modelRef", 0),
    ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", 0),
    ("Synced", "string", ".status.conditions[?(@.type=='UpToDate')].status", 0),
    ("Drift", "string", ".status.drift", 0),
    ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason", 1),
    ("Replicas", "integer", ".status.replicas", 1),
    ("Serving", "integer", ".status.readyReplicas", 1),
    ("Canary", "integer", ".status.canaryWeight", 1),
    ("URL", "string", ".status.url", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
"""Name, type, path, and 1 for those that only `-o wide` shows."""
_VARIABLE_NAMES = (
    "it is no variable name.",
    "Use letters, digits and underscores, not a digit first.",
)


def crd() -> Fields:
    """Make the definition, ready to be applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["hold"],
                "categories": ["holdfast"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> Fields:
    columns: list[Tree] = [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": wide} if wide else {})}
        for name, kind, path, wide in _COLUMNS
    ]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": _root()},
    }


def _root() -> Fields:
    spec = _nested(InferenceServiceSpec)
    rules: list[Tree] = [_rule(rule) for rule in (*RULES, IMMUTABLE)]
    spec["x-kubernetes-validations"] = rules
    name = f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('{NAME}')"
    return {
        "type": "object",
        "description": "Keeps one model served, as it is declared.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _nested(InferenceServiceStatus, required=False),
        },
        "x-kubernetes-validations": [{"rule": name, "message": str(NAME_PROBLEM)}],
    }


def _rule(rule: Rule) -> Fields:
    return {"rule": rule.cel, "message": str(rule.problem)}


def _nested(kind: type, *, required: bool = True) -> Fields:
    parts = members(kind)
    schema: Fields = {
        "type": "object",
        "properties": {part.wire: _member(part) for part in parts},
    }
    needed: list[Tree] = [part.wire for part in parts if part.required]
    if needed and required:
        schema["required"] = needed
    return schema


def _member(part: Member) -> Fields:
    schema = _shape(part.shape)
    match part.wire:
        case "command":
            schema["minItems"] = 1
        case "env" | "secrets":
            names: Fields = {
                "rule": f"self.all(n, n.matches('{VARIABLE}'))",
                "message": f"{part.wire}: {' '.join(_VARIABLE_NAMES)}",
            }
            schema |= {"maxProperties": _MAX_ITEMS, "x-kubernetes-validations": [names]}
        case "conditions":
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        case "affinity":
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return schema


def _shape(shape: Shape) -> Fields:
    if shape.base is SecretRef:
        return _secret_ref()
    if shape.is_nested:
        return _nested(shape.base)
    if shape.is_enum:
        return {"type": "string", "enum": list[Tree](shape.choices)}
    if shape.base is object:
        return {"x-kubernetes-preserve-unknown-fields": True}
    item = _shape(shape.item) if shape.item else None
    if shape.base is tuple:
        return {
            "type": "array",
            "items": item,
            "maxItems": _MAX_ITEMS,
            "x-kubernetes-list-type": "atomic",
        }
    if shape.base is Mapping:
        if shape.item and shape.item.base is object:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": item}
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    schema: Fields = {"type": names[shape.base]}
    if shape.base is int:
        schema["format"] = "int32"
    return schema if shape.form is None else _formed(schema, shape.form)


def _formed(schema: Fields, form: Form) -> Fields:
    if form.numeric:
        schema = {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
        }
    for key, value in (("minimum", form.minimum), ("maximum", form.maximum)):
        if value is not None:
            schema[key] = value
    if schema.get("type") == "string" or form.numeric:
        schema["maxLength"] = form.max_length
        if form.pattern is not None:
            schema |= {"pattern": form.pattern, "minLength": 1}
    return schema


def _secret_ref() -> Fields:
    slug = "^[a-z0-9]+(-[a-z0-9]+)*$"
    return {
        "type": "object",
        "required": ["name", "key"],
        "properties": {
            "name": {"type": "string", "pattern": slug, "maxLength": 63},
            "key": {"type": "string", "pattern": SECRET_KEY, "maxLength": 253},
        },
    }
