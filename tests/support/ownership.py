"""Applies manifests as the operator does, with kubectl, and compares what is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from tests.adapters.kubernetes.harness import api_for, cluster_config
from tests.support.cluster import Cluster

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import NO_CONTEXT, OwnershipContext
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.ownership.object_diff import ObjectDiff, diff_object
from holdfast.core.ownership.signals import Declaration
from holdfast.core.ownership.signals import declare as sealed
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.kube import ConflictReason, KubeConflict, ref_of
from holdfast.reconcile.objects.resource_manager import ResourceManager, WriteResult

MANAGER = "holdfast-operator"
KEY = b"a key of the tests"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
CORPUS = Path(__file__).parent.parent / "corpus"


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def corpus() -> list[dict[str, Any]]:
    """Every manifest of the corpus, the definition of a kind before its objects."""
    files = sorted(CORPUS.glob("*.yaml"), key=lambda file: (file.stem == "custom", file.stem))
    return [item for file in files for item in yaml.safe_load_all(file.read_text())]


def declaration_of(item: dict[str, Any], **more: Any) -> Declaration:
    return Declaration(item=item, digest=digest(item), managers=frozenset({MANAGER}), **more)


def diff_as_operator(
    item: dict[str, Any],
    live: dict[str, Any] | None,
    *,
    context: OwnershipContext = NO_CONTEXT,
    dry_run: dict[str, Any] | None = None,
    **more: Any,
) -> ObjectDiff:
    """Judge an object as the operator would."""
    return diff_object(
        declared=declaration_of(item),
        live=live,
        key=KEY,
        now=more.pop("now", NOW),
        context=context,
        dry_run=dry_run,
        **more,
    )


def apply(
    cluster: Cluster, item: Mapping[str, Any], namespace: str, *, dry_run: bool = False
) -> dict[str, Any]:
    """Apply under our manager, by force, and give the server's answer."""
    flags = ["--dry-run=server"] if dry_run else []
    answer = cluster.kubectl(
        *["apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}"],
        *["-n", namespace, "-o", "json", "--show-managed-fields", "-f", "-", *flags],
        stdin=json.dumps(item),
    )
    found: dict[str, Any] = json.loads(answer)
    return found


class ResourceBench:
    """One object on a real cluster, and the keeper of it."""

    def __init__(self, cluster: Cluster, namespace: str, client: KubeApi) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.client = client
        self.resource_manager = ResourceManager(
            client, manager=MANAGER, key=KEY, clock=SystemClock()
        )

    def declared(self, item: dict[str, Any], **more: Any) -> Declaration:
        placed = {**item, "metadata": {**item["metadata"], "namespace": self.namespace}}
        return replace(sealed(placed, MANAGER), **more)

    async def live(self, declared: Declaration) -> dict[str, Any]:
        found: Any = await self.client.get(ref_of(declared.item))
        assert found is not None
        return dict(found)

    async def diff(self, declared: Declaration, **more: Any) -> ObjectDiff:
        """Look as a controller does: again when another writer was first."""
        while True:
            try:
                return await self.resource_manager.diff(declared, await self.live(declared), **more)
            except KubeConflict as conflict:
                if conflict.reason is not ConflictReason.CHANGED:
                    raise

    async def heal(
        self,
        declared: Declaration,
        *,
        leave: frozenset[tuple[str, ...]] = frozenset(),
        **more: Any,
    ) -> dict[str, Any]:
        """Look and heal as a controller does: again when another writer was first."""
        return dict((await self.write(declared, leave=leave, **more)).live)

    async def write(
        self,
        declared: Declaration,
        *,
        leave: frozenset[tuple[str, ...]] = frozenset(),
        **more: Any,
    ) -> WriteResult:
        """The same, and what the server made of it."""
        while True:
            live = await self.live(declared)
            try:
                found = await self.resource_manager.diff(declared, live, **more)
                return await self.resource_manager.heal(declared, live, found, leave=leave)
            except KubeConflict as conflict:
                if conflict.reason is not ConflictReason.CHANGED:
                    raise

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(*arguments, "-n", self.namespace)

    def patch(self, kind: str, form: str, body: object, *flags: str) -> str:
        return self.kubectl("patch", kind, "bot", f"--type={form}", "-p", json.dumps(body), *flags)


def run_on_cluster(
    cluster: Cluster,
    namespace: str,
    story: Callable[[ResourceBench], Awaitable[None]],
    **config: Any,
) -> None:
    """Play a story with a keeper on a real cluster."""

    async def played() -> None:
        kubeconfig = config.get("kubeconfig", cluster.kubeconfig)
        async with api_for(cluster_config(kubeconfig)) as api:
            await story(ResourceBench(cluster, namespace, api))

    asyncio.run(played())


def field_managers(live: Fields) -> set[tuple[str, str]]:
    """Every owner of something outside the status."""
    entries = read_ownership(value_at(live, ("metadata", "managedFields"))).entries
    return {(entry.manager, entry.operation) for entry in entries if entry.subresource != "status"}
