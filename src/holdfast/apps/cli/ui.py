"""`holdfast ui`: opens the page by a link that signs in once."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import MANAGER, connection_settings, missing_token_error
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session
from holdfast.core.errors import ConfigurationError, HoldfastError, NotFound

if TYPE_CHECKING:
    from holdfast.apps.sdk.settings import ConnectionSettings

_TEXT_BROWSERS = frozenset("lynx links links2 elinks w3m www-browser".split())
"""Browsers that take the terminal over and run no script: a page of ours is of no use there."""


_TOKEN_SECONDS = 12 * 3600.0
"""How long the token lives that is made from a store file."""


class LinkRow(msgspec.Struct, kw_only=True):
    """What the server answered."""

    url: str
    expires_at: str


@click.command(
    "ui",
    cls=Verb,
    examples=[
        "holdfast ui",
        "holdfast ui --no-open                             # print the link",
        "holdfast ui --url https://holdfast.example.com -p acme",
    ],
)
@click.option(
    "--open/--no-open",
    "opens",
    default=True,
    help="Open a browser (default: yes, where there is one).",
)
@options.db
@options.connected("table", "json", "yaml", "name")
def command(session: Session, opens: bool, db: str | None) -> None:
    """Open the page in a browser, signed in.

    With the address of a control plane it signs in with the token of the settings, which does not
    go to the browser itself. The page asks first where somebody is signed in already, or where the
    server is not one that only this machine reaches. On the machine of a server, by its store
    file, it makes a token of its own with the scope admin, good for 12 hours. The link works once
    and for a minute. Where there is no browser it is printed, and -o name prints the link alone.
    """
    target = connection_settings(session.settings, db=db)
    link = _fetch_link(target if target.is_remote else _server_of_store(session, target))
    screen = session.screen
    opened = opens and screen.for_people and _open_browser(link.url)
    if screen.output == "name":
        click.echo(link.url)
    elif not screen.for_people:
        screen.document("SignInLink", {"url": link.url, "expires_at": link.expires_at})
    elif opened:
        screen.line(
            f"Opened the page of {_shown_server(link.url)} in a browser, by a link that signs in."
        )
        screen.next("holdfast ui --no-open prints a link instead.")
    else:
        screen.line("Open this within a minute; it works once:\n")
        click.echo(f"  {link.url}\n")
        screen.line("Who opens it acts with your token. End the session on the page, under Me.")


def _server_of_store(session: Session, target: ConnectionSettings) -> ConnectionSettings:
    """Find the server that has the store open, and make a token for it."""
    from holdfast.adapters.store import OpenMode, Store
    from holdfast.adapters.store.files import lock_holder
    from holdfast.apps.cli.token import StoreTokenAdmin, TokenRequest
    from holdfast.apps.sdk.settings import resolve_connection

    holder = lock_holder(target.path.resolve()) if target.path is not None else None
    if target.path is None or holder is None or not holder.url:
        raise ConfigurationError(
            f"The page is a server's, and none runs on {session.connected_to}.",
            hint="Start one with holdfast serve, or set HOLDFAST_URL and HOLDFAST_TOKEN to one.",
        )
    with Store.open(target.path, mode=OpenMode.ADMIN) as store:
        projects = [each.slug for each in store.projects()]
        project = session.project
        if project not in projects:
            if len(projects) != 1:
                known = ", ".join(projects) or "none"
                raise NotFound(
                    f"There is no project {project} in {target.path}; there are: {known}.",
                    hint="Name one with -p, or make it: holdfast project create PROJECT",
                )
            (project,) = projects
        request = TokenRequest(
            name=_user_name(),
            kind="sdk",
            scopes=("admin",),
            workload=None,
            lifetime=_TOKEN_SECONDS,
        )
        _, secret = StoreTokenAdmin(store, project).create(request)
    url = holder.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    return resolve_connection(url, token=secret.reveal(), environ={})


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody on this machine"


def _fetch_link(target: ConnectionSettings) -> LinkRow:
    from holdfast.adapters.http.responses import response_error
    from holdfast.adapters.http.transports import deadline_in
    from holdfast.apps.sdk.connect import ClientOptions, make_transport
    from holdfast.reconcile.sync_bridge import run_sync

    if target.token is None:
        raise missing_token_error(target.url)
    made = ClientOptions(timeout=30.0, max_retries=0, manager=MANAGER, blocking=True)
    client = make_transport(target, made, target.token)
    try:
        deadline = deadline_in(30.0, client.clock)
        response = run_sync(client.request("POST", "/api/sign-in-links", deadline=deadline))
    finally:
        run_sync(client.aclose())
    if response.status == 404:
        raise NotFound(
            f"{target.url} has no page: it is another server, or an older Holdfast.",
            hint="Check HOLDFAST_URL, or upgrade the server.",
        )
    if response.status >= 300:
        raise response_error(response)
    try:
        link = msgspec.json.decode(response.body, type=LinkRow)
    except msgspec.MsgspecError as error:
        raise _no_link(target) from error
    if urlsplit(link.url).scheme not in ("http", "https"):
        raise _no_link(target)
    return link


def _no_link(target: ConnectionSettings) -> HoldfastError:
    return ConfigurationError(
        f"{target.url} answered with something else than a link.", hint="Check HOLDFAST_URL."
    )


def _shown_server(url: str) -> str:
    """The link without its code."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _open_browser(url: str) -> bool:
    """Open a browser with windows; False where there is none."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in displays):
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if os.path.basename(getattr(browser, "name", "")) in _TEXT_BROWSERS:
        return False
    return browser.open(url)
