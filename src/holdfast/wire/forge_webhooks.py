"""Reads what a forge says about a push or a pull request: whether it is genuine, and where to look.

A delivery is a hint to look again and nothing more. It can never say what to look at: the
revision is asked of the repository itself, so a replayed or forged delivery costs one look.
Called by the controller's HTTP app with the raw body, before anything reads it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.core.gitops.application import ForgeProvider
from holdfast.core.redact import Secret

MAX_BODY_BYTES = 25 * 1024 * 1024
"""Bytes of a body: GitHub sends no more."""
MAX_CLOCK_SKEW = 300.0
"""Seconds that a signed time may be off."""
_MAX_TEXT = 2048
_SIGNING_PREFIX = "whsec_"
_SIGNATURES = {
    # A header that is there decides; a later one does not rescue it.
    ForgeProvider.GITHUB: ("x-hub-signature-256",),
    ForgeProvider.GITEA: ("x-forgejo-signature", "x-gitea-signature", "x-hub-signature-256"),
}
_EVENTS = {
    ForgeProvider.GITHUB: ("x-github-event",),
    ForgeProvider.GITLAB: ("x-gitlab-event",),
    ForgeProvider.GITEA: ("x-forgejo-event", "x-gitea-event", "x-github-event"),
}
_PUSHES = frozenset({"push", "create", "delete", "push hook", "tag push hook"})
_SYSTEM_PUSHES = frozenset({"push", "tag_push", "repository_update"})
_URLS = (
    "clone_url", "ssh_url", "git_url", "html_url", "url",
    "git_http_url", "git_ssh_url", "http_url", "web_url", "homepage",
)  # fmt: skip


class WebhookRefusal(StrEnum):
    """Why a delivery was not taken. All but the last two are answered alike, with 401."""

    NO_SECRET = "no-secret"
    """None is configured, so nothing can be genuine."""
    UNSIGNED = "unsigned"
    WRONG_SIGNATURE = "wrong-signature"
    OLD = "old"
    """The signed time is too far from now."""
    TOO_LARGE = "too-large"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushHint:
    """Where to look again. Says nothing about what is there."""

    repositories: tuple[str, ...]
    """Every URL that the forge gives for it. Compare with `same_repository`."""
    branch: str
    """What moved: a branch or tag, or the base of a pull request. Empty when it was not said;
    then anything may have moved."""
    pull: bool
    """True for a pull request that was opened, merged, closed or changed."""
    delivery: str
    """Equal when the same delivery comes again."""


def receive_webhook(
    provider: ForgeProvider,
    headers: Mapping[str, str],
    body: bytes,
    secret: Secret | None,
    *,
    now: datetime,
) -> PushHint | WebhookRefusal | None:
    """Verify and read a delivery; None for a genuine one that is about nothing here, as a ping."""
    refusal = verify_webhook(provider, headers, body, secret, now=now)
    return refusal if refusal is not None else read_webhook(provider, headers, body)


def verify_webhook(
    provider: ForgeProvider,
    headers: Mapping[str, str],
    body: bytes,
    secret: Secret | None,
    *,
    now: datetime,
) -> WebhookRefusal | None:
    """Say why a body is not from who shares the secret; None when it is. Reads nothing of it.

    A secret of GitLab that starts with `whsec_` is a signing token, any other a plain one.
    """
    if secret is None or not secret.reveal():
        return WebhookRefusal.NO_SECRET
    if len(body) > MAX_BODY_BYTES:
        return WebhookRefusal.TOO_LARGE
    given = _lower_case(headers)
    if provider is not ForgeProvider.GITLAB:
        return _verify_hex(provider, given, body, secret)
    if secret.reveal().startswith(_SIGNING_PREFIX):
        return _verify_signed(given, body, secret, now)
    token = given.get("x-gitlab-token")
    if token is None:
        return WebhookRefusal.UNSIGNED
    return None if _is_equal(token, secret.reveal()) else WebhookRefusal.WRONG_SIGNATURE


def read_webhook(
    provider: ForgeProvider, headers: Mapping[str, str], body: bytes
) -> PushHint | WebhookRefusal | None:
    """Read a body that was verified, whatever it holds. None when it is about nothing here."""
    if len(body) > MAX_BODY_BYTES:
        return WebhookRefusal.TOO_LARGE
    given = _lower_case(headers)
    try:
        payload = _decode(_json_body(given, body))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return WebhookRefusal.UNREADABLE
    event = _first(given, _EVENTS[provider]).lower()
    kind = _text(payload.object_kind) or _text(payload.event_name)
    pull = event.startswith("pull_request") or event == "merge request hook"
    push = event in _PUSHES
    if event == "system hook":
        pull, push = kind == "merge_request", kind in _SYSTEM_PUSHES
    if not pull and not push:
        return None
    urls = _repositories(payload)
    if not urls:
        return WebhookRefusal.UNREADABLE
    return PushHint(
        repositories=urls,
        branch=_base(payload) if pull else _branch(payload.ref),
        pull=pull,
        delivery=_delivery_id(given if provider is ForgeProvider.GITLAB else {}, body),
    )


def claimed_repositories(headers: Mapping[str, str], body: bytes) -> frozenset[tuple[str, str]]:
    """Return the hosts and paths that a body claims to be about, before anything is verified.

    Fit to choose which secrets to try, and for nothing else. Empty for what cannot be read.
    """
    if len(body) > MAX_BODY_BYTES:
        return frozenset()
    try:
        payload = _decode(_json_body(_lower_case(headers), body))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return frozenset()
    names = (repository_name(url) for url in _repositories(payload))
    return frozenset(name for name in names if name is not None)


def same_repository(one: str, other: str) -> bool:
    """True when two URLs name the same repository, over whatever protocol.

    Compared in parts, without regard to case, user, port and `.git`: a look too many is cheap.
    """
    name = repository_name(one)
    return name is not None and name == repository_name(other)


def repository_name(url: str) -> tuple[str, str] | None:
    """Return the host and path of a repository; None for what is no URL of one."""
    short = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):(?!//)([\w.~/+-]+)", url)
    if short:  # `git@host:owner/name.git`
        host, path = short.groups()
    else:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return None
        if parts.scheme not in ("https", "http", "ssh", "git", "git+ssh"):
            return None
    path = path.strip("/").removesuffix(".git").rstrip("/")
    return (host.lower(), path.casefold()) if host and path else None


def _repositories(payload: _Payload) -> tuple[str, ...]:
    parents = (payload.repository, payload.project)
    found = [_text(_nested_value(parent, key)) for parent in parents for key in _URLS]
    return tuple(dict.fromkeys(url for url in found if url and repository_name(url)))


class _Payload(msgspec.Struct):
    """The parts that are read. The rest, such as commits, is skipped without being kept."""

    # Any: JSON of a stranger, looked at field by field.
    ref: Any = None
    repository: Any = None
    project: Any = None
    pull_request: Any = None
    object_attributes: Any = None
    object_kind: Any = None
    event_name: Any = None


_decode = msgspec.json.Decoder(_Payload).decode


def _verify_hex(
    provider: ForgeProvider, given: Mapping[str, str], body: bytes, secret: Secret
) -> WebhookRefusal | None:
    name = next((name for name in _SIGNATURES[provider] if given.get(name)), None)
    if name is None:
        return WebhookRefusal.UNSIGNED
    digest = hmac.new(secret.reveal().encode(), body, hashlib.sha256).hexdigest()
    right = f"sha256={digest}" if name == "x-hub-signature-256" else digest
    return None if _is_equal(given[name], right) else WebhookRefusal.WRONG_SIGNATURE


def _verify_signed(
    given: Mapping[str, str], body: bytes, secret: Secret, now: datetime
) -> WebhookRefusal | None:
    """Standard Webhooks, as GitLab signs: over id, time and body, with a key in Base64."""
    claimed, id_ = given.get("webhook-signature"), given.get("webhook-id")
    at = given.get("webhook-timestamp")
    if not claimed or not id_ or not at:
        return WebhookRefusal.UNSIGNED
    try:
        key = base64.b64decode(secret.reveal().removeprefix(_SIGNING_PREFIX), validate=True)
    except binascii.Error:
        return WebhookRefusal.NO_SECRET
    if not key:
        return WebhookRefusal.NO_SECRET
    signed = f"{id_}.{at}.".encode(errors="replace") + body
    signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    # While a token is replaced there are several signatures.
    if not any(_is_equal(each, f"v1,{signature}") for each in claimed.split(" ")[:8]):
        return WebhookRefusal.WRONG_SIGNATURE
    if not re.fullmatch(r"[0-9]{1,12}", at) or abs(now.timestamp() - int(at)) > MAX_CLOCK_SKEW:
        return WebhookRefusal.OLD
    return None


def _is_equal(claimed: str, right: str) -> bool:
    return hmac.compare_digest(claimed.encode(errors="replace"), right.encode(errors="replace"))


def _lower_case(headers: Mapping[str, str]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name] for name in names if name in given), "")


def _json_body(given: Mapping[str, str], body: bytes) -> bytes:
    """Take the JSON out of a form, which is what GitHub sends unless told otherwise."""
    if not given.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
        return body
    fields = parse_qs(body, strict_parsing=True, max_num_fields=8)
    return fields.get(b"payload", [b""])[0]


def _nested_value(value: Any, *keys: str) -> Any:  # Any: JSON of a stranger
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:  # Any: JSON of a stranger
    """Return a short, printable text; empty for anything else."""
    fits = isinstance(value, str) and len(value) <= _MAX_TEXT and value.isprintable()
    return value if fits else ""


def _branch(ref: Any) -> str:  # Any: JSON of a stranger
    return _text(ref).removeprefix("refs/heads/").removeprefix("refs/tags/")


def _base(payload: _Payload) -> str:
    base = _nested_value(payload.pull_request, "base", "ref")
    return _branch(base) or _branch(_nested_value(payload.object_attributes, "target_branch"))


def _delivery_id(given: Mapping[str, str], body: bytes) -> str:
    """Name a delivery by what its signature covers: anybody could write another id beside it."""
    covered = [given.get(name, "") for name in ("webhook-id", "webhook-timestamp")]
    lead = ".".join(covered).encode(errors="replace") if any(covered) else b""
    return hashlib.sha256(lead + b"." + body).hexdigest()
