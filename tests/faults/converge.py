"""A small controller over the cluster client: some objects that should be so and no others.

What a reconciler does to a cluster, without anything that a reconciler knows: it looks, creates
what is absent, mends what differs, deletes what is too much, and looks again after every failure.
The fault tests compare its end state and its creates and deletes with those of a quiet run.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.adapters.kubernetes.harness import HastyClock, api_for, cluster_config
from tests.faults.kube_faults import KubeFaults

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.core.errors import HoldfastError
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ObjectRef, Scope, ref_of

MANAGER = "holdfast-faults"
PASSES = 60

Wanted = Mapping[str, str]
"""The text that each object holds, by name."""
STORY: tuple[Wanted, ...] = (
    {"a": "1", "b": "1", "c": "1"},
    {"a": "2", "c": "1"},
    {"a": "2", "b": "3"},
)
"""Create, change and delete, create again: the states that are wanted one after the other."""


class Converger:
    """Everything with one label in one namespace."""

    def __init__(self, client: KubeApi, namespace: str, group: str) -> None:
        self.client = client
        self.namespace = namespace
        self.group = group
        self.errors: list[HoldfastError] = []

    async def converge(self, wanted: Wanted) -> None:
        """Pass after pass until one found nothing to do."""
        for _ in range(PASSES):
            try:
                if not await self.once(wanted):
                    return
            except HoldfastError as error:
                self.errors.append(error)
        raise AssertionError(f"no peace after {PASSES} passes; last: {self.errors[-1:]}")

    async def once(self, wanted: Wanted) -> int:
        """One pass; gives how much it wrote. The first failure ends it."""
        writes = 0
        listed = await self.client.list(self.scope)
        for name, text in wanted.items():
            item = self.item(name, text)
            live = await self.client.get(ref_of(item))
            if live is None:
                await self.client.apply(item, manager=MANAGER, absent=True)
            elif live["data"] != item["data"]:
                await self.client.apply(seen(item, live), manager=MANAGER, force=True)
            else:
                continue
            writes += 1
        for live in listed.items:
            if name_of(live) not in {f"{self.group}-{name}" for name in wanted}:
                ref = ObjectRef(
                    api_version="v1",
                    kind="ConfigMap",
                    namespace=self.namespace,
                    name=name_of(live),
                )
                guards = metadata_of(live)
                await self.client.delete(
                    ref, uid=str(guards["uid"]), version=str(guards["resourceVersion"])
                )
                writes += 1
        return writes

    async def state(self) -> dict[str, str]:
        """What is there now, as wanted is written."""
        found = (await self.client.list(self.scope)).items
        return {name_of(item).removeprefix(f"{self.group}-"): text_of(item) for item in found}

    @property
    def scope(self) -> Scope:
        return Scope(
            api_version="v1",
            kind="ConfigMap",
            namespace=self.namespace,
            labels=f"group={self.group}",
        )

    def item(self, name: str, text: str) -> Fields:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{self.group}-{name}",
                "namespace": self.namespace,
                "labels": {"group": self.group},
            },
            "data": {"text": text},
        }


async def play(kube: KubeFaults, namespace: str, group: str, *, within: float = 20.0) -> Converger:
    """Run the whole story through the proxy and check its end in the cluster itself."""
    config = cluster_config(kube.kubeconfig)
    async with api_for(config, clock=HastyClock(), within=within) as api:
        controller = Converger(api, namespace, group)
        for wanted in STORY:
            await controller.converge(wanted)
        kube.heal()
        api.timeout = 20.0
        assert await controller.state() == STORY[-1]
    return controller


def seen(item: Fields, live: Fields) -> Fields:
    """Guard a write by what was seen."""
    guards = {name: metadata_of(live)[name] for name in ("uid", "resourceVersion")}
    return {**item, "metadata": {**metadata_of(item), **guards}}


def metadata_of(item: Fields) -> Fields:
    found = item["metadata"]
    assert isinstance(found, dict)
    return found


def name_of(item: Fields) -> str:
    return str(metadata_of(item)["name"])


def text_of(item: Fields) -> str:
    data = item["data"]
    assert isinstance(data, dict)
    return str(data["text"])
