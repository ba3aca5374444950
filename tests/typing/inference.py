"""Written as a user would: the type checker is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from holdfast import (
    AsyncDataClient,
    AsyncEndpoint,
    DataClient,
    EmbedResult,
    Endpoint,
    RerankResult,
    TextChunk,
    TextResult,
)


def sync() -> None:
    with DataClient.from_env(project="acme") as data:
        bot = data.endpoint("support-bot", api_key="ik_live_…")
        assert_type(bot, Endpoint)
        result = bot.generate_text(prompt="Hello", temperature=0.2, max_tokens=8, seed=1)
        assert_type(result, TextResult)
        assert_type(result.text, str)
        messages = [{"role": "user", "content": "Hello"}]
        assert_type(bot.generate_text_stream(messages=messages), Iterator[TextChunk])
        assert_type(bot.embed("one text"), EmbedResult)
        assert_type(bot.embed(["two", "texts"]).embeddings, list[list[float]])
        assert_type(bot.rerank(query="q", documents=["a", "b"], top_n=1), RerankResult)
        assert_type(bot.openai_kwargs(), dict[str, str])


async def loop() -> None:
    async with AsyncDataClient("https://host", project="acme") as data:
        bot = data.endpoint("support-bot", api_key="ik_live_…")
        assert_type(bot, AsyncEndpoint)
        assert_type(await bot.generate_text(prompt="Hello"), TextResult)
        assert_type(bot.generate_text_stream(prompt="Hello"), AsyncIterator[TextChunk])
        async for piece in bot.generate_text_stream(prompt="Hello"):
            print(piece.text, end="")
        assert_type(await bot.embed("x"), EmbedResult)
        assert_type(await bot.rerank(query="q", documents=[]), RerankResult)
