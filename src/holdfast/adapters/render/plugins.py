"""Which Kustomize plugins may take part: the built-in ones that only change what is there.

Everything else runs programs, containers or Helm, or reads files that were not checked.
"""

from __future__ import annotations

from holdfast.adapters.render.paths import refused
from holdfast.core.gitops.layers import Place
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields
from holdfast.wire.yaml import read_documents

BUILT_IN = frozenset(
    """
    AnnotationsTransformer ConfigMapGenerator HashTransformer ImageTagTransformer LabelTransformer
    LegacyOrderTransformer NamespaceTransformer PatchJson6902Transformer
    PatchStrategicMergeTransformer PatchTransformer PrefixTransformer ReplacementTransformer
    ReplicaCountTransformer SecretGenerator SortOrderTransformer SuffixTransformer
    ValueAddTransformer
    """.split()
)
_FILE_KEYS = {"path", "paths", "files", "envs", "env"}


def check(data: bytes, place: Place) -> None:
    """Refuse a plugin's configuration that is not one of the harmless ones."""
    where = f"{place.file}:{place.line}"
    for document in read_documents(data, source=f"{place.file} (plugin)"):
        value = document.value
        if not isinstance(value, dict):
            raise refused(where, "it is no plugin.", "Remove it.")
        kind = value.get("kind")
        if value.get("apiVersion") != "builtin" or kind not in BUILT_IN:
            raise refused(
                where,
                f"the plugin {quoted(str(kind))} runs something or is not known.",
                "Use patches, or a transformer that is built into Kustomize.",
            )
        parts = [value, *_mappings(value, "replacements"), *_mappings(value, "patches")]
        reads = any(key.lower() in _FILE_KEYS for part in parts for key in part)
        if reads or "function" in str(_annotations(value)):
            raise refused(
                where,
                "the plugin reads further files or names a function.",
                "Write its configuration out in place.",
            )


def _annotations(value: Fields) -> object:
    metadata = value.get("metadata")
    return metadata.get("annotations", "") if isinstance(metadata, dict) else ""


def _mappings(value: Fields, name: str) -> list[Fields]:
    """Return the mappings in a list, whatever the case of its key."""
    lists = [items for key, items in value.items() if key.lower() == name]
    return [
        item
        for items in lists
        if isinstance(items, list)
        for item in items
        if isinstance(item, dict)
    ]
