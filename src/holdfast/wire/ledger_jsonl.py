"""The GitOps controller's ledger as JSON lines, for archives and other programs.

One object a line, each saying what it is, so that lines of both kinds may be mixed. Both forms
are allow-lists: what is not a field of theirs is not exported. Used by the exports of the
controller and by `holdfast drift history -o jsonl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.core.tree import Fields
from holdfast.wire.decode import as_fields
from holdfast.wire.gitops_v1 import ApplicationDriftForm

API_VERSION = "holdfast.dev/v1"

_encode = msgspec.json.Encoder().encode


class JournalLine(Protocol):
    """A line of the journal, as the book gives it."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def application(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def detail(self) -> Fields: ...


class StoredDrift(Protocol):
    """A record of a drift, as the book gives it."""

    @property
    def body(self) -> Fields: ...
    @property
    def version(self) -> int: ...
    @property
    def changed_at(self) -> datetime: ...


class _JournalEntryForm(msgspec.Struct, kw_only=True):
    apiVersion: str = API_VERSION  # noqa: N815  # the name is the format's
    kind: str = "JournalEntry"
    seq: int
    at: datetime
    application: str
    subject: str
    action: str
    actor: str
    summary: str
    detail: Any  # a tree


class _DriftForm(msgspec.Struct, kw_only=True):
    apiVersion: str = API_VERSION  # noqa: N815  # the name is the format's
    kind: str = "Drift"
    version: int
    changed_at: datetime
    drift: ApplicationDriftForm


def entry_to_json(entry: JournalLine) -> Fields:
    """Write a line of the journal."""
    return _form_fields(
        _JournalEntryForm(
            seq=entry.seq,
            at=entry.at,
            application=entry.application,
            subject=entry.subject,
            action=entry.action,
            actor=entry.actor,
            summary=entry.summary,
            detail=entry.detail,
        )
    )


def drift_to_json(record: StoredDrift) -> Fields:
    """Write a drift: its own fields alone, whatever else a later version may have kept."""
    form = msgspec.convert(record.body, ApplicationDriftForm, strict=False)
    return _form_fields(
        _DriftForm(version=record.version, changed_at=record.changed_at, drift=form)
    )


def json_line(value: Mapping[str, object]) -> bytes:
    """Write one object as one line: a newline inside a text is escaped."""
    return _encode(value) + b"\n"


def _form_fields(form: msgspec.Struct) -> Fields:
    return as_fields(msgspec.to_builtins(form))
