"""Sends notices as CloudEvents 1.0 to any receiver, signed so that it can trust them.

The signature covers the time and the exact body: HMAC-SHA256, keyed with the shared secret, of
the time in seconds, a dot and the body. A receiver should refuse old times, and drop ids that
it has seen, because delivery is at least once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.adapters.notify.outbound import Outbound
from holdfast.core.gitops.notice import Notice
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields
from holdfast.reconcile.ports import Clock

HEADER = "X-Holdfast-Signature"


class WebhookChannel:
    """One receiver. A single notice goes as an event, several as a batch."""

    def __init__(
        self,
        name: str,
        url: Secret,
        *,
        outbound: Outbound,
        clock: Clock,
        secret: Secret | None = None,
    ) -> None:
        self.name = name
        self._url = url
        self._outbound = outbound
        self._clock = clock
        self._secret = secret

    async def send(self, notices: Sequence[Notice]) -> None:
        """Deliver one group of notices."""
        if not notices:
            return
        events = [event(notice) for notice in notices]
        batch = len(events) > 1
        body = json.dumps(events if batch else events[0], ensure_ascii=False).encode()
        kind = "cloudevents-batch+json" if batch else "cloudevents+json"
        headers = {"Content-Type": f"application/{kind}; charset=utf-8"}
        if self._secret is not None:
            headers[HEADER] = signature(self._secret, self._clock.now(), body)
        await self._outbound.post(self._url, body, headers)


def event(notice: Notice) -> Fields:
    """Write a notice as a CloudEvent. `severity` is an extension attribute."""
    return {
        "specversion": "1.0",
        "id": notice.id,
        "source": notice.source,
        "type": notice.type,
        "subject": notice.subject,
        "time": notice.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "severity": notice.severity.value,
        "datacontenttype": "application/json",
        "data": {
            "title": notice.title,
            "text": notice.text,
            "url": notice.url,
            "facts": notice.data,
        },
    }


def signature(secret: Secret, at: datetime, body: bytes) -> str:
    """Return the value of the signature's header for a body sent at a time."""
    seconds = int(at.timestamp())
    signed = f"{seconds}.".encode() + body
    mark = hmac.new(secret.reveal().encode(), signed, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={mark}"
