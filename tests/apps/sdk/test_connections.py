"""What the connections themselves must do: prove who is there, be shared, outlive a loop."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.apps.sdk.remote_target import JSON, chat_body
from tests.support.both_clients import CLIENT_KINDS, management_client
from tests.support.certificates import Authority, Certificate
from tests.support.fault_proxy import FaultProxy
from tests.support.server import RunningServer

from holdfast import AsyncManagementClient, ManagementClient, TargetUnavailable
from holdfast.core.errors import NOTHING_CHANGED
from holdfast.testing import a_spec

BODY = chat_body()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
    BODY
)


@contextmanager
def tls_server(certificate: Certificate) -> Iterator[tuple[str, list[str]]]:
    """Answer every request about acme/chat over TLS; the list notes each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    seen: list[str] = []
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def serve() -> None:
            while not stopped.is_set():
                with suppress(OSError):  # time-outs, and clients that leave in mid-handshake
                    plain, _ = server.accept()
                    seen.append("connected")
                    plain.settimeout(5)
                    with context.wrap_socket(plain, server_side=True) as connection:
                        connection.recv(65536)
                        connection.sendall(ANSWER + BODY)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", seen
        finally:
            stopped.set()
            thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls") / "pki")


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_server_that_proves_itself_is_talked_to(
    colour: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    with (
        tls_server(authority.issue("here", hosts=["IP:127.0.0.1"])) as (place, _),
        management_client(colour, f"https://{place}", project="acme", token="t") as client,
    ):
        assert client.get("chat").fields["model"] == "m"


@pytest.mark.parametrize("colour", CLIENT_KINDS)
@pytest.mark.parametrize("fault", ["unknown authority", "other host"])
def test_a_server_that_cannot_prove_itself_is_asked_once_and_told_nothing(
    colour: str,
    fault: str,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusted = authority if fault == "other host" else Authority.create(tmp_path / "pki")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.certificate))
    host = "DNS:other.example" if fault == "other host" else "IP:127.0.0.1"
    with tls_server(authority.issue("there", hosts=[host])) as (place, seen):
        with (
            management_client(colour, f"https://{place}", project="acme", token="t") as client,
            pytest.raises(TargetUnavailable, match="certificate") as raised,
        ):
            client.ensure(a_spec(name="chat"))
        assert raised.value.changed == NOTHING_CHANGED
    assert len(seen) == 1


def test_threads_may_share_one_client(server: RunningServer, slug: str) -> None:
    with ManagementClient(server.url, project="acme", token=server.token("acme")) as client:
        outcomes: list[str] = []

        def declare() -> None:
            outcomes.append(client.ensure(a_spec(name=slug)).outcome)

        threads = [threading.Thread(target=declare) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) == ["created", *["unchanged"] * 15]


def test_a_sync_client_works_inside_a_running_loop(server: RunningServer, slug: str) -> None:
    async def notebook() -> str:
        with ManagementClient(server.url, project="acme", token=server.token("acme")) as client:
            return client.ensure(a_spec(name=slug)).outcome

    assert asyncio.run(notebook()) == "created"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_async_client_may_outlive_the_loop_it_was_first_used_in(
    server: RunningServer, slug: str
) -> None:
    client = AsyncManagementClient(server.url, project="acme", token=server.token("acme"))
    assert asyncio.run(client.ensure(a_spec(name=slug))).outcome == "created"
    assert asyncio.run(client.ensure(a_spec(name=slug))).outcome == "unchanged"
    # Nothing could close what belonged to the first loop: its warning is to come here, and now.
    del client
    gc.collect()


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_client_may_be_used_again_after_it_was_closed(
    colour: str, server: RunningServer, slug: str
) -> None:
    with management_client(
        colour, server.url, project="acme", token=server.token("acme")
    ) as client:
        client.ensure(a_spec(name=slug))
        client.close()
        client.close()
        assert client.get(slug).generation == 1


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_looking_at_a_workload_that_is_in_sync_costs_one_request(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    with management_client(colour, proxy.url, project="acme", token=server.token("acme")) as client:
        client.ensure(a_spec(name=slug))
        proxy.reset()
        client.ensure(a_spec(name=slug))
    assert [request.method for request in proxy.requests] == ["GET"]


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_project_of_many_pages_is_listed_whole(
    colour: str, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.http.target.PAGE_SIZE", 3)
    project = f"pages-{colour}"
    with management_client(
        colour, server.url, project=project, token=server.token(project)
    ) as client:
        for count in range(8):
            assert len(client.list()) == count
            client.ensure(a_spec(name=f"w{count}"))
        assert [live.id.slug for live in client.list()] == [f"w{count}" for count in range(8)]


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_watch_goes_on_after_its_stream_was_cut(
    colour: str, server: RunningServer, proxy: FaultProxy
) -> None:
    project = f"watched-{colour}"
    token = server.token(project)
    proxy.cut_response(lambda request: request.path.endswith("/events"), after_bytes=400)
    with (
        management_client(colour, proxy.url, project=project, token=token) as client,
        management_client("sync", server.url, project=project, token=token) as other,
    ):
        other.ensure(a_spec(name="zero"))
        seen = client.watch(timeout=60)
        assert next(seen).kind == "present"
        for count in range(6):
            other.ensure(a_spec(name=f"w{count}"))
            change = next(seen)
            assert (change.kind, change.live.id.slug) == ("created", f"w{count}")
        seen.close()
    assert len([each for each in proxy.requests if each.path.endswith("/events")]) > 1


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_proxy_from_the_environment_is_used_but_never_for_this_machine(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with FaultProxy("http://127.0.0.1:9") as forward, FaultProxy("http://127.0.0.1:9") as direct:
        for each in (forward, direct):
            each.rewrite_status(lambda request: True, 200, headers=JSON, body=BODY)
        monkeypatch.setenv("http_proxy", forward.url)
        for url in ("http://control.example", direct.url):
            with management_client(
                colour, url, project="acme", token="t", allow_insecure=True
            ) as client:
                client.get("chat")
        assert [each.path.split("/api")[0] for each in forward.requests] == [
            "http://control.example"
        ]
        assert len(direct.requests) == 1
