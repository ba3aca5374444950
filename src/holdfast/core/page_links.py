"""Addresses of the page's screens, made from the base URL that a server was given.

Without a base URL nobody knows under which name the server is reached, so there is no link: every
function then answers None.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from holdfast.core.errors import ConfigurationError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-:")


def parse_origin(text: str) -> str | None:
    """Return an origin in the form that browsers send it; None for text that names none.

    An origin is a scheme, a host and, where it is not the usual one, a port.
    """
    if not text.isprintable():
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    beyond = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in _DEFAULT_PORTS or not host or beyond:
        return None
    if not _HOST_CHARACTERS.issuperset(host):
        return None
    name = f"[{host}]" if ":" in host else host
    shown = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{name}{shown}"


def normalize_base_url(text: str) -> str:
    """Return the origin that a setting names, as `https://holdfast.example.com`; empty for none.

    Raises ConfigurationError for anything else: the page stands at the root of its origin.
    """
    if not text:
        return ""
    origin = parse_origin(text)
    if origin is None:
        raise ConfigurationError(
            "The base URL is not an origin: it has a scheme, a host and, where needed, a port, "
            "and nothing else.",
            hint="Give --base-url or HOLDFAST_BASE_URL as https://holdfast.example.com.",
        )
    return origin


def drift_link(base_url: str, project: str, id: str) -> str | None:
    """Where a drift of an application is reviewed."""
    return project_link(base_url, project, "drifts", id)


def plan_link(base_url: str, project: str, id: str) -> str | None:
    """Where a plan is read; by its id or its digest."""
    return project_link(base_url, project, "plans", id)


def application_link(base_url: str, project: str, label: str) -> str | None:
    """Where an application is shown; `label` is its name in paths, as `namespace.name`."""
    return project_link(base_url, project, "applications", label)


def workload_link(base_url: str, project: str, slug: str) -> str | None:
    """Where a workload is shown."""
    return project_link(base_url, project, "workloads", slug)


def workload_drift_link(base_url: str, project: str, id: str) -> str | None:
    """Where a drift of a workload is shown."""
    return project_link(base_url, project, "workload-drifts", id)


def project_link(base_url: str, project: str, *path: str) -> str | None:
    """A screen of a project, such as `inbox`, `holds`, `rules` or `history`."""
    return page_link(base_url, "p", project, *path)


def page_link(base_url: str, *path: str) -> str | None:
    """A screen that belongs to no project, such as `me` or `login`."""
    if not base_url:
        return None
    return "/".join([base_url, "ui", *(quote(part, safe="") for part in path)])
