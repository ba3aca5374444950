"""Changes a tree by the operations of a JSON patch (RFC 6902) that Kubernetes is sent."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from holdfast.core.errors import ValidationError
from holdfast.core.tree import Fields, parse_pointer


def apply_json_patch(item: Any, operations: Sequence[Fields]) -> Any:  # Any: an object
    """Return a changed copy. Raises ValidationError when a test fails or a path is not there."""
    new = deepcopy(item)
    for operation in operations:
        try:
            _apply_operation(new, operation)
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValidationError(
                f"The {operation.get('op')} of {operation.get('path')} cannot be carried out.",
                hint="Observe again and decide again.",
            ) from None
    return new


def _apply_operation(item: Any, operation: Fields) -> None:
    *around, last = parse_pointer(str(operation["path"]))
    holder: Any = item  # Any: a part of an object
    for part in around:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    value = deepcopy(operation.get("value"))
    match operation["op"]:
        case "test":
            if _value_at(holder, last) != value:
                raise ValueError("the test failed")
        case "add" if isinstance(holder, list):
            holder.insert(len(holder) if last == "-" else int(last), value)
        case "add":
            holder[last] = value
        case "replace":
            _value_at(holder, last)
            holder[int(last) if isinstance(holder, list) else last] = value
        case "remove":
            del holder[int(last) if isinstance(holder, list) else last]
        case other:
            raise ValueError(f"unknown operation {other}")


def _value_at(holder: Any, part: str) -> Any:
    return holder[int(part)] if isinstance(holder, list) else holder[part]
