"""Lists of drifts: their order, pages, searches and groups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.drift_list import (
    DriftFilter,
    ListedWorkloadDrift,
    encode_cursor,
    group_by_origin,
    next_cursor,
    page_of,
    parse_cursor,
    parse_words,
)
from holdfast.core.errors import ValidationError
from holdfast.core.ledger import DriftEntry, DriftRecord
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)


def entry(path: str, cause: Cause, manager: str, kind: DriftKind) -> DriftEntry:
    writer = Writer(manager=manager) if manager else None
    return DriftEntry(
        path=path, desired="a", live="orchid", kind=kind, cause=cause, evidence="", writer=writer
    )


def listed(name: str, seconds: int = 0, *fields: DriftEntry) -> ListedWorkloadDrift:
    kinds = tuple(dict.fromkeys(each.kind for each in fields))
    return ListedWorkloadDrift(
        DriftRecord(
            id=f"drift-{name}",
            workload=WorkloadId(project="acme", slug=name),
            kinds=kinds,
            fields=fields,
            first_seen=NOW - timedelta(seconds=seconds),
        )
    )


PERSON = entry("/model", Cause.PERSON, "curl", DriftKind.CONFIGURATION)
SCALER = entry("/replicas", Cause.AUTOSCALER, "keda", DriftKind.CONFIGURATION)
NOBODY = entry("/image", Cause.UNKNOWN, "", DriftKind.IMAGE)


def test_a_cursor_names_the_place_of_its_drift_to_the_microsecond() -> None:
    drift = listed("a")
    assert parse_cursor(encode_cursor(drift)) == drift.order


def test_pages_cover_a_list_of_one_moment_once() -> None:
    rows = sorted((listed(name) for name in "cabed"), key=lambda each: each.order)
    found, after = [], None
    while True:
        page = page_of(rows, after=after, limit=2)
        found += [each.drift.workload.slug for each in page]
        if not (cursor := next_cursor(page, rows)):
            break
        after = parse_cursor(cursor)
    assert found == ["a", "b", "c", "d", "e"]


def test_a_page_begins_behind_a_drift_that_is_gone() -> None:
    rows = [listed("a", 1), listed("b", 2), listed("c", 3)]
    cursor = parse_cursor(encode_cursor(rows[1]))
    left = [rows[0], rows[2]]
    assert page_of(left, after=cursor, limit=9) == [rows[2]]


def test_a_drift_of_several_causes_matches_each_and_is_grouped_by_the_first_known() -> None:
    drift = listed("a", 0, NOBODY, SCALER, PERSON)
    for cause in (Cause.UNKNOWN, Cause.AUTOSCALER, Cause.PERSON):
        assert DriftFilter(cause=cause).matches(drift)
    assert not DriftFilter(cause=Cause.GITOPS).matches(drift)
    assert DriftFilter(kind="image", writer="keda").matches(drift)
    assert drift.origin == (Cause.PERSON, "curl")


def test_no_value_is_searched() -> None:
    drift = listed("a", 0, PERSON)
    assert DriftFilter(words=parse_words("ACME/a  Curl /model")).matches(drift)
    assert not DriftFilter(words=parse_words("orchid")).matches(drift)


def test_the_largest_group_comes_first() -> None:
    rows = [listed("a", 0, SCALER), listed("b", 1, PERSON, NOBODY), listed("c", 2, PERSON)]
    first, second = group_by_origin(rows)
    assert (first.cause, first.writer, first.members) == (Cause.PERSON, "curl", rows[1:])
    assert first.kinds == [DriftKind.CONFIGURATION, DriftKind.IMAGE]
    assert second.members == rows[:1]


@pytest.mark.parametrize("text", ["x", "A" * 300, "bm8", "MjAyNi0wMS0wMSBk"])
def test_a_cursor_of_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="not one that a list gave"):
        parse_cursor(text)
