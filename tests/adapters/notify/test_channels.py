"""What the channels put on the wire: CloudEvents that can be trusted, Slack messages that fit."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.adapters.notify.channels import (
    MAX_HEADER,
    MAX_MESSAGE,
    MAX_SECTION,
    MAX_SHOWN_NOTICES,
    MAX_TEXT,
    LogChannel,
    SlackChannel,
    WebhookChannel,
    cloud_event,
    slack_message,
)
from holdfast.adapters.notify.delivery import NotificationSender
from holdfast.core.errors import TargetUnavailable
from holdfast.core.gitops.notification import Notice, Severity
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import NotificationChannel

T = TypeVar("T")
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class FixedClock:
    def now(self) -> datetime:
        return AT

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a channel does not wait; its caller does")


def notice(number: int = 1, **changes: Any) -> Notice:
    made = Notice(
        id=f"drift.detected-{number}",
        type="dev.holdfast.drift.detected.v1",
        source="/clusters/eu-1/namespaces/gitops",
        subject="Deployment/prod/chat",
        at=AT,
        severity=Severity.WARNING,
        title="Deployment prod/chat drifted (configuration)",
        text="It was changed by kubectl-edit.\n• spec.replicas: 5, declared 3",
        data={"application": "gitops/chat", "drift": "drf-1"},
        url="https://holdfast.example/drifts/drf-1?a=1&b=2",
    )
    return replace(made, **changes)


class Inbox:
    """What a receiver got."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status = 200

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((dict(request.headers), await request.read()))
        return web.Response(status=self.status, text="ok")


@asynccontextmanager
async def receiver(inbox: Inbox) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/{path:.*}", inbox.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def webhook(url: str, secret: Secret | None = None) -> WebhookChannel:
    outbound = NotificationSender(allow_private=True, timeout=10)
    return WebhookChannel("hook", Secret(url), sender=outbound, clock=FixedClock(), secret=secret)


def deliver(*notices: Notice, secret: Secret | None = None) -> tuple[dict[str, str], bytes]:
    async def main() -> tuple[dict[str, str], bytes]:
        inbox = Inbox()
        async with receiver(inbox) as url:
            channel: NotificationChannel = webhook(f"{url}/in?x=1", secret)
            await channel.send(notices)
        (request,) = inbox.requests
        return request

    return run(main())


def test_one_notice_is_one_structured_cloud_event() -> None:
    headers, body = deliver(notice())
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    sent = json.loads(body)
    assert sent["specversion"] == "1.0"
    assert sent["id"] == "drift.detected-1"
    assert sent["type"] == "dev.holdfast.drift.detected.v1"
    assert sent["source"] == "/clusters/eu-1/namespaces/gitops"
    assert sent["subject"] == "Deployment/prod/chat"
    assert sent["time"] == "2026-11-20T12:00:00Z"
    assert sent["datacontenttype"] == "application/json"
    assert sent["data"]["facts"] == {"application": "gitops/chat", "drift": "drf-1"}
    attributes = set(sent) - {"data"}
    assert all(name.isalnum() and name.islower() for name in attributes)


def test_a_group_is_one_batch_of_cloud_events() -> None:
    headers, body = deliver(notice(1), notice(2))
    assert headers["Content-Type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert [each["id"] for each in json.loads(body)] == ["drift.detected-1", "drift.detected-2"]


def test_the_signature_covers_the_time_and_the_exact_body() -> None:
    headers, body = deliver(notice(text="ü € 🙂"), secret=Secret("shared"))
    stamp, mark = headers["X-Holdfast-Signature"].split(",")
    assert stamp == f"t={int(AT.timestamp())}"
    signed = stamp.removeprefix("t=").encode() + b"." + body
    assert mark == "v1=" + hmac.new(b"shared", signed, hashlib.sha256).hexdigest()


def test_without_a_secret_there_is_no_signature() -> None:
    headers, _ = deliver(notice())
    assert "X-Holdfast-Signature" not in headers


def test_sending_again_sends_the_same_id() -> None:
    assert json.loads(deliver(notice())[1])["id"] == json.loads(deliver(notice())[1])["id"]


def test_nothing_to_tell_is_not_sent() -> None:
    async def main() -> None:
        inbox = Inbox()
        async with receiver(inbox) as url:
            await webhook(url).send([])
            await slack(url).send([])
        assert inbox.requests == []

    run(main())


def slack(url: str) -> SlackChannel:
    return SlackChannel(
        "slack", Secret(url), sender=NotificationSender(allow_private=True, timeout=10)
    )


def test_a_group_is_one_slack_message() -> None:
    async def main() -> None:
        inbox = Inbox()
        async with receiver(inbox) as url:
            await slack(f"{url}/services/T0/B0/x").send([notice(1), notice(2)])
        ((headers, body),) = inbox.requests
        assert headers["Content-Type"] == "application/json"
        sent = json.loads(body)
        assert [block["type"] for block in sent["blocks"]] == [
            "header", "section", "section", "context",
        ]  # fmt: skip
        assert "Deployment prod/chat drifted" in sent["text"]
        link = "<https://holdfast.example/drifts/drf-1?a=1&amp;b=2|Open in Holdfast>"
        assert link in sent["blocks"][1]["text"]["text"]

    run(main())


def sections(sent: Any) -> list[str]:
    return [block["text"]["text"] for block in sent["blocks"] if block["type"] == "section"]


TEXTS = st.text(max_size=200) | st.builds(
    lambda text, times: text * times, st.text(min_size=1, max_size=6), st.integers(1, 700)
)


@given(
    notices=st.lists(
        st.builds(
            lambda title, text, url, severity: notice(
                title=title, text=text, url=url, severity=severity
            ),
            TEXTS,
            TEXTS,
            TEXTS | TEXTS.map(lambda text: f"https://h/{text}"),
            st.sampled_from(Severity),
        ),
        min_size=1,
        max_size=25,
    )
)
def test_no_message_is_larger_than_slack_takes(notices: Sequence[Notice]) -> None:
    sent: Any = slack_message(notices)
    assert len(sent["blocks"]) <= 50
    assert len(sent["blocks"][0]["text"]["text"]) <= MAX_HEADER
    assert 0 < len(sent["text"]) <= MAX_TEXT
    found = sections(sent)
    assert 1 <= len(found) <= MAX_SHOWN_NOTICES
    assert all(0 < len(text) <= MAX_SECTION for text in found)
    assert sum(map(len, found)) <= MAX_MESSAGE
    if len(found) < len(notices):
        assert f"and {len(notices) - len(found)} more" in str(sent["blocks"][-1])


def test_a_text_that_is_too_long_is_cut_and_sent() -> None:
    (found,) = sections(slack_message([notice(text="&" * 10_000)]))
    assert found.startswith("&amp;&amp;")
    assert "&amp;…" in found
    assert len(found) <= MAX_SECTION


def test_what_others_wrote_calls_nobody_and_links_nowhere() -> None:
    evil = "<!channel> <@U123> <https://evil|good> & <!here>"
    sent: Any = slack_message([notice(title=evil, text=evil), notice(2, title=evil)])
    shown = json.dumps([sent["text"], *sections(sent)])
    for piece in ("<!channel", "<@U", "<https://evil", "<!here"):
        assert piece not in shown
    for block in sent["blocks"][1:]:
        for text in [block.get("text"), *block.get("elements", [])]:
            assert text is None or text["verbatim"] is True


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://x|y>z", "https://x y", "https://x\n", "", "data:x"]
)
def test_a_link_that_is_none_is_left_out(url: str) -> None:
    (found,) = sections(slack_message([notice(url=url)]))
    assert "|Open" not in found


def test_the_log_gets_one_structured_line_for_each_notice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel: NotificationChannel = LogChannel()
    with caplog.at_level(logging.INFO, logger="holdfast.notices"):
        run(channel.send([notice(1), notice(2, severity=Severity.CRITICAL)]))  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records] == ["notice", "notice"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    fields = vars(caplog.records[0])
    assert fields["notice"] == "drift.detected-1"
    assert fields["subject"] == "Deployment/prod/chat"
    assert fields["facts"] == {"application": "gitops/chat", "drift": "drf-1"}


def test_neither_the_signing_secret_nor_the_address_is_seen_anywhere_but_on_the_wire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signing, path = (
        planted_secret("signing secret", "{}"),
        planted_secret("Slack URL", "/services/T0/B0/{}"),
    )
    surfaces = Surfaces()

    def outcome(name: str, status: int) -> None:
        async def main() -> None:
            inbox = Inbox()
            inbox.status = status
            async with receiver(inbox) as url:
                address = url + path.value
                for channel in (webhook(address, Secret(signing.value)), slack(address)):
                    surfaces.add(name, repr(channel), channel.name, vars(channel))
                    await channel.send([notice(1), notice(2)])
                surfaces.add("on the wire", *(body for _, body in inbox.requests))
                surfaces.add("on the wire", *(headers for headers, _ in inbox.requests))

        if status == 200:
            asyncio.run(main(), debug=True)
        else:
            surfaces.add_failure(name, lambda: asyncio.run(main()))

    with caplog.at_level(logging.DEBUG):
        for status in (200, 302, 404, 429, 500):
            outcome(f"status {status}", status)
    lines = [vars(record) for record in caplog.records if record.name != "aiohttp.access"]
    surfaces.add("log", *lines)
    assert surfaces.leaks([signing, path]) == []


def test_a_channel_that_is_down_says_so_without_its_address() -> None:
    async def main() -> None:
        inbox = Inbox()
        async with receiver(inbox) as url:
            pass
        for channel in (webhook(url + "/hidden"), slack(url + "/hidden")):
            with pytest.raises(TargetUnavailable) as caught:
                await channel.send([notice()])
            assert "127.0.0.1" in str(caught.value)
            assert "hidden" not in str(caught.value)

    run(main())


@given(st.builds(notice, title=st.text(), text=st.text()))
def test_every_notice_is_valid_json(made: Notice) -> None:
    assert json.loads(json.dumps(cloud_event(made)))["data"]["title"] == made.title
