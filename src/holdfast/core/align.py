"""Says which items of two sequences are the same, in about linear time whatever they hold.

`difflib` is quadratic and worse where lines repeat, and the files are those of strangers. What is
common at both ends stays; between them, items that either side has once are anchors, and only the
small gaps between anchors are compared closely. A gap that is large counts as replaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

Opcode: TypeAlias = tuple[str, int, int, int, int]
"""As `difflib` has them: what to do, and which part of either side it is about."""
_MAX_CLOSE_GAP = 64
"""Items on either side of a gap that is compared closely."""


def align(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Opcode]:
    """Return how `old` becomes `new`: equal, replace, delete and insert, in order."""
    found: list[Opcode] = []
    done, to = 0, 0
    for first, last, start, _ in (
        *_common_runs(old, new),
        (len(old), len(old), len(new), len(new)),
    ):
        if tag := _tag(first - done, start - to):
            found.append((tag, done, first, to, start))
        if last > first:
            found.append(("equal", first, last, start, start + last - first))
        done, to = last, start + last - first
    return found


def _tag(gone: int, come: int) -> str:
    if gone and come:
        return "replace"
    return "delete" if gone else "insert" if come else ""


def _common_runs(
    old: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the runs that both have, in order and none beside another."""
    open_run: tuple[int, int, int, int] | None = None
    for first, last, start, end in _matching_runs(old, new):
        if open_run is not None and (open_run[1], open_run[3]) == (first, start):
            open_run = (open_run[0], last, open_run[2], end)
            continue
        if open_run is not None:
            yield open_run
        open_run = (first, last, start, end)
    if open_run is not None:
        yield open_run


def _matching_runs(
    old: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[tuple[int, int, int, int]]:
    at, to = 0, 0
    for anchor, other in (*_anchors(old, new), (len(old), len(new))):
        yield from _compare_gap(old, new, at, anchor, to, other)
        if anchor < len(old):
            yield anchor, anchor + 1, other, other + 1
        at, to = anchor + 1, other + 1


def _compare_gap(
    old: Sequence[Hashable], new: Sequence[Hashable], first: int, last: int, start: int, end: int
) -> Iterator[tuple[int, int, int, int]]:
    """Compare what lies between two anchors."""
    head = 0
    while first + head < last and start + head < end and old[first + head] == new[start + head]:
        head += 1
    tail = 0
    while (
        last - tail > first + head
        and end - tail > start + head
        and old[last - tail - 1] == new[end - tail - 1]
    ):
        tail += 1
    if head:
        yield first, first + head, start, start + head
    left, right = first + head, start + head
    before, after = old[left : last - tail], new[right : end - tail]
    if 0 < len(before) <= _MAX_CLOSE_GAP and 0 < len(after) <= _MAX_CLOSE_GAP:
        close = SequenceMatcher(None, before, after, autojunk=False)
        for a, b, size in close.get_matching_blocks():
            if size:
                yield left + a, left + a + size, right + b, right + b + size
    if tail:
        yield last - tail, last, end - tail, end


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the longest row of items that both sides have once, and in the same order."""
    counts, others = Counter(old), Counter(new)
    places = {item: at for at, item in enumerate(new) if others[item] == 1}
    pairs = [
        (at, places[item]) for at, item in enumerate(old) if counts[item] == 1 and item in places
    ]
    ends: list[int] = []
    chosen: list[int] = []
    """For each length, the pair that ends the best row of it."""
    before: list[int] = []
    for index, (_, other) in enumerate(pairs):
        length = bisect_left(ends, other)
        before.append(chosen[length - 1] if length else -1)
        if length == len(ends):
            ends.append(other)
            chosen.append(index)
        else:
            ends[length], chosen[length] = other, index
    row: list[tuple[int, int]] = []
    index = chosen[-1] if chosen else -1
    while index >= 0:
        row.append(pairs[index])
        index = before[index]
    return row[::-1]
