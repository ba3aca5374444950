"""Whom each application tells: makes its channels, and hands notices to the notifier.

A channel is named after where it leads, so that applications with one destination share its
limits. Its address is a secret: the name shows a keyed mark of it.
"""

from __future__ import annotations

import logging

from holdfast.adapters.kubernetes.events import EventRecorder, EventSubject
from holdfast.adapters.notify.channels import LogChannel, SlackChannel, WebhookChannel
from holdfast.adapters.notify.delivery import NotificationSender
from holdfast.apps.gitops.applications import ObservedApplication
from holdfast.apps.gitops.credentials import ApplicationCredentials
from holdfast.apps.gitops.metrics import GitopsMetrics, MeteredChannel
from holdfast.apps.gitops.sources import ApplicationSources
from holdfast.apps.server import logs
from holdfast.core.custom_resource import API_VERSION
from holdfast.core.errors import ConfigurationError, HoldfastError
from holdfast.core.gitops.application import (
    KIND,
    Application,
    ApplicationId,
    ChannelKind,
    ChannelSpec,
)
from holdfast.core.gitops.notification import Notice, Severity
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.notifier import Notifier
from holdfast.reconcile.gitops.ports import LedgerStore, NotificationChannel
from holdfast.reconcile.gitops.reporting import ApplicationEvent
from holdfast.reconcile.ports import Clock

_SEVERITIES = list(Severity)


class NotificationChannels:
    """The channels of all applications, and their notifier."""

    def __init__(
        self,
        ledger_store: LedgerStore,
        credentials: ApplicationCredentials,
        clock: Clock,
        metrics: GitopsMetrics,
        *,
        key: bytes,
        private: bool,
    ) -> None:
        self.notifier = Notifier(ledger_store, {}, clock)
        self._credentials = credentials
        self._clock = clock
        self._metrics = metrics
        self._key = key
        self._sender = NotificationSender(allow_private=private)
        self._names: dict[ApplicationId, tuple[tuple[str, Severity], ...]] = {}
        """The channels of each application, and what is loud enough for them."""
        self._channels: dict[str, NotificationChannel] = {}

    async def prepare(self, application: Application) -> None:
        """Bring the channels of an application to what its spec and its Secrets say now."""
        found: list[tuple[str, Severity]] = []
        for spec in application.spec.notify or ():
            try:
                channel = await self._channel(application, spec)
            except HoldfastError as error:
                logs.event(
                    "channel-unknown",
                    level=logging.WARNING,
                    channel=spec.name,
                    application=str(application.id),
                    project=application.spec.project,
                    why=error.happened,
                )
                continue
            self._channels.setdefault(channel.name, channel)
            found.append((channel.name, spec.least or Severity.INFO))
        self._names[application.id] = tuple(found)
        self._use()

    def forget(self, application: ApplicationId) -> None:
        """Drop the channels that only this application named."""
        if self._names.pop(application, None):
            self._use()

    async def tell(self, application: Application, notice: Notice) -> None:
        """Have a notice sent to the channels of its application that are for such."""
        if application.id not in self._names:
            await self.prepare(application)
        loud = _SEVERITIES.index(notice.severity)
        names = [
            name for name, least in self._names[application.id] if loud >= _SEVERITIES.index(least)
        ]
        await self.notifier.tell(notice, list(dict.fromkeys(names)))

    async def _channel(self, application: Application, spec: ChannelSpec) -> NotificationChannel:
        if spec.kind is ChannelKind.LOG:
            return MeteredChannel(LogChannel(), spec.kind.value, self._metrics)
        if spec.url is None:
            raise ConfigurationError(
                f"The channel {spec.name} has no address.", hint="Set its url."
            )
        url = await self._credentials.value(application, spec.url)
        signing = None
        if spec.signing is not None:
            signing = await self._credentials.value(application, spec.signing)
        name = f"{spec.kind.value}-{self._fingerprint(url, signing)}"
        made: NotificationChannel
        if spec.kind is ChannelKind.SLACK:
            made = SlackChannel(name, url, sender=self._sender)
        else:
            made = WebhookChannel(name, url, sender=self._sender, clock=self._clock, secret=signing)
        return MeteredChannel(made, spec.kind.value, self._metrics)

    def _fingerprint(self, url: Secret, signing: Secret | None) -> str:
        whole = Secret("\n".join(each.reveal() for each in (url, signing) if each is not None))
        return whole.fingerprint(self._key)[-12:]

    def _use(self) -> None:
        used = {name for names in self._names.values() for name, _ in names}
        self._channels = {name: each for name, each in self._channels.items() if name in used}
        self.notifier.use(self._channels)


class ApplicationReporter:
    """What hears of applications beside the reconciler."""

    def __init__(
        self, recorder: EventRecorder, channels: NotificationChannels, sources: ApplicationSources
    ) -> None:
        self._recorder = recorder
        self._channels = channels
        self._sources = sources

    async def prepare(self, application: Application) -> None:
        """Make the channels that an application names."""
        await self._channels.prepare(application)

    async def forget(self, id: ApplicationId) -> None:
        """Let go of what was opened for an application that is no more."""
        self._channels.forget(id)
        await self._sources.forget(id)

    def tell(
        self,
        found: ObservedApplication,
        context: ApplicationContext | None,
        note: ApplicationEvent,
    ) -> None:
        """Write an event about the Application, one about the object, and a line of the log."""
        known = found.application or (context.application if context else None)
        logs.event(
            "transition",
            level=logging.WARNING if note.warning else logging.INFO,
            application=str(found.id),
            project=known.spec.project if known else "",
            reason=note.reason,
            message_text=note.message,
            object=str(note.object) if note.object else "",
        )
        if found.uid:
            ref = ObjectRef(
                api_version=API_VERSION,
                kind=KIND,
                namespace=found.id.namespace,
                name=found.id.name,
            )
            about = EventSubject(ref=ref, uid=found.uid, version=found.version)
            self._recorder.record(about, note)
        applied = context.state.inventory.get(note.object) if context and note.object else None
        if applied is not None:
            self._recorder.record(EventSubject(ref=applied.ref, uid=applied.uid), note)
