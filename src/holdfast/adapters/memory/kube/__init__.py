"""A Kubernetes API in memory, for tests of whatever is written against the `KubeClient` port.

    kube = MemoryKube()
    made = await kube.apply(manifest, manager="me")          # defaults, uid, managedFields
    kube.edit(ref, lambda item: item["spec"].update(replicas=3), manager="kubectl-edit")
    await kube.apply(manifest, manager="me")                 # raises KubeConflict: owned

It imitates what reconcilers have to cope with: field ownership and its conflicts, defaults,
guards by uid and version, dry runs, versions, generations, finalizers, garbage collection, and
watches that end, expire or miss nothing. The contract suite holds it to a real API server.

It runs no controllers: no pods appear, and a Deployment is ready when `make_ready` says so.
Other writers are imitated with `create`, `edit` (also through `scale` and `status`) and `patch`;
trouble with `fail_next`, `end_watches`, `compact` and `unserve`. `writes` counts.

Not imitated: schemas (unknown fields and wrong types pass, except in an applied
InferenceService), rights, webhooks, namespaces that must exist, several versions of one kind, the
bookkeeping of `kubectl apply` on the client's side, defaults of fields that Holdfast does not
write, and objects whose owner never existed (a real cluster collects them). Nothing suspends
but a watch.

`cluster` is the API, `store` keeps the objects, `admission`
fills in defaults and refuses, `kinds` lists what is served.
"""

from __future__ import annotations

from holdfast.adapters.memory.kube.cluster import MemoryKube, RecordedWrite
from holdfast.adapters.memory.kube.kinds import SERVED_KINDS, MemoryKind, custom_kind
from holdfast.core.ownership.server_side_apply import OwnershipSchema

__all__ = [
    "SERVED_KINDS",
    "MemoryKind",
    "MemoryKube",
    "OwnershipSchema",
    "RecordedWrite",
    "custom_kind",
]
