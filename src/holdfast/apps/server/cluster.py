"""Workloads that a cluster keeps, as the server asks for them.

The store then has projects and tokens alone. Every answer is the cluster's; only the data plane
remembers for a moment which workload a key opens, as it must not ask for each request.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from holdfast.adapters.kubernetes.target import KubernetesTarget
from holdfast.adapters.kubernetes.target_objects import MANAGERS, NameTaken
from holdfast.adapters.kubernetes.target_open import open_target
from holdfast.adapters.runner import Lease
from holdfast.apps.server.config import Cluster
from holdfast.apps.server.errors import not_found
from holdfast.apps.server.proxy import Served
from holdfast.core.live import Live, Phase, Writer
from holdfast.core.names import WorkloadId
from holdfast.reconcile.ports import Clock

MANAGER = "holdfast-server"
TIMEOUT = 25.0
"""Seconds for each question to the cluster, well within what clients wait for us."""
FRESH = 2.0
"""Seconds for which the data plane trusts what it saw of a workload."""
MOST = 4_096


class ClusterWorkloads:
    """One per server. Used from its event loop only."""

    def __init__(self, target: KubernetesTarget, *, workload_url: str, clock: Clock) -> None:
        self._target = target
        self._workload_url = workload_url
        self._clock = clock
        self._seen: OrderedDict[WorkloadId, tuple[float, Live | None]] = OrderedDict()

    @classmethod
    def open(cls, cluster: Cluster, clock: Clock) -> ClusterWorkloads:
        """Connect as the kubeconfig or the pod's service account says."""
        target = open_target(
            cluster.context,
            cluster.namespace,
            writer=Writer(manager=MANAGER),
            timeout=TIMEOUT,
            discreet=True,
        )
        return cls(target, workload_url=cluster.workload_url, clock=clock)

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._target.aclose()

    def target(self, writer: Writer) -> KubernetesTarget:
        """Return the target, writing under the tool's name unless it claims one of ours."""
        if writer.manager.startswith("holdfast-") and writer.manager not in MANAGERS:
            writer = replace(writer, manager=MANAGER)
        return self._target.writing_as(writer).within(TIMEOUT)

    def following(self) -> KubernetesTarget:
        """Return the target for streams, which last as long as their client listens."""
        return self._target

    async def live(self, workload: WorkloadId) -> Live:
        """Return a workload; what another project has under its name is as good as none."""
        try:
            found = await self._target.within(TIMEOUT).observe(workload)
        except NameTaken:
            raise not_found() from None
        if not isinstance(found, Live):
            raise not_found()
        return found

    async def by_uid(self, project: str, uid: str) -> Live:
        """Return the workload of a project that has this id."""
        for live in await self._target.within(TIMEOUT).list(project):
            if live.uid == uid:
                return live
        raise not_found()

    async def uid_of(self, project: str, slug: str) -> str:
        """Return the id of a workload."""
        return (await self.live(WorkloadId(project=project, slug=slug))).uid

    async def recent(self, workload: WorkloadId) -> Live | None:
        """Return what was seen of a workload at most a moment ago."""
        now = self._clock.monotonic()
        at, live = self._seen.get(workload, (0.0, None))
        if workload not in self._seen or now - at > FRESH:
            try:
                found = await self._target.within(TIMEOUT).observe(workload)
                live = found if isinstance(found, Live) else None
            except NameTaken:
                live = None
            self._seen[workload] = (now, live)
            while len(self._seen) > MOST:
                self._seen.popitem(last=False)
        return live

    def served(self, live: Live) -> Served:
        """Say how a workload is reached: by its Service, which knows the pods that are ready."""
        name, namespace = live.id.slug, self._target.namespace_of(live.id.project)
        serving = live.status.phase is Phase.READY or live.status.ready > 0

        def acquire() -> Lease | None:
            if not serving:
                return None
            return Lease(
                url=self._workload_url.format(name=name, namespace=namespace),
                group="",
                replica=f"{name}-svc",
                release=_nothing,
                failed=_nothing,
            )

        # A canary answers to the slug by itself, and which of both is reached is not known here.
        fields = {} if live.fields.get("canary") else live.fields
        return Served(id=live.id, fields=fields, acquire=acquire, status=lambda: live.status)


def _nothing() -> None:
    """The Service counts and probes for itself."""
