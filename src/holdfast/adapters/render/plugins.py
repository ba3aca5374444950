"""Which Kustomize plugins may take part: the built-in ones that only change what is there.

Everything else runs programs, containers or Helm, or reads files that were not checked. Kustomize
takes a key for its own when the two are alike to Unicode's folding of cases (`fileſ` for `files`),
so each kind has a list of its keys, by their exact names; and what Kustomize gets to see is
written anew from what was read here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.adapters.render.paths import refused
from holdfast.core.gitops.layers import Place
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Tree
from holdfast.wire.yaml import read_documents

Keys = Mapping[str, "Keys | None"]
"""The keys that a mapping may have, each with those of what is below it; None is anything, where
Kustomize itself looks at no names."""

_GVK: Keys = dict.fromkeys(("group", "version", "kind"))
_SELECTOR: Keys = {
    **_GVK,
    **dict.fromkeys(("name", "namespace", "labelSelector", "annotationSelector")),
}
_FIELD_SPECS: Keys = {**_GVK, **dict.fromkeys(("path", "create"))}
_FIELD_OPTIONS: Keys = dict.fromkeys(("delimiter", "index", "encoding", "create"))
GENERATOR_OPTIONS: Keys = dict.fromkeys(
    ("labels", "annotations", "disableNameSuffixHash", "immutable")
)
_GENERATED: Keys = {
    **dict.fromkeys(("name", "namespace", "behavior", "literals")),
    "options": GENERATOR_OPTIONS,
}
IMAGE: Keys = dict.fromkeys(("name", "newName", "newTag", "tagSuffix", "digest"))
REPLICAS: Keys = dict.fromkeys(("name", "count"))
LABELS: Keys = {
    **dict.fromkeys(("pairs", "includeSelectors", "includeTemplates")),
    "fields": _FIELD_SPECS,
}
REPLACEMENT: Keys = {
    "source": {
        **_GVK,
        **dict.fromkeys(("name", "namespace", "fieldPath")),
        "options": _FIELD_OPTIONS,
    },
    "sourceValue": None,
    "targets": {
        "select": _SELECTOR,
        "reject": _SELECTOR,
        "fieldPaths": None,
        "options": _FIELD_OPTIONS,
    },
}
_METADATA: Keys = {
    "name": None,
    "namespace": None,
    "labels": None,
    "annotations": {"config.kubernetes.io/local-config": None},
}
BUILT_IN: Mapping[str, Keys] = {
    "AnnotationsTransformer": {"annotations": None, "fieldSpecs": _FIELD_SPECS},
    "ConfigMapGenerator": _GENERATED,
    "HashTransformer": {},
    "ImageTagTransformer": {
        "imageTag": IMAGE,
        "fieldSpecs": _FIELD_SPECS,
    },
    "LabelTransformer": {"labels": None, "fieldSpecs": _FIELD_SPECS},
    "LegacyOrderTransformer": {},
    "NamespaceTransformer": {
        "fieldSpecs": _FIELD_SPECS,
        **dict.fromkeys(("unsetOnly", "setRoleBindingSubjects")),
    },
    "PatchJson6902Transformer": {"target": _SELECTOR, "jsonOp": None},
    "PatchStrategicMergeTransformer": {"patches": None},
    "PatchTransformer": {"patch": None, "target": _SELECTOR, "options": None},
    "PrefixTransformer": {"prefix": None, "fieldSpecs": _FIELD_SPECS},
    "ReplacementTransformer": {"replacements": REPLACEMENT},
    "ReplicaCountTransformer": {
        "replica": REPLICAS,
        "fieldSpecs": _FIELD_SPECS,
    },
    "SecretGenerator": {**_GENERATED, "type": None},
    "SortOrderTransformer": {
        "sortOptions": {
            "order": None,
            "legacySortOptions": dict.fromkeys(("orderFirst", "orderLast")),
        }
    },
    "SuffixTransformer": {"suffix": None, "fieldSpecs": _FIELD_SPECS},
    "ValueAddTransformer": {
        "value": None,
        "targets": {"selector": _SELECTOR, **dict.fromkeys(("fieldPath", "filePathPosition"))},
    },
}
"""Those that only change what is there. No key here leads to a file or an address."""


def check(data: bytes, place: Place) -> bytes:
    """Refuse a plugin's configuration that is not one of the harmless ones; returns it anew."""
    where = f"{place.file}:{place.line}"
    checked = [
        _checked(document.value, where)
        for document in read_documents(data, source=f"{place.file} (plugin)")
    ]
    return "\n---\n".join(json.dumps(value, ensure_ascii=False) for value in checked).encode()


def strange_key(value: Tree, keys: Keys | None) -> str | None:
    """Return the first key that is not in the list, however deep; None when there is none.

    Lists are looked into: what is said of a mapping is said of each in a list.
    """
    if keys is None:
        return None
    if isinstance(value, list):
        return next((key for item in value if (key := strange_key(item, keys)) is not None), None)
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        if key not in keys:
            return key
        found = strange_key(inner, keys[key])
        if found is not None:
            return found
    return None


def _checked(value: Tree, where: str) -> Fields:
    if not isinstance(value, dict):
        raise refused(where, "it is not a plugin.", "Remove it.")
    kind = value.get("kind")
    keys = BUILT_IN.get(kind) if isinstance(kind, str) else None
    if value.get("apiVersion") != "builtin" or keys is None:
        raise refused(
            where,
            f"the plugin {quoted(str(kind))} runs something or is not known.",
            "Use patches, or a transformer that is built into Kustomize.",
        )
    strange = strange_key(value, {"apiVersion": None, "kind": None, "metadata": _METADATA, **keys})
    if strange is not None:
        raise refused(
            where,
            f"the plugin {quoted(str(kind))} has the key {quoted(strange)}, which is not known, "
            "reads further files or names a function.",
            "Remove it, or write its configuration out in place.",
        )
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        # Kustomize would take a text without a name for a path.
        raise refused(where, "the plugin has no metadata.name.", "Give it one.")
    return value
