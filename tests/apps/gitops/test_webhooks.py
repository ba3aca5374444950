"""A webhook is a hint: genuine or refused, taken once, and only for who shares its secret."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from typing import Any

import pytest
from tests.support.gitops_world import GitopsWorld

from holdfast.apps.gitops import webhooks
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.gitops.webhooks import WebhookReceiver
from holdfast.apps.server.metrics import ServerMetrics as ServerMetrics
from holdfast.apps.server.services import WebhookResponse
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.redact import Secret

SECRET = "shared-between-us"
BODY = json.dumps(
    {
        "ref": "refs/heads/main",
        "repository": {"clone_url": "https://git.example.com/acme/deploy.git"},
    }
).encode()


class Intake:
    """An intake for one application, and what it hastened."""

    def __init__(self, secrets: dict[ApplicationId, Secret] | None = None) -> None:
        self.world = GitopsWorld()
        self.hints: list[ApplicationId] = []
        self.id = self.world.application.id
        self.secrets = {self.id: Secret(SECRET)} if secrets is None else secrets

    async def send(
        self, body: bytes = BODY, *, secret: str = SECRET, delivery: str = "1", event: str = "push"
    ) -> WebhookResponse:
        following = self.world.context or await self.world.start()
        if not hasattr(self, "hook"):
            self.hook = WebhookReceiver(
                {self.id: following},
                lambda: self.secrets,
                self.hints.append,
                self.world.clock,
                GitopsMetrics(ServerMetrics()),
            )
        mark = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "X-Gitea-Event": event,
            "X-Gitea-Delivery": delivery,
            "X-Gitea-Signature": mark,
            "Content-Type": "application/json",
        }
        return await self.hook("gitea", headers, body)


async def test_a_genuine_push_to_the_branch_hastens_the_application() -> None:
    intake = Intake()
    assert (await intake.send()).status == 202
    assert intake.hints == [intake.id]


async def test_the_same_delivery_counts_once() -> None:
    intake = Intake()
    await intake.send()
    assert (await intake.send()).status == 200
    assert intake.hints == [intake.id]


async def test_a_delivery_that_is_sent_again_under_another_id_counts_once() -> None:
    """The id is not signed, so whoever saw a delivery could send it again and again."""
    intake = Intake()
    await intake.send()
    assert (await intake.send(delivery="2")).status == 200
    assert intake.hints == [intake.id]
    assert (await intake.send(BODY + b" ")).status == 202


async def test_a_wrong_signature_hastens_nobody() -> None:
    intake = Intake()
    assert (await intake.send(secret="guessed")).status == 401
    assert intake.hints == []


async def test_without_a_secret_there_are_no_webhooks() -> None:
    intake = Intake(secrets={})
    assert (await intake.send()).status == 404


async def test_an_application_with_another_secret_is_not_hastened() -> None:
    """Whoever may send for one repository must not stir the followers of another."""
    stranger = ApplicationId(namespace="other", name="app")
    intake = Intake(secrets={stranger: Secret(SECRET)})
    assert (await intake.send()).status == 200
    assert intake.hints == []


async def test_another_branch_or_repository_is_nothing_to_do() -> None:
    intake = Intake()
    other = BODY.replace(b"heads/main", b"heads/topic")
    assert (await intake.send(other)).status == 200
    elsewhere = BODY.replace(b"acme/deploy", b"acme/website")
    assert (await intake.send(elsewhere, delivery="3")).status == 200
    assert intake.hints == []


async def test_a_body_that_cannot_be_read_is_refused_after_its_signature() -> None:
    intake = Intake()
    assert (await intake.send(b"{")).status == 400
    assert (await intake.send(b"{", secret="guessed")).status == 401


async def test_an_unknown_forge_is_not_there() -> None:
    intake = Intake()
    await intake.send()
    assert (await intake.hook("sourceforge", {}, b"")).status == 404


async def test_of_a_thousand_secrets_few_are_tried_and_the_right_ones_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def counted(*given: Any, **more: Any) -> Any:  # Any: handed on
        tried.append(given[3].reveal())
        return receive(*given, **more)

    receive = webhooks.receive_webhook
    monkeypatch.setattr(webhooks, "receive_webhook", counted)
    intake = Intake()
    intake.secrets = {**others(), **intake.secrets}
    assert (await intake.send()).status == 202
    assert tried == [SECRET]
    assert (await intake.send(secret="guessed")).status == 401
    assert len(tried) <= 1 + webhooks.MAX_SECRETS_TRIED


async def test_secrets_are_tried_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[threading.Thread] = set()

    def noted(*given: Any, **more: Any) -> Any:  # Any: handed on
        threads.add(threading.current_thread())
        return receive(*given, **more)

    receive = webhooks.receive_webhook
    monkeypatch.setattr(webhooks, "receive_webhook", noted)
    await Intake().send()
    assert threads
    assert threading.main_thread() not in threads


async def test_one_secret_for_all_repositories_of_a_team_is_known_among_many_others() -> None:
    """A forge stops sending to who answers that its deliveries are not genuine."""
    intake = Intake()
    intake.secrets = {**others(), **intake.secrets}
    assert (await intake.send()).status == 202
    elsewhere = BODY.replace(b"acme/deploy", b"acme/website")
    assert (await intake.send(elsewhere)).status == 200


async def test_who_sends_forgeries_without_end_is_answered_without_work() -> None:
    intake = Intake()
    answers = [(await intake.send(secret="guessed")).status for _ in range(150)]
    assert answers[0] == 401
    assert answers[-1] == 429
    intake.world.pass_time(60)
    assert (await intake.send()).status == 202


def others() -> dict[ApplicationId, Secret]:
    """Secrets of applications that have nothing to do with it."""
    names = [f"app-{n}" for n in range(1000)]
    return {ApplicationId(namespace="other", name=name): Secret(f"of {name}") for name in names}
