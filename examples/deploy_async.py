"""The same with the async client: several workloads, planned first."""

import asyncio

from holdfast import AsyncManagementClient, WorkloadSpec

SPECS = [
    WorkloadSpec(name=f"embed-{size}", model=f"bge-{size}", backend="vllm", replicas=count)
    for size, count in (("small", 2), ("large", 1))
]


async def main() -> None:
    async with AsyncManagementClient.from_env(project="acme") as mgmt:
        print(await mgmt.plan(SPECS))
        for ref in await mgmt.ensure_all(SPECS):
            print(f"workload {ref.workload_slug} was {ref.outcome}")


asyncio.run(main())
