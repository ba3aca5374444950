"""What can be asked of every list of drifts, read from the query of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.request import Request, check_one_of
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.drift_list import DriftFilter, DriftOrder, parse_cursor, parse_words

MAX_ROWS = 1_000
MAX_GROUP_IDS = 50
DRIFT_LIST_PARAMETERS = ("type", "q", "cause", "writer", "group", "cursor", "limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftListQuery:
    """One page, or groups, of the drifts that match."""

    filter: DriftFilter
    grouped: bool
    after: DriftOrder | None
    limit: int


def read_drift_list_query(request: Request, kinds: Sequence[DriftKind]) -> DriftListQuery:
    """Read `DRIFT_LIST_PARAMETERS`; that there are no others is for the caller to see to."""
    query = request.query
    kind, cause = query.get("type", ""), query.get("cause", "")
    check_one_of(query.get("group", ""), ("", "cause"), "group")
    check_one_of(kind, ("", *kinds), "type")
    check_one_of(cause, ("", *Cause), "cause")
    limit = request.number("limit", default=MAX_ROWS, high=MAX_ROWS)
    after = parse_cursor(query["cursor"]) if "cursor" in query else None
    if after is not None and "group" in query:
        raise HttpError(400, "invalid", "Groups come on one page: leave out cursor, or group.")
    return DriftListQuery(
        filter=DriftFilter(
            kind=kind,
            cause=Cause(cause) if cause else None,
            writer=query.get("writer", ""),
            words=parse_words(query.get("q", "")),
        ),
        grouped="group" in query,
        after=after,
        limit=limit,
    )
