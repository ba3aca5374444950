"""Ends the record of an application that is followed no longer.

What it applied stays in the cluster: taking an Application away says nothing about its objects.
Its drifts are closed as gone, and nothing waits for anybody any more.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.core.gitops.drift import DriftState, Resolution
from holdfast.reconcile.gitops.ledger import Shelf


async def leave(shelf: Shelf, now: datetime) -> None:
    """Close everything that is open, in one commit. Raises Conflict when others wrote."""
    if not shelf.project:  # it was not followed when it went
        drifts = [drift.project for drift in shelf.drifts.values()]
        shelf.project = next(iter((*shelf.projects[-1:], *drifts)), "")
    for drift in list(shelf.drifts.values()):
        shelf.put_drift(
            replace(
                drift, state=DriftState.RESOLVED, resolution=Resolution.GONE, resolved_at=now,
                note="Its application no longer exists.",
            )
        )  # fmt: skip
        shelf.note(
            "resolved", f"{drift.object}: its application no longer exists.", subject=drift.id,
            detail={"resolution": Resolution.GONE.value},
        )  # fmt: skip
    for hold in list(shelf.holds.values()):
        shelf.put_hold(hold, ended=True)
    for plan in list(shelf.plans.values()):
        shelf.put_plan(plan, done=True)
    for pull in list(shelf.pulls.values()):
        shelf.put_pull(pull, done=True)
    for rule in list(shelf.rules.values()):
        shelf.put_rule(rule, ended=True)
    count = len(shelf.inventory)
    for ref in list(shelf.inventory):
        shelf.drop_applied(ref)
    if shelf.projects:
        shelf.put_projects(shelf.projects, left=True)
    known = shelf.followed is not None
    shelf.drop_followed()
    if count or known or shelf.changed:
        shelf.note("left", f"The application no longer exists; {count} objects stay as they are.")
    await shelf.commit()
