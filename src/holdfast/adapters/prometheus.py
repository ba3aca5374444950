"""Asks a Prometheus server for one number, to judge a canary by.

Anything that speaks its HTTP API will do (Thanos, Mimir, VictoriaMetrics). Called by the
operator, once per round of an analysis.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import aiohttp

from holdfast.core.redact import redact
from holdfast.core.text_style import escape_unprintable

MAX_RESPONSE = 1 << 20
"""An answer of more bytes is not one number."""
_LOG = logging.getLogger("holdfast.prometheus")


class PrometheusSource:
    """One server. Close it when done."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        """Take the address as far as before `/api/v1`; it may hold a user and a password."""
        self._url = url.rstrip("/") + "/api/v1/query"
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def query(self, expression: str) -> float | None:
        """Return the value of an instant query; None, with the reason logged, for anything else."""
        try:
            value, reason = parse_number(await self._ask(expression))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            value, reason = None, f"{type(error).__name__}: {error}"
        if value is None:
            said = escape_unprintable(redact(reason))[:300]
            _LOG.warning("metric-without-value", extra={"query": expression, "reason": said})
        return value

    async def aclose(self) -> None:
        """Let go of the connections. Safe to call twice."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, expression: str) -> object:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        # A form, because an expression may be longer than an address; no redirects, because
        # the server was named by whoever runs the operator and nobody else.
        async with self._session.post(
            self._url, data={"query": expression}, allow_redirects=False
        ) as answer:
            body = await answer.content.read(MAX_RESPONSE + 1)
            while len(body) <= MAX_RESPONSE and (more := await answer.content.read(MAX_RESPONSE)):
                body += more
            if len(body) > MAX_RESPONSE:
                raise ValueError(f"an answer of more than {MAX_RESPONSE} bytes")
            if answer.status != 200:
                raise ValueError(f"status {answer.status}: {body[:200]!r}")
            return json.loads(body)


def parse_number(answer: Any) -> tuple[float | None, str]:  # Any: JSON of a stranger
    """Read one number out of an answer, or say why there is none."""
    try:
        if answer["status"] != "success":
            return None, f"the query failed: {answer.get('error')}"
        kind, result = answer["data"]["resultType"], answer["data"]["result"]
        if kind == "vector":
            if len(result) != 1:
                return None, f"{len(result)} series, where one is needed; aggregate them"
            pair = result[0]["value"]
        elif kind == "scalar":
            pair = result
        else:
            return None, f"the answer is a {kind}, not a number"
        value = float(pair[1])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        return None, f"the answer is not Prometheus's: {type(error).__name__}"
    if math.isnan(value):
        return None, "the value is NaN"
    return value, ""
