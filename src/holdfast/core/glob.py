"""Matches paths against globs in time that grows with the path alone.

An expression with many stars can keep a backtracking matcher busy for hours, and both the glob and
the path are somebody else's. So all ways to match are followed at once, one bit for each place in
the glob. Ignore rules and routes ask.
"""

from __future__ import annotations

import re
from functools import lru_cache

_BORDERS = ".[]"


class Glob:
    """A path with `*` for one name, or a part of one, and `**` for any."""

    __slots__ = ("_end", "_letters", "_names", "_stars", "_wide")

    def __init__(self, text: str) -> None:
        # Stars that touch are one, which is as wide as the widest of them.
        tokens = re.findall(r"\*+|[^*]", text)
        self._end = 1 << len(tokens)
        self._letters: dict[str, int] = {}
        self._names = self._wide = 0
        for place, token in enumerate(tokens):
            if token == "*":
                self._names |= 1 << place
            elif token[0] == "*":
                self._wide |= 1 << place
            else:
                self._letters[token] = self._letters.get(token, 0) | 1 << place
        self._stars = self._names | self._wide

    def matches(self, path: str) -> bool:
        """True when a path, as it is shown to people, or one around it, is as the glob says."""
        here = self._skipped(1)
        for char in path:
            if here & self._end and char in ".[":
                return True
            step = (here & self._letters.get(char, 0)) << 1 | here & self._wide
            if char not in _BORDERS:
                step |= here & self._names
            here = self._skipped(step)
            if not here:
                return False
        return bool(here & self._end)

    def _skipped(self, places: int) -> int:
        """Add the places behind stars, since a star may stand for nothing."""
        return places | (places & self._stars) << 1


@lru_cache(maxsize=512)
def compiled_glob(text: str) -> Glob:
    """Return a glob, made once."""
    return Glob(text)
