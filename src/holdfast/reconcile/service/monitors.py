"""What is found out about services beside the passes, and the one place that puts it together.

A pass reads from these and hands over what it knows; whoever watches pods feeds them. The operator
has all of them, and a library user needs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import Clock, EngineApi
from holdfast.reconcile.service.drains import EndedPods
from holdfast.reconcile.service.flaps import FlapLog
from holdfast.reconcile.service.model_head import HubApi, ModelHeadMonitor
from holdfast.reconcile.service.runtime import ListPods, RuntimeMonitor


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMonitors:
    """The monitors of one operator; None for what nobody looks at, which is not told then."""

    runtime: RuntimeMonitor | None = None
    """Asks pods what they serve."""
    model_heads: ModelHeadMonitor | None = None
    """Asks hubs about the branches that models are from."""
    flaps: FlapLog | None = None
    """Remembers pods that do not stay ready."""
    ended_pods: EndedPods | None = None
    """Remembers pods that were stopped."""

    def pod_changed(
        self, namespace: str, name: str, old: Fields | None, new: Fields | None, *, restarted: bool
    ) -> None:
        """Take note of what a pod of a service was and is."""
        if self.flaps is not None:
            self.flaps.pod_changed(namespace, name, old, new)
        if self.ended_pods is not None:
            self.ended_pods.pod_changed(namespace, name, old, new)
        if self.runtime is not None and restarted:
            self.runtime.pod_changed(namespace, name)

    def forget(self, namespace: str, name: str) -> None:
        """Forget a service that is gone."""
        for each in (self.runtime, self.model_heads, self.flaps, self.ended_pods):
            if each is not None:
                each.forget(namespace, name)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Ask pods and hubs for as long as this is entered."""
        monitors = (each for each in (self.runtime, self.model_heads) if each is not None)
        tasks = [asyncio.create_task(each.run(), name=type(each).__name__) for each in monitors]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


NO_MONITORS = ServiceMonitors()


def build_monitors(
    client: KubeClient,
    clock: Clock,
    again: Callable[[str, str], None],
    *,
    chance: Callable[[], float],
    engines: EngineApi | None = None,
    list_pods: ListPods | None = None,
    hub: HubApi | None = None,
    hubs: Collection[str] = (),
) -> ServiceMonitors:
    """Put the monitors together. Without `engines` no pod is asked, and without `hub` no hub.

    `again` asks for a pass over the service of that namespace and name, of which something new is
    known. `hubs` are the addresses that may be asked, and `chance` spreads the questions. Pods are
    listed through `client` each time unless `list_pods` is given.
    """
    runtime = heads = None
    if engines is not None:
        runtime = RuntimeMonitor(engines, client, clock=clock, again=again, list_pods=list_pods)
    if hub is not None:
        heads = ModelHeadMonitor(hub, hubs=hubs, clock=clock, random=chance, again=again)
    return ServiceMonitors(
        runtime=runtime,
        model_heads=heads,
        flaps=FlapLog(clock, again=again),
        ended_pods=EndedPods(again=again),
    )
