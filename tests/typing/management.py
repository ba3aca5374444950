"""Written as a user would: the type checker is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from holdfast import (
    AsyncManagementClient,
    Backend,
    Canary,
    DriftError,
    DriftRecord,
    EndpointRef,
    Health,
    HistoryEntry,
    Live,
    ManagementClient,
    OnAbsent,
    OnDrift,
    Outcome,
    Plan,
    Progress,
    SecretRef,
    Step,
    ValidationError,
    WorkloadChange,
    WorkloadSpec,
)

spec = WorkloadSpec(
    name="support-bot",
    slug="support-bot",
    model="meta-llama/Llama-3.1-8B-Instruct",
    backend=Backend.VLLM,
    command="vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192",
    env={"HF_HOME": "/models"},
    secrets={"HF_TOKEN": SecretRef(name="hub", key="token")},
    config={"nested": {"list": [1, 2.5, "x", None]}},
    replicas=2,
    canary=Canary(weight=10, model="meta-llama/Llama-3.2-3B-Instruct"),
    health=Health(path="/health", startup="10m"),
)
custom = WorkloadSpec(name="mine", model="m", backend="my-server", task_type="embedding")


def progressed(progress: Progress) -> None:
    assert_type(progress.elapsed_ms, int)


def sync() -> None:
    with ManagementClient.from_env(project="acme", timeout=10) as mgmt:
        assert_type(mgmt, ManagementClient)
        ref = mgmt.ensure(spec)
        assert_type(ref, EndpointRef)
        assert_type(ref.outcome, Outcome)
        assert_type(ref.plan, Plan)
        assert_type(ref.live, Live | None)
        mgmt.ensure(spec, on_drift=OnDrift.DRY_RUN, on_absent=OnAbsent.PLAN, timeout=5)
        mgmt.ensure(spec, on_drift="fail", on_absent="fail", project="other")
        assert_type(mgmt.ensure_all([spec, custom]), list[EndpointRef])
        plan = mgmt.plan(spec)
        assert_type(plan, Plan)
        assert_type(mgmt.plan([spec, custom]), Plan)
        assert_type(plan.steps, tuple[Step, ...])
        assert_type(plan.to_markdown(), str)
        assert_type(mgmt.apply(plan), list[Live | None])
        assert_type(mgmt.get("support-bot"), Live)
        assert_type(mgmt.list(), list[Live])
        assert_type(mgmt.delete("support-bot"), bool)
        assert_type(mgmt.watch(timeout=1), Iterator[WorkloadChange])
        assert_type(mgmt.wait_until_ready("support-bot", on_progress=progressed), Progress)
        assert_type(mgmt.drifts(), list[DriftRecord])
        assert_type(mgmt.history(slug="support-bot"), list[HistoryEntry])
        assert_type(mgmt.logs("support-bot", tail=5), Iterator[str])
        try:
            mgmt.ensure(spec, on_drift="fail")
        except DriftError as drift:
            assert_type(drift.plan, Plan)
        except ValidationError as invalid:
            print([problem.fix for problem in invalid.problems])


async def loop() -> None:
    async with AsyncManagementClient("https://host", token="t", project="acme") as mgmt:
        assert_type(mgmt, AsyncManagementClient)
        assert_type(await mgmt.ensure(spec), EndpointRef)
        assert_type(await mgmt.ensure_all([spec]), list[EndpointRef])
        assert_type(await mgmt.plan(spec), Plan)
        assert_type(await mgmt.apply(await mgmt.plan(spec)), list[Live | None])
        assert_type(await mgmt.get("support-bot"), Live)
        assert_type(await mgmt.list(), list[Live])
        assert_type(await mgmt.delete("support-bot"), bool)
        assert_type(mgmt.watch(), AsyncIterator[WorkloadChange])
        assert_type(await mgmt.wait_until_ready("support-bot", silent=True), Progress)
        assert_type(await mgmt.drifts(include_resolved=True), list[DriftRecord])
        assert_type(await mgmt.history(), list[HistoryEntry])
        assert_type(mgmt.logs("support-bot"), AsyncIterator[str])


def refused(mgmt: ManagementClient) -> None:
    """Each line is a mistake that the checker has to find: an unused ignore fails the build."""
    mgmt.ensure("support-bot")  # type: ignore[arg-type]
    mgmt.ensure(spec, OnDrift.FAIL)  # type: ignore[call-arg]
    mgmt.ensure(spec, on_drift=3)  # type: ignore[arg-type]
    ManagementClient.from_env(colour="blue")  # type: ignore[call-arg]
    WorkloadSpec(name="x", model="m")  # type: ignore[call-arg]
    WorkloadSpec("x", "m", "vllm")  # type: ignore[call-arg]
    spec.replicas = 3  # type: ignore[misc]
