"""Every way to be somebody, tried with a real request over TLS."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import api_for, cluster_config, serving, status
from tests.support.certificates import Authority, Certificate

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.credentials import ExecConfig, ExecCredentials
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig, in_cluster_config
from holdfast.core.errors import AuthError, ConfigurationError, TargetUnavailable

V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"


class Gate:
    """A TLS server that says who asked. `accepts` turns it into one that answers 401."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.accepts: Callable[[str], bool] = lambda token: True
        self.identity = authority.issue("server", hosts=["IP:127.0.0.1", "DNS:kube.example"])

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.accepts(token):
            return web.json_response(status(401, "Unauthorized"), status=401)
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        names = dict(part[0] for part in peer.get("subject", ()))
        acting = request.headers.get("Impersonate-User", "")
        groups = request.headers.getall("Impersonate-Group", [])
        return web.json_response(
            {"token": token, "user": names.get("commonName", ""), "as": acting, "groups": groups}
        )

    def tls(self, identity: Certificate | None = None) -> ssl.SSLContext:
        identity = identity or self.identity
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.certificate, identity.key)
        context.load_verify_locations(self.authority.certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("pki") / "ca")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.issue("ada")


@pytest.fixture
def gate(authority: Authority) -> Gate:
    return Gate(authority)


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def write_kubeconfig(folder: Path, url: str, user: dict[str, Any], **cluster: Any) -> Path:
    path = folder / "config"
    document = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


def who(
    gate: Gate,
    folder: Path,
    user: dict[str, Any],
    *,
    times: int = 1,
    between: Callable[[], None] = lambda: None,
    **cluster: Any,
) -> dict[str, Any]:
    """Ask the server who we are, `times` times with one client; gives the last answer."""

    async def asked() -> dict[str, Any]:
        async with serving(gate, tls=gate.tls()) as url:
            more = {"certificate-authority": str(gate.authority.certificate), **cluster}
            path = write_kubeconfig(folder, url, user, **more)
            async with api_for(cluster_config(path), within=10) as api:
                for turn in range(times):
                    if turn:
                        between()
                    found = await api.request("GET", "/who")
                return found

    return asyncio.run(asked())


def plugin(folder: Path, given: dict[str, Any], *, version: str = V1, **more: Any) -> Any:
    """A program that prints a credential, and counts its runs by one letter each in `runs`."""
    place = folder / "plugin.py"
    place.write_text(
        "import json, os, sys\n"
        f"open({str(folder / 'runs')!r}, 'a').write('x')\n"
        f"runs = len(open({str(folder / 'runs')!r}).read())\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "server = info['spec'].get('cluster', {}).get('server', 'unknown')\n"
        f"status = json.loads({json.dumps(given)!r})\n"
        "if 'token' in status:\n"
        "    status['token'] = status['token'].replace('RUN', str(runs)).replace(\n"
        "        'TOLD', os.environ.get('TOLD', '')).replace('SERVER', server[:17])\n"
        f"print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential', "
        "'status': status}))\n"
    )
    return {
        "exec": {
            "apiVersion": version,
            "command": sys.executable,
            "args": [str(place)],
            "interactiveMode": "Never",
            **more,
        }
    }


def test_a_token(gate: Gate, tmp_path: Path) -> None:
    assert who(gate, tmp_path, {"token": "abc"})["token"] == "abc"


def test_a_token_file_that_is_replaced_while_we_run(gate: Gate, tmp_path: Path) -> None:
    place = tmp_path / "token"
    place.write_text("first\n")

    def replace() -> None:
        (tmp_path / "fresh").write_text("second, longer".replace(", ", "-"))
        (tmp_path / "fresh").rename(place)

    found = who(gate, tmp_path, {"tokenFile": "token"}, times=2, between=replace)
    assert found["token"] == "second-longer"


def test_a_client_certificate_as_data(gate: Gate, client: Certificate, tmp_path: Path) -> None:
    user = {
        "client-certificate-data": encoded(client.certificate),
        "client-key-data": encoded(client.key),
    }
    assert who(gate, tmp_path, user)["user"] == "ada"


def test_a_client_certificate_in_files(gate: Gate, client: Certificate, tmp_path: Path) -> None:
    user = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    assert who(gate, tmp_path, user)["user"] == "ada"


@pytest.mark.parametrize("version", [V1, BETA])
def test_a_plugin_that_gives_a_token(gate: Gate, tmp_path: Path, version: str) -> None:
    variables = [{"name": "TOLD", "value": "hello"}]
    user = plugin(tmp_path, {"token": "TOLD-RUN"}, version=version, env=variables)
    assert who(gate, tmp_path, user, times=3)["token"] == "hello-1"


def test_a_plugin_that_gives_a_certificate(gate: Gate, client: Certificate, tmp_path: Path) -> None:
    given = {
        "clientCertificateData": client.certificate.read_text(),
        "clientKeyData": client.key.read_text(),
    }
    assert who(gate, tmp_path, plugin(tmp_path, given))["user"] == "ada"


def test_a_plugin_that_is_told_about_the_cluster(gate: Gate, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "SERVER"}, provideClusterInfo=True)
    assert who(gate, tmp_path, user)["token"] == "https://127.0.0.1"


def test_a_plugin_runs_again_when_its_token_has_expired(gate: Gate, tmp_path: Path) -> None:
    soon = (datetime.now(UTC) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plugin(tmp_path, {"token": "RUN", "expirationTimestamp": soon})
    assert who(gate, tmp_path, user, times=3)["token"] == "3"


def test_a_plugin_runs_again_when_its_token_was_not_accepted(gate: Gate, tmp_path: Path) -> None:
    gate.accepts = lambda token: token != "1"
    assert who(gate, tmp_path, plugin(tmp_path, {"token": "RUN"}), times=2)["token"] == "2"


def test_a_token_that_is_never_accepted_ends_in_an_error(gate: Gate, tmp_path: Path) -> None:
    gate.accepts = lambda token: False
    with pytest.raises(AuthError):
        who(gate, tmp_path, plugin(tmp_path, {"token": "RUN"}))
    assert len((tmp_path / "runs").read_text()) == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; print('hunter2', file=sys.stderr); sys.exit(3)", "ended with status 3"),
        ("print('hunter2')", "no ExecCredential"),
        ('print(\'{"kind": "ExecCredential", "status": {}}\')', "did not answer in"),
    ],
)
def test_a_plugin_that_fails_is_named_and_not_quoted(
    gate: Gate, tmp_path: Path, code: str, said: str
) -> None:
    user = plugin(tmp_path, {})
    user["exec"]["args"] = ["-c", code]
    with pytest.raises(ConfigurationError, match=said) as raised:
        who(gate, tmp_path, user)
    assert str(tmp_path / "config") in str(raised.value) and "'test'" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_plugin_that_hangs_with_a_child_is_not_waited_for(tmp_path: Path) -> None:
    """What it started holds its pipe, so the end of the pipe is not the end of the plugin."""
    pids = tmp_path / "pids"
    form = ExecConfig(
        command="/bin/sh",
        args=["-c", f"sleep 300 & echo $! > {pids}; wait"],
        api_version=V1,
        interactive_mode="Never",
    )
    hanging = ExecCredentials(
        form, cluster={}, folder=tmp_path, source="test", clock=SystemClock(), timeout=0.5
    )

    async def ask() -> None:
        async with asyncio.timeout(30):
            with pytest.raises(ConfigurationError, match="no answer in"):
                await hanging.identity()

    try:
        asyncio.run(ask())
        gc.collect()  # a pipe that is left open is a warning, which is an error
    finally:
        os.kill(int(pids.read_text()), signal.SIGKILL)


def test_a_plugin_that_is_missing_says_how_to_get_it(gate: Gate, tmp_path: Path) -> None:
    user = plugin(tmp_path, {}, command="no-such-program", installHint="Install it from there.")
    with pytest.raises(ConfigurationError, match="Install it from there"):
        who(gate, tmp_path, user)


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that tunnels, and notes where to."""
    asked: list[str] = []
    tunnels: list[asyncio.Task[None] | None] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        finally:
            writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnels.append(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.splitlines()[0])
        host, _, port = head.split()[1].rpartition(":")
        inner, outer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, outer), pump(inner, writer), return_exceptions=True)

    server = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        await asyncio.gather(*(each for each in tunnels if each), return_exceptions=True)
        await server.wait_closed()


def test_a_proxy_of_the_kubeconfig(gate: Gate, tmp_path: Path) -> None:
    async def asked() -> tuple[str, list[str]]:
        async with proxy() as (through, log), serving(gate, tls=gate.tls()) as url:
            more = {"certificate-authority": str(gate.authority.certificate), "proxy-url": through}
            path = write_kubeconfig(tmp_path, url, {"token": "abc"}, **more)
            async with api_for(cluster_config(path)) as api:
                found = await api.request("GET", "/who")
            return found["token"], log

    token, log = asyncio.run(asked())
    assert token == "abc"
    assert [line.split()[0] for line in log] == ["CONNECT"]


def test_a_server_known_by_another_name(gate: Gate, tmp_path: Path) -> None:
    gate.identity = gate.authority.issue("server", hosts=["DNS:kube.example"])
    name = {"tls-server-name": "kube.example"}
    assert who(gate, tmp_path, {"token": "abc"}, **name)["token"] == "abc"
    with pytest.raises(TargetUnavailable, match="not trusted"):
        who(gate, tmp_path, {"token": "abc"})


def test_a_stranger_is_not_trusted_unless_the_user_wrote_so(gate: Gate, tmp_path: Path) -> None:
    nothing = {"certificate-authority": None}
    with pytest.raises(TargetUnavailable, match="not trusted"):
        who(gate, tmp_path, {"token": "abc"}, **nothing)
    insecure = {**nothing, "insecure-skip-tls-verify": True}
    assert who(gate, tmp_path, {"token": "abc"}, **insecure)["token"] == "abc"


def test_an_authority_as_data(gate: Gate, tmp_path: Path) -> None:
    data = {
        "certificate-authority": None,
        "certificate-authority-data": encoded(gate.authority.certificate),
    }
    assert who(gate, tmp_path, {"token": "abc"}, **data)["token"] == "abc"


def test_acting_as_somebody_else(gate: Gate, tmp_path: Path) -> None:
    user = {"token": "abc", "as": "grace", "as-groups": ["ops", "devs"]}
    found = who(gate, tmp_path, user)
    assert (found["as"], found["groups"]) == ("grace", ["ops", "devs"])


def test_inside_a_pod_the_rotated_token_and_authority_are_used(gate: Gate, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other")
    stranger = other.issue("server", hosts=["IP:127.0.0.1"])
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("one")
    (folder / "namespace").write_text("shop")
    (folder / "ca.crt").write_bytes(gate.authority.certificate.read_bytes())

    async def asked() -> tuple[ClusterConfig, list[str]]:
        tokens = []
        async with serving(gate, tls=gate.tls()) as url:
            port = url.rpartition(":")[2]
            pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
            config = in_cluster_config(environ=pod, folder=folder)
            async with api_for(config) as api:
                tokens.append((await api.request("GET", "/who"))["token"])
                (folder / "token").write_text("two-longer")
                tokens.append((await api.request("GET", "/who"))["token"])
                # An authority that has changed is used at once, and the old one no more.
                (folder / "ca.crt").write_bytes(other.certificate.read_bytes())
                with pytest.raises(TargetUnavailable, match="not trusted"):
                    await api.request("GET", "/who")
        async with serving(gate, tls=gate.tls(stranger)) as url:
            pod["KUBERNETES_SERVICE_PORT"] = url.rpartition(":")[2]
            async with api_for(in_cluster_config(environ=pod, folder=folder)) as api:
                tokens.append((await api.request("GET", "/who"))["token"])
        return config, tokens

    config, tokens = asyncio.run(asked())
    assert config.namespace == "shop"
    assert tokens == ["one", "two-longer", "two-longer"]
