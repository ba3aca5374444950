"""Live events: ids, resuming, a reset where that cannot be, and readers that lag behind."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import Api
from tests.support.server import bearer, running_server

from holdfast.apps.server import live_events
from holdfast.apps.server.live_events import EventHub


def ids_of(chunk: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"^id: (\d+)$", chunk, re.MULTILINE)]


async def take(stream: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(5):
        return await anext(stream)


def test_a_reader_gets_each_event_with_the_next_id() -> None:
    async def scenario() -> None:
        hub = EventHub()
        stream = hub.follow("acme")
        (begin,) = ids_of(await take(stream))
        hub.publish("acme", {"slug": "a"})
        hub.publish("other", {"slug": "x"})
        hub.publish("acme", {"id": "d-1"}, event="drift")
        chunk = await take(stream)
        assert chunk == (
            b'id: %d\ndata: {"slug":"a"}\n\nid: %d\nevent: drift\ndata: {"id":"d-1"}\n\n'
            % (begin + 1, begin + 2)
        )

    asyncio.run(scenario())


def test_whoever_comes_back_gets_exactly_what_was_missed() -> None:
    async def scenario() -> None:
        hub = EventHub(size=8)
        first = hub.follow("acme")
        (begin,) = ids_of(await take(first))
        await first.aclose()
        for number in range(5):
            hub.publish("acme", {"n": number})
        for have in range(begin, begin + 5):
            stream = hub.follow("acme", have)
            assert await take(stream) == b": listening\nid: %d\n\n" % have
            assert ids_of(await take(stream)) == list(range(have + 1, begin + 6))
        last = hub.follow("acme", begin + 5)
        await take(last)
        hub.publish("acme", {"n": 5})
        assert ids_of(await take(last)) == [begin + 6]

    asyncio.run(scenario())


def test_an_id_that_is_not_known_any_more_gets_one_reset_and_then_what_comes() -> None:
    async def scenario() -> None:
        hub = EventHub(size=4)
        (begin,) = ids_of(await take(hub.follow("acme")))
        for number in range(6):
            hub.publish("acme", {"n": number})
        for unknown in (0, begin, begin + 1, begin + 7, 2**60):
            stream = hub.follow("acme", unknown)
            reset = await take(stream)
            assert reset == b": listening\nid: %d\nevent: reset\ndata: {}\n\n" % (begin + 6)
        hub.publish("acme", {"n": 6})
        assert ids_of(await take(stream)) == [begin + 7]

    asyncio.run(scenario())


def test_the_ids_of_another_process_are_not_taken_for_ours() -> None:
    async def scenario() -> None:
        before = EventHub()
        (begin,) = ids_of(await take(before.follow("acme")))
        for number in range(3):
            before.publish("acme", {"n": number})
        await asyncio.sleep(0.001)
        after = EventHub()
        for id in range(begin, begin + 4):
            assert b"event: reset" in await take(after.follow("acme", id))

    asyncio.run(scenario())


def test_ids_stay_within_what_javascript_counts_exactly() -> None:
    async def scenario() -> None:
        (begin,) = ids_of(await take(EventHub().follow("acme")))
        assert begin < live_events.MAX_EVENT_ID // 2

    asyncio.run(scenario())


def test_a_reader_that_lags_behind_is_cut_and_costs_no_memory() -> None:
    async def scenario() -> None:
        hub = EventHub(size=4)
        slow, quick = hub.follow("acme"), hub.follow("acme")
        await take(slow)
        await take(quick)
        for number in range(5):
            hub.publish("acme", {"n": number})
            await take(quick)
        with pytest.raises(StopAsyncIteration):
            await take(slow)

    asyncio.run(scenario())


def test_a_source_that_broke_off_ends_streams_and_leads_to_a_reset() -> None:
    async def scenario() -> None:
        hub = EventHub()
        stream = hub.follow("acme")
        (begin,) = ids_of(await take(stream))
        hub.publish("acme", {"n": 1})
        await take(stream)
        hub.forget("acme")
        with pytest.raises(StopAsyncIteration):
            await take(stream)
        assert b"event: reset" in await take(hub.follow("acme", begin + 1))

    asyncio.run(scenario())


def test_an_event_is_encoded_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    real = live_events.encode_json
    monkeypatch.setattr(live_events, "encode_json", lambda form: encoded.append(form) or real(form))

    async def scenario() -> None:
        hub = EventHub()
        streams = [hub.follow("acme") for _ in range(50)]
        for stream in streams:
            await take(stream)
        hub.publish("acme", {"n": 1})
        chunks = {id(await take(stream)) for stream in streams}
        assert len(chunks) == 1, "all send the same bytes"

    asyncio.run(scenario())
    assert encoded == [{"n": 1}]


class Events:
    """One open stream, as a browser reads it."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def take(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for line in self._lines:
            if not line:
                if found:
                    return found
                continue
            name, _, value = line.partition(": ")
            if name:
                found[name] = json.loads(value) if name == "data" else value
        raise EOFError


def follow(stack: ExitStack, api: Api, headers: dict[str, str], query: str = "") -> Events:
    http = stack.enter_context(httpx2.Client(base_url=api.server.url, timeout=20))
    headers = {**bearer(api.server.token(api.project)), **headers}
    stream = stack.enter_context(http.stream("GET", api.path(f"events{query}"), headers=headers))
    assert stream.status_code == 200
    return Events(stream.iter_lines())


def test_a_cut_stream_is_resumed_over_http(api: Api) -> None:
    with ExitStack() as stack:
        begin = follow(stack, api, {}).take()["id"]
    made = api.create()
    with ExitStack() as stack:
        event = follow(stack, api, {"Last-Event-ID": begin})
        assert event.take() == {"id": begin}
        told = event.take()
        assert told["data"] == {
            "project": api.project,
            "slug": "bot",
            "version": made["version"],
            "generation": made["generation"],
        }
        assert "event" not in told, "the shape that older clients know"
        by_query = follow(stack, api, {}, f"?after={begin}")
        assert by_query.take() == {"id": begin}
        assert by_query.take() == told
        # A browser that comes back repeats its first query; what it heard since counts.
        newer = follow(stack, api, {"Last-Event-ID": told["id"]}, f"?after={begin}")
        assert newer.take() == {"id": told["id"]}
        api.ask("DELETE", f"/api/workloads/{made['id']}")
        gone = newer.take()
        assert gone["data"] == {"project": api.project, "slug": "bot"}
        assert gone == event.take() == by_query.take()


@pytest.mark.parametrize("sent", ["0", "17", "nonsense", "-1", "9" * 30])
def test_a_strange_last_event_id_is_answered_with_a_reset(api: Api, sent: str) -> None:
    with ExitStack() as stack:
        first = follow(stack, api, {"Last-Event-ID": sent}).take()
    assert (first["event"], first["data"]) == ("reset", {})


@pytest.mark.parametrize("query", ["after=x", "after=-1", "before=1", f"after={2**60}"])
def test_a_strange_query_is_refused(api: Api, query: str) -> None:
    assert api.ask("GET", f"events?{query}").status_code == 400


def test_another_server_on_the_same_store_says_reset(tmp_path: Path) -> None:
    def take_first(headers: dict[str, str]) -> dict[str, Any]:
        with running_server(tmp_path, run=False) as server, ExitStack() as stack:
            http = stack.enter_context(httpx2.Client(base_url=server.url, timeout=20))
            api = Api(server=server, http=http, project="acme")
            return follow(stack, api, headers).take()

    begin = take_first({})["id"]
    assert take_first({"Last-Event-ID": begin})["event"] == "reset"


def test_an_event_links_to_the_workload_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    base = "https://holdfast.example.com"
    with (
        ExitStack() as stack,
        running_server(tmp_path, run=False, base_url=base) as server,
        httpx2.Client(base_url=server.url, timeout=20) as http,
    ):
        api = Api(server=server, http=http, project="acme")
        events = follow(stack, api, {})
        events.take()
        made = api.create()
        assert events.take()["data"]["url"] == f"{base}/ui/p/acme/workloads/bot"
        api.ask("DELETE", f"/api/workloads/{made['id']}")
        assert "url" not in events.take()["data"]
