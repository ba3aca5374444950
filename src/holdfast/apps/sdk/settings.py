"""Where a client connects, and as whom.

An explicit argument comes first, then `HOLDFAST_*`, then the `INFERENCEKEY_*` names that
existing scripts have set, then the embedded target of this user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import overload
from urllib.parse import quote, unquote, urlsplit

from holdfast.adapters.http.transports import is_loopback
from holdfast.core.errors import ConfigurationError
from holdfast.core.names import canonical_slug, is_slug
from holdfast.core.redact import Secret, credential_in, quote_text

URL = ("HOLDFAST_URL", "INFERENCEKEY_BASE_URL")
PROJECT = ("HOLDFAST_PROJECT", "INFERENCEKEY_PROJECT")
TOKEN = ("HOLDFAST_TOKEN", "INFERENCEKEY_SDK_TOKEN")
API_KEY = ("HOLDFAST_API_KEY", "INFERENCEKEY_API_KEY")
INSECURE = "HOLDFAST_ALLOW_INSECURE"
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """A connection, resolved and checked, but not made."""

    scheme: str
    """`https`, `http`, `sqlite`, `kubernetes` or `memory`."""
    url: str
    """Without credentials, so it may be shown."""
    path: Path | None = None
    """The file of an embedded target."""
    context: str = ""
    """The kubeconfig's context of a Kubernetes target; empty for the current one."""
    namespace: str = ""
    """The namespace of a Kubernetes target; empty for each project's own."""
    project: str | None = None
    """None for a remote target, where each call must then name one, and for a cluster, where it
    is then the namespace."""
    token: Secret | None = None
    insecure: bool = False
    """The caller accepts that a token crosses the network in clear."""

    @property
    def is_remote(self) -> bool:
        """True when there is a server on the other side."""
        return self.scheme in ("http", "https")


def resolve_connection(
    url: str | None = None,
    *,
    project: str | None = None,
    token: str | Secret | None = None,
    allow_insecure: bool = False,
    token_names: tuple[str, ...] = TOKEN,
    environ: Mapping[str, str] | None = None,
) -> ConnectionSettings:
    """Say where to connect. Raises ConfigurationError naming the variable to set."""
    env = os.environ if environ is None else environ
    address, origin = _first_set(url, URL, env)
    secret, token_origin = _first_set(token, token_names, env)
    place, project_origin = _first_set(project, PROJECT, env)
    if place is not None:
        place = _check_project(str(place), project_origin)
    if address is None:
        if secret is not None and token_names is TOKEN:
            raise ConfigurationError(
                f"{token_origin} gives a token, but nothing says which server it is for.",
                hint="Set HOLDFAST_URL to the control plane, or leave the token out to use the "
                "embedded target on this machine.",
            )
        address, origin = f"sqlite:///{default_store_file(env)}", "the default"
    text = str(address)
    scheme = text.strip().partition("://")[0].lower() if "://" in text else ""
    if scheme == "sqlite":
        path = _parse_file(text, origin)
        return ConnectionSettings(
            scheme=scheme, url=f"sqlite:///{path}", path=path, project=place or DEFAULT_PROJECT
        )
    if scheme == "memory":
        return ConnectionSettings(scheme=scheme, url="memory://", project=place or DEFAULT_PROJECT)
    if scheme == "kubernetes":
        context, namespace = _parse_cluster(text, origin)
        return ConnectionSettings(
            scheme=scheme,
            url=f"kubernetes://{quote(context, safe=':@')}/{namespace}",
            context=context,
            namespace=namespace,
            project=place or namespace or None,
        )
    if scheme not in ("http", "https"):
        raise ConfigurationError(
            f"{origin} is not an address that Holdfast knows.",
            hint="Use https://HOST, kubernetes://CONTEXT/NAMESPACE, or sqlite:///FILE for a file "
            "on this machine.",
        )
    server = _parse_server(text, origin)
    checked = None if secret is None else _check_token(secret, token_origin)
    insecure = allow_insecure or env.get(INSECURE, "") in ("1", "true", "yes")
    _check_encrypted(server, origin, checked, insecure)
    return ConnectionSettings(
        scheme=scheme, url=server, project=place, token=checked, insecure=insecure
    )


@overload
def merge_aliases(**named: str | None) -> str | None: ...
@overload
def merge_aliases(**named: str | Secret | None) -> str | Secret | None: ...
def merge_aliases(**named: str | Secret | None) -> str | Secret | None:
    """Return the argument that was given of two that mean the same; refuses two that differ."""
    given = {name: value for name, value in named.items() if value is not None}
    values = list(given.values())
    if any(value != values[0] for value in values):
        raise ConfigurationError(
            f"{' and '.join(given)} mean the same thing, but differ.", hint="Give one of them."
        )
    return values[0] if values else None


def check_key(settings: ConnectionSettings, key: str | Secret) -> Secret:
    """Check a key that is given later as if it had been there from the start."""
    checked = _check_token(key, "the argument")
    _check_encrypted(settings.url, "the argument", checked, settings.insecure)
    return checked


def data_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory in which Holdfast keeps this user's data."""
    env = os.environ if environ is None else environ
    if env.get("HOLDFAST_HOME"):
        return Path(env["HOLDFAST_HOME"]).expanduser()
    if env.get("XDG_DATA_HOME"):
        return Path(env["XDG_DATA_HOME"]) / "holdfast"
    return Path.home() / ".local" / "share" / "holdfast"


def default_store_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the embedded store's file when nothing else is set."""
    return (data_home(environ) / "holdfast.db").absolute()


def _first_set(
    explicit: str | Secret | None, names: tuple[str, ...], env: Mapping[str, str]
) -> tuple[str | Secret | None, str]:
    if explicit is not None and explicit != "":
        return explicit, "the argument"
    for name in names:
        if env.get(name):
            return env[name], name
    return None, names[0]


def _check_project(text: str, origin: str) -> str:
    if not is_slug(text):
        like = "" if credential_in(text) else canonical_slug(text)
        hint = f"Did you mean {like!r}?" if like and text.isascii() else "Give a slug."
        raise ConfigurationError(
            f"{_subject(origin, 'project')} {quote_text(text, 80)} is not a project slug.",
            hint=hint,
        )
    return text


def _check_token(value: str | Secret, origin: str) -> Secret:
    text = (value.reveal() if isinstance(value, Secret) else value).strip()
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > 4096:
        raise ConfigurationError(
            f"{_subject(origin, 'token')} holds characters that no token has.",
            hint="Copy the token again, without quotes, spaces or line ends.",
        )
    return Secret(text)


def _parse_server(text: str, origin: str) -> str:
    parts = urlsplit(text.strip())
    where = _subject(origin, "url")
    if parts.username or parts.password:
        raise ConfigurationError(
            f"{where} carries a user or password.", hint="Give the token in HOLDFAST_TOKEN instead."
        )
    try:
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    odd = any(char.isspace() or not char.isprintable() or ord(char) > 126 for char in text.strip())
    if not good or odd or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{where} is not a server address.", hint="Use the form https://HOST[:PORT]."
        )
    return f"{parts.scheme.lower()}://{parts.netloc}{parts.path.rstrip('/')}"


def _parse_file(text: str, origin: str) -> Path:
    rest = text[len("sqlite://") :]
    if not rest.startswith("/") or rest == "/":
        raise ConfigurationError(
            f"{_subject(origin, 'url')} names no file.",
            hint="Use sqlite:///FILE for a relative and sqlite:////FILE for an absolute path.",
        )
    return Path(unquote(rest[1:])).expanduser().absolute()


def _parse_cluster(text: str, origin: str) -> tuple[str, str]:
    """Read CONTEXT/NAMESPACE. Contexts may be of any form: those of EKS have slashes in them."""
    rest = text.strip()[len("kubernetes://") :]
    context, _, namespace = rest.rpartition("/") if "/" in rest else (rest, "", "")
    if namespace and not is_slug(namespace):
        raise ConfigurationError(
            f"{_subject(origin, 'url')} names a namespace that is not valid: "
            f"{quote_text(namespace, 80)}.",
            hint="Use kubernetes://CONTEXT/NAMESPACE; end it with a slash to leave the namespace "
            "to the project's name.",
        )
    return unquote(context), namespace


def _check_encrypted(url: str, origin: str, token: Secret | None, allowed: bool) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or token is None or allowed or is_loopback(host):
        return
    raise ConfigurationError(
        f"{_subject(origin, 'url')} is http:// to {host}: the token would cross the network in "
        "clear.",
        hint=f"Use https://, or set {INSECURE}=1 (allow_insecure=True) if the network is trusted.",
    )


def _subject(origin: str, what: str) -> str:
    return f"The {what} argument" if origin == "the argument" else origin
