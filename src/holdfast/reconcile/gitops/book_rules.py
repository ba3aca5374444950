"""What every book keeps to, whatever it writes on: which versions fit, which texts can be kept.

Pure, and called by each implementation of `Book` before or inside its transaction, so that they
answer alike. PostgreSQL sets the limits: it takes no NUL in a text and no long text in an index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TypeAlias

from holdfast.core.errors import Conflict, Problem, ValidationError
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import Entry, Put, RecordKind

CLOSED = "closed"
"""The one state that `prune` removes records in: whatever else a state is called, it is kept."""
LONGEST = 1024
"""Bytes of a name, so that application and key fit into one entry of an index."""

Name: TypeAlias = tuple[RecordKind, str, str]
"""Kind, application and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What a write leaves of one record."""

    state: str
    text: str | None
    """The body as JSON; None for a record that is removed."""
    version: int


def name_of(put: Put) -> Name:
    """Return what a record is found by."""
    return put.kind, put.application, put.key


def settle(puts: Sequence[Put], versions: Mapping[Name, int]) -> dict[Name, Settled]:
    """Carry out puts, one after the other, on the versions that are there; 0 is not there.

    The answer has each record once, the last changed last. Raises Conflict for a put that saw
    another version, ValidationError for what cannot be kept.
    """
    settled: dict[Name, Settled] = {}
    for put in puts:
        name = name_of(put)
        before = settled.pop(name, None)
        version = versions.get(name, 0) if before is None else _present(before)
        if put.seen != version:
            raise Conflict(
                f"Record {' '.join(name)} is at version {version}, not at {put.seen}.",
                todo="Read it again.",
            )
        if put.body is None:
            settled[name] = Settled(state=put.state, text=None, version=version)
        else:
            settled[name] = Settled(state=put.state, text=to_json(put.body), version=version + 1)
    return settled


def check(puts: Sequence[Put], entries: Sequence[Entry]) -> None:
    """Refuse names that not every book can keep."""
    names = [
        (field, text)
        for put in puts
        for field, text in (
            ("application", put.application),
            ("key", put.key),
            ("state", put.state),
        )
    ] + [
        (field, text)
        for entry in entries
        for field, text in (
            ("application", entry.application),
            ("subject", entry.subject),
            ("action", entry.action),
        )
    ]
    problems = [
        Problem(field=field, reason=reason, fix="Use a shorter or plainer one.")
        for field, text in names
        if (reason := _problem(text))
    ]
    if problems:
        raise ValidationError(problems=problems)


def as_kept(entry: Entry, seq: int) -> Entry:
    """Return a line as it is kept: its number given, its time in UTC, its prose storable."""
    return replace(
        entry,
        seq=seq,
        at=entry.at.astimezone(UTC),
        actor=_storable(entry.actor),
        summary=_storable(entry.summary),
    )


def to_json(fields: Fields) -> str:
    """Write a body or detail. Raises ValidationError for what JSON does not have."""
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        # Not the error's own text: it may show the value.
        raise ValidationError(
            f"A record or line holds something that is not JSON ({type(error).__name__})."
        ) from None
    return text


def from_json(text: str) -> Fields:
    """Read a body or detail."""
    fields: Fields = json.loads(text)
    return fields


def _present(settled: Settled) -> int:
    return 0 if settled.text is None else settled.version


def _problem(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it is not Unicode."
    if "\0" in text:
        return "it has a NUL character."
    return f"it is {size} bytes, and {LONGEST} fit." if size > LONGEST else ""


def _storable(prose: str) -> str:
    """Replace what a database refuses: no line is lost for a character in its summary."""
    return prose.replace("\0", "\ufffd").encode(errors="replace").decode()
