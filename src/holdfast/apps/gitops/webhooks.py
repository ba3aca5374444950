"""Takes the webhooks of forges: verified, remembered, and never more than a hint to look.

A delivery counts for the applications whose own credentials hold the secret that signed it, and
only makes their repository be asked sooner. Without such a secret there are no webhooks.
Anybody can send one, so the work for it is bounded and done beside the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from holdfast.adapters.kubernetes.queue import TokenBucket
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.server.services import WebhookResponse
from holdfast.core.gitops.application import ApplicationId, ForgeProvider
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.ports import Clock
from holdfast.wire.forge_webhooks import (
    PushHint,
    WebhookRefusal,
    claimed_repositories,
    receive_webhook,
    repository_name,
)

MAX_REMEMBERED = 1_000
MAX_SECRETS_TRIED = 64
"""That are tried on one delivery: those of the repository it claims to be about come first."""
MAX_CONCURRENT, MAX_WAITING = 2, 32
FAILURE_RATE, FAILURE_BURST = 10.0, 100.0
"""Deliveries a second that may be no genuine ones, after so many at once."""
_REFUSAL_STATUS = {WebhookRefusal.TOO_LARGE: 413, WebhookRefusal.UNREADABLE: 400}
_TOO_MANY = WebhookResponse(
    status=429, message="Too many deliveries; the repositories are asked anyway."
)
_repository_name = lru_cache(maxsize=4096)(repository_name)


class WebhookReceiver:
    """The intake of one controller; called with the raw delivery."""

    def __init__(
        self,
        contexts: Mapping[ApplicationId, ApplicationContext],
        secrets: Callable[[], Mapping[ApplicationId, Secret]],
        hint: Callable[[ApplicationId], None],
        clock: Clock,
        metrics: GitopsMetrics,
    ) -> None:
        self._contexts = contexts
        self._secrets = secrets
        self._hint = hint
        self._clock = clock
        self._metrics = metrics
        self._seen: dict[tuple[ForgeProvider, str], None] = {}
        self._genuine: dict[str, None] = {}
        """Secrets that signed a delivery, the latest last."""
        self._failures = TokenBucket(clock, rate=FAILURE_RATE, burst=FAILURE_BURST)
        self._places = asyncio.Semaphore(MAX_CONCURRENT)
        self._waiting = 0

    async def __call__(
        self, provider: str, headers: Mapping[str, str], body: bytes
    ) -> WebhookResponse:
        """Take a delivery, and say what became of it."""
        try:
            known = ForgeProvider(provider)
        except ValueError:
            return WebhookResponse(status=404, message="There is no such forge.")
        answer = await self._receive(known, headers, body)
        self._metrics.hooks.labels(known.value, str(answer.status)).inc()
        return answer

    async def _receive(
        self, provider: ForgeProvider, headers: Mapping[str, str], body: bytes
    ) -> WebhookResponse:
        if not self._secrets():
            return WebhookResponse(status=404, message="No webhooks are configured.")
        if self._waiting >= MAX_WAITING or not self._failures.has_room:
            return _TOO_MANY
        self._waiting += 1
        try:
            async with self._places:
                claimed = await asyncio.to_thread(claimed_repositories, headers, body)
                candidates = self._candidates(claimed)
                now = self._clock.now()
                found, value = await asyncio.to_thread(
                    _verify_delivery, provider, headers, body, [*candidates], now
                )
        finally:
            self._waiting -= 1
        if not value:
            self._failures.take()
            assert isinstance(found, WebhookRefusal)  # noqa: S101  # no secret fits
            return WebhookResponse(
                status=401, message=f"The delivery is not genuine: {found.value}."
            )
        self._genuine.pop(value, None)
        self._genuine[value] = None
        if len(self._genuine) > MAX_SECRETS_TRIED:
            del self._genuine[next(iter(self._genuine))]
        if isinstance(found, WebhookRefusal):
            return WebhookResponse(
                status=_REFUSAL_STATUS[found], message="The delivery cannot be read."
            )
        if found is None:
            return WebhookResponse(status=200, message="There is nothing to do about it.")
        return self._hint_applications(provider, found, candidates[value])

    def _candidates(self, claimed: frozenset[tuple[str, str]]) -> dict[str, list[ApplicationId]]:
        """Return the secrets to try, with who shares each: whoever follows the repository first,
        then those that signed something lately, as one for all repositories of a team does."""
        sharing: dict[str, list[ApplicationId]] = {}
        first: dict[str, None] = {}
        for id, secret in self._secrets().items():
            value = secret.reveal()
            sharing.setdefault(value, []).append(id)
            context = self._contexts.get(id)
            if context and _repository_name(context.application.spec.source.url) in claimed:
                first[value] = None
        order = dict.fromkeys((*first, *reversed(self._genuine), *sharing))
        chosen = [value for value in order if value in sharing][:MAX_SECRETS_TRIED]
        return {value: sharing[value] for value in chosen}

    def _hint_applications(
        self, provider: ForgeProvider, hint: PushHint, ids: list[ApplicationId]
    ) -> WebhookResponse:
        if (provider, hint.delivery) in self._seen:
            return WebhookResponse(status=200, message="It was taken before.")
        self._seen[provider, hint.delivery] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        count = 0
        for id in ids:
            context = self._contexts.get(id)
            if context is not None and _is_concerned(context, hint):
                self._hint(id)
                count += 1
        if not count:
            return WebhookResponse(status=200, message="No application follows that.")
        return WebhookResponse(status=202, message="The repository is looked at.")


def _verify_delivery(
    provider: ForgeProvider,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now: datetime,
) -> tuple[PushHint | WebhookRefusal | None, str]:
    """Try secrets on a delivery. Returns what it says and the secret that signed it, if any."""
    refusal = WebhookRefusal.WRONG_SIGNATURE
    for value in secrets:
        found = receive_webhook(provider, headers, body, Secret(value), now=now)
        if not isinstance(found, WebhookRefusal) or found in _REFUSAL_STATUS:
            return found, value
        refusal = found
    return refusal, ""


def _is_concerned(context: ApplicationContext, hint: PushHint) -> bool:
    source = context.application.spec.source
    if _repository_name(source.url) not in {repository_name(each) for each in hint.repositories}:
        return False
    return hint.pull or hint.branch in ("", source.revision or "main")
