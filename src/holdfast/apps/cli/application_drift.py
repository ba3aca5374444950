"""The verbs of `holdfast drift` where a GitOps controller answers."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.apps.cli.controller import Controller
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.application_drifts import (
    moved,
    show_drift,
    show_drifts,
    show_explained,
)
from holdfast.apps.cli.views.causes import show_causes
from holdfast.wire.gitops_v1 import ApplicationDriftForm


def list_drifts(
    session: Session,
    controller: Controller,
    name: str,
    *,
    state: str,
    kind: str = "",
    namespace: str = "",
    grouped: bool = False,
) -> list[ApplicationDriftForm]:
    """Show drifts of applications, and return them."""
    found = controller.ask(
        controller.api.drifts(state=state, application=name, type=kind, namespace=namespace)
    )
    now = datetime.now(UTC)
    if grouped:
        show_causes(session.screen, [moved(each) for each in found], now=now)
    else:
        tolerated = 0
        if state == "open" and not (kind or namespace):
            chosen = [controller.ask(controller.api.application(name))] if name else None
            tolerated = sum(each.tolerated for each in chosen or controller.applications)
        show_drifts(session.screen, found, tolerated=tolerated, now=now)
    session.screen.next(f"holdfast drift show {found[0].id}" if found else "holdfast status")
    return found


def show_one(session: Session, controller: Controller, id: str) -> None:
    """Show one drift, and what can be done about it."""
    drift = controller.ask(controller.api.drift(id))
    show_drift(session.screen, drift, now=datetime.now(UTC))
    session.screen.next(next_command(drift))


def explain_drifts(session: Session, controller: Controller, name: str) -> None:
    """Explain one drift by its id, or those of an application, or all."""
    if name.startswith("drf-"):
        chosen = [controller.ask(controller.api.drift(name))]
    else:
        chosen = controller.ask(controller.api.drifts(application=name))
    if not session.screen.for_people:
        show_drifts(session.screen, chosen, tolerated=0, now=datetime.now(UTC))
        return
    if not chosen:
        chosen = controller.ask(controller.api.drifts(state="all", application=name, limit=1))
        session.screen.line("No drift is open." + (" The last one:" if chosen else ""))
    for each in chosen:
        show_explained(session.screen, each, now=datetime.now(UTC))
    session.screen.next(next_command(chosen[0]) if chosen else "holdfast status")


def next_command(drift: ApplicationDriftForm) -> str:
    """Say what a person would do next about a drift."""
    if drift.resolved_at is not None:
        return f"holdfast history {drift.application}"
    match drift.state:
        case "awaiting-approval":
            return f"holdfast approve {drift.id}, or reject, snooze, codify"
        case "held":
            return f"holdfast resume {drift.application}"
        case "pull-request":
            return f"merge or close its pull request, or holdfast revert {drift.id}"
        case "approved" | "healing":
            return f"holdfast drift show {drift.id}"
        case _ if not drift.where:
            return f"holdfast revert {drift.id} deletes it, codify declares it"
        case _ if not drift.healable:
            return f"holdfast status {drift.application}"
        case _:
            return f"holdfast revert {drift.id} puts Git's value back, codify keeps the live one"
