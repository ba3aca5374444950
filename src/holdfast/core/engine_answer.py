"""What an engine can say of itself, and how its answers are read: strictly, and within bounds.

Pure. Answers come from whatever listens on a port. Which of them an engine gives, and where in them
a thing stands, is in its row of `core/backends.py`; `core/engine_report.py` puts them together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from holdfast.core.tree import Fields, Tree

MAX_ANSWER = 256 * 1024
"""Bytes of one answer."""
MAX_ANSWER_TEXT = 300
_MAX_ITEMS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreported:
    """Why the engine did not say something."""

    reason: str
    unreachable: bool = False
    """Nobody answered at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAdapter:
    """One adapter as the engine has it."""

    name: str
    """Empty where the engine knows adapters by their files alone."""
    source: str
    scale: float | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model of an engine that keeps several, and the digest of its weights."""

    name: str
    digest: str
    """With `sha256:` in front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """What an engine said."""

    model: str | Unreported
    names: tuple[str, ...] | Unreported
    length: int | Unreported
    adapters: tuple[LoadedAdapter, ...] | Unreported
    slots: int = 1
    """Requests that share a context of `slots` times `length`."""
    length_step: int = 1
    stored: tuple[StoredModel, ...] | None = None
    """The models that are there, of an engine that has several."""
    loaded: tuple[StoredModel, ...] | Unreported = ()
    """Those of them that are in memory, as they were when they were loaded."""
    default_tag: str = ""
    """What a listed model is tagged with where its declared name has no tag."""


EngineResponse: TypeAlias = bytes | Unreported


class UnreadableAnswer(Exception):
    """An answer is not what the engine documents. The text completes a sentence."""


def parse_answer(body: bytes) -> Tree:
    """Read JSON as RFC 8259 has it."""
    if len(body) > MAX_ANSWER:
        raise UnreadableAnswer(f"it has more than {MAX_ANSWER} bytes")

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        tree: Tree = json.loads(body.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise UnreadableAnswer("it is no JSON") from None
    return tree


def expect_object(value: Tree) -> Fields:
    """Return an object, or raise. Those below do the same for what they are named after."""
    if not isinstance(value, dict):
        raise UnreadableAnswer("an object was expected")
    return value


def expect_list(value: Tree, name: str) -> list[Tree]:
    if not isinstance(value, list):
        raise UnreadableAnswer(f"{name} is no list")
    if len(value) > _MAX_ITEMS:
        raise UnreadableAnswer(f"{name} has more than {_MAX_ITEMS} entries")
    return value


def expect_text(value: Tree, name: str) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_ANSWER_TEXT:
        raise UnreadableAnswer(f"{name} is no text of 1 to {MAX_ANSWER_TEXT} characters")
    return value


def optional_text(value: Tree) -> str | None:
    return None if value is None else expect_text(value, "a text")


def expect_count(value: Tree, name: str) -> int:
    found = optional_count(value)
    if found is None:
        raise UnreadableAnswer(f"{name} is no count")
    return found


def optional_count(value: Tree) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**12:
        raise UnreadableAnswer("a count is out of bounds")
    return value


def is_number(value: Tree) -> TypeGuard[int | float]:
    """True for a number that is no boolean and within bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**9
