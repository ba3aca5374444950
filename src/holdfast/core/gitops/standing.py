"""How a declared object, and a whole application, stand to what is declared.

Found by the survey; drift, plans and the status are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.core.gitops.source import Declared
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.signals import Finding
from holdfast.core.ownership.verdict import Verdict
from holdfast.core.tree import Fields


class Standing(StrEnum):
    """How one object stands."""

    IN_SYNC = "in-sync"
    AHEAD = "ahead"
    """Git moved: it is to be created or changed, and nobody touched it."""
    DRIFTED = "drifted"
    """Somebody changed, deleted or replaced it."""
    LEFT_OVER = "left-over"
    """Applied before, and no longer declared."""
    ORPHAN = "orphan"
    """In a namespace of ours, and never declared."""
    UNKNOWN = "unknown"
    """It could not be read. Nothing is done because of it."""


class Health(StrEnum):
    """How an object does by its own account, in the words users know."""

    HEALTHY = "healthy"
    PROGRESSING = "progressing"
    DEGRADED = "degraded"
    SUSPENDED = "suspended"
    MISSING = "missing"
    UNKNOWN = "unknown"


class Owner(StrEnum):
    """Another tool that applies an object. Such objects are observed and never written."""

    ARGO_CD = "argo-cd"
    FLUX = "flux"
    HELM = "helm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One object: what is declared, what is there, and how the two stand."""

    ref: ObjectRef
    standing: Standing
    health: Health
    declared: Declared | None = None
    live: Fields | None = field(default=None, repr=False)
    """Holds the data of Secrets in clear: never shown, logged or stored."""
    verdict: Verdict | None = None
    """None where there was nothing to judge: left over, orphaned, unknown."""
    running: tuple[Finding, ...] = ()
    """What its pods run instead."""
    owner: Owner | None = None
    claimed_by: Owner | None = None
    """Another tool whose mark it carries although it is ours by the inventory. A mark is a claim:
    it is told, and nothing is let go because of it."""
    applied: bool = False
    """True when it is in the inventory: we put it there."""
    found: tuple[str, ...] = ()
    """Paths of what others had on it when it was taken over."""
    message: str = ""

    @property
    def drifted(self) -> tuple[Finding, ...]:
        """Everything about it that somebody moved."""
        found = self.verdict.drifted if self.verdict else ()
        return (*found, *self.running)
