"""Remembers what was read and rendered, in memory alone: decrypted Secrets are among it.

Files are remembered by their content, so that a commit costs what it changes, and renderings of
one commit after the other share what did not.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from holdfast.adapters.render.limits import CACHED_BYTES, CACHED_RENDERS, CACHED_TEXT
from holdfast.adapters.render.pieces import Piece, pieces_in
from holdfast.core.gitops.source import Rendered
from holdfast.core.objects import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One rendering, with what else it depended on."""

    rendered: Rendered
    asked: Mapping[ObjectRef, bool | None]
    """What the cluster said about kinds. It may say something else later."""
    size: int


class ReadFiles:
    """The files that were read last, as the objects in them. Safe to use from threads."""

    def __init__(self, *, size: int = CACHED_TEXT) -> None:
        self._size = size
        self._total = 0
        self._held: OrderedDict[tuple[str, bytes], tuple[int, tuple[Piece, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def pieces(self, data: bytes, file: str) -> list[Piece]:
        """Read every object of a file, as `pieces_in` does; a file that was read is not again."""
        key = (file, hashlib.sha256(data).digest())
        with self._lock:
            known = self._held.pop(key, None)
            if known is not None:
                self._held[key] = known
                return list(known[1])
        made = tuple(pieces_in(data, file))
        with self._lock:
            if key not in self._held:
                self._held[key] = (len(data), made)
                self._total += len(data)
            while self._total > self._size:
                self._total -= self._held.popitem(last=False)[1][0]
        return list(made)


class RenderCache:
    """The renderings that were asked for last. Several renderers may share one."""

    def __init__(self, *, renders: int = CACHED_RENDERS, size: int = CACHED_BYTES) -> None:
        self.files = ReadFiles()
        self._held: OrderedDict[Hashable, Remembered] = OrderedDict()
        self._renders = renders
        self._size = size
        self._total = 0

    def get(self, key: Hashable) -> Remembered | None:
        """Return what is remembered under a key."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: Hashable, remembered: Remembered) -> None:
        """Remember a rendering, and forget the oldest ones over the limits."""
        self.forget(key)
        self._held[key] = remembered
        self._total += remembered.size
        while self._held and (len(self._held) > self._renders or self._total > self._size):
            self._total -= self._held.popitem(last=False)[1].size

    def forget(self, key: Hashable) -> None:
        """Let one go."""
        gone = self._held.pop(key, None)
        if gone is not None:
            self._total -= gone.size

    def __len__(self) -> int:
        return len(self._held)
