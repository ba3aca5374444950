"""Where a pass writes down how a service stands.

The library writes the status at once. The operator, which has thousands of services to heal,
brings a journal of its own that writes when there is time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol, TypeAlias

from holdfast.core.errors import NotFound
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService, InferenceServiceStatus
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict
from holdfast.reconcile.service.family import OPERATOR
from holdfast.wire.inference_service_v1alpha1 import status_to_json

MakeStatus: TypeAlias = Callable[[], Awaitable[InferenceServiceStatus]]


class Journal(Protocol):
    """Keeps what is said of services."""

    async def before_healing(
        self, service: InferenceService, said: str, status: MakeStatus
    ) -> InferenceService:
        """Keep who changed what: healing erases every other trace of it.

        `said` tells it in words; `status` makes the status that says so. Returns the service
        with the status that it has afterwards.
        """

    async def report(self, service: InferenceService, status: InferenceServiceStatus) -> None:
        """Keep how a service stands now."""


class StatusJournal:
    """Writes every report into the status of the service itself, where it differs."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def before_healing(
        self, service: InferenceService, said: str, status: MakeStatus
    ) -> InferenceService:
        """Write it down; see the protocol."""
        made = await status()
        await self.report(service, made)
        return replace(service, status=made)

    async def report(self, service: InferenceService, status: InferenceServiceStatus) -> None:
        """Write the status where it differs. A service that is gone has none to write."""
        if not service.uid or status == service.status:
            return
        item: Fields = {**identity_of(service), "status": status_to_json(status)}
        try:
            await self._client.apply(item, manager=OPERATOR, force=True, subresource="status")
        except NotFound:
            return
        except KubeConflict as error:
            if error.reason is not ConflictReason.REPLACED:
                raise


def identity_of(service: InferenceService) -> Fields:
    """Give the part of an apply that says which object it is for, and no other."""
    metadata: Fields = {
        "name": service.name,
        "namespace": service.namespace,
        "uid": service.uid,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
