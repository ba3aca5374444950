"""Makes types ready to be decoded from any thread.

msgspec describes a type to itself at its first use. A thread that uses the type while another is
still at that reads a description with holes in it, which ends the whole process (msgspec 0.22). So
the first use is one thread's alone. For whatever runs in threads of our users: the SDK's targets.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")

_first_use = threading.Lock()
_ready: set[object] = set()


def prepare(form: type[T]) -> type[T]:
    """Return the type once msgspec knows it whole, with every type inside it."""
    if form not in _ready:
        with _first_use:
            msgspec.json.Decoder(form)
            _ready.add(form)
    return form
