"""What the custom resources of `holdfast.dev` have in common."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "holdfast.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One aspect of how an object is doing. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
