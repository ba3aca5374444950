"""Takes the webhooks of forges: verified, remembered, and never more than a hint to look.

A delivery counts for the applications whose own credentials hold the secret that signed it, and
only makes their repository be asked sooner. Without such a secret there are no webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.core.gitops.application import AppId, Provider
from holdfast.core.redact import Secret
from holdfast.doors.gitops.metrics import Metrics
from holdfast.doors.server.services import HookAnswer
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.ports import Clock
from holdfast.wire.forge_webhooks import Hint, Refusal, receive, same_repository

REMEMBERED = 1_000
_STATUS = {Refusal.TOO_LARGE: 413, Refusal.UNREADABLE: 400}


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

    def __call__(self, provider: str, headers: Mapping[str, str], body: bytes) -> HookAnswer:
        """Take a delivery, and say what became of it."""
        try:
            known = Provider(provider)
        except ValueError:
            return HookAnswer(status=404, told="There is no such forge.")
        answer = self._taken(known, headers, body)
        self._metrics.hooks.labels(known.value, str(answer.status)).inc()
        return answer

    def _taken(self, provider: Provider, headers: Mapping[str, str], body: bytes) -> HookAnswer:
        sharing: dict[str, list[AppId]] = {}
        for id, secret in self._secrets().items():
            sharing.setdefault(secret.reveal(), []).append(id)
        if not sharing:
            return HookAnswer(status=404, told="No webhooks are configured.")
        now = self._clock.now()
        refusal = Refusal.WRONG_SIGNATURE
        for value, ids in sharing.items():
            found = receive(provider, headers, body, Secret(value), now=now)
            if found in _STATUS:
                assert isinstance(found, Refusal)  # noqa: S101  # only those have a status
                return HookAnswer(status=_STATUS[found], told="The delivery cannot be read.")
            if isinstance(found, Refusal):
                refusal = found
                continue
            if found is None:
                return HookAnswer(status=200, told="There is nothing to do about it.")
            return self._hinted(provider, found, ids)
        return HookAnswer(status=401, told=f"The delivery is not genuine: {refusal.value}.")

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


def _concerns(following: Following, hint: Hint) -> bool:
    source = following.application.spec.source
    if not any(same_repository(source.url, each) for each in hint.repositories):
        return False
    return hint.pull or hint.branch in ("", source.revision or "main")
