"""Finds what is in an application's own namespaces without having been declared."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.core.errors import AuthError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.application import OrphanPolicy
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.orphans import KINDS, is_orphan, names_of
from holdfast.core.gitops.standing import Health, Seen, Standing
from holdfast.core.objects import ObjectRef, ref_of
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.kube import KubeClient, Scope


class Orphans:
    """Looks through namespaces. A list that fails finds nothing, and forgets nothing."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def look(
        self, following: Following, only: Collection[ObjectRef] | None
    ) -> tuple[Seen, ...]:
        """Return the orphans of an application, `only` some objects if given."""
        spec = following.application.spec.drift
        if spec is None or not spec.namespaces or spec.orphans is OrphanPolicy.IGNORE:
            return ()
        assert following.wanted is not None  # noqa: S101  # it was looked at
        known = {*following.wanted.declared, *following.shelf.inventory}
        names = names_of(known)
        kinds = {*KINDS, *((ref.api_version, ref.kind) for ref in known)}
        if only is not None:
            kinds &= {(ref.api_version, ref.kind) for ref in only}
        found: list[Seen] = []
        for api_version, kind in sorted(kinds):
            for namespace in spec.namespaces:
                if only is not None and not any(
                    (ref.kind, ref.namespace) == (kind, namespace) for ref in only
                ):
                    continue
                scope = Scope(api_version=api_version, kind=kind, namespace=namespace)
                try:
                    items = (await self._client.list(scope)).items
                except (TargetUnavailable, PermissionDenied, AuthError) as error:
                    found += _unknown(following, scope, known, error.happened)
                    continue
                for item in items:
                    ref = ref_of(item)
                    if only is not None and ref not in only:
                        continue
                    if is_orphan(item, application=following.application.id, known=names):
                        health, told = health_of(item)
                        found.append(
                            Seen(
                                ref=ref, standing=Standing.ORPHAN, health=health, live=item,
                                message=told,
                            )
                        )  # fmt: skip
        return tuple(found)


def _unknown(
    following: Following, scope: Scope, known: Collection[ObjectRef], told: str
) -> list[Seen]:
    """Orphans that were found before, and cannot be looked at now."""
    return [
        Seen(
            ref=drift.object, standing=Standing.UNKNOWN, health=Health.UNKNOWN, message=told
        )
        for drift in following.shelf.drifts.values()
        if drift.object not in known
        and (drift.object.kind, drift.object.namespace) == (scope.kind, scope.namespace)
    ]  # fmt: skip
