"""The open drifts of a project in order, found again without being sorted or read anew.

A list of 10,000 drifts is asked for page by page, by many pages at once. Rows are sorted when a
drift came, went or changed, and what is searched in a row is put together once for each drift.
What can be asked of a list of drifts is in `core/drift_list.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.drift_list import DriftFilter, ListedDrift
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.reconcile.gitops.application_context import ApplicationContext


class DriftRow(ListedDrift):
    """One drift of an application in a list."""

    def __init__(self, drift: ObjectDrift, context: ApplicationContext | None = None) -> None:
        super().__init__(
            id=drift.id, first_seen=drift.first_seen, kinds=drift.kinds, entries=drift.entries
        )
        self.drift = drift
        self.context = context
        """None for a drift of an application that is gone."""

    def names(self) -> Iterable[str]:
        return str(self.drift.application), str(self.drift.object), self.drift.note


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationDriftFilter:
    """Which drifts of applications are asked for. Empty conditions match all."""

    anywhere: DriftFilter = field(default_factory=DriftFilter)
    """What can be asked of every drift."""
    states: frozenset[DriftState] = frozenset()
    applications: frozenset[ApplicationId] | None = None
    namespace: str = ""
    waiting: Callable[[DriftRow], bool] | None = None

    def matches(self, row: DriftRow) -> bool:
        """True for a drift that is asked for."""
        drift = row.drift
        return (
            (not self.states or drift.state in self.states)
            and (self.applications is None or drift.application in self.applications)
            and (not self.namespace or drift.object.namespace == self.namespace)
            and self.anywhere.matches(row)
            and (self.waiting is None or self.waiting(row))
        )


class DriftIndex:
    """The open drifts of every project, newest first."""

    def __init__(self, contexts: Mapping[ApplicationId, ApplicationContext]) -> None:
        self._contexts = contexts
        self._known: dict[str, tuple[tuple[object, ...], list[DriftRow]]] = {}

    def rows(self, project: str) -> Sequence[DriftRow]:
        """Return every open drift of a project, newest first. Not to be changed."""
        contexts = [
            each for each in self._contexts.values() if each.application.spec.project == project
        ]
        made_from = tuple(part for each in contexts for part in (each.state, each.state.changes))
        known = self._known.get(project)
        if known is not None and known[0] == made_from:
            return known[1]
        before = {row.drift.id: row for row in known[1]} if known else {}
        rows = sorted(_make_rows(contexts, before), key=lambda row: row.order)
        if rows or contexts:
            self._known[project] = made_from, rows
        else:
            self._known.pop(project, None)
        return rows


def _make_rows(
    contexts: Iterable[ApplicationContext], before: Mapping[str, DriftRow]
) -> Iterable[DriftRow]:
    for context in contexts:
        for drift in context.state.drifts.values():
            row = before.get(drift.id)
            if row is None or row.drift is not drift or row.context is not context:
                row = DriftRow(drift, context)
            yield row
