"""Sends notices to a Slack-compatible incoming webhook: one message for each group.

Its address is a secret, since whoever knows it can write. Text that is too long is cut: a notice
that arrives in part beats one that is refused. Receivers without Block Kit (Mattermost,
Rocket.Chat) show `text`, which therefore says the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from holdfast.adapters.notify.outbound import Outbound
from holdfast.core.gitops.notice import Notice, Severity, loudest
from holdfast.core.ink import clean
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields, Tree

HEADER = 150
SECTION = 2900
"""Slack takes 3,000 characters in a section."""
TOTAL = 10_000
"""Characters in all sections: Slack refuses messages somewhat above 13,000."""
SHOWN = 20
"""Notices in one message, which may have 50 blocks."""
TEXT = 3000
_MARKS = {Severity.INFO: "🔵", Severity.WARNING: "🟠", Severity.CRITICAL: "🔴"}
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINK = re.compile(r"https?://[^\s<>|\"'\x00-\x1f]{1,1500}")


class SlackChannel:
    """One incoming webhook."""

    def __init__(self, name: str, url: Secret, *, outbound: Outbound) -> None:
        self.name = name
        self._url = url
        self._outbound = outbound

    async def send(self, notices: Sequence[Notice]) -> None:
        """Deliver one group of notices as one message."""
        if not notices:
            return
        body = json.dumps(message(notices)).encode()
        await self._outbound.post(self._url, body, {"Content-Type": "application/json"})


def message(notices: Sequence[Notice]) -> Fields:
    """Write a group as one message within every limit that Slack has."""
    mark = _MARKS[loudest(notices)]
    head = ("" if len(notices) == 1 else f"{len(notices)} notices: ") + notices[0].title
    blocks: list[Tree] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": _cut(f"{mark} {head}", HEADER), "emoji": False},
        }
    ]
    left = TOTAL
    shown = 0
    for notice in notices[:SHOWN]:
        text = _section(notice, titled=len(notices) > 1, limit=min(SECTION, left))
        if not text:
            break
        blocks.append({"type": "section", "text": _mrkdwn(text)})
        left -= len(text)
        shown += 1
    rest = f"… and {len(notices) - shown} more · " if shown < len(notices) else ""
    at = f"<!date^{int(notices[-1].at.timestamp())}^{{date_short_pretty}} {{time}}|{_at(notices)}>"
    source = _escape(notices[0].source, 200)
    blocks.append({"type": "context", "elements": [_mrkdwn(f"{rest}{source} · {at}")]})
    lines = [f"{mark} {head}", *(f"{each.title}\n{each.text}" for each in notices[:SHOWN])]
    return {
        "text": _escape("\n".join(lines), TEXT),
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _section(notice: Notice, *, titled: bool, limit: int) -> str:
    """Return the text of one notice; empty when there is no room for it."""
    link = f"\n<{notice.url}|Open in Holdfast>" if _LINK.fullmatch(notice.url) else ""
    link = link.replace("&", "&amp;")
    title = f"{_MARKS[notice.severity]} {notice.title}\n" if titled else ""
    room = limit - len(link)
    if room < 100:
        return ""
    told = (title + notice.text).strip() or notice.title.strip() or notice.type
    return _escape(told, room) + link


def _mrkdwn(text: str) -> Fields:
    """`verbatim` keeps Slack from making links, channels and names out of what others wrote."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _escape(text: str, limit: int) -> str:
    """Escape what has a meaning for Slack, in at most so many characters of the result."""
    found: list[str] = []
    used = 0
    for char in "\n".join(clean(line) for line in text.split("\n")):
        piece = _ESCAPES.get(char, char)
        if used + len(piece) >= limit:
            found.append("…")
            break
        found.append(piece)
        used += len(piece)
    return "".join(found)


def _cut(text: str, limit: int) -> str:
    text = clean(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _at(notices: Sequence[Notice]) -> str:
    return notices[-1].at.strftime("%Y-%m-%d %H:%M %Z").rstrip()
