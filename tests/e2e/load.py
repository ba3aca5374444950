"""Steady requests to one workload over the data plane, each judged on its own.

    with Load(server.url, "acme", "chat", key) as load:
        ...                       # change things
        load.more(50)             # until so many more have been answered
    assert load.failures() == []

Nothing is tried twice, so what the server fails to hide shows up here.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx2
from tests.support.processes import wait_until

KINDS = ("plain", "kept-alive", "stream", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """One request: when it was sent, when its answer was complete, and who gave it."""

    kind: str
    began: float
    ended: float
    failure: str = ""
    model: str = ""
    replica: str = ""


class Load:
    """One thread for each of `kinds`, one request at a time in each."""

    def __init__(
        self, url: str, project: str, slug: str, key: str, *, kinds: tuple[str, ...] = KINDS
    ) -> None:
        self._url = f"{url}/endpoint/{project}/{slug}/v1/chat/completions"
        self._slug = slug
        self._headers = {"Authorization": f"Bearer {key}"}
        self._stop = threading.Event()
        self._numbers = itertools.count(1)
        self.asked: list[RequestOutcome] = []
        self.concurrency = len(kinds)
        self._threads = [
            threading.Thread(target=self._run, args=(kind,), name=f"load {kind}") for kind in kinds
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def more(self, count: int, timeout: float = 60.0) -> None:
        """Wait until so many more requests have ended."""
        goal = len(self.asked) + count
        wait_until(lambda: len(self.asked) >= goal, timeout, f"{count} more answers")

    def failures(self) -> list[str]:
        """Say what went wrong, each with its kind."""
        return [f"{each.kind}: {each.failure}" for each in self.asked if each.failure]

    def between(self, since: float, until: float) -> list[RequestOutcome]:
        """Give the requests that were sent and answered within a span of time."""
        return [each for each in list(self.asked) if each.began >= since and each.ended <= until]

    def _run(self, kind: str) -> None:
        with httpx2.Client(timeout=60, trust_env=False) as client:
            while not self._stop.is_set():
                if kind == "plain":  # a connection of its own
                    with httpx2.Client(timeout=60, trust_env=False) as fresh:
                        self._one(kind, fresh)
                else:
                    self._one(kind, client)

    def _one(self, kind: str, client: httpx2.Client) -> None:
        text = f"number {next(self._numbers)}"
        body = {"model": self._slug, "messages": [{"role": "user", "content": text}]}
        began, failure, model, replica = time.monotonic(), "", "", ""
        try:
            with client.stream(
                "POST",
                self._url,
                headers=self._headers,
                json={**body, "stream": kind == "stream"},
            ) as answer:
                read = "".join(answer.iter_text())
                model = answer.headers.get("x-backend-model", "")
                replica = answer.headers.get("x-holdfast-replica", "")
            if answer.status_code != 200:
                failure = f"{answer.status_code} {read[:200]}"
            else:
                said = _streamed(read) if kind == "stream" else _whole(read)
                failure = "" if said == f"echo: {text}" else f"an answer of {len(said)} characters"
        except (httpx2.HTTPError, ValueError, KeyError, IndexError) as error:
            failure = f"{type(error).__name__}: {error}"
        self.asked.append(
            RequestOutcome(
                kind=kind,
                began=began,
                ended=time.monotonic(),
                failure=failure,
                model=model,
                replica=replica,
            )
        )


def _whole(body: str) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


def _streamed(body: str) -> str:
    """Join the pieces of a stream, which is complete only with its last event."""
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    if events[-1] != "[DONE]":
        raise ValueError(f"the stream ended after {len(events)} events without [DONE]")
    choices = (json.loads(event)["choices"] for event in events[:-1])
    return "".join(found[0]["delta"].get("content", "") for found in choices if found)
