"""Says in the cluster and in the log what happened, and keeps others informed of applications."""

from __future__ import annotations

import logging

from holdfast.adapters.kubernetes.events import Recorder, Regarding
from holdfast.apps.gitops.applications import Found
from holdfast.apps.gitops.channels import Channels
from holdfast.apps.gitops.sources import ApplicationSources
from holdfast.apps.server import logs
from holdfast.core.gitops.application import KIND, AppId, Application
from holdfast.core.objects import ObjectRef
from holdfast.core.resource import API_VERSION
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.result import Note


class Telling:
    """What hears of applications beside the reconciler."""

    def __init__(self, recorder: Recorder, channels: Channels, sources: ApplicationSources) -> None:
        self._recorder = recorder
        self._channels = channels
        self._sources = sources

    async def prepare(self, application: Application) -> None:
        """Make the channels that an application names."""
        await self._channels.prepare(application)

    async def forget(self, id: AppId) -> None:
        """Let go of what was opened for an application that is no more."""
        self._channels.forget(id)
        await self._sources.forget(id)

    def tell(self, found: Found, following: Following | None, note: Note) -> None:
        """Write an event about the Application, one about the object, and a line of the log."""
        known = found.application or (following.application if following else None)
        logs.event(
            "transition", level=logging.WARNING if note.warning else logging.INFO,
            application=str(found.id), project=known.spec.project if known else "",
            reason=note.reason, message_text=note.message,
            object=str(note.object) if note.object else "",
        )  # fmt: skip
        if found.uid:
            ref = ObjectRef(
                api_version=API_VERSION, kind=KIND, namespace=found.id.namespace,
                name=found.id.name,
            )  # fmt: skip
            about = Regarding(ref=ref, uid=found.uid, version=found.version)
            self._recorder.record(about, note)
        applied = following.shelf.inventory.get(note.object) if following and note.object else None
        if applied is not None:
            self._recorder.record(Regarding(ref=applied.ref, uid=applied.uid), note)
