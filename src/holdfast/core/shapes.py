"""Reads off a dataclass what its fields look like, for whoever handles all of them alike.

The checks, the JSON form and the schema of a custom resource all walk the same description, so a
field that is added to the type is in all three.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from holdfast.core.forms import Form

MOST_ITEMS = 128
"""In one list: the API server wants a bound to tell what a rule costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of value. `item` is what a list or a mapping holds."""

    base: type
    """str, int, float, bool, tuple, Mapping, object for anything, an enum or a dataclass."""
    form: Form | None = None
    item: Shape | None = None

    @property
    def is_nested(self) -> bool:
        return is_dataclass(self.base)

    @property
    def is_enum(self) -> bool:
        return issubclass(self.base, StrEnum)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of an enum."""
        return tuple(str(each) for each in self.base) if issubclass(self.base, StrEnum) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One field: its name in Python, its name on the wire, and its shape."""

    name: str
    wire: str
    shape: Shape
    required: bool


@lru_cache(maxsize=64)
def members(kind: type) -> tuple[Member, ...]:
    """Describe the fields of a dataclass, in the order of their declaration."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Member(
            name=part.name,
            wire=camel_case(part.name),
            shape=_shape(hints[part.name]),
            required=part.default is MISSING and part.default_factory is MISSING,
        )
        for part in fields(kind)
    )


def camel_case(name: str) -> str:
    """`min_replicas` is `minReplicas` on the wire."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _shape(hint: Any) -> Shape:  # Any: a type expression has no type of its own
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _shape(next(part for part in parts if part is not type(None)))
    if origin is Annotated:
        return replace(_shape(parts[0]), form=parts[1])
    if origin is tuple:
        return Shape(base=tuple, item=_shape(parts[0]))
    if origin is Mapping:
        return Shape(base=Mapping, item=_shape(parts[1]))
    return Shape(base=hint)
