"""Every target there is, for the suite that holds them to one contract.

A new target joins with one line in `FACTORIES`: a function from an empty directory to an
async context manager that yields the target and cleans up after it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.server import running_server

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.http.client import HttpClient
from holdfast.adapters.http.target import RemoteTarget
from holdfast.adapters.http.transports import AsyncTransport
from holdfast.adapters.kubernetes.target import open_kubernetes_target
from holdfast.adapters.memory.target import MemoryTarget
from holdfast.adapters.store import Store, StoreTarget
from holdfast.core.live import Writer
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import ControlTarget

PROJECT = "acme"
"""The project that the suite uses; a factory makes sure that it is there."""
WRITER = Writer(manager="holdfast-sdk", actor="tests")

Factory = Callable[[Path], AbstractAsyncContextManager[ControlTarget]]


@asynccontextmanager
async def embedded(home: Path) -> AsyncIterator[ControlTarget]:
    """The store, written in place, as a laptop uses it."""
    target = StoreTarget(Store.open(home / "holdfast.db"), writer=WRITER)
    try:
        yield target
    finally:
        await target.aclose()


@asynccontextmanager
async def embedded_submitting(home: Path) -> AsyncIterator[ControlTarget]:
    """The store, written through the group writer, as the server uses it."""
    target = StoreTarget(Store.open(home / "holdfast.db"), writer=WRITER, submit=True)
    try:
        yield target
    finally:
        await target.aclose()


@asynccontextmanager
async def memory(home: Path) -> AsyncIterator[ControlTarget]:
    """Plain dictionaries, as users test with."""
    yield MemoryTarget(clock=SystemClock(), writer=WRITER, new_uid=lambda: str(uuid.uuid4()))


@asynccontextmanager
async def remote(home: Path) -> AsyncIterator[ControlTarget]:
    """A control plane over HTTP. Its runner is off: the suite is about declarations."""
    with running_server(home, run=False) as server:
        transport = HttpClient(
            server.url,
            token=Secret(server.token(PROJECT, name=str(WRITER.actor))),
            user_agent=WRITER.manager,
            transport=AsyncTransport(),
            clock=SystemClock(),
            retries=2,
        )
        target = RemoteTarget(transport).within(60)
        try:
            yield target
        finally:
            await target.aclose()


@asynccontextmanager
async def kubernetes(home: Path) -> AsyncIterator[ControlTarget]:
    """The cluster that KUBECONFIG names, in a namespace of its own. No operator runs in it."""
    name = f"contract-{secrets.token_hex(4)}"
    target = open_kubernetes_target("", name, writer=WRITER, timeout=30)
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await target.api.create(document)
        yield target.within(60)
        spaces = await target.api.resource_of("v1", "Namespace")
        await target.api.delete(spaces.ref(name))
    finally:
        await target.aclose()


FACTORIES: dict[str, Factory] = {
    "embedded": embedded,
    "embedded-submitting": embedded_submitting,
    "memory": memory,
    "remote": remote,
    "kubernetes": kubernetes,
}
NAMES = [
    pytest.param(name, marks=pytest.mark.cluster) if name == "kubernetes" else name
    for name in FACTORIES
]
"""The parameters of a fixture: those that need the real cluster are marked so."""
