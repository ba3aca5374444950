"""Names the JSON values that msgspec decoded as `object` for what they are: trees."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.tree import Fields, Tree


def as_tree(value: object) -> Tree:
    """Take any decoded JSON value as a tree."""
    return value  # type: ignore[return-value]  # msgspec decodes `object` to plain JSON values


def as_fields(value: Mapping[str, object]) -> Fields:
    """Take a decoded JSON object as fields."""
    return {key: as_tree(item) for key, item in value.items()}
