"""How an object of a cluster is named, in every layer that speaks of one."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.tree import Fields


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ObjectRef:
    """One object by name. `namespace` is empty for those that have none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def group(self) -> str:
        """The API group, empty for the core one."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


def ref_of(item: Fields) -> ObjectRef:
    """Return the reference of an object."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    return ObjectRef(
        api_version=str(item["apiVersion"]),
        kind=str(item["kind"]),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
    )
