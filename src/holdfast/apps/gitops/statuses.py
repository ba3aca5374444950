"""Writes what the controller says of an Application, and only when it says something new.

When a repository was last asked moves all the time, so it is written along with other news alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.apps.gitops.applications import Found
from holdfast.core.gitops.application import KIND, ApplicationStatus
from holdfast.core.resource import API_VERSION, Condition
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops import words
from holdfast.reconcile.gitops.ledger import CONTROLLER
from holdfast.reconcile.gitops.result import Note
from holdfast.reconcile.kube import KubeClient
from holdfast.wire.application_v1alpha1 import status_from_json, status_to_json

_TICKS = "fetchedAt"
INVALID = "InvalidSpec"


class Statuses:
    """The statuses of all Applications of a cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def report(self, found: Found, status: ApplicationStatus) -> bool:
        """Write a status unless it stands there already; True when it was written.

        Where nothing stores an Application, its status is only shown.
        """
        if found.status is None:
            return False
        said = status_to_json(status)
        if _without_ticks(said) == _without_ticks(found.status):
            return False
        document: Fields = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": found.id.name, "namespace": found.id.namespace, "uid": found.uid},
            "status": said,
        }
        await self._client.apply(document, manager=CONTROLLER, force=True, subresource="status")
        return True

    async def refuse(self, found: Found, now: datetime) -> tuple[Note, ...]:
        """Say of an Application whose spec is wrong what is wrong with it; what runs, runs on."""
        known = status_from_json(found.status) or ApplicationStatus()
        told = words.cut(str(found.error))
        ready = next((each for each in known.conditions if each.type == "Ready"), None)
        since = ready.last_transition_time if ready and ready.status == "False" else None
        condition = Condition(
            type="Ready",
            status="False",
            reason=INVALID,
            message=told,
            observed_generation=found.generation or None,
            last_transition_time=since or now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        status = replace(
            known,
            sync="unknown",
            message=told,
            observed_generation=found.generation or None,
            conditions=(condition,),
        )
        if not await self.report(found, status):
            return ()
        return (Note(warning=True, reason=INVALID, message=told),)


def _without_ticks(status: Fields) -> Fields:
    return {name: value for name, value in status.items() if name != _TICKS}
