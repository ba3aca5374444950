"""A delivery of a forge is genuine or refused, and then a hint to look again: never more."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.gitops.application import ForgeProvider
from holdfast.core.redact import Secret
from holdfast.wire.forge_webhooks import (
    MAX_BODY_BYTES,
    PushHint,
    WebhookRefusal,
    read_webhook,
    receive_webhook,
    repository_name,
    same_repository,
    verify_webhook,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SECRET = Secret("a shared secret")
SIGNING = Secret("whsec_" + base64.b64encode(b"k" * 32).decode())
SHA = "bffeb74224043ba2feb48d137756c8a9331c449a"

GITHUB_PUSH: dict[str, Any] = {
    "ref": "refs/heads/main",
    "before": SHA,
    "after": SHA,
    "repository": {
        "full_name": "acme/infra",
        "clone_url": "https://github.com/acme/infra.git",
        "ssh_url": "git@github.com:acme/infra.git",
        "git_url": "git://github.com/acme/infra.git",
        "html_url": "https://github.com/acme/infra",
        "url": "https://github.com/acme/infra",
        "private": True,
    },
    "commits": [{"id": SHA, "added": ["x"]}],
}
GITHUB_PULL: dict[str, Any] = {
    "action": "closed",
    "number": 7,
    "pull_request": {
        "merged": True,
        "base": {"ref": "main", "sha": SHA},
        "head": {"ref": "holdfast/codify/prod-chat", "sha": SHA},
    },
    "repository": GITHUB_PUSH["repository"],
}
GITLAB_PUSH: dict[str, Any] = {
    "object_kind": "push",
    "ref": "refs/heads/release/1.0",
    "checkout_sha": SHA,
    "project": {
        "git_http_url": "https://gitlab.example.com/acme/infra.git",
        "git_ssh_url": "git@gitlab.example.com:acme/infra.git",
        "web_url": "https://gitlab.example.com/acme/infra",
    },
    "repository": {"url": "git@gitlab.example.com:acme/infra.git", "visibility_level": 0},
}
GITLAB_MERGE: dict[str, Any] = {
    "object_kind": "merge_request",
    "project": GITLAB_PUSH["project"],
    "object_attributes": {"source_branch": "x", "target_branch": "main", "state": "merged"},
}
GITEA_PUSH: dict[str, Any] = {
    "ref": "refs/heads/develop",
    "after": SHA,
    "repository": {
        "clone_url": "http://localhost:3000/acme/infra.git",
        "ssh_url": "ssh://git@localhost:2222/acme/infra.git",
        "html_url": "http://localhost:3000/acme/infra",
    },
}
DELIVERIES = [
    (ForgeProvider.GITHUB, "push", GITHUB_PUSH),
    (ForgeProvider.GITHUB, "pull_request", GITHUB_PULL),
    (ForgeProvider.GITLAB, "Push Hook", GITLAB_PUSH),
    (ForgeProvider.GITLAB, "Merge Request Hook", GITLAB_MERGE),
    (ForgeProvider.GITLAB, "System Hook", GITLAB_PUSH),
    (ForgeProvider.GITEA, "push", GITEA_PUSH),
]


def hexed(secret: Secret, body: bytes) -> str:
    return hmac.new(secret.reveal().encode(), body, hashlib.sha256).hexdigest()


def headers_for(
    provider: ForgeProvider, event: str, body: bytes, secret: Secret = SECRET
) -> dict[str, str]:
    """What the forge sends beside a body."""
    match provider:
        case ForgeProvider.GITHUB:
            return {
                "X-GitHub-Event": event,
                "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
                "X-Hub-Signature-256": f"sha256={hexed(secret, body)}",
            }
        case ForgeProvider.GITLAB:
            return {"X-Gitlab-Event": event, "X-Gitlab-Token": secret.reveal()}
        case ForgeProvider.GITEA:
            return {
                "X-Gitea-Event": event,
                "X-Gitea-Delivery": "f6266f16-1bf3-46a5-9ea4-602e06ead473",
                "X-Gitea-Signature": hexed(secret, body),
            }


def standard(body: bytes, at: datetime = NOW, key: bytes = b"k" * 32) -> dict[str, str]:
    """The headers of GitLab's signing token."""
    stamp = str(int(at.timestamp()))
    signed = b"msg_1." + stamp.encode() + b"." + body
    mark = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return {
        "X-Gitlab-Event": "Push Hook",
        "webhook-id": "msg_1",
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{mark}",
    }


def got(provider: ForgeProvider, event: str, payload: Any) -> PushHint:
    body = json.dumps(payload).encode()
    hint = receive_webhook(provider, headers_for(provider, event, body), body, SECRET, now=NOW)
    assert isinstance(hint, PushHint)
    return hint


@pytest.mark.parametrize(("provider", "event", "payload"), DELIVERIES)
def test_a_genuine_delivery_names_its_repository(
    provider: ForgeProvider, event: str, payload: Any
) -> None:
    hint = got(provider, event, payload)
    assert any(url.endswith("acme/infra.git") for url in hint.repositories)
    assert len({repository_name(url) for url in hint.repositories}) == 1
    assert hint.delivery


def test_a_push_names_the_branch_and_a_pull_request_its_base() -> None:
    assert got(ForgeProvider.GITHUB, "push", GITHUB_PUSH).branch == "main"
    assert got(ForgeProvider.GITLAB, "Push Hook", GITLAB_PUSH).branch == "release/1.0"
    tag = {**GITHUB_PUSH, "ref": "refs/tags/v1"}
    assert got(ForgeProvider.GITHUB, "push", tag).branch == "v1"
    pull = got(ForgeProvider.GITHUB, "pull_request", GITHUB_PULL)
    assert (pull.branch, pull.pull) == ("main", True)
    merge = got(ForgeProvider.GITLAB, "Merge Request Hook", GITLAB_MERGE)
    assert (merge.branch, merge.pull) == ("main", True)
    assert not got(ForgeProvider.GITEA, "push", GITEA_PUSH).pull


@pytest.mark.parametrize(("provider", "event", "payload"), DELIVERIES)
def test_no_hint_carries_a_revision(provider: ForgeProvider, event: str, payload: Any) -> None:
    """An old delivery that is sent again must not be able to bring an old commit back."""
    hint = got(provider, event, payload)
    assert SHA not in str(hint)
    fields = {field.name for field in dataclasses.fields(PushHint)}
    assert fields == {"repositories", "branch", "pull", "delivery"}


@pytest.mark.parametrize("event", ["ping", "issues", "star", "", "Note Hook"])
def test_an_event_about_something_else_is_no_hint(event: str) -> None:
    body = json.dumps(GITHUB_PUSH).encode()
    headers = headers_for(ForgeProvider.GITHUB, event, body)
    assert receive_webhook(ForgeProvider.GITHUB, headers, body, SECRET, now=NOW) is None


def test_a_form_as_github_sends_by_default_is_read() -> None:
    body = urlencode({"payload": json.dumps(GITHUB_PUSH)}).encode()
    headers = headers_for(ForgeProvider.GITHUB, "push", body)
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    hint = receive_webhook(ForgeProvider.GITHUB, headers, body, SECRET, now=NOW)
    assert isinstance(hint, PushHint)
    assert hint.branch == "main"


def tampered(provider: ForgeProvider, event: str, body: bytes) -> Iterator[tuple[str, Any, bytes]]:
    good = headers_for(provider, event, body)
    signing = next(name for name in good if "ignature" in name or "Token" in name)
    value = good[signing]
    yield "none", {name: text for name, text in good.items() if name != signing}, body
    yield "empty", {**good, signing: ""}, body
    yield "cut", {**good, signing: value[:-1]}, body
    yield "longer", {**good, signing: value + "0"}, body
    yield "other", {**good, signing: value[::-1]}, body
    yield "not ASCII", {**good, signing: value + "é\udc80"}, body
    sha1 = hmac.new(SECRET.reveal().encode(), body, "sha1").hexdigest()
    yield "another algorithm", {**good, signing: f"sha1={sha1}"}, body
    if provider is ForgeProvider.GITLAB:
        return  # a plain token says nothing about the body
    yield "upper case", {**good, signing: value.upper()}, body
    yield "body altered", good, body.replace(b"main", b"evil").replace(b"develop", b"evil")
    yield "written anew", good, json.dumps(json.loads(body), indent=1).encode()
    yield "empty body", good, b""


@pytest.mark.parametrize(("provider", "event", "payload"), DELIVERIES)
def test_whatever_is_not_signed_as_it_should_be_is_refused(
    provider: ForgeProvider, event: str, payload: Any
) -> None:
    body = json.dumps(payload).encode()
    for name, headers, sent in tampered(provider, event, body):
        if sent == body and name in ("body altered",):
            continue
        refusal = receive_webhook(provider, headers, sent, SECRET, now=NOW)
        assert refusal in (WebhookRefusal.UNSIGNED, WebhookRefusal.WRONG_SIGNATURE), name
    for other in (Secret("another"), Secret(""), None):
        headers = headers_for(provider, event, body)
        assert isinstance(receive_webhook(provider, headers, body, other, now=NOW), WebhookRefusal)


def test_nothing_is_genuine_where_no_secret_is_configured() -> None:
    body = b"{}"
    headers = headers_for(ForgeProvider.GITHUB, "push", body, Secret(""))
    for none in (None, Secret("")):
        assert (
            verify_webhook(ForgeProvider.GITHUB, headers, body, none, now=NOW)
            is WebhookRefusal.NO_SECRET
        )


def test_nothing_is_parsed_before_the_signature_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parsed(_: bytes) -> None:
        raise AssertionError("a body was parsed that nobody had vouched for")

    monkeypatch.setattr("holdfast.wire.forge_webhooks._decode", parsed)
    for provider in ForgeProvider:
        found = receive_webhook(provider, {"X-GitHub-Event": "push"}, b"{", SECRET, now=NOW)
        assert isinstance(found, WebhookRefusal)


def test_a_bad_signature_of_forgejo_is_not_rescued_by_a_good_one_of_gitea() -> None:
    body = json.dumps(GITEA_PUSH).encode()
    headers = headers_for(ForgeProvider.GITEA, "push", body)
    forgejo = {**headers, "X-Forgejo-Signature": hexed(SECRET, body)}
    assert verify_webhook(ForgeProvider.GITEA, forgejo, body, SECRET, now=NOW) is None
    bad = {**headers, "X-Forgejo-Signature": "0" * 64}
    assert (
        verify_webhook(ForgeProvider.GITEA, bad, body, SECRET, now=NOW)
        is WebhookRefusal.WRONG_SIGNATURE
    )


def test_names_of_headers_may_be_written_in_any_case() -> None:
    body = json.dumps(GITHUB_PUSH).encode()
    headers = headers_for(ForgeProvider.GITHUB, "push", body)
    shouted = {name.upper(): value for name, value in headers.items()}
    assert isinstance(
        receive_webhook(ForgeProvider.GITHUB, shouted, body, SECRET, now=NOW), PushHint
    )


def test_a_signing_token_of_gitlab_covers_id_time_and_body() -> None:
    body = json.dumps(GITLAB_PUSH).encode()
    good = standard(body)
    hint = receive_webhook(ForgeProvider.GITLAB, good, body, SIGNING, now=NOW)
    assert isinstance(hint, PushHint)
    later = receive_webhook(
        ForgeProvider.GITLAB, standard(body, NOW + timedelta(seconds=1)), body, SIGNING, now=NOW
    )
    assert isinstance(later, PushHint)
    assert hint.delivery != later.delivery
    two = {**good, "webhook-signature": f"v1,AAAA {good['webhook-signature']}"}
    assert verify_webhook(ForgeProvider.GITLAB, two, body, SIGNING, now=NOW) is None
    for wrong in (
        {**good, "webhook-id": "msg_2"},
        {**good, "webhook-timestamp": str(int(NOW.timestamp()) + 1)},
        {**good, "webhook-signature": "v1,"},
        {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v2,")},
        standard(body, key=b"x" * 32),
        standard(body + b" "),
    ):
        assert (
            verify_webhook(ForgeProvider.GITLAB, wrong, body, SIGNING, now=NOW)
            is WebhookRefusal.WRONG_SIGNATURE
        )


def test_a_signed_time_that_is_long_ago_is_refused() -> None:
    body = json.dumps(GITLAB_PUSH).encode()
    for minutes in (-6, 6):
        late = standard(body, at=NOW + timedelta(minutes=minutes))
        assert (
            verify_webhook(ForgeProvider.GITLAB, late, body, SIGNING, now=NOW) is WebhookRefusal.OLD
        )
    near = standard(body, at=NOW - timedelta(minutes=4))
    assert verify_webhook(ForgeProvider.GITLAB, near, body, SIGNING, now=NOW) is None


def test_where_a_signing_token_is_configured_the_plain_token_does_not_do() -> None:
    """Who once saw the plain header could otherwise send whatever they like."""
    body = json.dumps(GITLAB_PUSH).encode()
    plain = {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": SIGNING.reveal()}
    assert (
        verify_webhook(ForgeProvider.GITLAB, plain, body, SIGNING, now=NOW)
        is WebhookRefusal.UNSIGNED
    )
    broken = Secret("whsec_not base64")
    assert (
        verify_webhook(ForgeProvider.GITLAB, standard(body), body, broken, now=NOW)
        is WebhookRefusal.NO_SECRET
    )


def test_a_body_that_is_too_large_is_refused_before_it_is_signed_or_read() -> None:
    body = b" " * (MAX_BODY_BYTES + 1)
    headers = {"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=0"}
    assert (
        verify_webhook(ForgeProvider.GITHUB, headers, body, SECRET, now=NOW)
        is WebhookRefusal.TOO_LARGE
    )
    assert read_webhook(ForgeProvider.GITHUB, headers, body) is WebhookRefusal.TOO_LARGE


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"1", b'"x"', b"{", b"\xff\xfe", b"{}", b'{"ref": 1e999}',
        b'{"repository": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"other": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"repository": {"clone_url": "javascript:alert(1)"}}',
        b'{"repository": {"clone_url": "' + b"a" * 5000 + b'"}}',
    ],
)  # fmt: skip
def test_a_body_without_a_repository_is_unreadable(body: bytes) -> None:
    for provider, event, _ in DELIVERIES:
        headers = headers_for(provider, event, body)
        found = read_webhook(provider, headers, body)
        assert found is WebhookRefusal.UNREADABLE or (event == "System Hook" and found is None)


def spoilt(payload: Any) -> Iterator[Any]:
    """Each node of a payload in turn replaced by each wrong thing, or left out."""

    def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield path
        items = value.items() if isinstance(value, dict) else []
        for key, item in items:
            yield from places(item, (*path, key))

    wrong = [None, True, 0, -1, 1.5, "", "x", "\0", [], [None], {}, {"x": {}}, ["x"] * 50]
    for path in places(payload):
        if not path:
            yield from wrong
            continue
        for value in [*wrong, "left out"]:
            changed = copy.deepcopy(payload)
            at = changed
            for key in path[:-1]:
                at = at[key]
            if value == "left out":
                del at[path[-1]]
            else:
                at[path[-1]] = value
            yield changed


@pytest.mark.parametrize(("provider", "event", "payload"), DELIVERIES)
def test_a_wrong_thing_at_any_node_is_survived(
    provider: ForgeProvider, event: str, payload: Any
) -> None:
    for each in spoilt(payload):
        body = json.dumps(each).encode()
        headers = headers_for(provider, event, body)
        found = receive_webhook(provider, headers, body, SECRET, now=NOW)
        assert found is None or isinstance(found, PushHint | WebhookRefusal)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["ref", "repository", "project", "pull_request", "object_attributes", "object_kind", "base",
     "clone_url", "ssh_url", "target_branch", "event_name", "url", "x"]
)  # fmt: skip
SHAPED = st.recursive(
    JSON | st.sampled_from(["refs/heads/main", "https://h/o/n.git", "git@h:o/n", "http://[::"]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["X-GitHub-Event", "X-Gitlab-Event", "X-Gitea-Event", "X-Hub-Signature-256",
         "X-Gitlab-Token", "X-Gitea-Signature", "X-Forgejo-Signature", "Content-Type",
         "webhook-id", "webhook-timestamp", "webhook-signature", "X-GitHub-Delivery"]
    )
    | st.text(max_size=8),
    st.sampled_from(["push", "pull_request", "Push Hook", "Merge Request Hook", "System Hook",
                     "application/x-www-form-urlencoded"])
    | st.text(),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    provider=st.sampled_from(ForgeProvider),
    headers=HEADERS,
    body=st.binary() | SHAPED.map(lambda value: json.dumps(value).encode()),
    secret=st.sampled_from([None, SECRET, SIGNING, Secret(""), Secret("whsec_"), Secret("é")]),
)
def test_no_delivery_raises(
    provider: ForgeProvider, headers: dict[str, str], body: bytes, secret: Secret | None
) -> None:
    for found in (
        receive_webhook(provider, headers, body, secret, now=NOW),
        read_webhook(provider, headers, body),
    ):
        assert found is None or isinstance(found, PushHint | WebhookRefusal)
        if isinstance(found, PushHint):
            assert found.repositories
            assert all(url.isprintable() for url in (*found.repositories, found.branch))


@settings(deadline=None)
@given(url=st.text())
def test_no_text_breaks_the_comparison_of_repositories(url: str) -> None:
    assert same_repository(url, url) is (repository_name(url) is not None)


@pytest.mark.parametrize(
    "other",
    [
        "https://GitHub.com/acme/infra",
        "https://token@github.com/Acme/infra.git/",
        "ssh://git@github.com:22/acme/infra.git",
        "git@github.com:acme/infra.git",
        "github.com:acme/infra",
    ],
)
def test_one_repository_is_the_same_over_every_protocol(other: str) -> None:
    assert same_repository("https://github.com/acme/infra.git", other)


@pytest.mark.parametrize(
    "other",
    [
        "https://github.com/acme/infra2",
        "https://github.com/acme/.*",
        "https://github.com/.*/infra",
        "https://github.com.evil.example/acme/infra",
        "https://evil.example/github.com/acme/infra",
        "https://github.com/",
        "file:///acme/infra",
        "",
    ],
)
def test_characters_with_a_meaning_elsewhere_have_none_in_a_repository(other: str) -> None:
    assert not same_repository("https://github.com/acme/infra", other)


def test_a_delivery_is_known_by_what_is_signed_and_not_by_its_id() -> None:
    body = json.dumps(GITHUB_PUSH).encode()
    headers = headers_for(ForgeProvider.GITHUB, "push", body)
    one = receive_webhook(ForgeProvider.GITHUB, headers, body, SECRET, now=NOW)
    again = receive_webhook(
        ForgeProvider.GITHUB, {**headers, "X-GitHub-Delivery": "another"}, body, SECRET, now=NOW
    )
    assert isinstance(one, PushHint)
    assert one == again
