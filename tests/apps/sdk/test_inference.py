"""The data plane clients: whole answers, streams, and streams that only look whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apps.sdk.remote_target import JSON
from tests.support.both_clients import CLIENT_KINDS, data_client
from tests.support.fault_proxy import FaultProxy, Recorded

from holdfast import (
    ApiError,
    AuthError,
    BackendError,
    ConfigurationError,
    DataClient,
    HoldfastError,
    PermissionDenied,
    RerankItem,
    TargetUnavailable,
    TextChunk,
    ValidationError,
)

KEY = "ik_live_0123abcd_" + "f" * 40
REPLICA = {"x-holdfast-replica": "chat-0"}
STREAM = {"content-type": "text/event-stream"}
HEL = b'data: {"choices": [{"delta": {"content": "Hel"}}], "model": "chat"}\n\n'
LO = b'data: {"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
Endpoint = Any  # either colour, under the same names


def every(request: Recorded) -> bool:
    return True


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """Every answer here is made up, so there is no server behind it."""
    with FaultProxy("http://127.0.0.1:9") as proxy:
        yield proxy


@pytest.fixture(params=CLIENT_KINDS)
def endpoint(request: pytest.FixtureRequest, proxy: FaultProxy) -> Iterator[Endpoint]:
    options = {"project": "acme", "api_key": KEY, "timeout": 20, "idle_timeout": 0.5}
    with data_client(request.param, proxy.url, max_retries=1, **options) as client:
        yield client.endpoint("chat")


def test_a_chat_is_answered(proxy: FaultProxy, endpoint: Endpoint) -> None:
    body = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"model":"m","x":1}'
    proxy.rewrite_status(every, 200, headers=JSON, body=body)
    result = endpoint.generate_text(prompt="Hello", max_tokens=5, seed=7)
    assert (result.text, result.model, result.finish_reason) == ("Hi", "m", "stop")
    assert result.raw["x"] == 1
    sent = proxy.requests[0]
    assert sent.path == "/endpoint/acme/chat/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert b'"model":"chat"' in sent.body and b'"seed":7' in sent.body
    assert b"temperature" not in sent.body


def test_a_chat_takes_a_prompt_or_messages_and_not_both(endpoint: Endpoint) -> None:
    with pytest.raises(ValidationError):
        endpoint.generate_text()
    with pytest.raises(ValidationError):
        endpoint.generate_text(prompt="a", messages=[{"role": "user", "content": "a"}])


def test_embeddings_come_in_the_order_of_the_inputs(proxy: FaultProxy, endpoint: Endpoint) -> None:
    body = b'{"data":[{"index":1,"embedding":[2]},{"index":0,"embedding":[1.5]}],"model":"m"}'
    proxy.rewrite_status(every, 200, headers=JSON, body=body)
    assert endpoint.embed(["a", "b"]).embeddings == [[1.5], [2.0]]
    endpoint.embed(input="one")
    assert b'"input":["one"]' in proxy.requests[1].body


def test_reranked_documents_come_best_first(proxy: FaultProxy, endpoint: Endpoint) -> None:
    body = b'{"results":[{"index":0,"relevance_score":0.1},{"index":1,"relevance_score":0.9}]}'
    proxy.rewrite_status(every, 200, headers=JSON, body=body)
    result = endpoint.rerank(query="q", documents=["a", "b"], top_n=2)
    assert result.results[0] == RerankItem(index=1, relevance_score=0.9)


def test_a_stream_yields_each_piece(proxy: FaultProxy, endpoint: Endpoint) -> None:
    body = b": alive\n\n" + HEL + LO + b'data: {"choices": []}\n\n' + DONE
    proxy.rewrite_status(every, 200, headers=STREAM, body=body)
    pieces: list[TextChunk] = list(endpoint.generate_text_stream(prompt="Hello"))
    assert "".join(piece.text for piece in pieces) == "Hello"
    assert [piece.finish_reason for piece in pieces] == [None, "stop", None]
    assert b'"stream":true' in proxy.requests[0].body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (HEL, TargetUnavailable),
        (HEL + LO, TargetUnavailable),
        (HEL + LO + DONE[:-2], TargetUnavailable),
        (HEL + b"event: error\ndata: out of memory\n\n" + DONE, ApiError),
        (HEL + b'data: {"error": {"message": "out of memory"}}\n\n' + DONE, ApiError),
        (HEL + b"data: {not json\n\n" + DONE, ApiError),
        (b"", TargetUnavailable),
    ],
    ids=[
        "broken off",
        "no [DONE]",
        "half a [DONE]",
        "error event",
        "error body",
        "garbage",
        "empty",
    ],
)
def test_a_stream_that_is_not_whole_raises(
    proxy: FaultProxy, endpoint: Endpoint, body: bytes, kind: type[HoldfastError]
) -> None:
    proxy.rewrite_status(every, 200, headers=STREAM, body=body)
    with pytest.raises(kind):
        list(endpoint.generate_text_stream(prompt="Hello"))


def test_a_stream_that_falls_silent_raises(proxy: FaultProxy, endpoint: Endpoint) -> None:
    proxy.rewrite_status(every, 200, headers=STREAM, body=HEL + LO + DONE)
    proxy.hang(every, after_bytes=150)
    with pytest.raises(TargetUnavailable, match="stopped answering"):
        list(endpoint.generate_text_stream(prompt="Hello"))


def test_a_stream_that_is_no_stream_is_refused(proxy: FaultProxy, endpoint: Endpoint) -> None:
    proxy.rewrite_status(1, 200, headers=JSON, body=b"{}")
    proxy.rewrite_status(2, 401, headers=JSON, body=b'{"error": "unauthenticated"}')
    with pytest.raises(ApiError):
        list(endpoint.generate_text_stream(prompt="Hello"))
    with pytest.raises(AuthError):
        list(endpoint.generate_text_stream(prompt="Hello"))


def test_a_prompt_that_may_have_been_served_is_not_sent_twice(
    proxy: FaultProxy, endpoint: Endpoint
) -> None:
    proxy.drop_request(every)
    with pytest.raises(TargetUnavailable):
        endpoint.generate_text(prompt="Hello")
    assert len(proxy.requests) == 1


def test_a_prompt_that_was_turned_away_is_sent_again(proxy: FaultProxy, endpoint: Endpoint) -> None:
    proxy.rewrite_status(every, 200, headers=JSON, body=b'{"choices": [{}], "model": "m"}')
    proxy.rewrite_status(1, 503, headers={"retry-after": "0"})
    assert endpoint.generate_text(prompt="Hello").text == ""
    assert len(proxy.requests) == 2


BACKENDS = {
    "OpenAI": (
        b'{"error": {"message": "max_tokens is too large", "type": "invalid_request_error"}}',
        "invalid_request_error",
    ),
    "llama.cpp": (
        b'{"error": {"code": 400, "message": "max_tokens is too large", "type": "invalid"}}',
        "invalid",
    ),
    "older vLLM": (
        b'{"object":"error","message":"max_tokens is too large","type":"BadRequestError"}',
        "BadRequestError",
    ),
    "Ollama": (b'{"error": "max_tokens is too large"}', ""),
    "FastAPI": (b'{"detail": [{"loc": ["body", "n"], "msg": "max_tokens is too large"}]}', ""),
    "FastAPI's own": (b'{"detail": "max_tokens is too large"}', ""),
    "text": (b"max_tokens is too large\n", ""),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("body", "reason"), BACKENDS.values(), ids=list(BACKENDS))
def test_the_backends_own_error_is_passed_on(
    proxy: FaultProxy, endpoint: Endpoint, body: bytes, reason: str, streamed: bool
) -> None:
    def ask() -> None:
        if streamed:
            list(endpoint.generate_text_stream(prompt="Hello"))
        else:
            endpoint.generate_text(prompt="Hello")

    for status in (400, 404, 422, 500):
        proxy.rewrite_status(every, status, headers={**JSON, **REPLICA}, body=body)
        with pytest.raises(BackendError) as raised:
            ask()
        error = raised.value
        assert (error.status, error.reason) == (status, reason)
        assert error.message.endswith("max_tokens is too large")
        assert f"The server of acme/chat answered {status}: {error.message}" in str(error)
        assert "control plane" not in str(error) and "changed" not in str(error)


def test_a_backend_that_is_busy_can_be_asked_later(proxy: FaultProxy, endpoint: Endpoint) -> None:
    body = b'{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}'
    proxy.rewrite_status(every, 503, headers={**JSON, **REPLICA, "retry-after": "0"}, body=body)
    with pytest.raises(TargetUnavailable, match="answered 503: Loading model"):
        endpoint.generate_text(prompt="Hello")


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "unauthenticated", "message": "Not authenticated. The key is not known."}',
        b'{"error": {"message": "Not authenticated. The key is not known.",'
        b' "type": "authentication_error", "param": null, "code": "unauthenticated"}}',
    ],
    ids=["ours", "OpenAI's"],
)
def test_a_bad_key_points_to_its_own_variable(
    proxy: FaultProxy, endpoint: Endpoint, body: bytes
) -> None:
    proxy.rewrite_status(every, 401, headers=JSON, body=body)
    with pytest.raises(AuthError, match="The key is not known") as raised:
        endpoint.generate_text(prompt="Hello")
    assert "HOLDFAST_API_KEY" in raised.value.hint
    assert "HOLDFAST_TOKEN" not in str(raised.value)
    other = body.replace(b"unauthenticated", b"scope_insufficient")
    proxy.rewrite_status(every, 403, headers=JSON, body=other)
    with pytest.raises(PermissionDenied) as denied:
        list(endpoint.generate_text_stream(prompt="Hello"))
    assert denied.value.reason == "scope_insufficient"
    assert "HOLDFAST_API_KEY" in denied.value.hint


def test_an_openai_client_gets_address_and_key(proxy: FaultProxy, endpoint: Endpoint) -> None:
    expected = {"base_url": f"{proxy.url}/endpoint/acme/chat/v1", "api_key": KEY}
    assert endpoint.openai_kwargs() == expected


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_API_KEY", "INFERENCEKEY_API_KEY", "HOLDFAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="HOLDFAST_URL"):
        DataClient(f"sqlite:///{tmp_path}/x.db", project="acme")
    with pytest.raises(ConfigurationError, match="HOLDFAST_PROJECT"):
        DataClient("http://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="HOLDFAST_API_KEY"):
        DataClient("http://127.0.0.1:9", project="acme").endpoint("chat")
    with pytest.raises(ConfigurationError, match="in clear"):
        DataClient("http://example.com", project="acme").endpoint("chat", api_key=KEY)
