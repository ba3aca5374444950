"""The data plane clients: call the workloads that a management client declared.

One key per workload, so one program can drive several with the least right each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from typing import NoReturn, Self

from holdfast.adapters.http.inference import InferenceClient
from holdfast.adapters.http.results import EmbedResult, RerankResult, TextChunk, TextResult
from holdfast.apps.sdk.connect import ClientOptions, make_transport
from holdfast.apps.sdk.settings import API_KEY, check_key, merge_aliases, resolve_connection
from holdfast.core.errors import ConfigurationError, ValidationError
from holdfast.core.names import WorkloadId, require_slug
from holdfast.core.redact import Secret
from holdfast.reconcile.sync_bridge import blocking, blocking_iterator, run_sync

TIMEOUT = 600.0
"""Seconds for a whole reply; large models take their time."""
IDLE_TIMEOUT = 120.0
"""Longest silence within a streamed reply."""
RETRIES = 2


class _BaseDataClient:
    """What the sync and the async client share."""

    _blocking: bool

    def __init__(
        self,
        url: str | None = None,
        *,
        project: str | None = None,
        api_key: str | Secret | None = None,
        timeout: float = TIMEOUT,
        idle_timeout: float = IDLE_TIMEOUT,
        max_retries: int = RETRIES,
        manager: str = "holdfast-sdk",
        allow_insecure: bool = False,
        base_url: str | None = None,
    ) -> None:
        """Say where the endpoints are; an argument wins over the environment.

        `base_url` is the name that InferenceKey's client has for `url`.
        """
        url = merge_aliases(url=url, base_url=base_url)
        self._settings = resolve_connection(
            url,
            project=project,
            token=api_key,
            allow_insecure=allow_insecure,
            token_names=API_KEY,
        )
        if not self._settings.is_remote:
            raise ConfigurationError(
                f"{self._settings.url} has no endpoints to call: only a server runs workloads.",
                hint="Start holdfast serve and set HOLDFAST_URL to its address.",
            )
        if not self._settings.project:
            raise ConfigurationError(
                "No project was named.", hint="Set HOLDFAST_PROJECT, or pass project=."
            )
        self._project = self._settings.project
        options = ClientOptions(
            timeout=timeout, max_retries=max_retries, manager=manager, blocking=self._blocking
        )
        self._timeout = timeout
        self._idle = idle_timeout
        self._transport = make_transport(self._settings, options, None)

    @classmethod
    def from_env(
        cls,
        url: str | None = None,
        *,
        project: str | None = None,
        api_key: str | Secret | None = None,
        base_url: str | None = None,
        timeout: float = TIMEOUT,
        idle_timeout: float = IDLE_TIMEOUT,
        max_retries: int = RETRIES,
        allow_insecure: bool = False,
    ) -> Self:
        """Build a client from arguments and the environment."""
        return cls(
            url,
            base_url=base_url,
            project=project,
            api_key=api_key,
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
            allow_insecure=allow_insecure,
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_project"):  # shown by a traceback while it is being built
            return f"{type(self).__name__}(…)"
        return f"{type(self).__name__}({self._settings.url!r}, project={self._project!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it may hold a key")

    def _bind(self, slug: str, api_key: str | Secret | None) -> tuple[InferenceClient, Secret]:
        key = api_key or self._settings.token
        if key is None:
            raise ConfigurationError(
                f"There is no key for workload {slug}.",
                hint="Pass api_key=, or set HOLDFAST_API_KEY to its ik_live_ key.",
            )
        where = WorkloadId(project=self._project, slug=require_slug(slug))
        checked = check_key(self._settings, key)
        return InferenceClient(self._transport.with_token(checked), where), checked


class _BaseEndpoint:
    """What a sync or an async endpoint knows."""

    def __init__(
        self, port: InferenceClient, key: Secret, slug: str, *, timeout: float, idle: float
    ) -> None:
        self._port = port
        self._key = key
        self._timeout = timeout
        self._idle = idle
        self.workload_slug = slug

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._port.base_url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an {type(self).__name__} cannot be pickled: it holds a key")

    def openai_kwargs(self) -> dict[str, str]:
        """Return `base_url` and `api_key`, ready for `openai.OpenAI(**…)`."""
        return {"base_url": self._port.base_url, "api_key": self._key.reveal()}


class DataClient(_BaseDataClient):
    """Calls workloads."""

    _blocking = True

    def endpoint(self, workload_slug: str, *, api_key: str | Secret | None = None) -> Endpoint:
        """Bind one workload and its key."""
        port, key = self._bind(workload_slug, api_key)
        return Endpoint(port, key, workload_slug, timeout=self._timeout, idle=self._idle)

    def close(self) -> None:
        """Close every connection."""
        run_sync(self._transport.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncDataClient(_BaseDataClient):
    """Calls workloads from an event loop; the same names as `DataClient`."""

    _blocking = False

    def endpoint(self, workload_slug: str, *, api_key: str | Secret | None = None) -> AsyncEndpoint:
        """Bind one workload and its key."""
        port, key = self._bind(workload_slug, api_key)
        return AsyncEndpoint(port, key, workload_slug, timeout=self._timeout, idle=self._idle)

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncEndpoint(_BaseEndpoint):
    """One workload's endpoint for an event loop; `Endpoint` drives the same coroutines."""

    async def generate_text(
        self,
        /,
        *,
        prompt: str | None = None,
        messages: Sequence[Mapping[str, object]] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **more: object,
    ) -> TextResult:
        """Complete a chat. Other OpenAI parameters may be given by name."""
        body = chat_body(prompt, messages, temperature, max_tokens, more)
        return await self._port.chat(body, seconds=self._timeout)

    def generate_text_stream(
        self,
        /,
        *,
        prompt: str | None = None,
        messages: Sequence[Mapping[str, object]] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **more: object,
    ) -> AsyncIterator[TextChunk]:
        """Complete a chat piece by piece. Raises when the reply breaks off."""
        body = chat_body(prompt, messages, temperature, max_tokens, more)
        return self._port.chat_stream(body, seconds=self._timeout, idle=self._idle)

    async def embed(self, input: str | Sequence[str]) -> EmbedResult:
        """Make one vector per text."""
        return await self._port.embed(embed_body(input), seconds=self._timeout)

    async def rerank(
        self, *, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> RerankResult:
        """Score documents against a query, best first."""
        return await self._port.rerank(rerank_body(query, documents, top_n), seconds=self._timeout)


class Endpoint(_BaseEndpoint):
    """One workload's OpenAI-shaped endpoint, with its key."""

    @cached_property
    def _async(self) -> AsyncEndpoint:
        return AsyncEndpoint(
            self._port, self._key, self.workload_slug, timeout=self._timeout, idle=self._idle
        )

    generate_text = blocking(AsyncEndpoint.generate_text)
    generate_text_stream = blocking_iterator(AsyncEndpoint.generate_text_stream)
    embed = blocking(AsyncEndpoint.embed)
    rerank = blocking(AsyncEndpoint.rerank)


def chat_body(
    prompt: str | None,
    messages: Sequence[Mapping[str, object]] | None,
    temperature: float | None,
    max_tokens: int | None,
    more: Mapping[str, object],
) -> dict[str, object]:
    """Write the body of a chat; `prompt` is short for one message of the user."""
    if (prompt is None) == (messages is None):
        raise ValidationError("Give either prompt or messages.")
    if messages is None:
        messages = [{"role": "user", "content": prompt}]
    body = {
        "messages": list(messages),
        "temperature": temperature,
        "max_tokens": max_tokens,
        **more,
    }
    return {name: value for name, value in body.items() if value is not None}


def embed_body(texts: str | Sequence[str]) -> dict[str, object]:
    """Write the body of an embedding; one text counts as a list of one."""
    return {"input": [texts] if isinstance(texts, str) else list(texts)}


def rerank_body(query: str, documents: Sequence[str], top_n: int | None) -> dict[str, object]:
    """Write the body of a rerank."""
    body: dict[str, object] = {"query": query, "documents": list(documents)}
    return body if top_n is None else {**body, "top_n": top_n}
