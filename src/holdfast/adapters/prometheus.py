"""Asks a Prometheus server for one number, to judge a canary by.

Anything that speaks its HTTP API will do (Thanos, Mimir, VictoriaMetrics). Called by the
operator, once per round of an analysis.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from holdfast.adapters.outbound import NoResponse, OutboundClient, sanitize

MAX_RESPONSE = 1 << 20
"""A response of more bytes is not one number."""
_LOG = logging.getLogger("holdfast.prometheus")


class PrometheusSource:
    """One server. Close it when done."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        """Take the URL as far as before `/api/v1`; it may hold a user and a password."""
        self._url = url.rstrip("/") + "/api/v1/query"
        # Any address will do: the server was named by whoever runs the operator.
        self._client = OutboundClient(timeout=timeout, max_bytes=MAX_RESPONSE)

    async def query(self, expression: str) -> float | None:
        """Return the value of an instant query; None, with the reason logged, for anything else."""
        value, reason = await self._query(expression)
        if value is None:
            reason = sanitize(reason, limit=300)
            _LOG.warning("metric-without-value", extra={"query": expression, "reason": reason})
        return value

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def _query(self, expression: str) -> tuple[float | None, str]:
        # A form, because an expression may be longer than a URL.
        response = await self._client.send("POST", self._url, data={"query": expression})
        if isinstance(response, NoResponse):
            return None, f"the server {response.reason}"
        if response.status != 200:
            return None, f"status {response.status}: {response.body[:200]!r}"
        try:
            return parse_number(json.loads(response.body))
        except ValueError as error:
            return None, f"the response is not JSON: {error}"


def parse_number(answer: Any) -> tuple[float | None, str]:  # Any: JSON of a stranger
    """Read one number out of a response, or say why there is none."""
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
