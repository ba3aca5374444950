"""The declared side of the comparison, with its revision."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields, digest
from holdfast.core.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What was declared for one workload. Fields that are not here are not ours."""

    id: WorkloadId
    fields: Fields
    source: str | None = None
    """Where it was declared, for people: a file and line, or None for Python."""

    @property
    def revision(self) -> str:
        """A digest that is equal for equal declarations."""
        return digest({"id": str(self.id), "fields": self.fields})


def desired_of(spec: WorkloadSpec, *, project: str, source: str | None = None) -> Desired:
    """Place a spec in a project."""
    where = WorkloadId(project=spec.project or project, slug=spec.slug)
    return Desired(id=where, fields=spec.fields(), source=source)
