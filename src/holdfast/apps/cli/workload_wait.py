"""Waits for workloads, for `ensure --wait` and `wait`; Ctrl-C only ends the waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import click

from holdfast.apps.cli.session import Session
from holdfast.core.errors import Retry, TargetUnavailable, WaitTimeout
from holdfast.core.quantity import format_seconds

POLL_SECONDS = 1.0
"""Between two reads of the ledger."""


T = TypeVar("T")


def retry_until_available(
    session: Session, call: Callable[[], T], *, end: float, timeout: float
) -> T:
    """Call until the target answers: a server that is just starting is waited for."""
    announced = False
    while True:
        try:
            return call()
        except TargetUnavailable as error:
            left = end - time.monotonic()
            if error.retry is Retry.NEVER:
                raise
            if left <= 0:
                raise WaitTimeout(
                    f"There was no answer in {format_seconds(timeout)}. {error.happened}",
                    changed="",
                    hint=error.hint,
                ) from error
            if not announced:
                session.screen.info(f"{error.happened} Still waiting.")
                announced = True
            time.sleep(min(POLL_SECONDS, left))


def wait_ready(
    session: Session, names: Sequence[str], *, timeout: float, end: float | None = None
) -> None:
    """Wait until every workload serves, within one time for all of them."""
    from holdfast.apps.sdk.progress import ProgressView

    end = time.monotonic() + timeout if end is None else end
    with hint_on_interrupt(session, "ready", names, timeout), session.client() as client:
        for where in map(session.workload, names):
            retry_until_available(
                session, partial(session.find, client, where), end=end, timeout=timeout
            )
            with ProgressView(str(where)) as view:
                left = max(0.001, end - time.monotonic())
                client.wait_until_ready(
                    where.slug, project=where.project, timeout=left, on_progress=view
                )
            session.screen.info(f"{where} is ready.")


def wait_synced(
    session: Session, names: Sequence[str], *, timeout: float, end: float | None = None
) -> None:
    """Wait until the ledger has no open drift of these workloads."""
    end = time.monotonic() + timeout if end is None else end
    with hint_on_interrupt(session, "synced", names, timeout), session.client() as client:
        for where in map(session.workload, names):
            retry_until_available(
                session, partial(session.find, client, where), end=end, timeout=timeout
            )
            drifts = partial(client.drifts, slug=where.slug, project=where.project)
            while retry_until_available(session, drifts, end=end, timeout=timeout):
                left = end - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(
                        f"Workload {where} still had open drift after {format_seconds(timeout)}.",
                        changed="",
                        hint=f"Look at it: holdfast drift list {where}",
                    )
                time.sleep(min(POLL_SECONDS, left))
            session.screen.info(f"{where} is as declared.")


@contextmanager
def hint_on_interrupt(
    session: Session,
    goal: str,
    names: Sequence[str],
    timeout: float,
    *,
    going_on: str = "the workloads go on",
) -> Iterator[None]:
    """Say how to go on waiting when the user interrupts."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort):
        session.screen.info(f"No longer waiting; {going_on}.")
        session.screen.next(f"holdfast wait --for {goal} {' '.join(names)} --timeout {timeout:g}s")
        raise
