"""Declare a workload and make it so. Works on a local file when nothing is configured."""

from holdfast import Backend, ManagementClient, OnDrift, WorkloadSpec

spec = WorkloadSpec(
    name="support-bot",
    slug="support-bot",
    model="meta-llama/Llama-3.1-8B-Instruct",
    backend=Backend.VLLM,
    command="vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192",
)

with ManagementClient.from_env(project="acme") as mgmt:
    ref = mgmt.ensure(spec)
    print(f"workload {ref.workload_slug} was {ref.outcome}")
    ref = mgmt.ensure(spec, on_drift=OnDrift.DRY_RUN)
    print(ref.plan)
