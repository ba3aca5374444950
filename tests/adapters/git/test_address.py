"""Addresses are read against an allow-list, shown without credentials, and compared as places."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.adapters.git.address import GitScheme, parse_address
from holdfast.core.errors import ConfigurationError

GOOD = {
    "https://github.com/acme/fleet.git": "https://github.com/acme/fleet.git",
    "https://GitHub.com:443/acme/fleet/": "https://github.com/acme/fleet",
    "https://git.example.com:8443/a/b/c": "https://git.example.com:8443/a/b/c",
    "https://[2001:db8::1]/a": "https://[2001:db8::1]/a",
    "ssh://git@host/acme/fleet": "ssh://git@host/acme/fleet",
    "ssh://host:2222/~ada/fleet": "ssh://host:2222/~ada/fleet",
    "git@github.com:acme/fleet.git": "git@github.com:acme/fleet.git",
    "host:fleet": "host:fleet",
    "http://127.0.0.1:3000/a": "http://127.0.0.1:3000/a",
    "http://localhost/a": "http://localhost/a",
    "http://[::1]:80/a": "http://[::1]/a",
    "https://host/with%20space": "https://host/with%20space",
}
BAD = [
    "",
    "-oProxyCommand=touch x",
    "--upload-pack=x",
    "ext::sh -c touch% x",
    "ext::sh",
    "fd::17",
    "fd::17,18/x",
    "git://host/a",
    "ftp://host/a",
    "http://example.com/a",
    "http://127.0.0.1.evil.com/a",
    "http://localhost.evil.com/a",
    "https://host",
    "https://host/",
    "https:///a",
    "https://-x/a",
    "https://a_b/c",
    "https://host:0/a",
    "https://host:99999/a",
    "https://host:x/a",
    "https://host/a?b",
    "https://host/a#b",
    "https://host/../a",
    "https://host/a/%2e%2e/b",
    "https://host/a//b",
    "https://host/a%0ab",
    "https://host/a%00",
    "https://host/a\\b",
    "https://host/a b",
    "https://host/a\nb",
    "https://höst/a",
    "https://evil.com\\@host/a",
    "ssh://-oProxyCommand=x/a",
    "ssh://-x@host/a",
    "ssh://git:pw@host/a",
    "-x@host:a",
    "git@-host:a",
    "git@host:-a",
    "git@host:",
    "git@host:../a",
    "git@host:a;b",
    "git@host:$(a)",
    "git@host::a",
    "a::b@c:d",
    "c:\\repo",
    "file://host/a",
    "fleet",
    "./fleet",
    "../fleet",
    "~/fleet",
    "https://host/" + "a" * 3000,
]


@pytest.mark.parametrize(("text", "shown"), GOOD.items())
def test_a_usual_address_is_understood(text: str, shown: str) -> None:
    address = parse_address(text)
    assert str(address) == shown
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused(text: str) -> None:
    for local in (False, True):
        with pytest.raises(ConfigurationError):
            parse_address(text, local=local)


@pytest.mark.parametrize("text", ["/srv/fleet.git", "file:///srv/fleet.git", "/srv//fleet.git/"])
def test_a_local_path_is_for_those_who_may(text: str) -> None:
    with pytest.raises(ConfigurationError, match="on this machine"):
        parse_address(text.replace("srv//", "srv/"))
    if "srv//" not in text:
        found = parse_address(text, local=True)
        assert (found.scheme, found.url) == (GitScheme.FILE, "/srv/fleet.git")


@pytest.mark.parametrize("text", ["/a/../b", "/", "file:///../a", "/a\nb"])
def test_a_local_path_is_plain(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(text, local=True)


@pytest.mark.parametrize(
    "text",
    [
        "https://ada:hunter2-and-more@host/a",
        "https://hunter2-and-more@host/a",
        "https://hunter2-and-more:@host/a",
        "ssh://git:hunter2-and-more@host/a",
        "http://x:hunter2-and-more@127.0.0.1/a",
        "ftp://x:hunter2-and-more@host/a",
        "https://x:hunter2-and-more@host/a b",
        "x:hunter2-and-more@host:a",
    ],
)
def test_a_credential_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_address(text, local=True)
    assert "hunter2" not in str(refused.value)


@given(st.text(max_size=60) | st.from_regex(r"(https|ssh|ext|git@|file)?:?/{0,2}\S{0,40}"))
@example("https://host/a%2f..%2fb")
def test_whatever_is_understood_is_safe_to_hand_to_git(text: str) -> None:
    try:
        address = parse_address(text, local=True)
    except ConfigurationError:
        return
    assert not address.url.startswith("-") and "::" not in address.url.replace("[::", "[")
    assert address.url.isprintable() and "/../" not in f"{address.url}/"
    assert parse_address(address.url, local=True) == address
