"""What a pass over an application says: events for its object, and notices for its channels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.gitops.application import Application, ApplicationStatus
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.message import NoticeSubject
from holdfast.core.gitops.notification import Notice
from holdfast.core.object_ref import ObjectRef

SendNotice = Callable[[Application, Notice], Awaitable[None]]
"""Has a notice sent to the channels of an application; once for each fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationEvent:
    """One event: a transition that a person may want to see."""

    warning: bool
    reason: str
    message: str
    object: ObjectRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationResult:
    """The outcome of a pass."""

    status: ApplicationStatus
    requeue_after: float
    """Seconds until time alone, or the repository, may change something."""
    notes: tuple[ApplicationEvent, ...] = ()


@dataclass
class PassReporter:
    """Collects what one pass has to say."""

    application: Application
    now: datetime
    tell: SendNotice
    cluster: str = ""
    notes: list[ApplicationEvent] = field(default_factory=list)

    def event(
        self, reason: str, message: str, *, warning: bool = False, object: ObjectRef | None = None
    ) -> None:
        """Say something in the cluster."""
        self.notes.append(
            ApplicationEvent(warning=warning, reason=reason, message=message, object=object)
        )

    async def notice(self, notice: Notice) -> None:
        """Say something to the application's channels."""
        await self.tell(self.application, notice)

    def about(self, drift: ObjectDrift | None = None) -> NoticeSubject:
        """What a notice is about: the application, or one of its drifts."""
        return NoticeSubject(
            application=str(self.application.id), at=self.now, cluster=self.cluster,
            object=drift.object if drift else None, drift=drift.id if drift else "",
            url=drift.url if drift else "",
        )  # fmt: skip
