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

from holdfast.adapters.kubernetes.queue import Bucket
from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.server.services import HookAnswer
from holdfast.core.gitops.application import AppId, Provider
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.ports import Clock
from holdfast.wire.forge_webhooks import (
    Hint,
    Refusal,
    claimed_repositories,
    receive,
    repository_name,
)

REMEMBERED = 1_000
MOST_SECRETS = 64
"""That are tried on one delivery: those of the repository it claims to be about come first."""
MOST_AT_ONCE, MOST_WAITING = 2, 32
FAILURES, FAILURES_AT_ONCE = 10.0, 100.0
"""Deliveries a second that may be no genuine ones, after so many at once."""
_STATUS = {Refusal.TOO_LARGE: 413, Refusal.UNREADABLE: 400}
_TOO_MANY = HookAnswer(status=429, told="Too many deliveries; the repositories are asked anyway.")
_name_of = lru_cache(maxsize=4096)(repository_name)


class Webhooks:
    """The intake of one controller; called with the raw delivery."""

    def __init__(
        self,
        followed: Mapping[AppId, Following],
        secrets: Callable[[], Mapping[AppId, Secret]],
        hint: Callable[[AppId], None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._followed = followed
        self._secrets = secrets
        self._hint = hint
        self._clock = clock
        self._metrics = metrics
        self._seen: dict[tuple[Provider, str], None] = {}
        self._genuine: dict[str, None] = {}
        """Secrets that signed a delivery, the latest last."""
        self._failures = Bucket(clock, rate=FAILURES, burst=FAILURES_AT_ONCE)
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting = 0

    async def __call__(self, provider: str, headers: Mapping[str, str], body: bytes) -> HookAnswer:
        """Take a delivery, and say what became of it."""
        try:
            known = Provider(provider)
        except ValueError:
            return HookAnswer(status=404, told="There is no such forge.")
        answer = await self._take(known, headers, body)
        self._metrics.hooks.labels(known.value, str(answer.status)).inc()
        return answer

    async def _take(
        self, provider: Provider, headers: Mapping[str, str], body: bytes
    ) -> HookAnswer:
        if not self._secrets():
            return HookAnswer(status=404, told="No webhooks are configured.")
        if self._waiting >= MOST_WAITING or not self._failures.has_room:
            return _TOO_MANY
        self._waiting += 1
        try:
            async with self._places:
                claimed = await asyncio.to_thread(claimed_repositories, headers, body)
                candidates = self._candidates(claimed)
                now = self._clock.now()
                found, value = await asyncio.to_thread(
                    _received, provider, headers, body, [*candidates], now
                )
        finally:
            self._waiting -= 1
        if not value:
            self._failures.take()
            assert isinstance(found, Refusal)  # noqa: S101  # no secret fits
            return HookAnswer(status=401, told=f"The delivery is not genuine: {found.value}.")
        self._genuine.pop(value, None)
        self._genuine[value] = None
        if len(self._genuine) > MOST_SECRETS:
            del self._genuine[next(iter(self._genuine))]
        if isinstance(found, Refusal):
            return HookAnswer(status=_STATUS[found], told="The delivery cannot be read.")
        if found is None:
            return HookAnswer(status=200, told="There is nothing to do about it.")
        return self._hinted(provider, found, candidates[value])

    def _candidates(self, claimed: frozenset[tuple[str, str]]) -> dict[str, list[AppId]]:
        """Return the secrets to try, with who shares each: whoever follows the repository first,
        then those that signed something lately, as one for all repositories of a team does."""
        sharing: dict[str, list[AppId]] = {}
        first: dict[str, None] = {}
        for id, secret in self._secrets().items():
            value = secret.reveal()
            sharing.setdefault(value, []).append(id)
            following = self._followed.get(id)
            if following and _name_of(following.application.spec.source.url) in claimed:
                first[value] = None
        order = dict.fromkeys((*first, *reversed(self._genuine), *sharing))
        chosen = [value for value in order if value in sharing][:MOST_SECRETS]
        return {value: sharing[value] for value in chosen}

    def _hinted(self, provider: Provider, hint: Hint, ids: list[AppId]) -> HookAnswer:
        if (provider, hint.delivery) in self._seen:
            return HookAnswer(status=200, told="It was taken before.")
        self._seen[provider, hint.delivery] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        count = 0
        for id in ids:
            following = self._followed.get(id)
            if following is not None and _concerns(following, hint):
                self._hint(id)
                count += 1
        if not count:
            return HookAnswer(status=200, told="No application follows that.")
        return HookAnswer(status=202, told="The repository is looked at.")


def _received(
    provider: Provider,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now: datetime,
) -> tuple[Hint | Refusal | None, str]:
    """Try secrets on a delivery. Returns what it says and the secret that signed it, if any."""
    refusal = Refusal.WRONG_SIGNATURE
    for value in secrets:
        found = receive(provider, headers, body, Secret(value), now=now)
        if not isinstance(found, Refusal) or found in _STATUS:
            return found, value
        refusal = found
    return refusal, ""


def _concerns(following: Following, hint: Hint) -> bool:
    source = following.application.spec.source
    if _name_of(source.url) not in {repository_name(each) for each in hint.repositories}:
        return False
    return hint.pull or hint.branch in ("", source.revision or "main")
