"""What a pass over an application says, and where: journal, Kubernetes Events and notices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.gitops.application import Application, ApplicationStatus
from holdfast.core.gitops.facts import ApplicationFact
from holdfast.core.gitops.notices import link_of, notice_of
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.wording import MAX_MESSAGE, event_message
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.application_state import ApplicationState

SendNotice = Callable[[Application, Notice], Awaitable[None]]
"""Has a notice sent to the channels of an application; once for each fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationEvent:
    """One Kubernetes Event: a transition that a person may want to see."""

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
    events: tuple[ApplicationEvent, ...] = ()


def event_of(fact: ApplicationFact, link: str = "") -> ApplicationEvent | None:
    """Make the Kubernetes Event of a fact; None for those that are none.

    `link` is where the page shows it. It is never cut: the message before it is.
    """
    if not fact.event:
        return None
    message, end = event_message(fact), f" See {link}" if link else ""
    if len(message) + len(end) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE - len(end) - 1]}…"
    return ApplicationEvent(
        warning=fact.warning, reason=fact.event, message=message + end, object=fact.object
    )


@dataclass
class PassReporter:
    """Tells every fact of one pass: the sink of the reconciler."""

    application: Application
    state: ApplicationState
    now: datetime
    send: SendNotice
    cluster: str = ""
    base_url: str = ""
    """Where people reach the page; empty when nobody said."""
    events: list[ApplicationEvent] = field(default_factory=list)

    async def tell(self, fact: ApplicationFact) -> None:
        """Tell a fact once: in the journal with the next commit, as an Event, and as a notice."""
        self.state.record(fact)
        if (event := event_of(fact, self._link_of(fact))) is not None:
            self.events.append(event)
        await self.send_notice(fact)

    async def send_notice(self, fact: ApplicationFact) -> None:
        """Send the notice of a fact alone."""
        link = self._link_of(fact)
        notice = notice_of(fact, self.application.id, self.now, self.cluster, link)
        if notice is not None:
            await self.send(self.application, notice)

    def _link_of(self, fact: ApplicationFact) -> str:
        return link_of(fact, self.application.id, self.application.spec.project, self.base_url)
