"""Applications that a project has no longer: what they were stays on record.

The ledger keeps their drifts and journal lines, so who deletes an Application, or gives it to
another project, does not delete its history. Each drift and line says whose it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import NotFound
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.reconcile.gitops.desk import Desk
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ports import Book, RecordKind
from holdfast.wire.gitops_v1 import ApplicationDriftForm, drift_from_json, read

MOST = 1_000
"""Of the drifts that ended last, of whichever application, so many are looked through."""


async def with_departed(
    desk: Desk, book: Book, project: str, name: str
) -> tuple[Sequence[Following], Sequence[ObjectDrift]]:
    """Return the applications of a project that are followed, and ended drifts of those it had.

    With a name those of one application: the one that is followed, or one that was.
    """
    if not name:
        return desk.applications(project), await _departed(desk, book, project)
    try:
        return [desk.application(project, name)], ()
    except NotFound:
        found = await _departed(desk, book, project)
        found = [drift for drift in found if drift.application.is_called(name)]
        if not found:
            raise
        return (), found


async def _departed(desk: Desk, book: Book, project: str) -> list[ObjectDrift]:
    records = await book.records(RecordKind.DRIFT, state="closed", limit=MOST)
    drifts = [drift_from_json(read(ApplicationDriftForm, each.body)) for each in records]
    here = {each.application.id for each in desk.applications(project)}
    return [drift for drift in drifts if drift.project == project and drift.application not in here]
