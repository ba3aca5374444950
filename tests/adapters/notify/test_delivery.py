"""Whoever may name an address reaches nothing but what anyone could reach, and learns no secret."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import Authority, Certificate
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.adapters.notify.delivery import (
    NotificationSender,
    address_problem,
    parse_outbound_url,
)
from holdfast.core.errors import ConfigurationError, HoldfastError, TargetUnavailable
from holdfast.core.redact import Secret

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def accepted(request: web.Request) -> web.StreamResponse:
    await request.read()
    return web.Response(text="ok")


@asynccontextmanager
async def serving(
    handler: Handler = accepted, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A receiver on loopback; gives its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def resolving(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        resolve.asked.append(host)  # type: ignore[attr-defined]
        return addresses

    resolve.asked = []  # type: ignore[attr-defined]
    return resolve


async def post(url: str, **options: Any) -> None:
    await NotificationSender(**options).post(Secret(url), b"{}", {})


PRIVATE = [
    "127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "::1", "fc00::1", "fdab::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1",
]  # fmt: skip
NEVER = [
    "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "192.0.0.192", "192.0.2.1",  # noqa: S104  # nothing is bound
    "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16",
    "::", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
    "fd00:ec2::254", "fd20:ce::254", "2001::1", "2001:db8::1", "3fff::1", "64:ff9b:1::1",
    "100::1", "2606:4700::1111%eth0", "4000::1",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::5"]


def test_only_public_addresses_may_be_sent_to() -> None:
    for text in PRIVATE + NEVER:
        assert address_problem(ip_address(text), scheme="https", allow_private=False), text
    for text in PUBLIC:
        assert not address_problem(ip_address(text), scheme="https", allow_private=False), text


def test_allowing_private_addresses_allows_no_metadata_service() -> None:
    for text in PRIVATE + PUBLIC:
        assert not address_problem(ip_address(text), scheme="https", allow_private=True), text
    for text in NEVER:
        assert address_problem(ip_address(text), scheme="https", allow_private=True), text


def test_http_is_for_this_machine_alone() -> None:
    for text in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert not address_problem(ip_address(text), scheme="http", allow_private=True)
    for text in ("10.0.0.1", "8.8.8.8", "fc00::1"):
        assert address_problem(ip_address(text), scheme="http", allow_private=True)


@given(number=st.integers(0, 2**32 - 1))
def test_no_address_becomes_allowed_by_the_way_it_is_written(number: int) -> None:
    """The same place, written as IPv4 or carried in IPv6."""
    bare = ip_address(number)
    whole = address_problem(bare, scheme="https", allow_private=False)
    for carrier in (
        0xFFFF << 32,
        0x64FF9B << 96,
    ):
        carried = ip_address(carrier + number)
        assert address_problem(carried, scheme="https", allow_private=False) == whole
    if not whole:
        assert bare.is_global


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "https://", "https:///x", "//host/x", "file:///etc/passwd", "gopher://x/_",
        "ftp://host/x", "data:text/plain,x", "javascript:x", "http://example.com/x",
        "https://user@example.com/x", "https://user:pass@example.com/x", "https://:@example.com/x",
        "https://@example.com/", "https://2130706433/x", "https://0x7f000001/x", "https://0x7f.1/",
        "https://0177.0.0.1/x", "https://127.1/x", "https://127.0.0.1./x", "https://1.2.3.4.5/x",
        "https://example.com\\@evil/x", "https://exa mple.com/", "https://example.com/\r\nX: y",
        "https://ex\u00e4mple.com/", "https://example.com:22/", "https://example.com:0/",
        "https://example.com:99999/", "https://example.com:x/", "https://[::1/", "https://[x]/",
        "https://-x.com/", "https://" + "a" * 300 + "/", "https://example.com/" + "a" * 3000,
        "https://example.com%2f@evil/", "https://①②⑦.0.0.1/", "https://example..com/",
    ],
)  # fmt: skip
def test_what_is_no_plain_https_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_outbound_url(Secret(url), allow_private=False)


@given(url=st.text() | st.text().map(lambda text: f"https://{text}"))
def test_no_text_makes_the_reader_fail_otherwise(url: str) -> None:
    try:
        place = parse_outbound_url(Secret(url), allow_private=False)
    except ConfigurationError:
        return
    assert place.scheme == "https"
    assert place.host.isascii()
    assert not set(place.host) & set("@/\\?# ")


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "::"])
def test_a_name_that_leads_to_a_forbidden_address_is_refused(address: str) -> None:
    async def main() -> None:
        for found in ((address,), ("8.8.8.8", address), (address, "8.8.8.8")):
            with pytest.raises(ConfigurationError, match=r"hooks\.example"):
                await post("https://hooks.example/x", resolve=resolving(*found))

    run(main())


def test_a_literal_address_is_checked_like_a_name() -> None:
    async def main() -> None:
        for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.1.1.1"):
            with pytest.raises(ConfigurationError):
                await post(f"https://{host}/latest/meta-data")

    run(main())


def test_a_name_is_resolved_once_and_the_connection_goes_to_the_checked_address() -> None:
    """A name that answers differently the second time must not be asked a second time."""

    async def main() -> None:
        answers = [["127.0.0.1"], ["10.255.255.1"], ["10.255.255.1"]]
        asked: list[str] = []

        async def rebinding(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return answers[len(asked) - 1]

        hosts: list[str] = []

        async def handler(request: web.Request) -> web.StreamResponse:
            hosts.append(request.headers["Host"])
            return await accepted(request)

        async with serving(handler) as port:
            url = f"http://hooks.example:{port}/x"
            await post(url, allow_private=True, resolve=rebinding)
        assert asked == ["hooks.example"]
        assert hosts == [f"hooks.example:{port}"]

    run(main())


def test_a_loopback_receiver_is_reached_only_when_the_operator_allows_it() -> None:
    async def main() -> None:
        bodies: list[bytes] = []

        async def handler(request: web.Request) -> web.StreamResponse:
            bodies.append(await request.read())
            return web.Response(status=204)

        async with serving(handler) as port:
            with pytest.raises(ConfigurationError):
                await post(f"http://127.0.0.1:{port}/x")
            with pytest.raises(ConfigurationError):
                await post(f"https://127.0.0.1:{port}/x")
            assert bodies == []
            await post(f"http://127.0.0.1:{port}/x", allow_private=True)
            await post(f"http://localhost:{port}/x", allow_private=True,
                       resolve=resolving("127.0.0.1"))  # fmt: skip
        assert bodies == [b"{}", b"{}"]

    run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    async def main() -> None:
        paths: list[str] = []

        async def handler(request: web.Request) -> web.StreamResponse:
            paths.append(request.path)
            return web.Response(status=status, headers={"Location": "/elsewhere"})

        async with serving(handler) as port:
            with pytest.raises(ConfigurationError, match="Redirects are not followed"):
                await post(f"http://127.0.0.1:{port}/x", allow_private=True)
        assert paths == ["/x"]

    run(main())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ConfigurationError), (401, ConfigurationError), (403, ConfigurationError),
        (404, ConfigurationError), (410, ConfigurationError), (408, TargetUnavailable),
        (429, TargetUnavailable), (500, TargetUnavailable), (503, TargetUnavailable),
    ],
)  # fmt: skip
def test_the_status_alone_says_whether_to_try_again_and_the_reply_is_not_shown(
    status: int, kind: type[HoldfastError]
) -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            return web.Response(
                status=status, text="inner-secret", headers={"Retry-After": "17", "X": "inner"}
            )

        async with serving(handler) as port:
            with pytest.raises(kind) as caught:
                await post(f"http://127.0.0.1:{port}/x", allow_private=True)
        assert "inner" not in str(caught.value)
        assert str(status) in str(caught.value)
        if isinstance(caught.value, TargetUnavailable):
            assert caught.value.retry_after == 17.0

    run(main())


def test_a_receiver_that_hangs_or_hangs_up_is_unavailable() -> None:
    async def main() -> None:
        async def hangs(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(60)
            return web.Response()

        async def hangs_up(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.close()
            return web.Response()

        for handler in (hangs, hangs_up):
            async with serving(handler) as port:
                with pytest.raises(TargetUnavailable):
                    await post(f"http://127.0.0.1:{port}/x", allow_private=True, timeout=0.3)
        with pytest.raises(TargetUnavailable):  # nobody listens there any more
            await post(f"http://127.0.0.1:{port}/x", allow_private=True)

    run(main())


def test_a_name_that_cannot_be_resolved_may_be_tried_again() -> None:
    async def main() -> None:
        async def fails(host: str, port: int) -> Sequence[str]:
            raise OSError("no such name")

        async def hangs(host: str, port: int) -> Sequence[str]:
            await asyncio.sleep(60)
            return []

        for resolve in (fails, hangs):
            with pytest.raises(TargetUnavailable):
                await post("https://hooks.example/x", resolve=resolve, timeout=0.1)

    run(main())


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve the name anew, where nobody checks it."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def main() -> None:
        async with serving() as port:
            await post(f"http://127.0.0.1:{port}/x", allow_private=True)

    run(main())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Certificate]:
    made = Authority.create(tmp_path_factory.mktemp("tls") / "ca")
    return made, made.issue("hooks", hosts=["DNS:hooks.example"])


def test_a_certificate_must_be_trusted_and_be_for_the_host_that_was_named(
    authority: tuple[Authority, Certificate],
) -> None:
    own, issued = authority
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(issued.certificate, issued.key)
    pem = Path(own.certificate).read_text()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # failed handshakes
        async with serving(tls=tls) as port:
            here = {"allow_private": True, "resolve": resolving("127.0.0.1")}
            await post(f"https://hooks.example:{port}/x", authority=pem, **here)
            with pytest.raises(TargetUnavailable, match="not trusted"):
                await post(f"https://hooks.example:{port}/x", **here)
            with pytest.raises(TargetUnavailable, match="not trusted"):
                await post(f"https://other.example:{port}/x", authority=pem, **here)

    run(main())


def test_no_failure_shows_more_of_an_address_than_its_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, query, user = (
        planted_secret("path", "services/T0/B0/{}"),
        planted_secret("query", "token={}"),
        planted_secret("user", "{}"),
    )
    canaries = [path, query, user]
    tail = f"{path.value}?{query.value}"
    surfaces = Surfaces()

    async def refusing(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text=str(request.url))

    async def failing(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, reason=tail[:40], text=str(request.url))

    async def moving(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": str(request.url)})

    async def garbage(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/9 " + tail.encode() + b"\r\n\r\n")  # type: ignore[attr-defined]
        request.transport.close()
        return web.Response()

    def attempt(name: str, url: str, **options: Any) -> None:
        def work() -> None:
            asyncio.run(post(url, **options), debug=True)

        surfaces.add_failure(name, work)

    def served(name: str, handler: Handler) -> None:
        async def main() -> None:
            async with serving(handler) as port:
                await post(f"http://127.0.0.1:{port}/{tail}", allow_private=True, timeout=5)

        surfaces.add_failure(name, lambda: asyncio.run(main()))

    with caplog.at_level(logging.DEBUG):
        for handler in (refusing, failing, moving, garbage):
            served(handler.__name__, handler)
        attempt("scheme", f"ftp://hooks.example/{tail}")
        attempt("http", f"http://hooks.example/{tail}")
        attempt("user", f"https://{user.value}:{user.value}@hooks.example/{tail}")
        attempt("port", f"https://hooks.example:22/{tail}")
        attempt("no port", f"https://hooks.example:{user.value}/{tail}")
        attempt("no host", f"https:///{tail}")
        attempt("space", f"https://hooks.example/ {tail}")
        attempt("private", f"https://hooks.example/{tail}", resolve=resolving("10.0.0.1"))
        attempt("literal", f"https://169.254.169.254/{tail}")
        attempt("refused", f"http://127.0.0.1:1/{tail}".replace(":1/", ":1024/"),
                allow_private=True)  # fmt: skip
    surfaces.add(
        "log", *(vars(record) for record in caplog.records if record.name != "aiohttp.access")
    )
    assert surfaces.leaks(canaries) == []
