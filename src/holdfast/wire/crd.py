"""The CustomResourceDefinitions, made from the types and the rules of their values.

`tools/crd.py` writes them to deploy/crds/. Nothing is defaulted in a schema: a default would be
written into the user's object, and show up as drift in every Git repository that declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.core import rules
from holdfast.core.custom_resource import (
    GROUP,
    MAX_ITEMS,
    VERSION,
    SchemaField,
    ValidationRules,
    ValueFormat,
    ValueType,
    schema_fields,
)
from holdfast.core.errors import Problem
from holdfast.core.gitops import application, application_validation
from holdfast.core.service import spec, validation
from holdfast.core.tree import Fields, Tree

Column = tuple[str, str, str, int]
"""Name, type, path, and 1 for those that only `-o wide` shows."""
Adjust = Callable[[SchemaField, Fields], Fields]
"""Adds to the schema of one field what its type does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDefinition:
    """What a definition says about a resource beside its fields."""

    kind: str
    plural: str
    short: str
    columns: tuple[Column, ...]
    subresources: Fields
    name_rule: str
    """CEL, asked of the whole object."""
    name_problem: Problem
    description: str
    spec: type
    status: type
    rules: ValidationRules
    adjust: Adjust = lambda part, schema: schema

    @property
    def name(self) -> str:
        """Of the definition."""
        return f"{self.plural}.{GROUP}"


def make_crd(resource: ResourceDefinition) -> Fields:
    """Make the definition, ready to be applied."""
    version: Fields = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in resource.columns],
        "subresources": resource.subresources,
        "schema": {"openAPIV3Schema": _root_schema(resource)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short],
                "categories": ["holdfast"],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _column(column: Column) -> Tree:
    name, kind, path, wide = column
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": wide} if wide else {})}


def _root_schema(resource: ResourceDefinition) -> Fields:
    maker = SchemaMaker(resource.rules, resource.adjust)
    return {
        "type": "object",
        "description": resource.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": maker.nested(resource.spec),
            "status": maker.nested(resource.status, required=False),
        },
        "x-kubernetes-validations": [
            {"rule": resource.name_rule, "message": str(resource.name_problem)}
        ],
    }


@dataclass(frozen=True, slots=True)
class SchemaMaker:
    """Makes the schema of one type after the other."""

    rules: ValidationRules
    adjust: Adjust

    def nested(self, kind: type, *, required: bool = True) -> Fields:
        """The schema of a dataclass, with what must hold between its fields."""
        parts = schema_fields(kind)
        schema: Fields = {
            "type": "object",
            "properties": {part.wire: self._member(part) for part in parts},
        }
        needed: list[Tree] = [part.wire for part in parts if part.required]
        if needed and required:
            schema["required"] = needed
        rules: list[Tree] = [
            {"rule": rule.cel, "message": str(rule.problem).removeprefix(": ")}
            for rule in self.rules.get(kind, ())
            if rule.cel
        ]
        if rules:
            schema["x-kubernetes-validations"] = rules
        return schema

    def _member(self, part: SchemaField) -> Fields:
        schema = self._shape(part.shape)
        if part.wire == "conditions":
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        return self.adjust(part, schema)

    def _shape(self, shape: ValueType) -> Fields:
        if shape.is_nested:
            return self.nested(shape.base)
        if shape.is_enum:
            return {"type": "string", "enum": list[Tree](shape.choices)}
        if shape.base is object:
            return {"x-kubernetes-preserve-unknown-fields": True}
        item = self._shape(shape.item) if shape.item else None
        if shape.base is tuple:
            least: Fields = {} if shape.form is None else {"minItems": shape.form.minimum}
            return {
                "type": "array",
                "items": item,
                "maxItems": MAX_ITEMS,
                "x-kubernetes-list-type": "atomic",
                **least,
            }
        if shape.base is Mapping:
            if shape.item and shape.item.base is object:
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            return {"type": "object", "additionalProperties": item}
        names = {str: "string", int: "integer", float: "number", bool: "boolean"}
        schema: Fields = {"type": names[shape.base]}
        if shape.base is int:
            schema["format"] = "int32"
        return schema if shape.form is None else _with_format(schema, shape.form)


def _with_format(schema: Fields, form: ValueFormat) -> Fields:
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


def _with_name_rules(part: SchemaField, schema: Fields) -> Fields:
    if part.wire == "accelerators":
        devices: Fields = {
            "rule": f"self.all(n, n.matches('{rules.DEVICE_PATTERN}'))",
            "message": f"accelerators: {rules.DEVICE_NAME.reason} {rules.DEVICE_NAME.fix}",
        }
        return {**schema, "maxProperties": MAX_ITEMS, "x-kubernetes-validations": [devices]}
    if part.wire not in ("env", "secrets"):
        return schema
    names: Fields = {
        "rule": f"self.all(n, n.matches('{rules.VARIABLE_PATTERN}'))",
        "message": f"{part.wire}: {rules.VARIABLE_NAME.reason} {rules.VARIABLE_NAME.fix}",
    }
    if part.wire == "secrets":
        schema["additionalProperties"] = _secret_ref()
    return {**schema, "maxProperties": MAX_ITEMS, "x-kubernetes-validations": [names]}


def _secret_ref() -> Fields:
    slug = "^[a-z0-9]+(-[a-z0-9]+)*$"
    return {
        "type": "object",
        "required": ["name", "key"],
        "properties": {
            "name": {"type": "string", "pattern": slug, "maxLength": 63},
            "key": {"type": "string", "pattern": rules.SECRET_KEY_PATTERN, "maxLength": 253},
        },
    }


INFERENCE_SERVICE = ResourceDefinition(
    kind=spec.KIND,
    plural=spec.PLURAL,
    short="hold",
    columns=(
        ("Backend", "string", ".spec.backend", 0),
        ("Model", "string", ".spec.modelRef", 0),
        ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", 0),
        ("Synced", "string", ".status.conditions[?(@.type=='UpToDate')].status", 0),
        ("Drift", "string", ".status.drift", 0),
        ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason", 1),
        ("Suspended", "string", ".status.conditions[?(@.type=='Suspended')].status", 1),
        ("Replicas", "integer", ".status.replicas", 1),
        ("Serving", "integer", ".status.readyReplicas", 1),
        ("Canary", "integer", ".status.canaryWeight", 1),
        ("URL", "string", ".status.url", 1),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ),
    subresources={
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    name_rule=f"size(self.metadata.name) <= {spec.MAX_NAME} && "
    f"self.metadata.name.matches('{validation.NAME_PATTERN}')",
    name_problem=validation.NAME_PROBLEM,
    description="Keeps one model served, as it is declared.",
    spec=spec.InferenceServiceSpec,
    status=spec.InferenceServiceStatus,
    rules={
        spec.InferenceServiceSpec: (
            *validation.RULES,
            validation.IMMUTABLE_TASK_TYPE,
            validation.IMMUTABLE_CACHE,
        )
    },
    adjust=_with_name_rules,
)


APPLICATION = ResourceDefinition(
    kind=application.KIND,
    plural=application.PLURAL,
    short="holdapp",
    columns=(
        ("Project", "string", ".spec.project", 0),
        ("Sync", "string", ".status.sync", 0),
        ("Health", "string", ".status.health", 0),
        ("Revision", "string", ".status.shortRevision", 0),
        ("Drift", "integer", ".status.drifted", 0),
        ("Ahead", "integer", ".status.ahead", 1),
        ("Held", "integer", ".status.held", 1),
        ("Orphans", "integer", ".status.orphans", 1),
        ("Objects", "integer", ".status.objects", 1),
        ("Repository", "string", ".spec.source.url", 1),
        ("Path", "string", ".spec.source.path", 1),
        ("Message", "string", ".status.message", 1),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ),
    subresources={"status": {}},
    name_rule=f"size(self.metadata.name) <= {application_validation.MAX_NAME} && "
    f"self.metadata.name.matches('{application_validation.NAME}')",
    name_problem=application_validation.NAME_PROBLEM,
    description="Compares a part of a repository with what runs, and handles what differs.",
    spec=application.ApplicationSpec,
    status=application.ApplicationStatus,
    rules=application_validation.RULES,
)


def crd_files() -> Mapping[str, Fields]:
    """Return file name to definition, in the order in which they are installed."""
    return {
        f"{GROUP}_{spec.PLURAL}.yaml": make_crd(INFERENCE_SERVICE),
        f"{GROUP}_{application.PLURAL}.yaml": make_crd(APPLICATION),
    }
