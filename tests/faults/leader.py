"""A controller in a process of its own, to be frozen between its read and its write.

Run as `python -m tests.faults.leader KUBECONFIG NAMESPACE IDENTITY`. Once it leads it reads an
object, says `read`, and writes when a line comes in, whatever has become of its lease by then:
that is what a process does that was frozen just before its write. It says what came of it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.adapters.kubernetes.harness import api_for, cluster_config
from tests.faults.converge import MANAGER, Converger, seen

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import LeadershipLost
from holdfast.adapters.kubernetes.lease import LeaderElection, LeaseTiming
from holdfast.reconcile.kube import KubeConflict, ref_of

QUICK = LeaseTiming(duration=3.0, renew_within=2.0, every=0.3)


async def main(kubeconfig: Path, namespace: str, identity: str) -> None:
    config = cluster_config(kubeconfig)
    clock = SystemClock()
    async with api_for(config, clock=clock) as api, api_for(config, clock=clock) as own:
        controller = Converger(api, namespace, "g")
        election = LeaderElection(
            own, namespace=namespace, name="holdfast", identity=identity, timing=QUICK
        )
        wanted = controller.item("a", identity)

        async def write() -> None:
            live = await controller.client.get(ref_of(wanted))
            assert live is not None
            say("read")
            await asyncio.to_thread(sys.stdin.readline)
            leads = election.leads
            try:
                await controller.client.apply(seen(wanted, live), manager=MANAGER, force=True)
                say(f"wrote leads={leads}")
            except KubeConflict as conflict:
                say(f"refused {conflict.reason} leads={leads}")

        writing: list[asyncio.Task[None]] = []

        async def work() -> None:
            # Out of the election's reach, as a request that is already on its way is.
            writing.append(asyncio.ensure_future(write()))
            await asyncio.sleep(3600)

        try:
            await election.run(work)
        except LeadershipLost:
            say("lost")
        await asyncio.gather(*writing)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
