"""JSON patches (RFC 6902): the four operations that Holdfast writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.adapters.memory.kube.fieldset import clone
from holdfast.adapters.memory.kube.kinds import Object
from holdfast.core.errors import ValidationError
from holdfast.core.tree import Fields, parse_pointer


def patched(item: Object, operations: Sequence[Fields]) -> Object:
    """Return a changed copy. Raises ValidationError when a test fails or a path is not there."""
    new: Object = clone(item)
    for operation in operations:
        try:
            _carry_out(new, operation)
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValidationError(
                f"The {operation.get('op')} of {operation.get('path')} cannot be carried out.",
                todo="Observe again and decide again.",
            ) from None
    return new


def _carry_out(item: Object, operation: Fields) -> None:
    *around, last = parse_pointer(str(operation["path"]))
    holder: Any = item  # Any: a part of an object
    for part in around:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    value = clone(operation.get("value"))
    match operation["op"]:
        case "test":
            if _at(holder, last) != value:
                raise ValueError("the test failed")
        case "add" if isinstance(holder, list):
            holder.insert(len(holder) if last == "-" else int(last), value)
        case "add":
            holder[last] = value
        case "replace":
            _at(holder, last)
            holder[int(last) if isinstance(holder, list) else last] = value
        case "remove":
            del holder[int(last) if isinstance(holder, list) else last]
        case other:
            raise ValueError(f"unknown operation {other}")


def _at(holder: Any, part: str) -> Any:
    return holder[int(part)] if isinstance(holder, list) else holder[part]
