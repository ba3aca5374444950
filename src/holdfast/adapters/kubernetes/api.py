"""The verbs of the Kubernetes API that Holdfast uses, each with its guards.

Every call has a deadline, and answers with an object or with an error of our tree. A write is
guarded by what the caller saw: by uid and resourceVersion, or by field ownership.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.objects import Object, Resource, group_path, version_of
from holdfast.adapters.kubernetes.responses import KubeResponse, response_error
from holdfast.core.errors import NOTHING_CHANGED, OUTCOME_UNKNOWN, ApiError, TargetUnavailable
from holdfast.reconcile.kube import KindNotServed, ObjectList, VersionExpired


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = msgspec.field(default_factory=list)


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] | None = None


class KindDiscovery:
    """Remembers what was served; asks again for a kind that it does not know."""

    def __init__(self, fetch: Callable[[str], Awaitable[bytes]]) -> None:
        self._fetch = fetch
        self._known: dict[str, dict[str, Resource]] = {}

    async def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return where a kind is served. Raises KindNotServed when it is not, by a fresh look."""
        found = self._known.get(api_version, {}).get(kind)
        if found is None:
            found = (await self._discover(api_version)).get(kind)
        if found is None:
            raise KindNotServed(
                f"The cluster serves no kind {kind} in {api_version}.",
                hint="Install its custom resource definition, or check apiVersion and kind.",
            )
        return found

    def forget(self, resource: Resource) -> None:
        """Take note that a kind was not served where it used to be."""
        self._known.pop(resource.api_version, None)

    async def _discover(self, api_version: str) -> dict[str, Resource]:
        self._known.pop(api_version, None)
        group, _, version = api_version.rpartition("/")
        answer = await self._fetch(group_path(group, version))
        try:
            listed = msgspec.json.decode(answer, type=_ApiResourceList).resources or []
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TargetUnavailable(
                f"The answer about the kinds in {api_version} was not a list of kinds.",
                hint="Check that the address is an API server's and that nothing rewrites answers.",
            ) from None
        under: dict[str, set[str]] = {}
        for each in listed:
            plural, slash, subresource = each.name.partition("/")
            if slash:
                under.setdefault(plural, set()).add(subresource)
        known = {
            each.kind: Resource(
                group=group,
                version=version,
                kind=each.kind,
                plural=each.name,
                namespaced=each.namespaced,
                verbs=frozenset(each.verbs),
                subresources=frozenset(under.get(each.name, ())),
            )
            for each in listed
            if "/" not in each.name
        }
        self._known[api_version] = known
        return known


PAGE_SIZE = 500
REQUEST_TIMEOUT = 30.0
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML, and older servers know no other name
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class KubeApi:
    """One cluster, through one connection."""

    def __init__(
        self,
        connection: KubeConnection,
        *,
        manager: str = "holdfast",
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self.connection = connection
        self.manager = manager
        self.timeout = timeout
        self._discovery = KindDiscovery(self._fetch_bytes)

    async def aclose(self) -> None:
        """Let go of the connection. Safe to call twice."""
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
        within: float | None = None,
    ) -> Object:
        """Send one request and return the object that it answers with, or raise its error."""
        reply = await self.connection.request(
            method,
            path,
            params=params,
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            secret=secret,
            dry_run="dryRun" in (params or {}),
            within=self.timeout if within is None else within,
        )
        if not 200 <= reply.status < 300:
            raise response_error(reply)
        return _decode_object(reply)

    async def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return where a kind is served. Raises KindNotServed, also for a kind not yet there."""
        return await self._discovery.resource_of(api_version, kind)

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", subresource: str = ""
    ) -> Object:
        """Return one object as it is now. Raises NotFound only on the API server's own word."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return await self._send(resource, "GET", path)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page: int = PAGE_SIZE,
    ) -> ObjectList:
        """Return every object that matches, at one version: the whole list or an error.

        An empty namespace means all of them. A list that expired between two pages is started
        again, the last time in one piece.
        """
        chosen = {"labelSelector": labels, "fieldSelector": fields}
        chosen = {name: value for name, value in chosen.items() if value}
        path = resource.path(namespace=namespace)
        for size in (page, page):
            try:
                return await self._list_pages(resource, path, {**chosen, "limit": str(size)})
            except VersionExpired:
                continue
        return await self._list_pages(resource, path, chosen)

    async def apply(
        self,
        item: Object,
        *,
        manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        subresource: str = "",
    ) -> Object:
        """Apply an object under a field manager, on the server's side.

        `metadata.uid` and `resourceVersion` in the object are its guards: with both, an object
        that is gone or replaced is not created again. Raises KubeConflict, also with the owners of
        the fields when `force` is off.
        """
        resource, path = await self._locate(item, subresource)
        params = {
            "fieldManager": manager or self.manager,
            "force": "true" if force else "false",
            "fieldValidation": "Strict",
            **_dry_run_params(dry_run),
        }
        return await self._send(resource, "PATCH", path, params, item, APPLY_PATCH)

    async def create(self, item: Object, *, manager: str = "", dry_run: bool = False) -> Object:
        """Create an object. Raises KubeConflict when its name is taken."""
        resource, _ = await self._locate(item, "")
        path = resource.path(namespace=item["metadata"].get("namespace", ""))
        params = {
            "fieldManager": manager or self.manager,
            "fieldValidation": "Strict",
            **_dry_run_params(dry_run),
        }
        return await self._send(resource, "POST", path, params, item)

    async def patch(
        self,
        resource: Resource,
        name: str,
        change: Mapping[str, Any] | Sequence[Mapping[str, Any]],  # Any: parts of objects
        *,
        namespace: str = "",
        manager: str = "",
        dry_run: bool = False,
        subresource: str = "",
    ) -> Object:
        """Change one object: a mapping is a merge patch, a sequence a JSON patch.

        Guard it with `metadata.resourceVersion` in a merge patch, or a `test` in a JSON patch;
        a test that fails raises ValidationError.
        """
        path = resource.path(name, namespace=namespace, subresource=subresource)
        params = {
            "fieldManager": manager or self.manager,
            "fieldValidation": "Strict",
            **_dry_run_params(dry_run),
        }
        kind = MERGE_PATCH if isinstance(change, Mapping) else JSON_PATCH
        return await self._send(resource, "PATCH", path, params, change, kind)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete one object, and only the one that was seen when uid and version are given.

        Raises KubeConflict when it has changed or been replaced, NotFound when it is gone.
        """
        guards = {"uid": uid, "resourceVersion": version}
        guards = {field: value for field, value in guards.items() if value}
        options: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if guards:
            options["preconditions"] = guards
        path = resource.path(name, namespace=namespace)
        await self._send(resource, "DELETE", path, _dry_run_params(dry_run), options)

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
            self._discovery.forget(resource)
            raise

    async def _locate(self, item: Object, subresource: str) -> tuple[Resource, str]:
        resource = await self.resource_of(item["apiVersion"], item["kind"])
        metadata = item["metadata"]
        namespace = metadata.get("namespace", "")
        return resource, resource.path(
            metadata.get("name", ""), namespace=namespace, subresource=subresource
        )

    async def _list_pages(
        self, resource: Resource, path: str, params: Mapping[str, str]
    ) -> ObjectList:
        items: list[Object] = []
        token = ""
        while True:
            more = {"continue": token} if token else {}
            answer = await self._send(resource, "GET", path, {**params, **more})
            for item in answer.get("items") or ():
                # Built-in kinds leave these out of lists, and an apply needs them.
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                items.append(item)
            token = answer.get("metadata", {}).get("continue", "")
            if not token:
                return ObjectList(items=items, version=version_of(answer))

    async def _fetch_bytes(self, path: str) -> bytes:
        reply = await self.connection.request("GET", path, within=self.timeout)
        if reply.status != 200:
            raise response_error(reply)
        return reply.body


def _dry_run_params(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _decode_object(reply: KubeResponse) -> Object:
    try:
        with _collector_off():
            return msgspec.json.decode(reply.body, type=Object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ApiError(
            f"{reply.where} answered {reply.status} with {len(reply.body)} bytes that are not an "
            "object.",
            status=reply.status,
            reason="unreadable",
            changed=OUTCOME_UNKNOWN if reply.writes else NOTHING_CHANGED,
            hint="Check that the address is an API server's and that nothing rewrites its answers.",
        ) from None


@contextmanager
def _collector_off() -> Iterator[None]:
    """Decode without the cyclic collector, which costs more than the decoding of a long list."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
