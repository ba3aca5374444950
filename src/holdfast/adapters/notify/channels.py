"""Where notices go: the log of this process, Slack, and any webhook."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.adapters.notify.delivery import NotificationSender
from holdfast.core.gitops.notification import Notice, Severity, loudest
from holdfast.core.redact import Secret
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Fields, Tree
from holdfast.reconcile.ports import Clock

_LOG = logging.getLogger("holdfast.notices")
_LOG_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.CRITICAL: logging.ERROR,
}


class LogChannel:
    """The log of this process. Always delivers."""

    def __init__(self, name: str = "log") -> None:
        self.name = name

    async def send(self, notices: Sequence[Notice]) -> None:
        """Write one line for each notice."""
        for notice in notices:
            _LOG.log(
                _LOG_LEVELS[notice.severity],
                "notice",
                extra={
                    "notice": notice.id,
                    "type": notice.type,
                    "source": notice.source,
                    "subject": notice.subject,
                    "severity": notice.severity.value,
                    "title": notice.title,
                    "text": notice.text,
                    "url": notice.url,
                    "facts": notice.data,
                },
            )


MAX_HEADER = 150
MAX_SECTION = 2900
"""Slack takes 3,000 characters in a section."""
MAX_MESSAGE = 10_000
"""Characters in all sections: Slack refuses messages somewhat above 13,000."""
MAX_SHOWN_NOTICES = 20
"""Notices in one message, which may have 50 blocks."""
MAX_TEXT = 3000
_SEVERITY_ICONS = {Severity.INFO: "🔵", Severity.WARNING: "🟠", Severity.CRITICAL: "🔴"}
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINK = re.compile(r"https?://[^\s<>|\"'\x00-\x1f]{1,1500}")


class SlackChannel:
    """One incoming webhook."""

    def __init__(self, name: str, url: Secret, *, sender: NotificationSender) -> None:
        self.name = name
        self._url = url
        self._sender = sender

    async def send(self, notices: Sequence[Notice]) -> None:
        """Deliver one group of notices as one message."""
        if not notices:
            return
        body = json.dumps(slack_message(notices)).encode()
        await self._sender.post(self._url, body, {"Content-Type": "application/json"})


def slack_message(notices: Sequence[Notice]) -> Fields:
    """Write a group as one message within every limit that Slack has."""
    mark = _SEVERITY_ICONS[loudest(notices)]
    head = ("" if len(notices) == 1 else f"{len(notices)} notices: ") + notices[0].title
    blocks: list[Tree] = [
        {
            "type": "header",
            "text": {
                "type": "plain_text",
                "text": _truncate(f"{mark} {head}", MAX_HEADER),
                "emoji": False,
            },
        }
    ]
    left = MAX_MESSAGE
    shown = 0
    for notice in notices[:MAX_SHOWN_NOTICES]:
        text = _slack_section(notice, titled=len(notices) > 1, limit=min(MAX_SECTION, left))
        if not text:
            break
        blocks.append({"type": "section", "text": _mrkdwn(text)})
        left -= len(text)
        shown += 1
    rest = f"… and {len(notices) - shown} more · " if shown < len(notices) else ""
    last = notices[-1].at
    plain = last.strftime("%Y-%m-%d %H:%M %Z").rstrip()
    at = f"<!date^{int(last.timestamp())}^{{date_short_pretty}} {{time}}|{plain}>"
    source = _escape(notices[0].source, 200)
    blocks.append({"type": "context", "elements": [_mrkdwn(f"{rest}{source} · {at}")]})
    lines = [
        f"{mark} {head}",
        *(f"{each.title}\n{each.text}" for each in notices[:MAX_SHOWN_NOTICES]),
    ]
    return {
        "text": _escape("\n".join(lines), MAX_TEXT),
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _slack_section(notice: Notice, *, titled: bool, limit: int) -> str:
    """Return the text of one notice; empty when there is no room for it."""
    link = f"\n<{notice.url}|Open in Holdfast>" if _LINK.fullmatch(notice.url) else ""
    link = link.replace("&", "&amp;")
    title = f"{_SEVERITY_ICONS[notice.severity]} {notice.title}\n" if titled else ""
    room = limit - len(link)
    if room < 100:
        return ""
    text = (title + notice.text).strip() or notice.title.strip() or notice.type
    return _escape(text, room) + link


def _mrkdwn(text: str) -> Fields:
    """`verbatim` keeps Slack from making links, channels and names out of what others wrote."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _escape(text: str, limit: int) -> str:
    """Escape what has a meaning for Slack, in at most so many characters of the result."""
    found: list[str] = []
    used = 0
    for char in "\n".join(escape_unprintable(line) for line in text.split("\n")):
        escaped = _ESCAPES.get(char, char)
        if used + len(escaped) >= limit:
            found.append("…")
            break
        found.append(escaped)
        used += len(escaped)
    return "".join(found)


def _truncate(text: str, limit: int) -> str:
    text = escape_unprintable(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


SIGNATURE_HEADER = "X-Holdfast-Signature"


class WebhookChannel:
    """One receiver. A single notice goes as an event, several as a batch."""

    def __init__(
        self,
        name: str,
        url: Secret,
        *,
        sender: NotificationSender,
        clock: Clock,
        secret: Secret | None = None,
    ) -> None:
        self.name = name
        self._url = url
        self._sender = sender
        self._clock = clock
        self._secret = secret

    async def send(self, notices: Sequence[Notice]) -> None:
        """Deliver one group of notices."""
        if not notices:
            return
        events = [cloud_event(notice) for notice in notices]
        batch = len(events) > 1
        body = json.dumps(events if batch else events[0], ensure_ascii=False).encode()
        kind = "cloudevents-batch+json" if batch else "cloudevents+json"
        headers = {"Content-Type": f"application/{kind}; charset=utf-8"}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = webhook_signature(self._secret, self._clock.now(), body)
        await self._sender.post(self._url, body, headers)


def cloud_event(notice: Notice) -> Fields:
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


def webhook_signature(secret: Secret, at: datetime, body: bytes) -> str:
    """Return the value of the signature's header for a body sent at a time."""
    seconds = int(at.timestamp())
    signed = f"{seconds}.".encode() + body
    mark = hmac.new(secret.reveal().encode(), signed, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={mark}"
