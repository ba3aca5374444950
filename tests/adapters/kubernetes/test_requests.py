"""One request: what is repeated, what is not, and what each refusal becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import (
    CONFIG_MAPS,
    HastyClock,
    api_for,
    config_map,
    listing,
    serving,
    status,
)

from holdfast.adapters.kubernetes.api import KubeApi, LeadershipLost
from holdfast.adapters.kubernetes.objects import Resource
from holdfast.adapters.outbound import retry_after
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    AuthError,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.reconcile.kube import (
    ConflictReason,
    FieldOwner,
    KindNotServed,
    KubeConflict,
    VersionExpired,
    ref_of,
)

T = TypeVar("T")
SECRETS = Resource(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)


class Answers:
    """Gives prepared answers in order; the last is repeated. None breaks the connection off."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.asked: list[web.Request] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(request)
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer == "hang":
            await asyncio.sleep(3600)
        if isinstance(answer, str):
            return web.Response(text=answer, status=404)
        headers = answer.pop("headers", {}) if isinstance(answer, dict) else {}
        return web.json_response(answer, status=answer.get("code", 200), headers=headers)


def ask(
    answers: Answers,
    call: Callable[[KubeApi], Awaitable[T]],
    *,
    clock: HastyClock | None = None,
    timeout: float = 20.0,
) -> T:
    async def asked() -> T:
        async with serving(answers) as url, api_for(url, clock=clock, within=timeout) as api:
            api._kinds["v1"] = {each.kind: each for each in (CONFIG_MAPS, SECRETS)}
            return await call(api)

    return asyncio.run(asked())


def read(api: KubeApi) -> Awaitable[Any]:
    return api.get(CONFIG_MAPS.ref("a", "shop"))


def write(api: KubeApi) -> Awaitable[Any]:
    return api.patch(CONFIG_MAPS.ref("a", "shop"), {"data": {}})


def refusal(answer: Any, call: Callable[[KubeApi], Awaitable[Any]] = write) -> HoldfastError:
    with pytest.raises(HoldfastError) as raised:
        ask(Answers(answer), call, timeout=3.0)
    return raised.value


@pytest.mark.parametrize(
    "broken", [None, status(500, "InternalError"), status(503, ""), status(504, "Timeout")]
)
def test_a_read_is_asked_again_after_what_passes(broken: Any) -> None:
    answers = Answers(broken, broken, config_map("a", 1))
    assert ask(answers, read)["metadata"]["name"] == "a"
    assert len(answers.asked) == 3


@pytest.mark.parametrize("broken", [None, status(500, "InternalError"), status(504, "Timeout")])
def test_a_write_that_may_have_been_done_is_not_repeated_and_says_so(broken: Any) -> None:
    answers = Answers(broken, config_map("a", 1))
    with pytest.raises(TargetUnavailable) as raised:
        ask(answers, write)
    assert raised.value.changed == OUTCOME_UNKNOWN
    assert len(answers.asked) == 1


def test_a_write_without_an_answer_in_time_has_an_unknown_outcome() -> None:
    with pytest.raises(TargetUnavailable, match=r"no answer in 0\.3 s") as raised:
        ask(Answers("hang"), write, timeout=0.3)
    assert raised.value.changed == OUTCOME_UNKNOWN


def test_a_write_to_nobody_changed_nothing() -> None:
    async def asked() -> None:
        async with serving(Answers({})) as url:
            pass
        async with api_for(url, within=2.0) as api:
            api._kinds["v1"] = {"ConfigMap": CONFIG_MAPS}
            await write(api)

    with pytest.raises(TargetUnavailable, match="could not be reached") as raised:
        asyncio.run(asked())
    assert raised.value.changed == NOTHING_CHANGED


def test_a_busy_server_is_asked_again_after_the_time_it_named_also_for_writes() -> None:
    clock = HastyClock()
    busy = {**status(429, "TooManyRequests"), "headers": {"Retry-After": "7"}}
    answers = Answers(busy, config_map("a", 1))
    ask(answers, write, clock=clock)
    assert len(answers.asked) == 2
    assert 7 <= clock.slept[0] <= 8


def test_a_time_of_day_to_ask_again_is_counted_from_the_answers_own() -> None:
    """Clocks differ; the wait is what the server means by it."""
    clock = HastyClock()
    headers = {
        "Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT",
        "Date": "Sun, 06 Nov 1994 08:49:30 GMT",
    }
    answers = Answers({**status(503, "ServiceUnavailable"), "headers": headers}, config_map("a", 1))
    ask(answers, write, clock=clock)
    assert len(answers.asked) == 2
    assert 7 <= clock.slept[0] <= 8


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "7000"}, 60.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, None),
        (
            {
                "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT",
                "date": "Sun, 06 Nov 1994 08:50:00 GMT",
            },
            0.0,
        ),
        ({}, None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_bounded(
    headers: dict[str, str], wait: float | None
) -> None:
    assert retry_after(headers, longest=60.0) == wait


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    clock = HastyClock()
    busy = {**status(429, "TooManyRequests"), "headers": {"Retry-After": "50"}}
    with pytest.raises(TargetUnavailable) as raised:
        ask(Answers(busy), write, clock=clock)
    assert raised.value.changed == NOTHING_CHANGED
    assert clock.slept == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, AuthError),
        (403, PermissionDenied),
        (404, NotFound),
        (409, KubeConflict),
        (410, VersionExpired),
        (400, ValidationError),
        (422, ValidationError),
        (418, ApiError),
    ],
)
def test_each_refusal_has_its_error(code: int, kind: type[HoldfastError]) -> None:
    found = refusal(status(code, "Because"))
    assert type(found) is kind
    assert found.changed.startswith(NOTHING_CHANGED)


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ('configmaps "a" is forbidden: User "joe" cannot patch resource "configmaps"', "RBAC"),
        ("", "RBAC"),
        ('pods "a" is forbidden: exceeded quota: small, requested: pods=1', "quota"),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest"', "policy"),
    ],
)
def test_the_advice_against_a_403_fits_who_refused(message: str, advice: str) -> None:
    found = refusal(status(403, "Forbidden", message))
    assert advice in found.hint
    assert ("RBAC" in found.hint) == (advice == "RBAC")


def test_a_404_that_is_not_the_api_servers_word_is_no_absent_object() -> None:
    found = refusal("404 page not found", read)
    assert isinstance(found, KindNotServed)


def test_a_conflict_names_the_owners_of_the_fields() -> None:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "field": ".spec.replicas",
            "message": 'conflict with "hpa" with subresource "scale" using apps/v1',
        },
        {"reason": "FieldManagerConflict", "field": ".data.a", "message": 'conflict with "ci"'},
    ]
    found = refusal(status(409, "Conflict", details={"causes": causes}))
    assert isinstance(found, KubeConflict) and found.reason is ConflictReason.OWNED
    assert found.owners == (
        FieldOwner(
            path=".spec.replicas", manager="hpa", api_version="apps/v1", subresource="scale"
        ),
        FieldOwner(path=".data.a", manager="ci"),
    )


def test_problems_are_listed_one_by_one() -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "spec.a", "message": "must be positive"}]
    found = refusal(status(422, "Invalid", details={"causes": causes}))
    assert isinstance(found, ValidationError)
    assert [(each.field, each.reason) for each in found.problems] == [
        ("spec.a", "must be positive")
    ]


@pytest.mark.parametrize(
    "said",
    [
        "failed to create typed patch object: .spec.bogus: field not declared in schema",
        "failed to convert new object (n/bogus; /v1, Kind=ConfigMap) to proper version (/v1): "
        "illegal base64 data at input byte 0",
    ],
)
def test_the_500_that_means_a_wrong_object_is_a_refusal_and_not_repeated(said: str) -> None:
    answers = Answers(status(500, "", said))
    with pytest.raises(ValidationError, match="bogus"):
        ask(answers, write)
    assert len(answers.asked) == 1


def test_a_500_in_the_servers_own_words_is_known_from_an_outage() -> None:
    told = refusal(status(500, "InternalError", "something within broke"))
    assert isinstance(told, TargetUnavailable) and told.failed
    for away in (status(503, "", "not now"), status(500, "", "")):
        found = refusal(away)
        assert isinstance(found, TargetUnavailable) and not found.failed


def test_what_is_said_about_a_secret_is_never_repeated() -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "data.k", "message": "hunter2 is bad"}]
    for code in (400, 403, 409, 422, 500):
        found = refusal(
            status(code, "Because", "the object hunter2", details={"causes": causes}),
            lambda api: api.patch(SECRETS.ref("a", "shop"), {"data": {}}),
        )
        assert "hunter2" not in str(found)
        assert "hunter2" not in repr(vars(found))


def test_an_answer_that_is_no_object_is_no_success() -> None:
    with pytest.raises(ApiError):
        ask(Raw("<html>"), read)


class Raw(Answers):
    """Answers 200 with a text."""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self.answers[0], content_type="text/html")


def page(token: str, *items: dict[str, Any]) -> dict[str, Any]:
    found = listing(7, *items)
    if token:
        found["metadata"]["continue"] = token
    return found


def test_pages_are_joined_into_one_list() -> None:
    answers = Answers(page("t1", config_map("a", 1)), page("", config_map("b", 2)))
    found = ask(answers, lambda api: api.list(CONFIG_MAPS.scope()))
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert [item["kind"] for item in found.items] == ["ConfigMap", "ConfigMap"]
    assert found.version == "7"
    assert answers.asked[0].query["limit"] == "500"
    assert answers.asked[1].query["continue"] == "t1"


def test_a_list_that_expires_between_pages_is_started_again_and_never_half() -> None:
    answers = Answers(
        page("t1", config_map("a", 1)),
        status(410, "Expired"),
        page("t2", config_map("b", 1)),
        status(410, "Expired"),
        page("", config_map("b", 1), config_map("c", 1)),
    )
    found = ask(answers, lambda api: api.list(CONFIG_MAPS.scope()))
    assert [item["metadata"]["name"] for item in found.items] == ["b", "c"]
    assert "limit" not in answers.asked[-1].query


def test_a_list_that_breaks_off_is_an_error_and_no_shorter_list() -> None:
    answers = Answers(page("t1", config_map("a", 1)), status(403, "Forbidden"))
    with pytest.raises(PermissionDenied):
        ask(answers, lambda api: api.list(CONFIG_MAPS.scope()))


def test_who_may_not_write_may_still_read() -> None:
    async def story() -> None:
        asked: list[str] = []
        item = config_map("a", 5)

        async def server(request: web.Request) -> web.StreamResponse:
            if request.path == "/api/v1":
                kind = {"name": "configmaps", "kind": "ConfigMap", "namespaced": True}
                return web.json_response({"resources": [kind]})
            asked.append(request.method)
            return web.json_response(item)

        async with serving(server) as url, api_for(url) as api:
            api.may_write = lambda: False
            for write in (
                api.apply(item, manager="us"),
                api.create(item, manager="us"),
                api.patch(ref_of(item), [], manager="us"),
                api.delete(ref_of(item)),
            ):
                with pytest.raises(LeadershipLost):
                    await write
            assert await api.get(ref_of(item)) == item
            await api.apply(item, manager="us", dry_run=True)
            api.may_write = lambda: True
            await api.delete(ref_of(item))
            assert asked == ["GET", "PATCH", "DELETE"]

    asyncio.run(story())
