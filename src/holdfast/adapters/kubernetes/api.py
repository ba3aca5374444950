"""The one client of the Kubernetes API: the `KubeClient` port over HTTP, and the requests below it.

Every call has a deadline and returns an object or raises an error of our tree. A write is guarded
by what the caller observed: by uid and resourceVersion, or by field ownership.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.objects import Object, Resource, group_path, version_of
from holdfast.adapters.kubernetes.responses import KubeResponse, response_error
from holdfast.adapters.kubernetes.watch import ListPage, ResourceScope, not_served, watch_resource
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    Conflict,
    NotFound,
    TargetUnavailable,
)
from holdfast.reconcile.kube import (
    ConflictReason,
    KindNotServed,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    VersionExpired,
    WatchEvent,
    ref_of,
)

PAGE_SIZE = 500
REQUEST_TIMEOUT = 30.0
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML, and older servers know no other name
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_ABSENT_VERSION = "1"
"""No object ever has it. Applied with it, a missing object is created and any other refused."""


class LeadershipLost(Conflict):
    """The lease could not be renewed in time, or someone else holds it. Work was cancelled."""

    summary = "Leadership was lost"


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = msgspec.field(default_factory=list)


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] | None = None


class KubeApi:
    """One cluster, through one connection. The docstrings of the verbs are those of the port.

    `may_write` is asked before every write; a controller lets it say whether it leads. The lease is
    no fence: a process that was frozen may wake after another took over. Its writes are guarded by
    version all the same; `may_write` keeps it from trying.
    """

    def __init__(
        self,
        connection: KubeConnection,
        *,
        manager: str = "holdfast",
        timeout: float = REQUEST_TIMEOUT,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.connection = connection
        self.manager = manager
        self.timeout = timeout
        self.may_write = may_write
        self._kinds: dict[str, dict[str, Resource]] = {}
        """Where kinds are served, by apiVersion; a kind that is missing is looked up anew."""

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        await self.connection.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        secret: bool = False,
    ) -> Object:
        """Send one request and return the object in its response, or raise its error."""
        response = await self.connection.request(
            method,
            path,
            params=params,
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            secret=secret,
            dry_run="dryRun" in (params or {}),
            within=self.timeout,
        )
        if not 200 <= response.status < 300:
            raise response_error(response)
        return _decode_object(response)

    async def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return where a kind is served. Raises KindNotServed, also for a kind not yet there."""
        found = self._kinds.get(api_version, {}).get(kind)
        if found is None:
            found = (await self._discover(api_version)).get(kind)
        if found is None:
            raise KindNotServed(
                f"The cluster serves no kind {kind} in {api_version}.",
                hint="Install its custom resource definition, or check apiVersion and kind.",
            )
        return found

    async def get(self, ref: ObjectRef) -> Object | None:
        """See the port."""
        resource = await self.resource_of(ref.api_version, ref.kind)
        try:
            return await self._send(resource, "GET", _path(resource, ref))
        except NotFound:
            return None

    async def list(
        self, scope: Scope, *, fields: str = "", page_size: int = PAGE_SIZE
    ) -> ObjectList:
        """See the port. `fields` is a field selector.

        A list that expired between two pages is started again, the last time in one piece.
        """
        selected = await self._select(scope, fields or scope.fields)
        for _ in range(2):
            try:
                return await self._list_pages(selected, page_size)
            except VersionExpired:
                continue
        return await self._list_pages(selected, 0)

    async def list_page(self, scope: ResourceScope, *, size: int, token: str) -> ListPage:
        """Return one page; all pages of a list are at one version. Raises VersionExpired."""
        resource = scope.resource
        params = {"limit": str(size) if size else "", "continue": token, **scope.selectors}
        params = {name: value for name, value in params.items() if value}
        try:
            answer = await self._send(
                resource, "GET", resource.path(namespace=scope.namespace), params
            )
        except NotFound as error:
            raise not_served(error) from None
        items: list[Object] = answer.get("items") or []
        for item in items:
            # Built-in kinds leave these out of lists, and an apply needs them.
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        token = answer.get("metadata", {}).get("continue", "")
        return ListPage(items=items, version=version_of(answer), token=token)

    async def watch(
        self, scope: Scope, *, version: str, fields: str = ""
    ) -> AsyncGenerator[WatchEvent, None]:
        """See the port."""
        selected = await self._select(scope, fields or scope.fields)
        stream = watch_resource(self.connection, selected, version=version)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def apply(
        self,
        item: Object,
        *,
        manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        absent: bool = False,
        subresource: str = "",
    ) -> Object:
        """See the port."""
        if not dry_run:
            self._check_may_write()
        if absent:
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": _ABSENT_VERSION}}
        params = {"force": "true" if force else "false", **({"dryRun": "All"} if dry_run else {})}
        try:
            return await self._write(
                "PATCH", ref_of(item), item, manager, subresource, APPLY_PATCH, params
            )
        except KubeConflict as conflict:
            # Ownership is compared before the version: either way the object exists.
            exists = conflict.reason in (ConflictReason.CHANGED, ConflictReason.OWNED)
            if absent and exists:
                raise KubeConflict(
                    f"{ref_of(item)} should not exist yet, and it does.",
                    reason=ConflictReason.EXISTS,
                ) from conflict
            raise

    async def create(self, item: Object, *, manager: str = "") -> Object:
        """Create an object. Raises KubeConflict when its name is taken."""
        self._check_may_write()
        metadata = item["metadata"]
        everything = ObjectRef(
            api_version=item["apiVersion"],
            kind=item["kind"],
            namespace=metadata.get("namespace", ""),
            name="",
        )
        return await self._write("POST", everything, item, manager)

    async def patch(
        self,
        ref: ObjectRef,
        operations: Mapping[str, Any] | Sequence[Mapping[str, Any]],  # Any: parts of objects
        *,
        manager: str = "",
        subresource: str = "",
    ) -> Object:
        """See the port. A mapping is a merge patch, guarded by `metadata.resourceVersion`."""
        self._check_may_write()
        content_type = MERGE_PATCH if isinstance(operations, Mapping) else JSON_PATCH
        return await self._write("PATCH", ref, operations, manager, subresource, content_type)

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """See the port."""
        self._check_may_write()
        resource = await self.resource_of(ref.api_version, ref.kind)
        guards = {"uid": uid, "resourceVersion": version}
        guards = {field: value for field, value in guards.items() if value}
        options: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            **({"preconditions": guards} if guards else {}),
        }
        try:
            await self._send(resource, "DELETE", _path(resource, ref), body=options)
        except NotFound:
            return False
        return True

    async def _write(
        self,
        method: str,
        ref: ObjectRef,
        body: object,
        manager: str,
        subresource: str = "",
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Object:
        resource = await self.resource_of(ref.api_version, ref.kind)
        by = {"fieldManager": manager or self.manager, "fieldValidation": "Strict"}
        path = _path(resource, ref, subresource)
        return await self._send(
            resource, method, path, {**by, **(params or {})}, body, content_type
        )

    async def _send(
        self,
        resource: Resource,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Object:
        try:
            return await self.request(
                method,
                path,
                params=params,
                body=body,
                content_type=content_type,
                secret=resource.secret,
            )
        except KindNotServed:
            self._kinds.pop(resource.api_version, None)
            raise

    async def _select(self, scope: Scope, fields: str) -> ResourceScope:
        return ResourceScope(
            resource=await self.resource_of(scope.api_version, scope.kind),
            namespace=scope.namespace,
            labels=scope.labels,
            fields=fields or scope.fields,
        )

    async def _list_pages(self, scope: ResourceScope, size: int) -> ObjectList:
        items: list[Object] = []
        token = ""
        while True:
            page = await self.list_page(scope, size=size, token=token)
            items += page.items
            token = page.token
            if not token:
                return ObjectList(items=items, version=page.version)

    async def _discover(self, api_version: str) -> dict[str, Resource]:
        self._kinds.pop(api_version, None)
        group, _, version = api_version.rpartition("/")
        path = group_path(group, version)
        response = await self.connection.request("GET", path, within=self.timeout)
        if response.status != 200:
            raise response_error(response)
        try:
            served = msgspec.json.decode(response.body, type=_ApiResourceList).resources or []
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TargetUnavailable(
                f"The response about the kinds in {api_version} was not a list of kinds.",
                hint="Check that the address is an API server's and that nothing rewrites its "
                "responses.",
            ) from None
        subresources: dict[str, set[str]] = {}
        for each in served:
            plural, slash, subresource = each.name.partition("/")
            if slash:
                subresources.setdefault(plural, set()).add(subresource)
        kinds = {
            each.kind: Resource(
                group=group,
                version=version,
                kind=each.kind,
                plural=each.name,
                namespaced=each.namespaced,
                verbs=frozenset(each.verbs),
                subresources=frozenset(subresources.get(each.name, ())),
            )
            for each in served
            if "/" not in each.name
        }
        self._kinds[api_version] = kinds
        return kinds

    def _check_may_write(self) -> None:
        if not self.may_write():
            raise LeadershipLost(
                "This controller does not lead any more, so it wrote nothing.",
                hint="Another one goes on; restart this one to wait for its turn.",
            )


def _path(resource: Resource, ref: ObjectRef, subresource: str = "") -> str:
    return resource.path(ref.name, namespace=ref.namespace, subresource=subresource)


def _decode_object(response: KubeResponse) -> Object:
    # The cyclic collector costs more than the decoding of a long list.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return msgspec.json.decode(response.body, type=Object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ApiError(
            f"{response.where} answered {response.status} with {len(response.body)} bytes that are "
            "not an object.",
            status=response.status,
            reason="unreadable",
            changed=OUTCOME_UNKNOWN if response.writes else NOTHING_CHANGED,
            hint="Check that the address is an API server's and that nothing rewrites its "
            "responses.",
        ) from None
    finally:
        if collecting:
            gc.enable()
