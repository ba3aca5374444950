"""The GitOps controller's ledger as JSON lines, for archives and other programs.

One object a line, each saying what it is, so that lines of both kinds may be mixed. Both forms
are allow-lists: what is not a field of theirs is not exported. Used by the exports of the
controller and by `holdfast drift history -o jsonl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.tree import Fields
from holdfast.wire.decode import as_fields, reshape
from holdfast.wire.gitops_v1 import ApplicationDriftForm

API_VERSION = "holdfast.dev/v1"

_encode = msgspec.json.Encoder().encode


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


def entry_to_json(entry: object) -> Fields:
    """Write a line of the journal, which has these fields as attributes."""
    return as_fields(msgspec.to_builtins(reshape(_JournalEntryForm, entry)))


def drift_to_json(body: Fields, *, version: int, changed_at: datetime) -> Fields:
    """Write a drift: its own fields alone, whatever else a later version may have kept."""
    drift = msgspec.convert(body, ApplicationDriftForm, strict=False)
    form = _DriftForm(version=version, changed_at=changed_at, drift=drift)
    return as_fields(msgspec.to_builtins(form))


def json_line(value: Mapping[str, object]) -> bytes:
    """Write one object as one line: a newline inside a text is escaped."""
    return _encode(value) + b"\n"
