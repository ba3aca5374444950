"""Compares an object with a declaration as both are written, value by value.

Much faster than their canonical forms, and stricter: equal here is equal there. What is not, may
still be only another spelling. Called to recognise objects that are as declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from holdfast.core.normalize import Rules, item_segment
from holdfast.core.ownership.objects import (
    BOOKKEEPING,
    PRESENCE,
    SERVER_METADATA,
    is_zero,
    stored_secret,
)
from holdfast.core.quantity import canonical_quantity
from holdfast.core.tree import Fields, Tree

# Any: each test has its own form of what it compares with.
_Test: TypeAlias = Callable[[Tree, Any], bool]
Tests: TypeAlias = tuple[tuple[str, _Test | None, Any], ...]
"""What is asked of each field of a mapping. No test means plain equality, which suffices for
text."""


class Unsuited(Exception):
    """The declaration has a form that only the verdict can compare."""


def fits(live: Fields, tests: Tests) -> bool:
    """True when every declared value stands there as it was written.

    A zero may be missing, as the server does not store most: whether it was dropped or removed,
    only its owner tells.
    """
    for name, test, wanted in tests:
        seen = live.get(name)
        if not (seen == wanted if test is None else test(seen, wanted)):
            return False
    return True


def prepare(item: Fields, rules: Rules) -> Tests:
    """Make a declared item ready for many comparisons. Raises Unsuited."""
    if item.get("kind") == "Secret":
        item = stored_secret(item)
    kept = {name: value for name, value in item.items() if name not in _NAMES}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        metadata = {name: value for name, value in metadata.items() if name not in SERVER_METADATA}
        notes = metadata.get("annotations")
        if isinstance(notes, dict):
            metadata["annotations"] = {
                name: value for name, value in notes.items() if name not in BOOKKEEPING
            }
        kept["metadata"] = metadata
    return _tests(kept, _Place(rules=rules, exclusive=rules.exclusive))


_NAMES = ("apiVersion", "kind", "status")


def _tests(item: Fields, place: _Place) -> Tests:
    """Prepare one mapping, as `normalize` would read it."""
    return tuple(
        (name, *_test(value, place.below(name)))
        for name, value in item.items()
        if value is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in an object a value stands, as far as that matters."""

    rules: Rules
    exclusive: frozenset[str]
    whole: bool = False
    """In a mapping that was declared as a whole: nothing may be missing or more."""
    listed: bool = False
    """In a list that is written as a whole: nothing may be missing."""
    name: str = ""
    parent: str = ""

    def below(self, name: str) -> _Place:
        return _Place(
            rules=_OPAQUE if name in self.rules.opaque else self.rules,
            exclusive=self.exclusive,
            whole=self.whole or name in self.exclusive,
            listed=self.listed,
            name=name,
            parent=self.name,
        )

    @property
    def counted(self) -> bool:
        quantities = self.rules.quantities
        return self.name in quantities or self.parent in quantities


_OPAQUE = Rules()


def _test(value: Tree, place: _Place) -> tuple[_Test | None, object]:
    if isinstance(value, dict):
        if not value and not place.whole:
            return (_mapping, ()) if place.name in PRESENCE else (_maybe_mapping, None)
        return _whole_mapping if place.whole else _mapping, _tests(value, place)
    if isinstance(value, list):
        if not value:
            return (_exactly, value) if place.whole else (_maybe_empty, None)
        return _list, _item_tests(value, place)
    if place.counted:
        if isinstance(value, bool) or value is None or value == "":
            raise Unsuited
        return _quantity, (value, canonical_quantity(value))
    if is_zero(value) and not place.whole and not place.listed:
        return _maybe_zero, value
    return (None, value) if isinstance(value, str) else (_exactly, value)


def _item_tests(items: list[Tree], place: _Place) -> tuple[tuple[_Test, object], ...]:
    keys = place.rules.keyed.get(place.name, ())
    more = _key_tests(items, keys)
    inner = replace(place, listed=place.listed or not keys, name="", parent="")
    made: list[tuple[_Test, object]] = []
    for item in items:
        if isinstance(item, dict):
            extra = tuple(test for test in more if test[0] not in item)
            made.append((_mapping, _tests(item, inner) + extra))
        elif item is None or isinstance(item, list) or place.counted:
            raise Unsuited
        else:
            made.append((_exactly, item))
    return tuple(made)


def _key_tests(items: list[Tree], keys: tuple[str, ...]) -> Tests:
    """What a live item must not have, or may have only as its default, to have the same key."""
    made: dict[str, tuple[str, _Test, object]] = {}
    for key in keys:
        named = [item_segment(item, key) for item in items]
        parts = [part.partition("=") for part in key.split(",")]
        if None not in named:
            if len(set(named)) < len(named):
                raise Unsuited
            for name, _, default in parts:
                made[name] = (name, _maybe, default)
            return tuple(made.values())
        made[parts[0][0]] = (parts[0][0], _maybe, None)
    if keys:
        raise Unsuited
    return ()


def _exactly(seen: Tree, wanted: object) -> bool:
    return type(seen) is type(wanted) and seen == wanted


def _maybe(seen: Tree, wanted: object) -> bool:
    return seen is None or seen == wanted


def _maybe_zero(seen: Tree, wanted: object) -> bool:
    return seen is None or (type(seen) is type(wanted) and seen == wanted)


def _maybe_empty(seen: Tree, _: object) -> bool:
    return seen is None or seen == []


def _maybe_mapping(seen: Tree, _: object) -> bool:
    return seen is None or type(seen) is dict


def _mapping(seen: Tree, wanted: Tests) -> bool:
    return type(seen) is dict and fits(seen, wanted)


def _whole_mapping(seen: Tree, wanted: Tests) -> bool:
    # Each of them is there, so as many fields as tests means no other.
    return type(seen) is dict and len(seen) == len(wanted) and fits(seen, wanted)


def _list(seen: Tree, wanted: tuple[tuple[_Test, Any], ...]) -> bool:  # Any: see _Test
    if type(seen) is not list or len(seen) != len(wanted):
        return False
    return all(test(item, asked) for item, (test, asked) in zip(seen, wanted, strict=True))


def _quantity(seen: Tree, wanted: tuple[Tree, str]) -> bool:
    value, amount = wanted
    if seen == value and type(seen) is type(value):
        return True
    return isinstance(seen, str) and _amount(seen) == amount


@lru_cache(maxsize=4096)
def _amount(text: str) -> str:
    return canonical_quantity(text)
