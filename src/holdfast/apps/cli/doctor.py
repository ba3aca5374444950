"""`holdfast doctor`: check this machine, the store and the connection, with a fix for each."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import MANAGER, connection_settings
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.text import printable
from holdfast.core.errors import HoldfastError, install_extra
from holdfast.core.text_style import TextStyle

if TYPE_CHECKING:
    from holdfast.apps.sdk.settings import ConnectionSettings

SAFE_SQLITE = (3, 51, 3)
"""Earlier versions can damage a write-ahead log that two connections write at once."""


class CheckStatus(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_STYLES = {
    CheckStatus.OK: TextStyle.CREATE,
    CheckStatus.WARN: TextStyle.CHANGE,
    CheckStatus.FAIL: TextStyle.REMOVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked."""

    name: str
    status: CheckStatus = CheckStatus.OK
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A part that is installed by itself, and what it is for."""

    name: str
    modules: tuple[str, ...]
    purpose: str


EXTRAS = (
    Extra(
        name="server",
        modules=("holdfast.apps.server.main",),
        purpose="run a control plane (holdfast serve)",
    ),
    Extra(
        name="kubernetes",
        modules=("holdfast.adapters.kubernetes.target", "holdfast.apps.operator.main"),
        purpose="use a cluster and run the operator",
    ),
    Extra(
        name="gitops",
        modules=("holdfast.apps.gitops.main", "tzdata"),
        purpose="run the GitOps controller",
    ),
    Extra(
        name="postgres",
        modules=("holdfast.adapters.postgres",),
        purpose="keep that controller's ledger in PostgreSQL",
    ),
)


@click.command("doctor", cls=Verb, examples=["holdfast doctor", "holdfast doctor -o json"])
@options.connected("table", "json", "yaml", "jsonl")
@click.pass_context
def command(ctx: click.Context, session: Session) -> None:
    """Check this machine, the store and the connection.

    Changes nothing. Ends with exit code 1 when a check fails.
    """
    screen = session.screen
    checks = list(_run_checks(session))
    bodies = [
        {"name": each.name, "verdict": each.status, "found": each.found, "fix": each.fix}
        for each in checks
    ]
    failed = [each for each in checks if each.status is CheckStatus.FAIL]
    if screen.output == "jsonl":
        screen.records("Diagnosis", bodies)
    elif not screen.for_people:
        screen.document("Diagnosis", {"healthy": not failed, "checks": bodies})
    else:
        for each in checks:
            mark = screen.paint(f"{each.status:<4}", _STYLES[each.status])
            screen.line(f"{mark}  {each.name:<11} {printable(each.found)}")
            if each.fix:
                screen.line(f"{'':<18}Fix: {printable(each.fix)}")
        screen.next("fix what failed, then holdfast doctor" if failed else "holdfast status")
    if failed:
        ctx.exit(Exit.ERROR)


def _run_checks(session: Session) -> Iterator[Check]:
    yield _check_python()
    yield _check_sqlite()
    yield from map(_check_extra, EXTRAS)
    try:
        settings = connection_settings(session.settings)
    except HoldfastError as error:
        yield _failed_check("settings", error)
        return
    origin = session.settings.found.get("url")
    where = settings.url.removeprefix("sqlite:///") if settings.path else settings.url
    yield Check(name="settings", found=f"{where} (from {origin.origin if origin else 'default'})")
    if settings.path is not None:
        yield from _check_store(settings.path)
    elif settings.is_remote:
        yield from _check_remote(session, settings)
    elif settings.scheme == "kubernetes":
        yield from _check_cluster(session)


def _check_python() -> Check:
    good = sys.version_info >= (3, 11)
    return Check(
        name="python",
        status=CheckStatus.OK if good else CheckStatus.FAIL,
        found=f"{platform.python_version()} on {platform.platform(terse=True)}",
        fix="" if good else "Use Python 3.11 or newer.",
    )


def _check_sqlite() -> Check:
    import apsw

    version = apsw.sqlite_lib_version()
    good = tuple(int(part) for part in version.split(".")[:3]) >= SAFE_SQLITE
    return Check(
        name="sqlite",
        status=CheckStatus.OK if good else CheckStatus.WARN,
        found=f"{version} (apsw {apsw.apsw_version()})",
        fix="" if good else "Update apsw: SQLite below 3.51.3 can damage a store in rare cases.",
    )


def _check_extra(extra: Extra) -> Check:
    """Import the very modules: a list of packages kept by hand would one day be wrong."""
    try:
        for module in extra.modules:
            import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        return Check(
            name=extra.name,
            status=CheckStatus.WARN,
            found=f"{error.name} is not installed" if missing else f"it cannot be used: {error}",
            fix=f"{install_extra(extra.name)}, if this machine is to {extra.purpose}.",
        )
    return Check(name=extra.name, found=f"installed: this machine can {extra.purpose}")


def _check_store(path: Path) -> Iterator[Check]:
    from holdfast.adapters.store import OpenMode, Store
    from holdfast.core.errors import StoreHeld

    if not path.exists():
        yield Check(name="store", found=f"{path} is made on first use")
        return
    try:
        with Store.open(path, mode=OpenMode.ADMIN) as store:
            problems = store.check()
    except HoldfastError as error:
        yield _failed_check("store", error)
        return
    size = path.stat().st_size / 2**20
    yield Check(
        name="store",
        status=CheckStatus.FAIL if problems else CheckStatus.OK,
        found=f"{len(problems)} problems, first: {problems[0]}"
        if problems
        else f"{path}, {size:.1f} MiB, whole",
        fix="Stop what uses the file, keep a copy of it, and put a backup in its place."
        if problems
        else "",
    )
    try:
        Store.open(path, mode=OpenMode.CLIENT).close()
    except StoreHeld as error:
        yield Check(name="holder", status=CheckStatus.WARN, found=error.happened, fix=error.hint)
    except HoldfastError as error:
        yield _failed_check("holder", error)
    else:
        yield Check(name="holder", found="no server has it open, so nothing runs the workloads")


def _check_remote(session: Session, settings: ConnectionSettings) -> Iterator[Check]:
    from holdfast.adapters.http.transports import deadline_in
    from holdfast.apps.sdk.connect import ClientOptions, make_transport
    from holdfast.reconcile.sync_bridge import run_sync

    options = ClientOptions(timeout=5.0, max_retries=0, manager=MANAGER, blocking=True)
    client = make_transport(settings, options, None)
    try:
        deadline = deadline_in(5.0, client.clock)
        response = run_sync(client.request("GET", "/readyz", deadline=deadline))
    except HoldfastError as error:
        yield _failed_check("reach", error)
        return
    finally:
        run_sync(client.aclose())
    if response.status == 200:
        yield Check(name="reach", found=f"{settings.url} answers and is ready")
    else:
        yield Check(
            name="reach",
            status=CheckStatus.FAIL,
            found=f"{settings.url}/readyz answered {response.status}",
            fix="Check that this is a Holdfast control plane, and its log.",
        )
        return
    try:
        with session.client() as reader:
            count = len(reader.list())
    except HoldfastError as error:
        yield _failed_check("token", error)
    else:
        yield Check(name="token", found=f"reads project {session.project} ({count} workloads)")


def _check_cluster(session: Session) -> Iterator[Check]:
    """One list tells all: the kubeconfig, the API server, the identity, the definition, RBAC."""
    from holdfast.adapters.kubernetes.target_objects import NOT_OBSERVED

    try:
        with session.client() as client:
            found = client.list(timeout=10.0)
    except HoldfastError as error:
        yield _failed_check("cluster", error)
        return
    yield Check(name="cluster", found=f"reads project {session.project} ({len(found)} workloads)")
    waiting = [live for live in found if live.status.message == NOT_OBSERVED]
    if waiting:
        yield Check(
            name="operator",
            status=CheckStatus.WARN,
            found=f"{len(waiting)} workloads were taken up by no operator",
            fix="Check that it runs: kubectl get pods -A -l app.kubernetes.io/name=holdfast",
        )


def _failed_check(name: str, error: HoldfastError) -> Check:
    return Check(name=name, status=CheckStatus.FAIL, found=error.happened, fix=error.hint)
