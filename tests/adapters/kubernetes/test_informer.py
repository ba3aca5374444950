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
from holdfast.adapters.kubernetes.watch import ResourceScope
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
            scope = ResourceScope(resource=CONFIG_MAPS)
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
    assert seen.told == ["a new", "b new", "a changed", "b gone"]


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
            informer = Informer(api, ResourceScope(resource=CONFIG_MAPS))
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


def labelled(name: str, version: int, **labels: str) -> dict[str, Any]:
    item = config_map(name, version)
    item["metadata"]["labels"] = labels
    return item


def test_what_is_given_out_is_the_callers_own() -> None:
    script = Script(lists=[listing(10, config_map("a", 5, text="x"))], watches=[[HANG]])
    seen = follow(script, lambda seen: seen.told)
    found = seen.informer.get("a", "shop")
    assert found is not None
    found["data"]["text"] = "spoilt"
    assert seen.texts() == {"a": "x"}


def test_thousands_of_objects_come_back_as_they_were() -> None:
    """Objects are kept compressed against samples, and the samples are chosen anew on the way."""
    items = [config_map(f"m-{number}", number + 1, text=f"t{number}") for number in range(1500)]
    script = Script(lists=[listing(2000, *items)], watches=[[HANG]])
    seen = follow(script, lambda seen: len(seen.told) == 1500)
    assert seen.texts() == {f"m-{number}": f"t{number}" for number in range(1500)}


def test_a_long_list_is_taken_in_page_by_page_and_begun_again_when_it_expires() -> None:
    first = listing(10, config_map("a", 5))
    first["metadata"]["continue"] = "more"
    script = Script(
        lists=[first, EXPIRED, first, listing(10, config_map("b", 6))],
        watches=[[HANG]],
    )
    seen = follow(script, lambda seen: script.watched)
    assert set(seen.texts()) == {"a", "b"}
    assert seen.told == ["a new", "b new"]


def test_objects_are_found_by_an_index_as_they_change() -> None:
    script = Script(
        lists=[listing(10, labelled("a", 5, team="x"), labelled("b", 6, team="x"))],
        watches=[
            [
                event("MODIFIED", labelled("a", 11, team="y")),
                event("DELETED", labelled("b", 12, team="x")),
                event("ADDED", labelled("c", 13, team="y")),
                HANG,
            ]
        ],
    )
    teams = {"team": lambda item: [item["metadata"]["labels"]["team"]]}
    seen = follow(script, lambda seen: "c new" in seen.told, indexes=teams)
    names = [item["metadata"]["name"] for item in seen.informer.select("team", "y")]
    assert names == ["a", "c"]
    assert seen.informer.select("team", "x") == []


def accepting(
    script: Script, scope: ResourceScope, *items: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """What is there, and what was told, after answers of our own writes were taken in."""

    async def played() -> tuple[list[str], list[str]]:
        async with serving(script) as url, api_for(url) as api:
            informer = Informer(api, scope)
            seen = Seen(informer)
            running = asyncio.ensure_future(informer.run())
            await eventually(lambda: script.watched, "the watch")
            for item in items:
                informer.accept(item)
            seen.told.append("accepted")
            script.go.set()
            await eventually(lambda: "end new" in seen.told, "the last event")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            there = [
                f"{key.name} {(informer.get(key.name, key.namespace) or {})['metadata']}"
                for key in informer.names()
            ]
            return there, seen.told

    return asyncio.run(played())


class Held(Script):
    """A script whose watch begins to speak when it is told to."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.go = asyncio.Event()

    async def _stream(self, request: Any, steps: list[Any]) -> Any:
        await self.go.wait()
        return await super()._stream(request, steps)


def held(*events: dict[str, Any]) -> Held:
    last = event("ADDED", config_map("end", 99))
    return Held(lists=[listing(10, config_map("a", 5))], watches=[[*events, last, HANG]])


def test_our_own_write_is_read_back_at_once_and_told_once() -> None:
    script = held(event("MODIFIED", config_map("a", 12)))
    _, told = accepting(script, ResourceScope(resource=CONFIG_MAPS), config_map("a", 12))
    assert told == ["a new", "a changed", "accepted", "end new"]


def test_an_event_from_before_our_write_does_not_undo_it() -> None:
    script = held(
        event("MODIFIED", config_map("a", 11, text="old")),
        event("MODIFIED", config_map("a", 12)),
        event("MODIFIED", config_map("a", 13)),
    )
    _, told = accepting(script, ResourceScope(resource=CONFIG_MAPS), config_map("a", 12))
    assert told == ["a new", "a changed", "accepted", "a changed", "end new"]


def test_the_end_of_a_predecessor_does_not_take_away_what_we_created() -> None:
    script = held(event("DELETED", config_map("a", 11, uid="uid-a")))
    there, told = accepting(
        script, ResourceScope(resource=CONFIG_MAPS), config_map("a", 12, uid="another")
    )
    assert told == ["a new", "a gone", "a new", "accepted", "end new"]
    assert len(there) == 2


@pytest.mark.parametrize(
    "item", [config_map("late", 7), config_map("elsewhere", 50)], ids=["known", "out of scope"]
)
def test_an_answer_that_is_behind_the_watch_or_out_of_scope_is_passed_over(
    item: dict[str, Any],
) -> None:
    scope = ResourceScope(resource=CONFIG_MAPS, namespace="shop", labels="team=x")
    _, told = accepting(held(), scope, item)
    assert told == ["a new", "accepted", "end new"]


def test_a_kind_that_is_not_served_is_unknown_and_followed_once_it_is() -> None:
    missing = status(404, "NotFound", "the server could not find the requested resource")
    script = Script(lists=[missing, missing, listing(10, config_map("a", 5))], watches=[[HANG]])
    served: list[bool] = []

    def until(seen: Seen) -> object:
        served.append(seen.informer.served)
        return seen.told

    seen = follow(script, until)
    assert False in served
    assert seen.informer.served and seen.informer.has_synced


def test_a_kind_that_is_taken_away_leaves_the_copy_and_says_so() -> None:
    missing = status(404, "NotFound", "the server could not find the requested resource")
    script = Script(lists=[listing(10, config_map("a", 5)), missing], watches=[[missing]])
    seen = follow(script, lambda seen: not seen.informer.served)
    assert seen.told == ["a new"]
