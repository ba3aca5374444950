"""Speaks to the API server of a test cluster directly, one request at a time.

For the set-up of the cluster and for test fixtures, where starting kubectl for each request would
cost most of the time. It is deliberately not Holdfast's own client, which the tests judge.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.certificates import Certificate

TIMEOUT = 10.0
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class RequestFailed(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


class KubeApi:
    def __init__(self, *, server: str, authority: Path, identity: Certificate) -> None:
        self._address = urlsplit(server).netloc
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(identity.certificate, identity.key)

    def ready(self) -> bool:
        try:
            return self._send("GET", "/readyz", None, JSON)[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    # Any: objects of the Kubernetes API as they come over the wire.
    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """Send one request and give the object it answers with; raises RequestFailed."""
        status, answer = self._send(method, path, body, content_type)
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise RequestFailed(status, answer.decode(errors="replace"))
        found: dict[str, Any] = json.loads(answer)
        return found

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": JSON, "Content-Type": content_type, "User-Agent": "holdfast-testbed"}
        connection = http.client.HTTPSConnection(
            self._address, timeout=TIMEOUT, context=self._context
        )
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
