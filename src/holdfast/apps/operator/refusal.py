"""Tells the owner of a stored service that its spec cannot be served, in its status.

The schema keeps such specs out, so this is for objects that were stored before it was tightened.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.adapters.kubernetes.objects import Object, key_of, uid_of, version_of
from holdfast.core.errors import InvalidSpec
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService, InferenceServiceSpec
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.service import notes
from holdfast.reconcile.service.family import OPERATOR
from holdfast.reconcile.service.result import Result
from holdfast.reconcile.service.status import refused_status
from holdfast.wire.inference_service_v1alpha1 import status_from_json, status_to_json


async def report(
    client: KubeClient, item: Object, error: InvalidSpec, now: datetime
) -> tuple[InferenceService, Result]:
    """Write the refusal unless it is there already. What runs, goes on running."""
    key = key_of(item)
    service = InferenceService(
        name=key.name,
        namespace=key.namespace,
        uid=uid_of(item),
        resource_version=version_of(item),
        generation=item["metadata"].get("generation", 0),
        spec=InferenceServiceSpec(model_ref="unreadable"),
        status=status_from_json(item.get("status")),
    )
    status = refused_status(service, error, now)
    if status != service.status:
        document: Fields = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": service.uid},
            "status": status_to_json(status),
        }
        await client.apply(document, manager=OPERATOR, force=True, subresource="status")
    return service, Result(status=status, notes=tuple(notes.of_status(service.status, status)))
