"""What happened, said once: the base of the typed facts of every app.

A pass makes a fact and tells it once. Journal line, Kubernetes Event, notice, metric and log line
are projections of it, each made by one function in one place. What an app family can say stands
beside its other values, for GitOps in `core/gitops/facts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that happened."""

    event: ClassVar[str] = ""
    """The reason of its Kubernetes Event; empty for what is no Event."""
    warning: ClassVar[bool] = False
    """True for an Event of type Warning."""
