"""What happened to a workload. Completes the sentence "workload chat was …"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.drift import Drift
from holdfast.core.live import Live
from holdfast.core.plan import Plan


class Outcome(StrEnum):
    """The past participle of what was done."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    PLANNED = "planned"
    """A plan was made and nothing was done."""
    LEFT = "left"
    """It had drifted and the policy said to leave it."""
    REFUSED = "refused"
    """The policy said to stop. The SDK raises instead of returning this."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EndpointRef:
    """What `ensure()` returns: where the workload answers, what happened, and the plan."""

    project_slug: str
    workload_slug: str
    outcome: Outcome
    plan: Plan
    drift: Drift
    live: Live | None
    """The live side after the outcome; None when the workload was only planned."""

    def __str__(self) -> str:
        return f"{self.project_slug}/{self.workload_slug} {self.outcome}"

    def __repr__(self) -> str:
        """Short, for a console or a log: what it holds can be asked for."""
        return f"<EndpointRef {self} by {self.plan.id}>"
