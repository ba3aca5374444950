"""The memory cluster: the `KubeClient` port, and what a test does to a cluster besides."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.kube.kinds import SERVED_KINDS, MemoryKind
from holdfast.adapters.memory.kube.store import ObjectStore, is_in_scope
from holdfast.core.errors import HoldfastError
from holdfast.core.json_patch import apply_json_patch
from holdfast.core.ownership.server_side_apply import Object, clone
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import (
    ConflictReason,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    WatchEvent,
    ref_of,
)
from holdfast.reconcile.ports import Clock


@dataclass(slots=True, kw_only=True)
class _Fault:
    """What is to fail, once."""

    verb: str
    kind: str
    after: int
    error: HoldfastError
    done: bool


REVISION_ANNOTATION = "deployment.kubernetes.io/revision"


def write_rollout_status(item: Object, *, ready: int | None, now: str) -> None:
    """Let the newest template have all the pods, so many of them ready."""
    desired: int = item["spec"]["replicas"]
    count = desired if ready is None else min(ready, desired)
    status: Object = {
        "observedGeneration": item["metadata"]["generation"],
        "replicas": desired,
        "updatedReplicas": desired,
        "readyReplicas": count,
        "availableReplicas": count,
        "unavailableReplicas": desired - count,
    }
    status = {name: value for name, value in status.items() if value}
    done = count == desired
    available = "MinimumReplicasAvailable" if done else "MinimumReplicasUnavailable"
    progress = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
    status["conditions"] = [
        _condition("Available", done, available, item, now),
        _condition("Progressing", True, progress, item, now),
    ]
    item["status"] = status
    item["metadata"].setdefault("annotations", {}).setdefault(REVISION_ANNOTATION, "1")


def _condition(kind: str, holds: bool, reason: str, item: Object, now: str) -> Object:
    state = "True" if holds else "False"
    before = (item.get("status") or {}).get("conditions") or ()
    since = next(
        (
            each["lastTransitionTime"]
            for each in before
            if (each["type"], each["status"]) == (kind, state)
        ),
        now,
    )
    return {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": f"{reason}.",
        "lastTransitionTime": since,
        "lastUpdateTime": now,
    }


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWrite:
    """One write that reached the cluster; `changed` says whether it had an effect."""

    verb: str
    ref: ObjectRef
    manager: str
    dry_run: bool
    changed: bool


class MemoryKube:
    """A cluster without controllers, for tests; see the package."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        kinds: Iterable[MemoryKind] = SERVED_KINDS,
        history: int = 1000,
    ) -> None:
        self._store = ObjectStore(clock=clock or SystemClock(), kinds=kinds, history=history)
        self._faults: builtins.list[_Fault] = []
        self.writes: builtins.list[RecordedWrite] = []
        """Every write through the port that reached the cluster, dry runs and refusals too."""

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return the object as it is now; see the port."""
        self._raise_due("get", ref.kind)
        self._store.kind_of(ref.api_version, ref.kind)
        found: Fields | None = clone(self._store.items.get(ref))
        return found

    async def list(self, scope: Scope) -> ObjectList:
        """Return every object that matches; see the port."""
        self._raise_due("list", scope.kind)
        self._store.kind_of(scope.api_version, scope.kind)
        items = sorted(self._store.items.items())
        found = [clone(item) for _, item in items if is_in_scope(item, scope)]
        return ObjectList(items=found, version=str(self._store.version))

    async def watch(self, scope: Scope, *, version: str) -> AsyncGenerator[WatchEvent, None]:
        """Yield what happens after a version; see the port."""
        self._raise_due("watch", scope.kind)
        self._store.kind_of(scope.api_version, scope.kind)
        async with aclosing(self._store.log.follow(scope, version)) as events:
            async for event in events:
                yield event

    async def apply(
        self,
        item: Fields,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
        absent: bool = False,
        subresource: str = "",
    ) -> Fields:
        """Apply an object; see the port."""
        ref = ref_of(item)

        def act() -> Object:
            if absent and ref in self._store.items:
                raise KubeConflict(
                    f"{ref} should not exist yet, and it does.", reason=ConflictReason.EXISTS
                )
            return self._store.apply(item, manager, subresource, force=force, dry_run=dry_run)

        return self._write("apply", ref, manager, act, dry_run=dry_run)

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        """Change one object by a JSON patch; see the port."""

        def act() -> Object:
            new = apply_json_patch(self._store.existing(ref), operations)
            return self._store.update(ref, new, manager, subresource)

        return self._write("patch", ref, manager, act)

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """Delete one object and what it owns; see the port."""

        def act() -> bool:
            self._store.kind_of(ref.api_version, ref.kind)
            live = self._store.items.get(ref)
            if live is None:
                return False
            if uid and uid != live["metadata"]["uid"]:
                raise KubeConflict(
                    f"{ref} is not the one that was seen.", reason=ConflictReason.REPLACED
                )
            if version and version != live["metadata"]["resourceVersion"]:
                raise KubeConflict(
                    f"{ref} has changed since it was seen.", reason=ConflictReason.CHANGED
                )
            self._store.delete(ref)
            return True

        return self._write("delete", ref, "", act)

    def create(self, item: Fields, *, manager: str = "kubectl-create") -> Fields:
        """Create an object as a plain client does: it owns the defaults too."""
        found: Fields = clone(self._store.create(item, manager))
        return found

    def edit(
        self,
        ref: ObjectRef,
        change: Callable[[Object], object],
        *,
        manager: str = "kubectl-edit",
        subresource: str = "",
    ) -> Fields:
        """Change an object as a plain client does, through `scale` or `status` if named.

        `change` gets a copy of the object and changes it in place.
        """
        new = clone(self._store.existing(ref))
        change(new)
        found: Fields = clone(self._store.update(ref, new, manager, subresource))
        return found

    def make_ready(self, ref: ObjectRef, *, ready: int | None = None) -> Fields:
        """Say that so many pods of a Deployment are ready, as its controller would; None is all."""
        return self.edit(
            ref,
            lambda item: write_rollout_status(item, ready=ready, now=self._store.now()),
            manager="kube-controller-manager",
            subresource="status",
        )

    def serve(self, kind: MemoryKind | str) -> None:
        """Serve a kind: one that was not known, or by its name one that was taken away."""
        if isinstance(kind, MemoryKind):
            self._store.kinds[kind.api_version, kind.kind] = kind
        self._store.unserved.discard(kind if isinstance(kind, str) else kind.kind)

    def unserve(self, kind: str) -> None:
        """Serve a kind no longer. Its objects are there again when it is."""
        self._store.unserved.add(kind)
        self._store.log.end(None, kind)

    def fail_next(
        self, verb: str, error: HoldfastError, *, after: int = 0, kind: str = "", done: bool = False
    ) -> None:
        """Let a call of a verb fail, after so many that do not; of one kind if it is named.

        With `done`, a write takes effect all the same, as when its answer is lost.
        """
        self._faults.append(_Fault(verb=verb, kind=kind, after=after, error=error, done=done))

    def bookmark(self) -> None:
        """Send the current version to every watch."""
        self._store.log.bookmark(self._store.version)

    def end_watches(self, error: HoldfastError | None = None) -> None:
        """End every watch that runs, cleanly or with an error."""
        self._store.log.end(error)

    def compact(self) -> None:
        """Forget what happened so far: a watch from an earlier version finds it expired."""
        self._store.version += 1
        self._store.log.forget(self._store.version)

    def _raise_due(self, verb: str, kind: str) -> HoldfastError | None:
        """Raise what this call is to fail with; returned is what it is to fail with when done."""
        for fault in self._faults:
            if fault.verb == verb and fault.kind in ("", kind):
                if fault.after:
                    fault.after -= 1
                    continue
                self._faults.remove(fault)
                if fault.done:
                    return fault.error
                raise fault.error
        return None

    def _write(
        self,
        verb: str,
        ref: ObjectRef,
        manager: str,
        act: Callable[[], T],
        *,
        dry_run: bool = False,
    ) -> T:
        late = self._raise_due(verb, ref.kind)
        before = self._store.version
        try:
            answer: T = clone(act())
        finally:
            changed = self._store.version != before
            self.writes.append(
                RecordedWrite(verb=verb, ref=ref, manager=manager, dry_run=dry_run, changed=changed)
            )
        if late is not None:
            raise late
        return answer
