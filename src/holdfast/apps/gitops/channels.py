"""Whom each application tells: makes its channels, and hands notices to the notifier.

A channel is named after where it leads, so that applications with one destination share its
limits. Its address is a secret: the name shows a keyed mark of it.
"""

from __future__ import annotations

import logging

from holdfast.adapters.notify.log import LogChannel
from holdfast.adapters.notify.outbound import Outbound
from holdfast.adapters.notify.slack import SlackChannel
from holdfast.adapters.notify.webhook import WebhookChannel
from holdfast.apps.gitops.counting import CountingChannel
from holdfast.apps.gitops.credentials import Credentials
from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.server import logs
from holdfast.core.errors import ConfigurationError, HoldfastError
from holdfast.core.gitops.application import AppId, Application, ChannelKind, ChannelSpec
from holdfast.core.gitops.notice import Notice, Severity
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.notices import Notifier
from holdfast.reconcile.gitops.ports import Book, Channel
from holdfast.reconcile.ports import Clock

_LOUDNESS = list(Severity)


class Channels:
    """The channels of all applications, and their notifier."""

    def __init__(
        self,
        book: Book,
        credentials: Credentials,
        clock: Clock,
        metrics: Metrics,
        *,
        key: bytes,
        private: bool,
    ) -> None:
        self.notifier = Notifier(book, {}, clock)
        self._credentials = credentials
        self._clock = clock
        self._metrics = metrics
        self._key = key
        self._outbound = Outbound(allow_private=private)
        self._names: dict[AppId, tuple[tuple[str, Severity], ...]] = {}
        """The channels of each application, and what is loud enough for them."""
        self._channels: dict[str, Channel] = {}

    async def prepare(self, application: Application) -> None:
        """Bring the channels of an application to what its spec and its Secrets say now."""
        found: list[tuple[str, Severity]] = []
        for spec in application.spec.notify or ():
            try:
                channel = await self._channel(application, spec)
            except HoldfastError as error:
                logs.event(
                    "channel-unknown", level=logging.WARNING, channel=spec.name,
                    application=str(application.id), project=application.spec.project,
                    why=error.happened,
                )  # fmt: skip
                continue
            self._channels.setdefault(channel.name, channel)
            found.append((channel.name, spec.least or Severity.INFO))
        self._names[application.id] = tuple(found)
        self._use()

    def forget(self, application: AppId) -> None:
        """Drop the channels that only this application named."""
        if self._names.pop(application, None):
            self._use()

    async def tell(self, application: Application, notice: Notice) -> None:
        """Have a notice sent to the channels of its application that are for such."""
        if application.id not in self._names:
            await self.prepare(application)
        loud = _LOUDNESS.index(notice.severity)
        names = [
            name
            for name, least in self._names[application.id]
            if loud >= _LOUDNESS.index(least)
        ]  # fmt: skip
        await self.notifier.tell(notice, list(dict.fromkeys(names)))

    async def _channel(self, application: Application, spec: ChannelSpec) -> Channel:
        if spec.kind is ChannelKind.LOG:
            return CountingChannel(LogChannel(), spec.kind.value, self._metrics)
        if spec.url is None:
            raise ConfigurationError(
                f"The channel {spec.name} has no address.", todo="Set its url."
            )
        url = await self._credentials.value(application, spec.url)
        signing = None
        if spec.signing is not None:
            signing = await self._credentials.value(application, spec.signing)
        name = f"{spec.kind.value}-{self._mark(url, signing)}"
        made: Channel
        if spec.kind is ChannelKind.SLACK:
            made = SlackChannel(name, url, outbound=self._outbound)
        else:
            made = WebhookChannel(
                name, url, outbound=self._outbound, clock=self._clock, secret=signing
            )
        return CountingChannel(made, spec.kind.value, self._metrics)

    def _mark(self, url: Secret, signing: Secret | None) -> str:
        whole = Secret("\n".join(each.reveal() for each in (url, signing) if each is not None))
        return whole.fingerprint(self._key)[-12:]

    def _use(self) -> None:
        used = {name for names in self._names.values() for name, _ in names}
        self._channels = {name: each for name, each in self._channels.items() if name in used}
        self.notifier.use(self._channels)
