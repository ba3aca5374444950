"""The logs of a workload's pods, each line with the name of its pod.

Every pod is read by itself; the API server merges nothing. Lines that are there already are
ordered by the time the kubelet gave them, lines that follow come as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

import aiohttp

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.objects import Object
from holdfast.adapters.kubernetes.responses import KubeResponse, response_error
from holdfast.adapters.kubernetes.watch import LineFramer
from holdfast.core.errors import HoldfastError, NotFound, TargetUnavailable, ValidationError
from holdfast.core.service.children import selector
from holdfast.reconcile.kube import Scope

RESPONSE_TIMEOUT = 30.0
POD_POLL_SECONDS = 5.0
"""Seconds between two searches for new pods."""
QUEUED_LINES = 1_000
"""Lines that may wait for a slow reader before the pods' streams do."""
_TimedLine: TypeAlias = tuple[str, str]
"""When it was written, in a form that sorts, and the text with the pod's name in front."""


async def read_logs(
    api: KubeApi, namespace: str, name: str, *, tail: int, follow: bool
) -> AsyncGenerator[str, None]:
    """Yield the last lines, oldest first; with `follow`, go on as they come."""
    pods = await _list_pods(api, namespace, name)
    lines: list[_TimedLine] = []
    last_at: dict[_Pod, str] = {}
    for pod in pods:
        read = await _read_last_lines(api, pod, tail)
        lines += read
        last_at[pod] = max((at for at, _ in read), default="")
    for _, text in sorted(lines, key=lambda line: line[0])[max(0, len(lines) - tail) :]:
        yield text
    if follow:
        async with aclosing(_follow_pods(api, namespace, name, last_at)) as more:
            async for text in more:
                yield text


@dataclass(frozen=True, slots=True)
class _Pod:
    """What one stream is of: the container that serves; those that others injected follow it."""

    name: str
    path: str
    container: str

    @property
    def params(self) -> dict[str, str]:
        return {"container": self.container, "timestamps": "true"}


async def _list_pods(api: KubeApi, namespace: str, name: str) -> list[_Pod]:
    resource = await api.resource_of("v1", "Pod")
    labels = ",".join(f"{key}={value}" for key, value in selector(name).items())
    scope = Scope(api_version="v1", kind="Pod", namespace=namespace, labels=labels)
    found: Sequence[Object] = (await api.list(scope)).items
    return [
        _Pod(
            name=str(item["metadata"]["name"]),
            path=resource.path(item["metadata"]["name"], namespace=namespace, subresource="log"),
            container=str(item["spec"]["containers"][0]["name"]),
        )
        for item in found
    ]


async def _read_last_lines(api: KubeApi, pod: _Pod, tail: int) -> list[_TimedLine]:
    """Return the last lines of a pod with their times; none of one that has not begun."""
    response = await api.connection.request(
        "GET", pod.path, params={**pod.params, "tailLines": str(tail)}, within=RESPONSE_TIMEOUT
    )
    if response.status != 200:
        return _no_lines(response)
    return [
        _parse_line(line, pod) for line in response.body.decode("utf-8", "replace").splitlines()
    ]


def _no_lines(response: KubeResponse) -> list[_TimedLine]:
    error = response_error(response)
    # Gone since it was listed, or its container waits to start: both have nothing to show.
    if isinstance(error, NotFound | ValidationError):
        return []
    raise error


async def _follow_pods(
    api: KubeApi, namespace: str, name: str, last_at: dict[_Pod, str]
) -> AsyncGenerator[str, None]:
    lines: asyncio.Queue[str | HoldfastError] = asyncio.Queue(QUEUED_LINES)
    tasks: dict[_Pod, asyncio.Task[None]] = {}
    loop = asyncio.get_running_loop()
    try:
        while True:
            for pod in await _list_pods(api, namespace, name):
                if pod not in tasks or tasks[pod].done():
                    tasks[pod] = asyncio.create_task(_stream_pod(api, pod, last_at, lines))
            next_poll = loop.time() + POD_POLL_SECONDS
            while (left := next_poll - loop.time()) > 0:
                try:
                    line = await asyncio.wait_for(lines.get(), left)
                except TimeoutError:
                    break
                if isinstance(line, HoldfastError):
                    raise line
                yield line
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _stream_pod(
    api: KubeApi, pod: _Pod, last_at: dict[_Pod, str], lines: asyncio.Queue[str | HoldfastError]
) -> None:
    """Put the lines of one pod into the queue until its container ends."""
    path, params = pod.path, {**pod.params, "follow": "true"}
    if last_at.get(pod):
        # Whole seconds, the last one included, so what was shown is left out below.
        params["sinceTime"] = last_at[pod][:19] + "Z"
    framer = LineFramer()
    try:
        async with api.connection.stream(path, params=params, within=RESPONSE_TIMEOUT) as response:
            if response.status != 200:
                body = await response.read()
                status = response.status
                _no_lines(
                    KubeResponse(
                        method="GET", where=f"GET {path}", status=status, headers={}, body=body
                    )
                )
                return
            while chunk := await response.content.readany():
                for line in framer.feed(chunk):
                    at, text = _parse_line(line.decode("utf-8", "replace"), pod)
                    if at > last_at.get(pod, ""):
                        last_at[pod] = at
                        await lines.put(text)
    except (aiohttp.ClientError, OSError):
        return  # resumed at the next poll
    except TargetUnavailable:
        return
    except HoldfastError as error:
        await lines.put(error)


def _parse_line(line: str, pod: _Pod) -> _TimedLine:
    at, _, text = line.partition(" ")
    seconds, _, fraction = at.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction:0<9}", f"{pod.name}: {text}"
