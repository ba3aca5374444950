from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.server import bearer, running_server

from holdfast.apps.server.authorize import TokenBuckets, peer_key
from holdfast.apps.server.protocol import BadFraming, ChunkedBody
from holdfast.apps.server.routes import is_harmless_tail


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    clock = Clock()
    buckets = TokenBuckets(rate=2, burst=3, monotonic=clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 1]
    assert buckets.take("b") == 0
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 1]


def test_crowding_the_table_locks_nobody_out_and_keeps_it_small() -> None:
    buckets = TokenBuckets(rate=1, burst=1, monotonic=Clock(), size=10)
    assert buckets.take("honest") == 0
    assert buckets.take("honest") > 0
    for number in range(1_000):
        buckets.take(f"attacker-{number}")
    assert len(buckets) == 10
    assert buckets.take("honest") == 0


def test_a_peer_with_a_whole_network_counts_as_one() -> None:
    assert peer_key("2001:db8::1") == peer_key("2001:db8::ffff:1")
    assert peer_key("2001:db8::1") != peer_key("2001:db8:0:1::1")
    assert peer_key("10.0.0.1") != peer_key("10.0.0.2")


def test_refused_credentials_are_slowed_down_and_good_ones_are_not(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, run=False, limits={"failure_rate": 0.5}) as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        path = "/api/projects/acme/workloads"
        answers = [http.get(path, headers=bearer("nothing")) for _ in range(8)]
        assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 3
        assert int(answers[-1].headers["retry-after"]) > 0
        assert http.get(path, headers=bearer(server.token("acme"))).status_code == 200


def test_a_credential_that_asks_too_often_is_slowed_down_alone(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, run=False, limits={"rate": 2.0}) as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        path = "/api/projects/acme/workloads"
        busy, other = bearer(server.token("acme")), bearer(server.token("acme", name="other"))
        statuses = [http.get(path, headers=busy).status_code for _ in range(10)]
        assert statuses[:4] == [200] * 4
        assert 429 in statuses
        assert http.get(path, headers=other).status_code == 200


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    beyond=st.binary(max_size=10),
)
def test_a_plain_chunked_body_passes_however_it_is_cut(
    pieces: list[bytes], cuts: list[int], beyond: bytes
) -> None:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    chunks = ChunkedBody()
    whole = framed + beyond
    left = b""
    places = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
    for start, end in pairwise(places):
        left += chunks.feed(whole[start:end])
    assert chunks.ended
    assert left == beyond


@pytest.mark.parametrize(
    "raw",
    [
        b"2;a\r\n",
        b" 2\r\n",
        b"0x2\r\n",
        b"2\n",
        b"-1\r\n",
        b"\r\n",
        b"123456789\r\n",
        b"0\r\nA: b\r\n",
    ],
)
def test_framing_with_anything_optional_is_refused(raw: bytes) -> None:
    with pytest.raises(BadFraming):
        ChunkedBody().feed(raw)


@given(st.binary(max_size=60))
def test_no_body_makes_the_framing_fail_in_any_other_way(raw: bytes) -> None:
    chunks = ChunkedBody()
    try:
        chunks.feed(raw)
    except BadFraming:
        return


@given(st.text(alphabet="./%25eEfF\\a", max_size=20))
def test_a_tail_that_passes_stays_below_its_root(tail: str) -> None:
    from urllib.parse import unquote

    if is_harmless_tail(tail.encode()):
        assert ".." not in unquote(tail).replace("\\", "/").split("/")
