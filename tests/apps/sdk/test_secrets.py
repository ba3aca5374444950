"""A token reaches the Authorization header and nothing else."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from typing import Any

import pytest
from tests.support.fault_proxy import FaultProxy

from holdfast import (
    AsyncDataClient,
    AsyncManagementClient,
    DataClient,
    HoldfastError,
    ManagementClient,
)

SECRET = "5ec4e7" * 10
TOKEN = f"ik_sdk_0123abcd_{SECRET}"
KEY = f"ik_live_0123abcd_{SECRET}"
URL = "http://127.0.0.1:9"
CLIENTS = [
    lambda: ManagementClient(URL, project="acme", token=TOKEN),
    lambda: AsyncManagementClient(URL, project="acme", token=TOKEN),
    lambda: DataClient(URL, project="acme", api_key=KEY),
    lambda: AsyncDataClient(URL, project="acme", api_key=KEY),
    lambda: DataClient(URL, project="acme").endpoint("chat", api_key=KEY),
    lambda: AsyncDataClient(URL, project="acme").endpoint("chat", api_key=KEY),
]


def everything_in(value: object, depth: int = 0) -> str:
    """The text of a value and of all that hangs from it."""
    inner = getattr(value, "__dict__", {}) if depth < 6 else {}
    return f"{value!r} {value!s} " + " ".join(
        everything_in(each, depth + 1) for each in inner.values()
    )


@pytest.mark.parametrize("make", CLIENTS)
def test_a_client_shows_no_token_and_cannot_be_pickled(make: Any) -> None:
    client = make()
    assert SECRET not in everything_in(client)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(client)
    with pytest.raises(TypeError):
        copy.deepcopy(client)


def test_no_log_and_no_traceback_holds_the_token(caplog: pytest.LogCaptureFixture) -> None:
    with FaultProxy(URL) as proxy, caplog.at_level(logging.DEBUG):
        proxy.rewrite_status(lambda request: request.number <= 2, 503)
        proxy.rewrite_status(3, 400, body=b'{"error": "invalid", "message": "%s"}' % TOKEN.encode())
        proxy.drop_response(lambda request: request.number > 3)
        client = ManagementClient(proxy.url, project="acme", token=TOKEN, max_retries=2)
        for _ in range(2):
            with pytest.raises(HoldfastError) as raised:
                client.get("chat")
            shown = "".join(traceback.format_exception(raised.value))
            assert SECRET not in shown
            assert SECRET.encode() not in pickle.dumps(raised.value)
        assert proxy.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert caplog.records
    assert SECRET not in caplog.text
