"""What an issuer is asked, and what becomes of tokens that are its own and still no use."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from joserfc import jws
from tests.support.issuer import make_key

from holdfast.adapters import openid
from holdfast.adapters.openid import IdentityRefused, IssuerMetadata, OpenIdIssuer
from holdfast.adapters.outbound import NoResponse, OutboundResponse

URL = "https://issuer.test"
KEY = make_key("first")
DESCRIPTION = {"issuer": URL, "jwks_uri": f"{URL}/keys", "token_endpoint": f"{URL}/token"}


class Network:
    """Answers in place of the issuer, and counts."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.at_once = 0
        self.most = 0

    async def send(self, method: str, url: str, **_: Any) -> OutboundResponse | NoResponse:
        path = url.removeprefix(URL)
        self.asked.append(path)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for _turn in range(100):
            await asyncio.sleep(0)
        self.at_once -= 1
        if path not in self.answers:
            return NoResponse(reason="does not answer")
        return OutboundResponse(
            status=200, headers={}, body=json.dumps(self.answers[path]).encode()
        )

    async def aclose(self) -> None:
        """Nothing is open."""


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def issuer_of(network: Network, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> OpenIdIssuer:
    monkeypatch.setattr(openid, "OutboundClient", lambda **_: network)
    return OpenIdIssuer(URL, monotonic=clock, now=clock)


def answering(**more: Any) -> Network:
    keys = {"keys": [KEY.as_dict(private=False)]}
    return Network({"/.well-known/openid-configuration": DESCRIPTION, "/keys": keys, **more})


@pytest.mark.parametrize("part", ["header", "payload"])
def test_a_token_that_nests_without_end_is_refused_and_no_failure(
    part: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever can have the issuer sign what they like: 16 kB hold some ten thousand levels."""
    issuer = issuer_of(answering(), clock, monkeypatch)
    deep = b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    if part == "payload":
        token = jws.serialize_compact({"alg": "RS256", "kid": "first"}, deep, KEY)
    else:
        token = f"{base64.urlsafe_b64encode(deep).rstrip(b'=').decode()}.e30.e30"
    assert len(token) < openid.MAX_TOKEN
    refused = asyncio.run(issuer.verify(token, audience="holdfast"))
    assert refused == IdentityRefused(reason="the token cannot be read")


def test_an_issuer_that_is_out_is_asked_once_however_many_want_to_sign_in(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may begin a sign-in, as often as they like."""
    network = Network({})
    issuer = issuer_of(network, clock, monkeypatch)

    async def ask() -> None:
        refused = IdentityRefused(reason="the issuer does not answer", unavailable=True)
        many = await asyncio.gather(*(issuer.metadata() for _ in range(20)))
        assert many == [refused] * 20
        assert len(network.asked) == 1
        clock.now += openid.RETRY_SECONDS
        network.answers = answering().answers
        known = await issuer.metadata()
        assert known == IssuerMetadata(keys_url=f"{URL}/keys", token_url=f"{URL}/token")
        assert len(network.asked) == 2

    asyncio.run(ask())


def test_a_description_that_was_read_counts_while_the_issuer_is_out(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = answering()
    issuer = issuer_of(network, clock, monkeypatch)
    known = asyncio.run(issuer.metadata())
    network.answers = {}
    clock.now += openid.METADATA_SECONDS
    assert asyncio.run(issuer.metadata()) == known


def test_codes_that_are_made_up_keep_the_issuer_no_busier_than_a_few_at_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = answering(**{"/token": {"id_token": "x"}})
    issuer = issuer_of(network, clock, monkeypatch)

    async def exchange() -> list[str | IdentityRefused]:
        return await asyncio.gather(
            *(
                issuer.exchange_code(
                    str(number),
                    verifier="v",
                    redirect_url="https://holdfast.test/back",
                    client_id="holdfast",
                    client_secret=None,
                )
                for number in range(30)
            )
        )

    assert asyncio.run(exchange()) == ["x"] * 30, "nobody is turned away"
    assert network.most == openid.MAX_EXCHANGES
