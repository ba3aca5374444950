"""Asks inference engines what they serve, and tells them which adapters to have.

The operator asks pods, the runner its own processes. Few at a time and within bounds; no redirect
is followed and no proxy used, so that nothing but the address that was given is ever asked.
"""

from __future__ import annotations

import asyncio

from holdfast.adapters.outbound import (
    AddressRule,
    NoResponse,
    OutboundClient,
    OutboundResponse,
    sanitize,
)
from holdfast.core.address_reach import AddressReach, IpAddress, reach_of
from holdfast.core.backends import BackendProfile
from holdfast.core.engine_answer import MAX_ANSWER, EngineReport, EngineResponse, Unreported
from holdfast.core.engine_report import AdapterRequest, read_report

_TIMEOUT = 5.0
_CHANGE_TIMEOUT = 60.0
"""Loading an adapter may download it."""
_PARALLEL = 16
_DETAIL_LIMIT = 200


def pod_address_problem(address: IpAddress) -> str:
    """Say why no pod can be at an address. The address rule of a client that asks pods."""
    if reach_of(address) in (AddressReach.LOOPBACK, AddressReach.RESERVED):
        return "its address is that of this machine, reserved, link-local or a metadata service"
    return ""


class EngineClient:
    """Implements `reconcile.ports.EngineApi` over HTTP. Close it when done."""

    def __init__(self, *, address_rule: AddressRule | None, timeout: float = _TIMEOUT) -> None:
        self._client = OutboundClient(
            timeout=timeout, max_bytes=MAX_ANSWER, address_rule=address_rule, keep_alive=False
        )
        self._turn = asyncio.Semaphore(_PARALLEL)

    async def report(self, url: str, backend: BackendProfile) -> EngineReport:
        """Ask an engine what it serves; see the port."""
        responses: dict[str, EngineResponse] = {}
        async with self._turn:
            for query in backend.queries:
                found = await self._get(url, query.paths)
                responses[query.paths[0]] = found
                if isinstance(found, Unreported) and found.unreachable:
                    break  # nobody is there, and each further question would wait as long
        missing = next((each for each in responses.values() if isinstance(each, Unreported)), None)
        if missing is not None and missing.unreachable:
            responses = {query.paths[0]: missing for query in backend.queries}
        return read_report(backend, responses)

    async def send(self, url: str, request: AdapterRequest) -> Unreported | None:
        """Send one change of its adapters; see the port."""
        async with self._turn:
            response = await self._client.send(
                "POST", f"{url}{request.path}", json=request.body, request_timeout=_CHANGE_TIMEOUT
            )
        if isinstance(response, NoResponse):
            reason = f"POST {request.path}: it {response.reason}."
            return Unreported(reason=reason, unreachable=True)
        if response.status // 100 == 2:
            return None
        return Unreported(reason=f"POST {request.path}: it answered with {_described(response)}.")

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def _get(self, url: str, paths: tuple[str, ...]) -> EngineResponse:
        found: EngineResponse = Unreported(reason="Nothing was asked.")
        for path in paths:
            response = await self._client.send("GET", f"{url}{path}")
            if isinstance(response, NoResponse):
                reason = f"GET {path}: it {response.reason}."
                return Unreported(reason=reason, unreachable=True)
            if response.status == 200:
                return response.body
            found = Unreported(reason=f"GET {path}: {_status_reason(response)}.")
            if response.status != 404:
                break
        return found


def _status_reason(response: OutboundResponse) -> str:
    match response.status:
        case 401 | 403:
            return f"it asks for a key ({response.status}), and Holdfast has none"
        case 404:
            return "it knows no such path (404)"
        case status if 300 <= status < 400:
            return f"it sends elsewhere ({status}), where nobody goes"
        case _:
            return f"it answered with {_described(response)}"


def _described(response: OutboundResponse) -> str:
    said = sanitize(response.body.decode(errors="replace"), limit=_DETAIL_LIMIT)
    return f"{response.status}: {said}" if said else str(response.status)
