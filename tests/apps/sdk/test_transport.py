"""What the remote target makes of answers that are late, broken or somebody else's."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.apps.sdk.remote_target import CHAT, JSON, TOKEN, RemoteTargetDriver, chat_body, make_step
from tests.support.both_clients import CLIENT_KINDS
from tests.support.fault_proxy import FaultProxy, Recorded

from holdfast import (
    ApiError,
    AuthError,
    Conflict,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.adapters.http.responses import Response, response_error
from holdfast.adapters.http.transports import deadline_in
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    AlreadyExists,
    Ambiguous,
    InvalidState,
    RefusedByPolicy,
)
from holdfast.core.live import Absent, Live
from holdfast.core.plan import Action

NO_UPSTREAM = "http://127.0.0.1:9"


def every(request: Recorded) -> bool:
    return True


def error_body(code: str, message: str = "said the server") -> bytes:
    return b'{"error": "%s", "message": "%s"}' % (code.encode(), message.encode())


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """Every answer here is made up, so there is no server behind it."""
    with FaultProxy(NO_UPSTREAM) as proxy:
        yield proxy


@pytest.fixture(params=CLIENT_KINDS)
def asker(request: pytest.FixtureRequest, proxy: FaultProxy) -> Iterator[RemoteTargetDriver]:
    with RemoteTargetDriver(request.param, proxy.url) as asker:
        yield asker


def test_a_good_answer_is_a_live_workload(proxy: FaultProxy, asker: RemoteTargetDriver) -> None:
    proxy.rewrite_status(every, 200, headers=JSON, body=chat_body())
    live = asker(asker.target.observe(CHAT))
    assert isinstance(live, Live) and live.fields["model"] == "m"
    sent = proxy.requests[0].headers
    assert sent["authorization"] == f"Bearer {TOKEN}"
    assert sent["accept-encoding"] == "identity"
    assert sent["user-agent"].startswith("holdfast-sdk/")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_asked_again(
    proxy: FaultProxy, asker: RemoteTargetDriver, status: int
) -> None:
    proxy.rewrite_status(every, 200, headers=JSON, body=chat_body())
    proxy.rewrite_status(lambda request: request.number <= 2, status)
    assert isinstance(asker(asker.target.observe(CHAT)), Live)
    assert len(proxy.requests) == 3
    assert asker.clock.slept == [0.25, 0.5]


@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 410, 412, 418, 422, 501, 505])
def test_any_other_failure_is_not_asked_again(
    proxy: FaultProxy, asker: RemoteTargetDriver, status: int
) -> None:
    proxy.rewrite_status(every, status)
    with pytest.raises(HoldfastError):
        asker(asker.target.observe(CHAT))
    assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"retry-after": "3"}, [3.0]),
        ({"retry-after": "0"}, [0.0]),
        (
            {
                "retry-after": "Sun, 06 Nov 1994 08:49:42 GMT",
                "date": "Sun, 06 Nov 1994 08:49:37 GMT",
            },
            [5.0],
        ),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:42 GMT"}, [0.25]),
        (
            {
                "retry-after": "Sun, 06 Nov 1994 08:49:30 GMT",
                "date": "Sun, 06 Nov 1994 08:49:37 GMT",
            },
            [0.25],
        ),
        ({"retry-after": "-5"}, [0.25]),
        ({"retry-after": "soon"}, [0.25]),
        ({"retry-after": "\u0663"}, [0.25]),
        ({"retry-after": "1e9"}, [0.25]),
        ({}, [0.25]),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured_where_it_makes_sense(
    proxy: FaultProxy,
    asker: RemoteTargetDriver,
    status: int,
    headers: dict[str, str],
    waits: list[float],
) -> None:
    sent = {name: text.encode().decode("latin-1") for name, text in headers.items()}
    proxy.rewrite_status(every, 200, headers=JSON, body=chat_body())
    proxy.rewrite_status(1, status, headers=sent)
    assert isinstance(asker(asker.target.observe(CHAT)), Live)
    assert asker.clock.slept == waits


@pytest.mark.parametrize("text", ["31", "60", "1000000000", "9" * 12])
def test_a_wait_beyond_the_deadline_is_not_begun(
    proxy: FaultProxy, asker: RemoteTargetDriver, text: str
) -> None:
    proxy.rewrite_status(every, 503, headers={"retry-after": text})
    with pytest.raises(TargetUnavailable):
        asker(asker.target.observe(CHAT))
    assert asker.clock.slept == [] and len(proxy.requests) == 1


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_server_may_not_ask_for_more_than_a_minute(proxy: FaultProxy, colour: str) -> None:
    proxy.rewrite_status(every, 200, headers=JSON, body=chat_body())
    proxy.rewrite_status(1, 503, headers={"retry-after": "100000"})
    with RemoteTargetDriver(colour, proxy.url, seconds=3600) as asker:
        assert isinstance(asker(asker.target.observe(CHAT)), Live)
        assert asker.clock.slept == [60.0]


def test_retries_end_with_an_error_that_quotes_the_server(
    proxy: FaultProxy, asker: RemoteTargetDriver
) -> None:
    proxy.rewrite_status(every, 503, headers=JSON, body=error_body("unavailable", "busy now"))
    with pytest.raises(TargetUnavailable, match="busy now"):
        asker(asker.target.observe(CHAT))
    assert len(proxy.requests) == 5


TURNED_AWAY = {**JSON, "retry-after": "0"}
LOST = error_body("outcome_unknown", f"Away. {OUTCOME_UNKNOWN} Look again.")
CONFLICT = error_body("conflict", f"Other. {NOTHING_CHANGED}")


def post(asker: RemoteTargetDriver, key: str | None = None) -> Response:
    """Send a write past the target, which gives each of its own a key."""
    client = asker.target._client
    deadline = deadline_in(30.0, client.clock)
    return asker(client.request("POST", "/x", deadline=deadline, body=b"{}", key=key))


@pytest.mark.parametrize("status", [429, 503])
def test_a_write_without_a_key_is_repeated_when_it_was_turned_away(
    proxy: FaultProxy, asker: RemoteTargetDriver, status: int
) -> None:
    proxy.rewrite_status(every, 204)
    proxy.rewrite_status(1, status, headers=TURNED_AWAY, body=error_body("unavailable"))
    assert post(asker).status == 204
    assert len(proxy.requests) == 2


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (504, TURNED_AWAY, LOST),
        (503, {}, b"upstream connect error or disconnect"),
        (503, JSON, LOST),
    ],
    ids=["ours", "a gateway's", "without a time"],
)
def test_a_write_without_a_key_that_may_have_taken_effect_is_sent_once(
    proxy: FaultProxy,
    asker: RemoteTargetDriver,
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> None:
    proxy.rewrite_status(every, 409, headers=JSON, body=CONFLICT)
    proxy.rewrite_status(1, status, headers=headers, body=body)
    error = response_error(post(asker))
    assert len(proxy.requests) == 1
    assert type(error) is TargetUnavailable and error.changed == OUTCOME_UNKNOWN
    assert str(error).count("effect is unknown") == 1


def test_a_conflict_after_an_open_outcome_does_not_say_that_nothing_was_changed(
    proxy: FaultProxy, asker: RemoteTargetDriver
) -> None:
    proxy.rewrite_status(every, 409, headers=JSON, body=CONFLICT)
    proxy.rewrite_status(1, 504, headers=TURNED_AWAY, body=LOST)
    error = response_error(post(asker, key="k"))
    assert len(proxy.requests) == 2
    assert type(error) is Conflict and error.changed == OUTCOME_UNKNOWN
    assert NOTHING_CHANGED not in str(error)


UNREADABLE = [
    ("truncated JSON", JSON, chat_body()[:-20]),
    ("an HTML page", {"content-type": "text/html"}, b"<html>Please log in</html>"),
    ("an HTML page under a false name", JSON, b"<html>Please log in</html>"),
    ("an empty body", JSON, b""),
    ("no type", {}, chat_body()),
    ("another type", {"content-type": "text/plain"}, chat_body()),
    ("an error in a success", JSON, error_body("not_found")),
    ("null", JSON, b"null"),
    ("a list", JSON, b"[]"),
    ("another workload", JSON, chat_body(workload_slug="other")),
    ("another project", JSON, chat_body(project_slug="other")),
    ("a wrong type inside", JSON, chat_body(generation="one")),
    ("bytes that are no text", JSON, b'{"id": "\xff\xfe"}'),
    ("deep nesting", JSON, b"[" * 100_000),
    ("a compressed body", {**JSON, "content-encoding": "gzip"}, chat_body()),
]


@pytest.mark.parametrize(
    ("headers", "body"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE]
)
def test_what_cannot_be_read_is_an_api_error_and_never_success(
    proxy: FaultProxy, asker: RemoteTargetDriver, headers: dict[str, str], body: bytes
) -> None:
    proxy.rewrite_status(every, 200, headers=headers, body=body)
    with pytest.raises(ApiError) as raised:
        asker(asker.target.observe(CHAT))
    assert raised.value.changed == NOTHING_CHANGED
    with pytest.raises(ApiError) as raised:
        asker(asker.target.perform(make_step(), key="k"))
    assert raised.value.changed == OUTCOME_UNKNOWN
    assert len(proxy.requests) == 2


def test_an_endless_answer_is_cut_at_the_cap(
    proxy: FaultProxy, asker: RemoteTargetDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.rewrite_status(every, 200, headers=JSON, body=b" " * (33 << 20))
    with pytest.raises(ApiError, match="32 MiB"):
        asker(asker.target.observe(CHAT))


@pytest.mark.parametrize("action", [Action.CREATE, Action.UPDATE])
def test_an_empty_success_of_a_write_is_not_taken_for_one(
    proxy: FaultProxy, asker: RemoteTargetDriver, action: Action
) -> None:
    proxy.rewrite_status(every, 204)
    with pytest.raises(ApiError):
        asker(asker.target.perform(make_step(action), key="k"))
    assert asker(asker.target.perform(make_step(Action.DELETE), key="k")) == Absent(id=CHAT)


def test_only_the_control_plane_itself_can_say_that_a_workload_is_absent(
    proxy: FaultProxy, asker: RemoteTargetDriver
) -> None:
    proxy.rewrite_status(1, 404, headers=JSON, body=error_body("not_found"))
    proxy.rewrite_status(2, 404, headers={"content-type": "text/html"}, body=b"<h1>404</h1>")
    proxy.rewrite_status(3, 404, headers=JSON, body=b'{"detail": "Not Found"}')
    proxy.rewrite_status(4, 404, headers=JSON, body=error_body("no_such_route"))
    assert asker(asker.target.observe(CHAT)) == Absent(id=CHAT)
    for kind in (ApiError, ApiError, NotFound):
        with pytest.raises(kind):
            asker(asker.target.observe(CHAT))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid", ValidationError),
        (401, "unauthenticated", AuthError),
        (403, "scope_insufficient", PermissionDenied),
        (409, "conflict", Conflict),
        (409, "already_exists", AlreadyExists),
        (409, "slug_taken", AlreadyExists),
        (409, "ambiguous", Ambiguous),
        (409, "invalid_state", InvalidState),
        (409, "refused", RefusedByPolicy),
        (412, "precondition_failed", Conflict),
        (422, "idempotency_key_reused", ValidationError),
        (507, "out_of_space", TargetUnavailable),
        (418, "teapot", ApiError),
        (302, "", ApiError),
    ],
)
def test_each_status_has_its_error(
    proxy: FaultProxy, asker: RemoteTargetDriver, status: int, code: str, kind: type[HoldfastError]
) -> None:
    headers = {**JSON, "location": "https://evil.example/"}
    proxy.rewrite_status(every, status, headers=headers, body=error_body(code))
    with pytest.raises(kind) as raised:
        asker(asker.target.perform(make_step(), key="k"))
    assert type(raised.value) is kind
    assert raised.value.changed == NOTHING_CHANGED
    assert len(proxy.requests) == 1
    if isinstance(raised.value, PermissionDenied):
        assert raised.value.reason == code


def test_problems_reach_the_caller(proxy: FaultProxy, asker: RemoteTargetDriver) -> None:
    body = b"""{"error": "invalid", "message": "Input was refused. Nothing was changed.",
        "problems": [{"field": "model", "reason": "it is empty.", "fix": "Give one."}]}"""
    proxy.rewrite_status(every, 400, headers=JSON, body=body)
    with pytest.raises(ValidationError) as raised:
        asker(asker.target.perform(make_step(), key="k"))
    assert raised.value.problems[0].field == "model"
    assert str(raised.value).count("Nothing was changed.") == 1


def test_a_refused_token_ends_the_call_at_once(
    proxy: FaultProxy, asker: RemoteTargetDriver
) -> None:
    proxy.rewrite_status(every, 401, headers={"retry-after": "0"})
    with pytest.raises(AuthError, match="HOLDFAST_TOKEN") as raised:
        asker(asker.target.observe(CHAT))
    assert len(proxy.requests) == 1
    assert TOKEN not in str(raised.value)


def test_an_error_never_shows_the_token_it_was_sent_with(
    proxy: FaultProxy, asker: RemoteTargetDriver
) -> None:
    proxy.rewrite_status(every, 400, headers=JSON, body=error_body("invalid", f"bad {TOKEN}"))
    with pytest.raises(ValidationError) as raised:
        asker(asker.target.observe(CHAT))
    assert "f" * 64 not in str(raised.value)
    assert "f" * 64 not in repr(asker.target)


def test_repeats_of_a_step_carry_one_key(proxy: FaultProxy, asker: RemoteTargetDriver) -> None:
    proxy.rewrite_status(every, 200, headers=JSON, body=chat_body())
    proxy.drop_request(lambda request: request.number <= 2)
    asker(asker.target.perform(make_step(), key="the-key"))
    keys = [request.headers["idempotency-key"] for request in proxy.requests]
    assert keys == ["the-key"] * 3


def test_a_lost_write_makes_the_outcome_unknown_whatever_comes_after(
    proxy: FaultProxy, asker: RemoteTargetDriver
) -> None:
    proxy.drop_request(1)
    proxy.rewrite_status(lambda request: request.number > 1, 401)
    with pytest.raises(AuthError) as raised:
        asker(asker.target.perform(make_step(), key="k"))
    assert raised.value.changed == OUTCOME_UNKNOWN


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_server_that_is_not_there_is_unavailable_and_nothing_was_changed(colour: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with RemoteTargetDriver(colour, url) as asker:
            with pytest.raises(TargetUnavailable, match="refused") as raised:
                asker(asker.target.perform(make_step(), key="k"))
            assert raised.value.changed == NOTHING_CHANGED
            assert len(asker.clock.slept) == 4
