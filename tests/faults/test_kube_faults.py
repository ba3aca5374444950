"""The proxy before the API server does what it was told, and counts what really happened."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.faults.kube_faults import (
    REASONS,
    KubeFaults,
    calls,
    coalesce_events,
    duplicate_event,
    faults_before,
    swap_events,
)
from tests.support.cluster import Cluster
from tests.support.processes import wait_until


class Client:
    """Plain HTTP on one connection per request."""

    def __init__(self, kube: KubeFaults, namespace: str) -> None:
        self.address = urlsplit(kube.url).netloc
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    # Any: objects of the Kubernetes API as they come over the wire, here and below.
    def send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json", "User-Agent": "tester/1"}
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def create(self, name: str, **data: str) -> tuple[int, bytes]:
        made = {"metadata": {"name": name}, "data": data}
        return self.send("POST", f"{self.path}?fieldManager=tester", made)

    def patch(self, name: str, **data: str) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        headers = {"Content-Type": "application/merge-patch+json"}
        connection.request("PATCH", f"{self.path}/{name}", json.dumps({"data": data}), headers)
        assert connection.getresponse().status == 200
        connection.close()

    def names(self) -> list[str]:
        found = json.loads(self.send("GET", f"{self.path}?labelSelector=!x")[1])
        return sorted(each["metadata"]["name"] for each in found["items"]) if found else []

    def version(self) -> str:
        found = json.loads(self.send("GET", self.path)[1])
        version: str = found["metadata"]["resourceVersion"]
        return version


class Watching:
    """The events of one watch, read by a thread until the stream ends."""

    def __init__(self, client: Client, *, version: str = "", seconds: int = 30) -> None:
        self.events: list[tuple[str, str, str]] = []
        """Type, name and the value of `n`."""
        self.ended = False
        self._client = client
        version = version or client.version()
        query = f"watch=true&resourceVersion={version}&timeoutSeconds={seconds}"
        self._connection = http.client.HTTPConnection(client.address, timeout=40)
        self._connection.request("GET", f"{client.path}?{query}")
        self._response = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while line := self._response.readline():
                event = json.loads(line)
                item = event["object"]
                if item.get("metadata", {}).get("name") == "kube-root-ca.crt":
                    continue
                name = item.get("metadata", {}).get("name", "")
                value = (item.get("data") or {}).get("n", str(item.get("code", "")))
                self.events.append((event["type"], name, value))
        except (OSError, ValueError, http.client.HTTPException):
            pass  # closed by the test
        self.ended = True

    def close(self) -> None:
        held = self._connection.sock
        if held is not None and not self.ended:
            held.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._response.close()
        self._connection.close()


@pytest.fixture
def client(kube: KubeFaults, namespace: str, cluster: Cluster) -> Client:
    path = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"

    def there() -> bool:
        found = Client(kube, namespace).send("GET", path)[0]
        return found == 200

    wait_until(there, 20, "the namespace's own object, which would disturb counts")
    kube.reset()
    return Client(kube, namespace)


def test_without_a_fault_requests_pass_and_are_counted_by_object(
    kube: KubeFaults, client: Client, namespace: str
) -> None:
    assert client.create("a", n="1")[0] == 201
    assert client.create("a", n="2")[0] == 409
    assert client.send("DELETE", f"{client.path}/a")[0] == 200
    assert client.send("DELETE", f"{client.path}/a")[0] == 404
    about = f"configmaps/{namespace}/a"
    assert (kube.created(), kube.deleted()) == ({about: 1}, {about: 1})
    first = kube.calls[0]
    assert (first.manager, first.user_agent, first.resource) == ("tester", "tester/1", "configmaps")
    assert first.write and not first.watch and not first.dry_run


@pytest.mark.parametrize("code", [404, 409, 502])
def test_a_scripted_status_meets_the_chosen_calls_only(
    code: int, kube: KubeFaults, client: Client
) -> None:
    kube.answer(calls("POST", r"/configmaps", nth=2, times=2), code, html=code == 502)
    assert [client.create(name)[0] for name in "abcd"] == [201, code, code, 201]
    body = client.create("a")[1]  # the server's own refusal has the same form
    assert json.loads(body)["kind"] == "Status"
    kube.heal()
    kube.answer(calls("POST", nth=1), code, html=code == 502, retry_after=3)
    said = client.create("e")[1]
    if code == 502:
        assert said.startswith(b"<html>")
    else:
        assert json.loads(said)["reason"] == REASONS[code]
    assert sum(kube.created().values()) == 2


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_reset_comes_before_or_after_the_server_acted(
    after_commit: bool, kube: KubeFaults, client: Client
) -> None:
    kube.reset_connection(calls("POST"), after_commit=after_commit)
    with pytest.raises(ConnectionResetError):
        client.create("a")
    assert (client.send("GET", f"{client.path}/a")[0] == 200) is after_commit


def test_an_answer_can_be_lost_while_its_write_holds(kube: KubeFaults, client: Client) -> None:
    kube.lose_answer(calls("POST"), 504)
    assert client.create("a")[0] == 504
    assert client.send("GET", f"{client.path}/a")[0] == 200
    assert sum(kube.created().values()) == 1


def test_a_frozen_list_stays_as_it_was_first_seen(kube: KubeFaults, client: Client) -> None:
    client.create("a")
    kube.freeze(calls("GET", r"labelSelector", times=None))
    before = client.names()
    client.create("b")
    client.send("DELETE", f"{client.path}/a")
    assert client.names() == before
    kube.heal()
    assert "b" in client.names() and "a" not in client.names()


def test_a_watch_can_expire_inside_its_stream(kube: KubeFaults, client: Client) -> None:
    kube.expire(calls(watch=True), after=1)
    watching = Watching(client)
    client.create("a", n="1")
    client.create("b", n="1")
    wait_until(lambda: watching.ended, 20, "the end of the watch")
    watching.close()
    assert watching.events == [("ADDED", "a", "1"), ("ERROR", "", "410")]


def test_a_watch_can_fall_silent_with_its_connection_open(kube: KubeFaults, client: Client) -> None:
    kube.silence(calls(watch=True), after=1)
    version = client.version()
    deaf, hearing = Watching(client, version=version), Watching(client, version=version)
    for name in "abc":
        client.create(name, n="1")
    wait_until(lambda: len(hearing.events) == 3, 20, "the events of the other watch")
    assert deaf.events == [("ADDED", "a", "1")]
    assert not deaf.ended
    for each in (deaf, hearing):
        each.close()


@pytest.mark.parametrize(
    ("make", "seen"),
    [
        (
            lambda: duplicate_event,
            [("ADDED", "1"), ("ADDED", "1"), ("MODIFIED", "2"), ("MODIFIED", "2")],
        ),
        (swap_events, [("MODIFIED", "2"), ("ADDED", "1")]),
        (coalesce_events, [("ADDED", "3")]),
        (lambda: lambda _: [], []),
    ],
    ids=["doubled", "swapped", "coalesced", "dropped"],
)
def test_events_of_a_watch_are_changed_as_told(
    make: Any, seen: list[tuple[str, str]], kube: KubeFaults, client: Client
) -> None:
    kube.change_events(calls(watch=True), make)
    version = client.version()
    changed, whole = Watching(client, version=version), Watching(client, version=version)
    client.create("a", n="1")
    for n in ("2", "3"):
        client.patch("a", n=n)
    client.create("b", n="9")
    wait_until(lambda: len(whole.events) == 4, 20, "all events on the other watch")

    def first() -> list[tuple[str, str]]:
        return [(kind, n) for kind, name, n in changed.events if name == "a"][: len(seen)]

    wait_until(lambda: first() == seen, 20, f"{seen}")
    for each in (changed, whole):
        each.close()


def test_the_proxy_can_speak_tls_with_a_certificate_that_the_cluster_signed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with faults_before(cluster, tmp_path, tls=True) as kube:
        trusted = ssl.create_default_context(cafile=cluster.directory / "pki" / "ca.crt")
        connection = http.client.HTTPSConnection(urlsplit(kube.url).netloc, context=trusted)
        connection.request("GET", f"/api/v1/namespaces/{namespace}")
        assert connection.getresponse().status == 200
        connection.close()
        document = json.loads(kube.kubeconfig.read_text())
        assert document["clusters"][0]["cluster"]["server"] == kube.url
