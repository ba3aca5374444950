"""What a forge that refuses, limits, breaks or lies leads to, and that the token stays here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

import pytest
from aiohttp import web
from tests.contracts.forges import RecordedForgeWorld, serve_application, serve_recorded_forge
from tests.support.fault_proxy import FaultProxy, Response
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.adapters.forge import transport
from holdfast.adapters.forge.transport import RATE_LIMIT_DELAY
from holdfast.adapters.outbound import MAX_RETRY_DELAY, retry_delay
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    AuthError,
    ConfigurationError,
    Conflict,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequestState

BRANCH = "holdfast/codify/chat"
NEW = NewPullRequest(branch=BRANCH, base="main", title="T", body="B", labels=("holdfast",))
DATE = "Sun, 15 Nov 2026 10:00:00 GMT"
EPOCH = 1794736800
JSON = {"Content-Type": "application/json"}

Scenario = Callable[[RecordedForgeWorld, FaultProxy], Awaitable[None]]


def on_github(scenario: Scenario) -> None:
    """Play a scenario with a proxy before recorded shapes of GitHub."""

    async def main() -> None:
        async with serve_recorded_forge("github") as world:
            world.push(BRANCH)
            with FaultProxy(world.url) as proxy:
                await scenario(world, proxy)

    asyncio.run(main())


def answered(
    status: int, headers: Mapping[str, str] | None = None, body: bytes = b'{"message": "No."}'
) -> HoldfastError:
    """Give what `find` raises when the forge answers so."""
    raised: list[HoldfastError] = []

    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        proxy.rewrite_status(1, status, headers={**JSON, **(headers or {})}, body=body)
        forge = world.forge(proxy.url)
        with pytest.raises(HoldfastError) as error:
            await forge.find(BRANCH)
        raised.append(error.value)
        await forge.aclose()

    on_github(scenario)
    return raised[0]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ValidationError),
        (401, AuthError),
        (403, PermissionDenied),
        (404, NotFound),
        (409, Conflict),
        (418, ApiError),
        (422, ValidationError),
        (423, ApiError),
        (429, TargetUnavailable),
        (500, TargetUnavailable),
        (502, TargetUnavailable),
        (503, TargetUnavailable),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[HoldfastError]) -> None:
    error = answered(status)
    assert type(error) is kind
    assert str(status) in str(error) and "No." in str(error)
    assert error.changed == NOTHING_CHANGED


def test_a_page_of_something_in_between_is_not_a_missing_repository() -> None:
    error = answered(404, {"Content-Type": "text/html"}, b"<h1>404 Not Found</h1>")
    assert type(error) is TargetUnavailable


@pytest.mark.parametrize(
    ("status", "headers", "body", "wait"),
    [
        (429, {"Retry-After": "17"}, b"{}", 17.0),
        (403, {"Retry-After": "5"}, b'{"message": "You have exceeded a secondary limit"}', 5.0),
        (
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(EPOCH + 90), "Date": DATE},
            b'{"message": "API rate limit exceeded for user."}',
            90.0,
        ),
        (403, {}, b'{"message": "You have exceeded a secondary rate limit."}', RATE_LIMIT_DELAY),
        (503, {"Retry-After": "3"}, b"", 3.0),
        (429, {"Retry-After": "999999"}, b"", MAX_RETRY_DELAY),
    ],
)
def test_a_limit_says_how_long_to_wait(
    status: int, headers: dict[str, str], body: bytes, wait: float
) -> None:
    error = answered(status, headers, body)
    assert isinstance(error, TargetUnavailable)
    assert error.retry_after == wait


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 09:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT"}, None),
        ({"ratelimit-remaining": "0", "ratelimit-reset": str(EPOCH + 4), "date": DATE}, 4.0),
        ({"ratelimit-remaining": "7", "ratelimit-reset": str(EPOCH + 4), "date": DATE}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "x", "date": DATE}, None),
    ],
)
def test_the_wait_is_read_by_the_forges_own_clock(
    headers: dict[str, str], wait: float | None
) -> None:
    assert retry_delay(headers) == wait


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"{", b"null", b'{"number": 1}', b'[{"number": "one"}]', b"[" * 100_000],
)
def test_an_answer_in_other_words_is_no_answer(body: bytes) -> None:
    error = answered(200, body=body)
    assert type(error) is TargetUnavailable
    assert "not as a forge answers" in str(error)


def test_an_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_RESPONSE", 1000)
    error = answered(200, body=b" " * 5000 + b"[]")
    assert type(error) is TargetUnavailable
    assert "more than 1000 bytes" in str(error)


def test_a_forge_that_hangs_is_left_at_the_deadline() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        proxy.hang(1)
        forge = world.forge(proxy.url, timeout=0.2)
        with pytest.raises(TargetUnavailable, match=r"no answer in 0\.2 s"):
            await forge.find(BRANCH)
        await forge.aclose()

    on_github(scenario)


def test_a_forge_that_is_not_there_was_not_written_to() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        forge = world.forge("http://127.0.0.1:1")
        with pytest.raises(TargetUnavailable) as error:
            await forge.open(NEW)
        assert error.value.changed == NOTHING_CHANGED
        await forge.aclose()

    on_github(scenario)


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_write_that_broke_in_the_middle_is_unknown(status: int) -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        proxy.rewrite_status(lambda request: request.method == "POST", status)
        forge = world.forge(proxy.url)
        with pytest.raises(TargetUnavailable) as error:
            await forge.open(NEW)
        assert error.value.changed == OUTCOME_UNKNOWN
        await forge.aclose()

    on_github(scenario)


def test_a_written_answer_that_cannot_be_read_is_made_up_for_by_looking() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        proxy.rewrite_response(
            lambda request: request.method == "POST" and request.path.endswith("/pulls"),
            lambda answer: Response(status=201, headers=JSON, body=b"<html>"),
        )
        forge = world.forge(proxy.url)
        with pytest.raises(TargetUnavailable) as error:
            await forge.open(NEW)
        assert error.value.changed == OUTCOME_UNKNOWN
        proxy.reset()
        adopted = await forge.open(NEW)
        assert world.numbers() == [adopted.number]
        assert world.labels(adopted.number) == {"holdfast"}
        await forge.aclose()

    on_github(scenario)


def test_a_lost_answer_to_closing_is_made_up_for_by_looking() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        forge = world.forge(proxy.url)
        made = await forge.open(NEW)
        proxy.drop_response(lambda request: request.method == "PATCH")
        closed = await forge.close(made.number)
        assert closed.state is PullRequestState.CLOSED
        await forge.aclose()

    on_github(scenario)


def test_a_pull_request_is_kept_where_labels_are_refused() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        body = b'{"message": "Resource not accessible by personal access token"}'
        proxy.rewrite_status(
            lambda request: request.path.endswith("/labels"), 403, headers=JSON, body=body
        )
        forge = world.forge(proxy.url)
        made = await forge.open(NEW)
        assert world.numbers() == [made.number]
        assert world.labels(made.number) == set()
        await forge.aclose()

    on_github(scenario)


def test_labels_that_a_person_took_off_stay_off() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        forge = world.forge()
        wanted = NewPullRequest(branch=BRANCH, base="main", title="T", body="", labels=("a", "b"))
        made = await forge.open(wanted)
        world.memory.pulls[made.number].labels.remove("b")
        await forge.open(wanted)
        assert world.labels(made.number) == {"a"}
        await forge.aclose()

    on_github(scenario)


def test_where_there_are_no_drafts_it_is_opened_as_ready() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        world.memory.drafts = False
        forge = world.forge()
        made = await forge.open(
            NewPullRequest(branch=BRANCH, base="main", title="T", body="", draft=True)
        )
        assert world.numbers() == [made.number]
        assert not world.is_draft(made.number)
        await forge.aclose()

    on_github(scenario)


def test_a_branch_that_is_not_there_is_refused_with_the_forges_reason() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        forge = world.forge()
        with pytest.raises(ValidationError, match="Validation Failed; PullRequest; head"):
            await forge.open(NewPullRequest(branch="not-pushed", base="main", title="T", body=""))
        await forge.aclose()

    on_github(scenario)


def test_more_than_a_page_is_read_to_its_end() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        branch = "holdfast/codify/chat"
        for _ in range(120):
            made = world.memory.open(branch=branch, base="main", title="T", body="", draft=False)
            world.memory.end(made.number, "closed", "maria")
        forge = world.forge()
        assert [pull.number for pull in await forge.past(branch)] == [*range(120, 0, -1)]
        world.memory.pulls[1].comments = [f"comment {number}" for number in range(70)]
        await forge.comment(1, "comment 69")
        assert len(world.comments(1)) == 70
        await forge.aclose()

    on_github(scenario)


def test_a_redirection_within_the_forge_is_followed() -> None:
    """GitHub leads from a repository's old name to its new one."""

    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        forge = world.forge(proxy.url)
        made = await forge.open(NEW)
        path = f"/api/v3/repos/team/fleet/pulls/{made.number}"
        proxy.reset()
        proxy.rewrite_status(
            1, 301, headers={"Location": "/api/v3/repos/team/fleet/pulls?state=open&page=1"}
        )
        found = await forge.find(BRANCH)
        assert found is not None and found.number == made.number
        proxy.reset()
        proxy.rewrite_status(
            lambda request: request.method == "PATCH" and request.path == path,
            307,
            headers={"Location": f"{path}?moved"},
        )
        closed = await forge.close(made.number)
        assert closed.state is PullRequestState.CLOSED
        await forge.aclose()

    on_github(scenario)


def test_a_redirection_in_a_circle_ends() -> None:
    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        proxy.rewrite_status(lambda request: True, 302, headers={"Location": "/around"})
        forge = world.forge(proxy.url)
        with pytest.raises(ConfigurationError):
            await forge.find(BRANCH)
        assert len(proxy.requests) == transport.MAX_REDIRECTS
        await forge.aclose()

    on_github(scenario)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirection_to_another_host_takes_no_token_there(status: int) -> None:
    asked: list[web.Request] = []

    async def stranger(request: web.Request) -> web.Response:
        asked.append(request)
        return web.json_response([])

    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        elsewhere = web.Application()
        elsewhere.router.add_route("*", "/{path:.*}", stranger)
        async with serve_application(elsewhere) as url:
            for location in (f"{url}/steal", "//example.invalid/steal", "https://["):
                proxy.reset()
                proxy.rewrite_status(lambda request: True, status, headers={"Location": location})
                forge = world.forge(proxy.url)
                with pytest.raises(ConfigurationError, match="leads elsewhere"):
                    await forge.find(BRANCH)
                with pytest.raises(ConfigurationError, match="leads elsewhere"):
                    await forge.comment(1, "text")
                await forge.aclose()

    on_github(scenario)
    assert asked == []


def test_no_error_shows_the_token() -> None:
    """Not in its text, its pickle, or the locals of its frames: also not where it is echoed."""
    canary = planted_secret("forge token", "forge-{}")
    surfaces = Surfaces()

    async def scenario(world: RecordedForgeWorld, proxy: FaultProxy) -> None:
        world.memory.token = canary.value
        echo = json.dumps({"message": f"Token {canary.value} is bad.", "errors": [canary.value]})
        faults: dict[str, Callable[[], None]] = {
            **{
                f"status {status}": lambda status=status: proxy.rewrite_status(  # type: ignore[misc]
                    1, status, headers=JSON, body=echo.encode()
                )
                for status in (200, 400, 401, 403, 404, 409, 418, 422, 429, 500)
            },
            "redirection": lambda: proxy.rewrite_status(
                1, 302, headers={"Location": f"https://x.invalid/?{canary.value}"}
            ),
            "dropped": lambda: proxy.drop_request(1),
            "cut": lambda: proxy.cut_response(1, after_bytes=20),
            "hanging": lambda: proxy.hang(1),
        }
        for name, inject in faults.items():
            proxy.reset()
            inject()
            forge = world.forge(proxy.url, timeout=1.0)
            surfaces.add_value(name, forge)
            error = await failure_of(forge.comment(1, "text"))
            surfaces.add_failure(name, raising(error))
            await forge.aclose()
        nobody = world.forge("http://127.0.0.1:1")
        surfaces.add_failure("refused", raising(await failure_of(nobody.find(BRANCH))))
        await nobody.aclose()

    on_github(scenario)
    assert surfaces.leaks([canary]) == []


async def failure_of(work: Awaitable[object]) -> Exception:
    try:
        await work
    except Exception as error:
        return error
    raise AssertionError("it was expected to fail")


def raising(error: Exception) -> Callable[[], object]:
    def work() -> object:
        raise error

    return work
