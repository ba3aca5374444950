"""Server-side apply for clients that can only get, list, create, update and delete.

What the API server would keep in `managedFields` is kept here in an annotation of the object: who
applied which field, and a digest of every value as the server stored it after our last write. A
field that has another value since was written by somebody, and nobody can say by whom: it is given
to the manager that the API server itself uses for writers it did not record, which Holdfast tells
as unknown. Used by `holdfast.operator`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from holdfast.core.errors import NotFound, TargetUnavailable, ValidationError
from holdfast.core.json_patch import apply_json_patch
from holdfast.core.ownership.canonical import is_custom, value_at
from holdfast.core.ownership.managed_fields import UNTRACKED_MANAGER
from holdfast.core.ownership.server_side_apply import (
    APPLY,
    UPDATE,
    FieldManager,
    FieldPath,
    FieldSet,
    FieldsOwned,
    ManagedFields,
    Object,
    OwnershipSchema,
    StoredFieldsEntry,
    clone,
    field_values,
    fields_to_v1,
    ownable_fields,
    ownership_after_update,
    read_managed_fields,
    schema_for,
    server_side_apply,
    write_managed_fields,
)
from holdfast.core.tree import Fields, Path
from holdfast.reconcile.kube import (
    ConflictReason,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    WatchEvent,
    ref_of,
)

RECORD_ANNOTATION = "holdfast.dev/field-owners"
"""Holds the record. Whoever may write the object may write it: it is a claim, as `managedFields`
is."""
_MAX_TRIES = 5
_DIGEST_BYTES = 6
_SERVER_METADATA = ("managedFields", "resourceVersion", "uid")
_CONTROLLERS_NOTES = "deployment.kubernetes.io/"
_NO_TIME = "1970-01-01T00:00:00Z"


class PlainKubeClient(Protocol):
    """What `ApplyOverUpdate` needs: five verbs, as every Kubernetes library has them.

    An answer is the object as the API server returned it, with apiVersion, kind, uid and
    resourceVersion. Verdicts are remembered by that version, so a change has to move it. What the
    server refuses is raised as one of our errors; `error_for_response` makes them. Nothing is
    retried and nothing is swallowed: a question that got no answer is TargetUnavailable, and never
    None.
    """

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return the object; None only for a 404 of the API server itself."""

    async def list(self, scope: Scope) -> ObjectList:
        """Return every object that matches."""

    async def create(self, item: Fields) -> Fields:
        """POST the object. Raises KubeConflict `exists` for a 409."""

    async def update(self, item: Fields, *, subresource: str = "") -> Fields:
        """PUT the object, to its status where that is named.

        The item carries `metadata.resourceVersion`, so that the server refuses it with 409 when
        somebody was faster: KubeConflict `changed`.
        """

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> None:
        """DELETE the object, with those that are not empty as its `preconditions`."""


class _CheckedClient:
    """A plain client, whose answers are refused where they do not say what they are about."""

    def __init__(self, client: PlainKubeClient) -> None:
        self._client = client

    async def get(self, ref: ObjectRef) -> Fields | None:
        found = await self._client.get(ref)
        return None if found is None else _check_answer("get", found)

    async def list(self, scope: Scope) -> ObjectList:
        found = await self._client.list(scope)
        # The API server leaves out of the items of a list what they are.
        known: Fields = {"apiVersion": scope.api_version, "kind": scope.kind}
        items = [_check_answer("list", {**known, **item}) for item in found.items]
        return ObjectList(items=items, version=found.version)

    async def create(self, item: Fields) -> Fields:
        return _check_answer("create", await self._client.create(item))

    async def update(self, item: Fields, *, subresource: str = "") -> Fields:
        return _check_answer("update", await self._client.update(item, subresource=subresource))

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> None:
        await self._client.delete(ref, uid=uid, version=version)


_IDENTITY: tuple[Path, ...] = (
    ("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "uid"),
    ("metadata", "resourceVersion"),
)  # fmt: skip


def _check_answer(verb: str, found: Fields) -> Fields:
    """Return an answer that says of which object it is, and at which version: guards need both."""
    for path in _IDENTITY:
        if not value_at(found, path):
            raise TargetUnavailable(
                f"What {verb}() of the client returned has no {'.'.join(path)}.",
                hint="Return objects as the API server does, a test double too: with a uid that "
                "is new for each object, and a resourceVersion that is new for each change.",
            )
    return found


class ApplyOverUpdate:
    """A `KubeClient` over five plain verbs.

    Verdicts on values, additions and removals are those of a client with server-side apply. What
    only the API server knows is not told: the writer of a foreign change is unknown, and a dry run
    is our own merge, without the defaults and the admission of the server. Each write that the
    server completes costs a second one, for the record. Secrets are refused, as the record would
    hold digests of their values; there is no watch.
    """

    def __init__(self, client: PlainKubeClient) -> None:
        self._client = _CheckedClient(client)

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return the object, with the owners that our record knows; see the port."""
        found = await self._client.get(ref)
        return None if found is None else _view(found)

    async def list(self, scope: Scope) -> ObjectList:
        """Return every object that matches; see the port."""
        found = await self._client.list(scope)
        return ObjectList(items=[_view(item) for item in found.items], version=found.version)

    def watch(self, scope: Scope, *, version: str) -> AsyncIterator[WatchEvent]:
        """Refuse: there is no watch."""
        raise TargetUnavailable(
            f"This client cannot watch {scope.kind} objects.",
            hint="Reconcile at intervals, or use ClusterClient.",
        )

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
        """Apply an object; see the port, and the class for what a dry run is."""
        ref = ref_of(item)
        _refuse_secrets(ref)
        live: Any = await self._client.get(ref)  # Any: objects of the API, here and below
        given: Any = item["metadata"]
        _check_guards(ref, live, given, absent=absent)
        if subresource:
            return await self._write_status(ref, live, item, subresource, dry_run=dry_run)
        schema = _schema_of(ref)
        seen = {} if live is None else _view(live)
        writer = FieldManager(manager=manager, operation=APPLY, api_version=ref.api_version)
        entries = _entries_of(seen)
        try:
            merged, owned = server_side_apply(
                _without_server_metadata(seen),
                _applied_part(item),
                entries,
                writer,
                schema,
                force=force,
                now=_NO_TIME,
            )
        except FieldsOwned as refused:
            raise KubeConflict(
                f"Applying {ref} conflicts with {len(refused.owners)} fields of other managers.",
                reason=ConflictReason.OWNED,
                owners=refused.owners,
            ) from None
        if dry_run:
            return _shown(merged, owned, seen)
        return await self._write(ref, live, merged, owned)

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        """Change one object by a JSON patch; see the port."""
        _refuse_secrets(ref)
        live: Any = await self._client.get(ref)
        if live is None:
            raise NotFound(f"There is no {ref}.")
        before = _view(live)
        after = apply_json_patch(before, operations)
        given = after["metadata"].get("managedFields")
        entries = read_managed_fields(given)
        old, new = _without_server_metadata(before), _without_server_metadata(after)
        if subresource:
            return await self._write_status(ref, live, new, subresource, dry_run=False)
        writer = FieldManager(manager=manager, operation=UPDATE, api_version=ref.api_version)
        entries = ownership_after_update(old, new, entries, writer, _schema_of(ref), now=_NO_TIME)
        return await self._write(ref, live, new, entries)

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """Delete one object; see the port."""
        live: Any = await self._client.get(ref)
        if live is None:
            return False
        _check_guards(ref, live, {"uid": uid, "resourceVersion": version}, absent=False)
        try:
            await self._client.delete(ref, uid=uid, version=version)
        except NotFound:
            return False
        return True

    async def _write(
        self, ref: ObjectRef, live: Object | None, merged: Object, owned: ManagedFields
    ) -> Fields:
        """Write an object with its record, and the record again where the server added to it."""
        schema = _schema_of(ref)
        unknown = _unknown_fields(owned)
        if live is None:
            answer: Any = await self._client.create(
                _with_record(merged, owned, _digests(merged, schema, unknown))
            )
        else:
            sent = _with_record(merged, owned, _digests(merged, schema, unknown))
            if sent == _with_record_of(live) and _same_record(sent, live):
                return _view(live)
            answer = await self._update_beside_status(ref, live, sent)
        if value := _removed_at_once(answer):
            return value
        for _ in range(_MAX_TRIES):
            shown = _without_server_metadata(_without_record(answer))
            sent = _with_record(shown, owned, _digests(shown, schema, unknown))
            if _same_record(sent, answer):
                return _view(answer)
            try:
                return _view(await self._update(ref, answer, sent))
            except KubeConflict as conflict:
                now: Any = await self._client.get(ref)
                if conflict.reason is not ConflictReason.CHANGED or not _only_status_moved(
                    now, answer
                ):
                    raise
                answer = now
        return _view(answer)

    async def _update_beside_status(self, ref: ObjectRef, live: Object, sent: Object) -> Object:
        """Update, and once more where a controller reported in between.

        One reacts at once to the write before this one, whose effect a conflict would leave untold.
        """
        for _ in range(_MAX_TRIES):
            try:
                return await self._update(ref, live, sent)
            except KubeConflict as conflict:
                now: Any = await self._client.get(ref)
                if conflict.reason is not ConflictReason.CHANGED or not _only_status_moved(
                    now, live
                ):
                    raise
                live, sent = now, _with_controllers_notes(sent, now)
        return await self._update(ref, live, sent)

    async def _update(self, ref: ObjectRef, live: Object, sent: Object) -> Object:
        seen = {name: live["metadata"][name] for name in ("uid", "resourceVersion")}
        try:
            answer: Any = await self._client.update(
                {**sent, "metadata": {**sent["metadata"], **seen}}
            )
        except NotFound:
            raise KubeConflict(
                f"{ref} with uid {seen['uid']} is gone.", reason=ConflictReason.REPLACED
            ) from None
        found: Object = answer
        return found

    async def _write_status(
        self, ref: ObjectRef, live: Object | None, item: Any, subresource: str, *, dry_run: bool
    ) -> Fields:
        if live is None:
            raise NotFound(f"There is no {ref}.")
        if subresource != "status":
            raise ValidationError(f"This client cannot write the {subresource} of {ref}.")
        if live.get("status") == item.get("status"):
            return _view(live)
        sent = {**live, "status": clone(item.get("status"))}
        return _view(sent if dry_run else await self._client.update(sent, subresource="status"))


def _check_guards(ref: ObjectRef, live: Any, given: Mapping[str, Any], *, absent: bool) -> None:
    """Hold a write to the object that was seen; the server checks the version once more."""
    uid, version = given.get("uid"), given.get("resourceVersion")
    if live is None:
        if uid:
            raise KubeConflict(f"{ref} with uid {uid} is gone.", reason=ConflictReason.REPLACED)
        return
    if absent:
        raise KubeConflict(
            f"{ref} should not exist yet, and it does.", reason=ConflictReason.EXISTS
        )
    if uid and uid != live["metadata"]["uid"]:
        raise KubeConflict(f"{ref} is not the one that was seen.", reason=ConflictReason.REPLACED)
    if version and version != live["metadata"]["resourceVersion"]:
        raise KubeConflict(f"{ref} has changed since it was seen.", reason=ConflictReason.CHANGED)


def _refuse_secrets(ref: ObjectRef) -> None:
    if ref.kind == "Secret" and ref.api_version == "v1":
        raise ValidationError(
            f"{ref} is not applied over plain updates: the record on it would hold digests of "
            "its values.",
            hint="Use ClusterClient, which applies on the server's side.",
        )


def _schema_of(ref: ObjectRef) -> OwnershipSchema:
    return schema_for(ref.kind, custom=is_custom(ref.api_version))


def _applied_part(item: Fields) -> Object:
    """What an apply says of an object: nothing of the status, and nothing that only guards."""
    kept = {name: value for name, value in item.items() if name != "status"}
    return _without_server_metadata(clone(kept))


def _without_server_metadata(item: Object) -> Object:
    if not item:
        return {}
    metadata = {
        name: value for name, value in item["metadata"].items() if name not in _SERVER_METADATA
    }
    return {**item, "metadata": metadata}


def _view(found: Any) -> Object:
    """Give an object as a server with our record would: with owners, and without the record."""
    record = _read_record(found)
    shown = _without_record(found)
    shown["metadata"].pop("managedFields", None)
    if record is None:
        return shown
    entries, digests = record
    schema = _schema_of(ref_of(found))
    values = _stored_values(shown, schema)
    moved = frozenset(path for path, value in values.items() if digests.get(path) != value)
    held = {
        key: StoredFieldsEntry(writer=entry.writer, fields=frozenset(values) & entry.fields - moved)
        for key, entry in entries.items()
    }
    foreign = frozenset(path for path in moved if not _is_controllers(path))
    if foreign:
        held |= _unknown_entry(foreign, ref_of(found).api_version)
    return _shown(shown, {key: entry for key, entry in held.items() if entry.fields}, shown)


def _shown(item: Object, owned: ManagedFields, seen: Object) -> Object:
    """Write owners and identity into an object."""
    metadata = {**item["metadata"]}
    for name in ("uid", "resourceVersion"):
        if name in seen.get("metadata", {}):
            metadata[name] = seen["metadata"][name]
    entries = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in write_managed_fields(owned)
    ]
    return {**clone(item), "metadata": {**clone(metadata), "managedFields": entries}}


def _entries_of(view: Object) -> ManagedFields:
    """The owners that a view shows; an object without a record belongs to nobody we know."""
    if not view:
        return {}
    return read_managed_fields(view["metadata"].get("managedFields"))


def _unknown_entry(fields: FieldSet, api_version: str) -> ManagedFields:
    writer = FieldManager(manager=UNTRACKED_MANAGER, operation=UPDATE, api_version=api_version)
    return {writer.key: StoredFieldsEntry(writer=writer, fields=fields)}


def _unknown_fields(owned: ManagedFields) -> FieldSet:
    """What nobody we know wrote, and no write of ours has taken since."""
    found = [entry.fields for entry in owned.values() if entry.writer.manager == UNTRACKED_MANAGER]
    return frozenset().union(*found)


def _is_controllers(path: FieldPath) -> bool:
    """True for labels and annotations of domains that are Kubernetes' own, as its controllers'."""
    if len(path) < 3 or path[0] != "f:metadata" or path[1] not in ("f:labels", "f:annotations"):
        return False
    domain = path[2].removeprefix("f:").partition("/")[0]
    return domain.endswith((".kubernetes.io", ".k8s.io")) and domain != "kubectl.kubernetes.io"


def _stored_values(item: Object, schema: OwnershipSchema) -> dict[FieldPath, bytes]:
    """Digests of every field that can be owned, but for the status."""
    bare = {name: value for name, value in item.items() if name != "status"}
    found = field_values(bare, schema)
    return {path: _digest(found[path]) for path in ownable_fields(found)}


def _digests(item: Object, schema: OwnershipSchema, unknown: FieldSet) -> dict[FieldPath, bytes]:
    values = _stored_values(item, schema)
    return {path: value for path, value in values.items() if path not in unknown}


def _digest(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def _path_digest(path: FieldPath) -> bytes:
    return _digest(list(path))


class _Digests(Mapping[FieldPath, bytes]):
    """Digests by the digests of their paths, as a record has them."""

    def __init__(self, packed: bytes) -> None:
        size = 2 * _DIGEST_BYTES
        self._known = {
            packed[at : at + _DIGEST_BYTES]: packed[at + _DIGEST_BYTES : at + size]
            for at in range(0, len(packed) - size + 1, size)
        }

    def __getitem__(self, path: FieldPath) -> bytes:
        return self._known[_path_digest(path)]

    def __iter__(self) -> Any:
        return iter(())  # the paths themselves are not kept

    def __len__(self) -> int:
        return len(self._known)


def _with_record(item: Object, owned: ManagedFields, digests: Mapping[FieldPath, bytes]) -> Object:
    packed = b"".join(sorted(_path_digest(path) + value for path, value in digests.items()))
    appliers = [
        [
            entry.writer.manager,
            entry.writer.operation,
            entry.writer.api_version,
            fields_to_v1(entry.fields),
        ]
        for _, entry in sorted(owned.items())
        if entry.writer.manager != UNTRACKED_MANAGER
    ]
    text = json.dumps(
        {"owners": appliers, "values": base64.b64encode(packed).decode()},
        separators=(",", ":"),
        sort_keys=True,
    )
    metadata = item["metadata"]
    notes = {**(metadata.get("annotations") or {}), RECORD_ANNOTATION: text}
    return {**item, "metadata": {**metadata, "annotations": notes}}


def _without_record(found: Any) -> Object:
    """Copy an object as if it had no record."""
    shown: Object = clone(found)
    notes = shown["metadata"].get("annotations")
    if notes and notes.pop(RECORD_ANNOTATION, None) is not None and not notes:
        del shown["metadata"]["annotations"]
    return shown


def _read_record(found: Any) -> tuple[ManagedFields, _Digests] | None:
    """Read the record of an object; None where there is none, or one that says nothing."""
    text = (found["metadata"].get("annotations") or {}).get(RECORD_ANNOTATION)
    if not text:
        return None
    try:
        given = json.loads(text)
        managed = [
            {"manager": manager, "operation": how, "apiVersion": version, "fieldsV1": fields}
            for manager, how, version, fields in given["owners"]
        ]
        packed = base64.b64decode(given["values"], validate=True)
    except (ValueError, TypeError, KeyError, binascii.Error):
        return None
    return read_managed_fields(managed), _Digests(packed)


def _with_record_of(live: Object) -> Object:
    return _without_server_metadata(live)


def _same_record(sent: Object, live: Object) -> bool:
    def record(item: Object) -> object:
        return (item["metadata"].get("annotations") or {}).get(RECORD_ANNOTATION)

    return record(sent) == record(live)


def _removed_at_once(answer: Object) -> Object | None:
    """An object whose last finalizer this write took off is gone: there is no record to keep."""
    metadata = answer["metadata"]
    if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
        return _view(answer)
    return None


def _only_status_moved(now: Any, answer: Object) -> bool:
    """True when controllers reported, and nobody wrote what our record is about."""
    if now is None or now["metadata"]["uid"] != answer["metadata"]["uid"]:
        return False

    def bare(item: Object) -> Object:
        kept = _without_server_metadata(_without_record(item))
        kept = {name: value for name, value in kept.items() if name != "status"}
        metadata = {
            name: value
            for name, value in kept["metadata"].items()
            if name not in ("generation", "annotations")
        }
        notes = {
            name: value
            for name, value in (kept["metadata"].get("annotations") or {}).items()
            if not name.startswith(_CONTROLLERS_NOTES)
        }
        return {**kept, "metadata": metadata, "annotations": notes}

    return bare(now) == bare(answer)


def _with_controllers_notes(sent: Object, now: Object) -> Object:
    """What is to be written, with the annotations of controllers as they are now."""

    def notes(item: Object, *, controllers: bool) -> Object:
        found = item["metadata"].get("annotations") or {}
        return {
            name: value
            for name, value in found.items()
            if name.startswith(_CONTROLLERS_NOTES) is controllers
        }

    merged = notes(sent, controllers=False) | notes(now, controllers=True)
    return {**sent, "metadata": {**sent["metadata"], "annotations": merged}}
