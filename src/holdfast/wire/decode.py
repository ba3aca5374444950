"""Decodes with msgspec: types made ready for any thread, and decoded JSON named as trees.

msgspec describes a type to itself at its first use. A thread that uses the type while another is
still at that reads a description with holes in it, which ends the whole process (msgspec 0.22). So
the first use is one thread's alone. For whatever runs in threads of our users: the SDK's targets.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from holdfast.core.tree import Fields, Tree

T = TypeVar("T")

_first_use_lock = threading.Lock()
_ready: set[object] = set()


def reshape(kind: type[T], value: object) -> T:
    """Read a value as another type with fields of the same names: a form, or a value of the core.

    For forms that differ from the core's own types in what they leave out or refuse alone.
    """
    return msgspec.convert(value, prepare_type(kind), from_attributes=True)


def prepare_type(form: type[T]) -> type[T]:
    """Return the type once msgspec knows it whole, with every type inside it."""
    if form not in _ready:
        with _first_use_lock:
            msgspec.json.Decoder(form)
            _ready.add(form)
    return form


def as_tree(value: object) -> Tree:
    """Take any decoded JSON value as a tree."""
    return value  # type: ignore[return-value]  # msgspec decodes `object` to plain JSON values


def as_fields(value: Mapping[str, object]) -> Fields:
    """Take a decoded JSON object as fields."""
    return {key: as_tree(item) for key, item in value.items()}
