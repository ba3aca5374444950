"""The CustomResourceDefinition of InferenceService, made from its types and its rules.

`tools/crd.py` writes it to deploy/crds/.
"""

from __future__ import annotations

from holdfast.core.custom_resource import GROUP as GROUP
from holdfast.core.custom_resource import MAX_ITEMS, SchemaField
from holdfast.core.custom_resource import VERSION as VERSION
from holdfast.core.service.spec import (
    KIND,
    MAX_NAME,
    InferenceServiceSpec,
    InferenceServiceStatus,
)
from holdfast.core.service.validation import (
    IMMUTABLE_TASK_TYPE,
    NAME_PATTERN,
    NAME_PROBLEM,
    RULES,
    SECRET_KEY_PATTERN,
    VARIABLE_PATTERN,
)
from holdfast.core.tree import Fields
from holdfast.wire.crd_schema import ResourceDefinition, make_crd

PLURAL = "inferenceservices"
RESOURCE = ResourceDefinition(
    kind=KIND,
    plural=PLURAL,
    short="hold",
    columns=(
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
    ),
    subresources={
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    name_rule=f"size(self.metadata.name) <= {MAX_NAME} && "
    f"self.metadata.name.matches('{NAME_PATTERN}')",
    name_problem=NAME_PROBLEM,
    description="Keeps one model served, as it is declared.",
)
_VARIABLE_NAMES = (
    "it is not a variable name.",
    "Use letters, digits and underscores, not a digit first.",
)


def crd() -> Fields:
    """Make the definition, ready to be applied."""
    return make_crd(
        RESOURCE,
        spec=InferenceServiceSpec,
        status=InferenceServiceStatus,
        rules={InferenceServiceSpec: (*RULES, IMMUTABLE_TASK_TYPE)},
        adjust=_adjusted,
    )


def _adjusted(part: SchemaField, schema: Fields) -> Fields:
    if part.wire not in ("env", "secrets"):
        return schema
    names: Fields = {
        "rule": f"self.all(n, n.matches('{VARIABLE_PATTERN}'))",
        "message": f"{part.wire}: {' '.join(_VARIABLE_NAMES)}",
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
            "key": {"type": "string", "pattern": SECRET_KEY_PATTERN, "maxLength": 253},
        },
    }
