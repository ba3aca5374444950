"""Which kinds a cluster serves, and where. Custom resources come and go while we run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.adapters.kubernetes.objects import Resource, group_path
from holdfast.core.errors import TargetUnavailable
from holdfast.reconcile.kube import KindNotServed


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = msgspec.field(default_factory=list)


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] | None = None


class Discovery:
    """Remembers what was served; asks again for a kind that it does not know."""

    def __init__(self, fetch: Callable[[str], Awaitable[bytes]]) -> None:
        self._fetch = fetch
        self._known: dict[str, dict[str, Resource]] = {}

    async def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return where a kind is served. Raises KindNotServed when it is not, by a fresh look."""
        found = self._known.get(api_version, {}).get(kind)
        if found is None:
            found = (await self._look(api_version)).get(kind)
        if found is None:
            raise KindNotServed(
                f"The cluster serves no kind {kind} in {api_version}.",
                todo="Install its custom resource definition, or check apiVersion and kind.",
            )
        return found

    def forget(self, resource: Resource) -> None:
        """Take note that a kind was not served where it used to be."""
        self._known.pop(resource.api_version, None)

    async def _look(self, api_version: str) -> dict[str, Resource]:
        self._known.pop(api_version, None)
        group, _, version = api_version.rpartition("/")
        answer = await self._fetch(group_path(group, version))
        try:
            listed = msgspec.json.decode(answer, type=_ApiResourceList).resources or []
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TargetUnavailable(
                f"The answer about the kinds in {api_version} was not a list of kinds.",
                todo="Check that the address is an API server's and that nothing rewrites answers.",
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
