"""TLS in the server: a certificate of its own, changed without losing a connection."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from tests.apps.server.people import cookie_of
from tests.support.certificates import Authority
from tests.support.server import RunningServer, bearer, running_server

from holdfast.apps.cli.main import cli
from holdfast.apps.server.tls import ServerTls
from holdfast.core.errors import ConfigurationError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls") / "ca")


def install(authority: Authority, folder: Path, name: str) -> None:
    """Put a certificate of this name where the server reads it, each file in one go."""
    made = authority.issue(name, hosts=["IP:127.0.0.1", "DNS:localhost", f"DNS:{name}"])
    for source, target in ((made.key, "tls.key"), (made.certificate, "tls.crt")):
        shutil.copy(source, folder / f"{target}.new")
        (folder / f"{target}.new").rename(folder / target)


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[RunningServer]:
    install(authority, tmp_path, "first")
    files = {"tls_cert": tmp_path / "tls.crt", "tls_key": tmp_path / "tls.key"}
    limits = {"tls_check_time": 0.1, "head_time": 1.0}
    with running_server(tmp_path, run=False, limits=limits, **files) as server:
        yield server


def trust(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


def name_shown(server: RunningServer, context: ssl.SSLContext, host: str = "127.0.0.1") -> str:
    """Connect anew and read whose certificate is shown."""
    port = int(server.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        subject = wrapped.getpeercert()
    assert subject is not None
    return str(dict(pair for (pair,) in subject["subject"])["commonName"])


def wait_for_name(server: RunningServer, context: ssl.SSLContext, name: str) -> None:
    for _ in range(100):
        if name_shown(server, context) == name:
            return
        time.sleep(0.05)
    raise AssertionError(f"the certificate of {name} is not shown")


def test_a_client_speaks_tls_and_the_cookie_is_secure(
    server: RunningServer, authority: Authority
) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    with httpx2.Client(base_url=server.url, verify=trust(authority)) as http:
        token = server.token("acme")
        assert http.get("/api/projects/acme/workloads", headers=bearer(token)).status_code == 200
        made = http.post("/api/sessions", json={"token": token})
        assert "; Secure" in made.headers["set-cookie"]
        cookie = cookie_of(made, name="__Host-holdfast")
        me = http.get("/api/me", headers={"Cookie": f"__Host-holdfast={cookie}"})
        assert me.status_code == 200
        link = http.post("/api/sign-in-links", headers=bearer(token)).json()["url"]
        assert link.startswith(f"{server.url}/ui/login#code=")
        assert "strict-transport-security" not in me.headers


def test_a_write_of_our_own_page_is_known_by_its_origin(
    server: RunningServer, authority: Authority
) -> None:
    with httpx2.Client(base_url=server.url, verify=trust(authority)) as http:
        made = http.post("/api/sessions", json={"token": server.token("acme")})
        headers = {
            "Cookie": f"__Host-holdfast={cookie_of(made, name='__Host-holdfast')}",
            "Holdfast-CSRF": "1",
        }
        plain = server.url.replace("https://", "http://")
        refused = http.delete("/api/sessions/current", headers={**headers, "Origin": plain})
        assert refused.status_code == 403
        left = http.delete("/api/sessions/current", headers={**headers, "Origin": server.url})
        assert left.status_code == 204


def test_a_new_certificate_is_shown_without_losing_a_connection(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    context = trust(authority)
    port = int(server.url.rpartition(":")[2])
    headers = bearer(server.token("acme"))
    stream = httpx2.Client(base_url=server.url, verify=context)
    kept = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    with stream, closing(kept):
        kept.request("GET", "/api/me", headers=headers)
        assert kept.getresponse().read()
        opened = kept.sock
        with stream.stream("GET", "/api/projects/acme/events", headers=headers) as events:
            lines = events.iter_bytes()
            assert next(lines).startswith(b": listening")
            install(authority, tmp_path, "second")
            wait_for_name(server, context, "second")
            assert name_shown(server, context, "localhost") == "second"
            kept.request("GET", "/api/me", headers=headers)
            assert kept.getresponse().status == 200
            assert kept.sock is opened
            from tests.apps.server.api import body

            made = httpx2.post(
                f"{server.url}/api/projects/acme/workloads",
                json=body("bot"),
                headers=headers,
                verify=context,
            )
            assert made.status_code == 201
            assert b'"bot"' in next(lines)


def test_files_that_do_not_fit_together_change_nothing(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    """As between the two writes of a renewal."""
    context = trust(authority)
    other = authority.issue("third", hosts=["IP:127.0.0.1"])
    shutil.copy(other.certificate, tmp_path / "tls.crt")
    time.sleep(0.5)
    assert name_shown(server, context) == "first"
    (tmp_path / "tls.crt").write_text("no certificate")
    time.sleep(0.5)
    assert name_shown(server, context) == "first"
    os.unlink(tmp_path / "tls.key")
    time.sleep(0.5)
    assert name_shown(server, context) == "first"
    install(authority, tmp_path, "fourth")
    wait_for_name(server, context, "fourth")


def test_files_that_could_not_be_read_for_a_moment_are_tried_again(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As without a free descriptor: nothing of the files themselves changes afterwards."""
    install(authority, tmp_path, "first")
    tls = ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key")
    install(authority, tmp_path, "second")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as short:
        short.setattr(ssl.SSLContext, "load_cert_chain", fail)
        assert not tls.reload()
        assert not tls.reload()
    told = [each for each in caplog.records if "tls-not-reloaded" in each.getMessage()]
    assert len(told) == 1
    assert tls.reload()
    assert not tls.reload()


def test_files_that_were_written_over_with_their_old_time_are_taken_up(
    authority: Authority, tmp_path: Path
) -> None:
    """As `cp --preserve` and `rsync --inplace` do."""
    install(authority, tmp_path, "first")
    paths = [tmp_path / "tls.crt", tmp_path / "tls.key"]
    size = 16_384
    for path in paths:
        path.write_bytes(path.read_bytes().ljust(size, b"\n"))
    stamps = [path.stat() for path in paths]
    tls = ServerTls(*paths)
    made = authority.issue("second", hosts=["IP:127.0.0.1"])
    for path, source, stamp in zip(paths, (made.certificate, made.key), stamps, strict=True):
        while path.stat().st_ctime_ns == stamp.st_ctime_ns:
            path.write_bytes(source.read_bytes().ljust(size, b"\n"))
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert tls.reload()


def test_old_versions_of_tls_are_refused(server: RunningServer, authority: Authority) -> None:
    context = trust(authority)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):
        name_shown(server, context)


def test_who_does_not_shake_hands_is_not_waited_for(server: RunningServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        began = time.monotonic()
        assert plain.recv(1) == b""
        assert time.monotonic() - began < 5
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in plain.recv(100)


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
def test_files_that_are_no_certificate_and_key_are_said_at_the_start(
    tmp_path: Path, authority: Authority, broken: str
) -> None:
    install(authority, tmp_path, "first")
    (tmp_path / broken).write_text("nothing of use")
    files = {"tls_cert": tmp_path / "tls.crt", "tls_key": tmp_path / "tls.key"}
    with (
        pytest.raises(ConfigurationError, match="TLS cannot be used"),
        running_server(tmp_path, run=False, **files),
    ):
        pass


def test_a_certificate_goes_with_its_key(tmp_path: Path, authority: Authority) -> None:
    install(authority, tmp_path, "first")
    for verb in ("serve", "gitops"):
        run = CliRunner().invoke(cli, [verb, "--tls-cert", str(tmp_path / "tls.crt")])
        assert run.exit_code == 64
        assert "--tls-cert and --tls-key go together" in run.output
