"""The informer's copy ends up right, whatever happens to the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.adapters.kubernetes.harness import (
    CONFIG_MAPS,
    HANG,
    Script,
    api_for,
    bookmark,
    config_map,
    event,
    eventually,
    listing,
    serving,
    status,
)

from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import compact_managed_fields
from holdfast.adapters.kubernetes.watch import Scope
from holdfast.core.errors import PermissionDenied

EXPIRED = status(410, "Expired", "too old resource version")


class Seen:
    """What a handler was told, as short words."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self.told: list[str] = []
        informer.add_handler(self.take)

    def take(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        item = new or old
        assert item is not None
        word = "gone" if new is None else "new" if old is None else "changed"
        self.told.append(f"{item['metadata']['name']} {word}")

    def texts(self) -> dict[str, str]:
        return {item["metadata"]["name"]: item["data"]["text"] for item in self.informer}


def follow(
    script: Script, until: Callable[[Seen], object], *, silence: float = 30.0, **options: Any
) -> Seen:
    """Run an informer against a script until something holds."""

    async def played() -> Seen:
        async with serving(script) as url, api_for(url) as api:
            scope = Scope(resource=CONFIG_MAPS)
            informer = Informer(api, scope, silence=silence, **options)
            seen = Seen(informer)
            running = asyncio.ensure_future(informer.run())
            try:
                await eventually(lambda: running.done() or until(seen), "the expected copy")
                assert not running.done(), running.exception()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            return seen

    return asyncio.run(played())


def test_the_list_and_then_each_event_reach_the_copy_and_the_handlers() -> None:
    script = Script(
        lists=[listing(10, config_map("a", 5))],
        watches=[
            [
                event("ADDED", config_map("b", 11)),
                event("MODIFIED", config_map("a", 12, text="x")),
                event("DELETED", config_map("b", 13)),
                HANG,
            ]
        ],
    )
    seen = follow(script, lambda seen: "b gone" in seen.told)
    assert seen.told == ["a new", "b new", "a changed", "b gone"]
    assert seen.texts() == {"a": "x"}
    assert seen.informer.has_synced
    found = seen.informer.get("a", "shop")
    assert found is not None and found["kind"] == "ConfigMap"
    assert "managedFields" not in found["metadata"]


def test_after_an_end_the_watch_resumes_at_the_bookmark_without_a_new_list() -> None:
    script = Script(
        lists=[listing(10, config_map("a", 5))],
        watches=[[bookmark(40)], [event("ADDED", config_map("b", 41)), HANG]],
    )
    seen = follow(script, lambda seen: "b new" in seen.told)
    assert script.watched == ["10", "40"]
    assert script.listed == 1
    assert seen.told == ["a new", "b new"]


@pytest.mark.parametrize(
    "refusal", [[EXPIRED], [event("ERROR", EXPIRED)]], ids=["as the status", "inside the stream"]
)
def test_an_object_that_vanished_in_a_gap_is_reported_deleted(refusal: list[Any]) -> None:
    script = Script(
        lists=[
            listing(10, config_map("a", 5), config_map("b", 6)),
            listing(90, config_map("a", 5)),
        ],
        watches=[[], refusal, [HANG]],
    )
    seen = follow(script, lambda seen: len(script.watched) == 3)
    assert seen.told == ["a new", "b new", "b gone"]
    assert script.watched == ["10", "10", "90"]


def test_an_object_replaced_in_a_gap_is_a_deletion_and_a_creation() -> None:
    script = Script(
        lists=[listing(10, config_map("a", 5)), listing(90, config_map("a", 80, uid="other"))],
        watches=[[EXPIRED], [HANG]],
    )
    seen = follow(script, lambda seen: len(script.watched) == 2)
    assert seen.told == ["a new", "a gone", "a new"]


def test_a_silent_watch_is_given_up_and_the_list_taken_anew() -> None:
    """Its version may be from the future, as after a restore: asking for it again would hang."""
    script = Script(
        lists=[listing(10, config_map("a", 5)), listing(20, config_map("a", 15, text="x"))],
        watches=[[HANG]],
    )
    follow(script, lambda seen: len(script.watched) > 1, silence=0.2)
    assert script.watched[:2] == ["10", "20"]
    assert script.listed >= 2


def test_doubled_events_are_told_once() -> None:
    added = event("ADDED", config_map("b", 11))
    gone = event("DELETED", config_map("b", 12))
    script = Script(
        lists=[listing(10)],
        watches=[[added, added, gone, gone, event("ADDED", config_map("c", 13)), HANG]],
    )
    seen = follow(script, lambda seen: "c new" in seen.told)
    assert seen.told == ["b new", "b gone", "c new"]


def test_versions_that_run_backwards_mean_a_full_list() -> None:
    """A cluster restored from a backup: the same version may stand for other content."""
    script = Script(
        lists=[
            listing(100, config_map("a", 50, text="before"), config_map("b", 51)),
            listing(60, config_map("a", 50, text="restored")),
        ],
        watches=[[event("MODIFIED", config_map("z", 55))], [HANG]],
    )
    seen = follow(script, lambda seen: len(script.watched) == 2)
    assert seen.texts() == {"a": "restored"}
    assert seen.told == ["a new", "b new", "b gone", "a changed"]


def test_half_an_event_at_the_end_changes_nothing_and_is_read_again() -> None:
    script = Script(
        lists=[listing(10)],
        watches=[
            [event("ADDED", config_map("a", 11)), b'{"type":"DELETED","object":{"meta'],
            [event("ADDED", config_map("b", 12)), HANG],
        ],
    )
    seen = follow(script, lambda seen: "b new" in seen.told)
    assert script.watched == ["10", "11"]
    assert set(seen.texts()) == {"a", "b"}


def test_an_event_longer_than_any_buffer_arrives() -> None:
    script = Script(
        lists=[listing(10)],
        watches=[[event("ADDED", config_map("a", 11, text="x" * 3_000_000)), HANG]],
    )
    seen = follow(script, lambda seen: seen.told)
    assert len(seen.texts()["a"]) == 3_000_000


def test_a_list_that_is_refused_leaves_the_copy_as_it_was() -> None:
    script = Script(
        lists=[listing(10, config_map("a", 5)), status(403, "Forbidden")],
        watches=[[EXPIRED]],
    )
    seen = follow(script, lambda seen: script.listed >= 4)
    assert seen.told == ["a new"]
    assert set(seen.texts()) == {"a"}
    assert isinstance(seen.informer.error, PermissionDenied)


def test_a_copy_that_never_was_whole_has_not_synced() -> None:
    script = Script(lists=[status(403, "Forbidden")], watches=[[HANG]])
    seen = follow(script, lambda seen: script.listed >= 3)
    assert not seen.informer.has_synced


def test_a_failing_handler_stops_neither_the_watch_nor_the_other_handlers() -> None:
    def poisoned(old: object, new: object) -> None:
        raise RuntimeError("poison")

    async def played() -> list[str]:
        script = Script(
            lists=[listing(10, config_map("a", 5))],
            watches=[[event("ADDED", config_map("b", 11)), HANG]],
        )
        async with serving(script) as url, api_for(url) as api:
            informer = Informer(api, Scope(resource=CONFIG_MAPS))
            informer.add_handler(poisoned)
            seen = Seen(informer)
            running = asyncio.ensure_future(informer.run())
            await eventually(lambda: "b new" in seen.told, "the event after the failure")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return seen.told

    assert asyncio.run(played()) == ["a new", "b new"]


def test_who_wrote_what_can_be_kept_as_text() -> None:
    script = Script(lists=[listing(10, config_map("a", 5))], watches=[[HANG]])
    seen = follow(script, lambda seen: seen.told, transform=compact_managed_fields)
    found = seen.informer.get("a", "shop")
    assert found is not None
    assert found["metadata"]["managedFields"] == [{"manager": "x", "fieldsV1": '{"f:data":{}}'}]
