"""A real cluster as a target: whose a workload is, who wrote it, how it does, what is remembered.

What every target promises is in tests/contracts; here is what only a cluster has.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import Answer, api_for, serving
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import create_inference_service, edit, write_service_status

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.target import KubernetesTarget, open_kubernetes_target
from holdfast.core.cost import Cost, CostKind
from holdfast.core.drift import find_drift
from holdfast.core.errors import (
    Conflict,
    HoldfastError,
    NotFound,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.live import Absent, Live, Phase, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.outcome import Outcome
from holdfast.core.plan import delete_plan, make_plan
from holdfast.core.policy import OnDrift
from holdfast.core.workload import (
    Analysis,
    Autoscaling,
    Canary,
    Desired,
    Health,
    Resources,
    WorkloadSpec,
    desired_of,
)
from holdfast.reconcile import reconciler
from holdfast.reconcile.kube import KindNotServed

OURS = Writer(manager="holdfast-sdk")
CHAT = WorkloadId(project="acme", slug="chat")


@asynccontextmanager
async def target(namespace: str, **more: Any) -> AsyncIterator[KubernetesTarget]:
    opened = open_kubernetes_target("", namespace, writer=OURS, timeout=20, **more)
    try:
        yield opened
    finally:
        await opened.aclose()


def played(namespace: str, story: Callable[[KubernetesTarget], Awaitable[None]]) -> None:
    async def play() -> None:
        async with target(namespace) as opened:
            await story(opened)

    asyncio.run(play())


def declared(slug: str = "chat", project: str = "acme", **fields: Any) -> Desired:
    given = {"name": slug, "slug": slug, "model": "m", "backend": "vllm", **fields}
    return desired_of(WorkloadSpec(**given), project=project)


async def ensured(opened: KubernetesTarget, desired: Desired, key: str = "k") -> Live:
    ref = await reconciler.ensure(opened, desired, key=key)
    assert ref.live is not None
    return ref.live


def test_one_name_in_one_namespace_is_one_projects_and_the_other_is_told_so(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        mine = await ensured(opened, declared())
        other = declared(project="other", replicas=3)
        for policy in OnDrift:
            with pytest.raises(Conflict, match="belongs to project acme"):
                await reconciler.ensure(opened, other, on_drift=policy, key=policy)
        with pytest.raises(Conflict, match="another slug"):
            await reconciler.plan(opened, [other])
        assert await opened.observe(CHAT) == mine
        assert list(await opened.list("other")) == []
        assert [live.id.slug for live in await opened.list("acme")] == ["chat"]

    played(namespace, story)


def test_what_has_no_label_belongs_to_the_project_of_its_namespace(
    kubeconfig: Cluster, namespace: str
) -> None:
    create_inference_service(
        kubeconfig, namespace, "chat", {"modelRef": "m", "backend": "vllm", "replicas": 1}
    )

    async def story(opened: KubernetesTarget) -> None:
        with pytest.raises(Conflict, match="no label"):
            await opened.observe(CHAT)
        (live,) = await opened.list(namespace)
        assert live.id == WorkloadId(project=namespace, slug="chat")
        assert live.writers["replicas"].manager == "kubectl-create"
        assert list(await opened.drifts(namespace)) == []
        after = await ensured(opened, declared(project=namespace, replicas=2))
        assert after.fields["replicas"] == 2
        assert after.writers["replicas"].manager == "holdfast-sdk"
        assert after.writers["model"].manager == "kubectl-create"
        rows = await opened.history(namespace, slug="chat")
        assert [row.action for row in rows] == ["updated", "created"]
        assert rows[-1].writer.manager == "kubectl-create"

    played(namespace, story)


def test_without_a_namespace_each_project_has_its_own(kubeconfig: Cluster, namespace: str) -> None:
    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared(project=namespace))
        found = kubeconfig.get("inferenceservice", "chat", namespace)
        assert found["metadata"]["labels"] == {"holdfast.dev/project": namespace}
        with pytest.raises(NotFound, match="kubectl create namespace nowhere"):
            await ensured(opened, declared(project="nowhere"))

    played("", story)


def test_a_name_that_is_too_long_for_pods_is_refused_before_anything_is_planned(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        for slug in ("a" * 41, "7b-chat"):
            with pytest.raises(ValidationError, match=r"slug: .* 40 lower-case"):
                await reconciler.plan(opened, [declared(slug)])
        await ensured(opened, declared("a" * 40))

    played(namespace, story)


HONOURED: dict[str, dict[str, Any]] = {
    "a fixed policy": {
        "execution_policy": "fixed",
        "execution_policy_config": {"replicas": 2},
    },
    "an autoscaling policy": {
        "execution_policy": "autoscaling",
        "execution_policy_config": {"min_workers": 1, "max_workers": 3},
        "resources": Resources(cpu="2"),
    },
    "bounds": {"autoscaling": Autoscaling(min=1, max=4), "resources": Resources(cpu=2)},
    "a canary that is judged": {
        "canary": Canary(
            weight=10, model="n", analysis=Analysis(metric="p99", max=1.5, interval=30)
        ),
    },
    "a canary that is to end": {"canary": Canary(weight=0)},
    "a command line in its own spelling": {"command": "vllm  serve m --port=${PORT} --a='b c'"},
    "times without a unit": {"health": Health(path="/h", interval=10, timeout="2s", startup=600)},
    "a container of one's own": {
        "image": "example.org/serve:1",
        "args": ["--port", "8000"],
        "config": {"entrypoint": ["/bin/serve"]},
        "env": {"A": "1"},
        "secrets": {"TOKEN": {"name": "hub", "key": "token"}},
    },
    "several metrics": {
        "autoscaling": {
            "min": 1,
            "max": 4,
            "metrics": [{"metric": "cpu"}, {"metric": "queued", "target": 2}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}},
        },
        "resources": Resources(cpu=2),
    },
    "a preset": {"autoscaling": {"min": 1, "max": 4, "preset": "kv-cache"}},
    "several nodes": {"nodes": 2, "resources": Resources(gpu=8)},
    "a suspension": {"suspend": {"reason": "INC-1432", "until": "2126-11-20T18:00:00Z"}},
    "words for people": {"name": "Chat bot", "description": "talks", "task_type": "text2text"},
}


@pytest.mark.parametrize("fields", HONOURED.values(), ids=HONOURED)
def test_what_is_honoured_is_observed_as_declared(
    kubeconfig: Cluster, namespace: str, fields: dict[str, Any]
) -> None:
    """Whatever spelling the custom resource has for it, it is no drift."""

    async def story(opened: KubernetesTarget) -> None:
        desired = declared(**fields)
        plain = await ensured(opened, declared())
        await ensured(opened, desired, key="update")
        seen = await opened.observe(desired.id)
        assert isinstance(seen, Live)
        assert find_drift(desired=desired, live=seen).fields == ()
        assert seen.uid == plain.uid
        await opened.perform(delete_plan(seen).steps[0], key="delete")
        await ensured(opened, desired, key="create")
        again = await reconciler.ensure(opened, desired, on_drift=OnDrift.FAIL, key="again")
        assert again.outcome is Outcome.UNCHANGED
        assert again.live is not None
        assert again.live.fields == desired.fields
        assert list(await opened.drifts("acme")) == []

    if "task_type" in fields:  # it cannot be changed, so there is no update to it
        fields = {**fields, "task_type": None}
    played(namespace, story)


def test_what_a_step_costs_is_what_the_operators_objects_would_do(
    kubeconfig: Cluster, namespace: str
) -> None:
    """By its fields alone a health check restarts nothing; pods have it in their template."""

    async def story(opened: KubernetesTarget) -> None:
        first = declared(replicas=2)
        (creation,) = make_plan([find_drift(desired=first, live=Absent(id=CHAT))]).steps
        assert await opened.cost(creation) == Cost(kind=CostKind.NONE, added=2)
        await ensured(opened, first)

        async def cost(**fields: Any) -> Cost | None:
            plan, _ = await reconciler.plan(opened, [declared(**{"replicas": 2, **fields})])
            return (await reconciler.add_costs(opened, plan)).steps[0].cost

        assert await cost(health=Health(path="/other")) == Cost(kind=CostKind.ROLLING, pods=2)
        assert await cost(description="words") == Cost(kind=CostKind.NONE)
        assert await cost(replicas=1) == Cost(kind=CostKind.NONE, added=-1)
        gpu = await cost(resources=Resources(gpu=1))
        assert gpu is not None
        assert [(each.resource, each.needed) for each in gpu.devices] == [("nvidia.com/gpu", 2)]
        live = await opened.observe(CHAT)
        assert isinstance(live, Live)
        assert await opened.cost(delete_plan(live).steps[0]) == Cost(kind=CostKind.GAP, added=-2)

    played(namespace, story)


def test_a_write_holds_although_the_operator_reports_in_between(
    kubeconfig: Cluster, namespace: str
) -> None:
    """A report changes the object's version, not the workload: a reviewed plan stays good."""

    async def story(opened: KubernetesTarget) -> None:
        live = await ensured(opened, declared(replicas=1))
        plan = make_plan([find_drift(desired=declared(replicas=2), live=live)])
        write_service_status(
            kubeconfig, namespace, "chat", ready=True, replicas=1, observedGeneration=1
        )
        (after,) = await reconciler.apply(opened, plan, key="apply")
        assert after is not None
        assert (after.fields["replicas"], after.generation) == (2, 2)
        edit(kubeconfig, namespace, "chat", {"spec": {"replicas": 7}})
        late = make_plan([find_drift(desired=declared(replicas=3), live=after)])
        with pytest.raises(Conflict):
            await opened.perform(late.steps[0], key="late")
        with pytest.raises(Conflict):
            await opened.perform(delete_plan(after).steps[0], key="late-delete")

    played(namespace, story)


def test_another_process_may_repeat_the_last_write_by_its_key(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        desired = declared()
        create = make_plan([find_drift(desired=desired, live=Absent(id=CHAT))]).steps[0]
        made = await opened.perform(create, key="one")
        assert isinstance(made, Live)
        async with target(namespace) as later:
            assert await later.perform(create, key="one") == made
            with pytest.raises(Conflict, match="already exists"):
                await later.perform(create, key="two")
            update = make_plan([find_drift(desired=declared(replicas=2), live=made)]).steps[0]
            with pytest.raises(HoldfastError, match="another request"):
                await later.perform(update, key="one")
            moved = await later.perform(update, key="three")
        assert await opened.perform(update, key="three") == moved
        rows = await opened.history("acme")
        assert [row.action for row in rows] == ["updated", "created"]

    played(namespace, story)


def test_drift_names_the_tool_that_wrote_and_what_was_declared(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared(env={"A": "1", "B": "2"}, replicas=1))
        change = {"spec": {"env": {"A": "9"}, "description": "not declared by anyone"}}
        edit(kubeconfig, namespace, "chat", change, manager="kubectl-edit")
        (record,) = await opened.drifts("acme", slug="chat")
        (entry,) = record.fields
        assert (entry.path, entry.desired, entry.live) == ("/env/A", "1", "9")
        assert entry.writer is not None
        assert entry.writer.manager == "kubectl-edit"
        assert (await opened.drifts("acme"))[0].id == record.id
        await ensured(opened, declared(env={"A": "1", "B": "2"}, replicas=1), key="heal")
        assert list(await opened.drifts("acme")) == []
        (closed,) = await opened.drifts("acme", include_resolved=True)
        assert (closed.id, closed.resolution) == (record.id, "reconciled")

    played(namespace, story)


def test_what_the_operator_says_of_its_objects_is_in_the_ledger(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared())
        said = {"type": "DriftDetected", "status": "True", "reason": "Left"}
        said |= {
            "message": "kubectl-edit changed image.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        need = {"resource": "nvidia.com/gpu", "needed": 1, "free": 0, "added": 0, "pool": "7a1f"}
        cost = {"kind": "gap", "pods": 2, "devices": [need], "blocked": True, "coldStart": 41.5}
        write_service_status(
            kubeconfig, namespace, "chat", drift="Drifted", driftCost=cost, conditions=[said]
        )
        (record,) = await opened.drifts("acme")
        assert record.fields[0].live == "kubectl-edit changed image."
        assert record.cost is not None
        assert (record.cost.kind, record.cost.pods) == (CostKind.GAP, 2)
        assert (record.cost.cold_start, record.cost.devices[0].free) == (41.5, 0)
        healed = said | {"status": "False", "reason": "Healed"}
        write_service_status(kubeconfig, namespace, "chat", conditions=[healed])
        assert list(await opened.drifts("acme")) == []
        (closed,) = await opened.drifts("acme", include_resolved=True)
        assert closed.resolution == "healed"

    played(namespace, story)


def test_what_the_operator_could_not_write_is_not_called_synced(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared())
        at = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        denied = {"type": "UpToDate", "status": "False", "reason": "WriteRefused"} | at
        none = {"type": "DriftDetected", "status": "False", "reason": "None", "message": ""} | at
        denied["message"] = "A quota does not allow it."
        write_service_status(kubeconfig, namespace, "chat", conditions=[none, denied])
        (record,) = await opened.drifts("acme")
        assert record.fields[0].live == "A quota does not allow it."

    played(namespace, story)


def test_a_suspension_is_in_the_status_with_its_reason_and_its_end(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        live = await ensured(opened, declared())
        assert live.status.suspended == ""
        said = {"type": "Suspended", "status": "True", "reason": "Suspended"}
        said |= {"message": "Until noon: INC-1432", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        write_service_status(kubeconfig, namespace, "chat", conditions=[said])
        (live,) = await opened.list("acme")
        assert live.status.suspended == "Until noon: INC-1432"
        ended = said | {"status": "False", "reason": "Ended"}
        write_service_status(kubeconfig, namespace, "chat", conditions=[ended])
        (live,) = await opened.list("acme")
        assert live.status.suspended == ""

    played(namespace, story)


def test_progress_follows_what_the_operator_reports_up_to_ready(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared(replicas=2))
        async with aclosing(opened.progress(CHAT)) as updates:  # type: ignore[type-var]
            first = await anext(updates)
            assert (first.phase, first.message) == (
                Phase.SCHEDULING,
                "No operator has taken it up yet.",
            )
            common: dict[str, Any] = {"observedGeneration": 1, "replicas": 2}
            write_service_status(
                kubeconfig, namespace, "chat", **common, message="0 of 2", readyReplicas=0
            )
            assert (await anext(updates)).phase is Phase.BOOTSTRAPPING
            write_service_status(
                kubeconfig,
                namespace,
                "chat",
                **common,
                message="serving",
                readyReplicas=2,
                ready=True,
            )
            assert (await anext(updates)).phase is Phase.READY
            with pytest.raises(StopAsyncIteration):
                await anext(updates)
        live = await opened.observe(CHAT)
        assert isinstance(live, Live)
        assert (live.status.ready, live.status.wanted) == (2, 2)
        edit(kubeconfig, namespace, "chat", {"spec": {"replicas": 3}})
        behind = await opened.observe(CHAT)
        assert isinstance(behind, Live)
        assert behind.status.phase is Phase.SCHEDULING

    played(namespace, story)


def test_a_spec_that_the_operator_refuses_ends_the_wait(
    kubeconfig: Cluster, namespace: str
) -> None:
    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared())
        refused = {"type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "bad"}
        refused["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        write_service_status(
            kubeconfig, namespace, "chat", observedGeneration=1, message="bad", conditions=[refused]
        )
        seen = [progress async for progress in opened.progress(CHAT)]
        assert [(each.phase, each.message) for each in seen] == [(Phase.ERROR, "bad")]

    played(namespace, story)


def test_a_watch_tells_which_workloads_changed(kubeconfig: Cluster, namespace: str) -> None:
    async def story(opened: KubernetesTarget) -> None:
        async with aclosing(opened.watch_workloads("acme")) as changed:
            assert await anext(changed) is None
            await ensured(opened, declared(project="other", slug="theirs"))
            await ensured(opened, declared())
            assert await anext(changed) == CHAT

    played(namespace, story)


def test_one_object_that_nobody_can_read_hides_no_other(
    kubeconfig: Cluster, namespace: str
) -> None:
    """What a schema lets pass, a workload may refuse: here, something that looks like a token."""
    poison = {"modelRef": "m", "env": {"HINT": "ghp_" + "a1B2" * 9}}
    create_inference_service(kubeconfig, namespace, "poison", poison, project="acme")

    async def story(opened: KubernetesTarget) -> None:
        await ensured(opened, declared())
        chat, bad = await opened.list("acme")
        assert (chat.id.slug, bad.id.slug) == ("chat", "poison")
        assert bad.status.phase is Phase.ERROR
        assert "cannot be read" in bad.status.message
        with pytest.raises(ValidationError, match="cannot be read"):
            await opened.observe(bad.id)
        assert list(await opened.drifts("acme")) == []

    played(namespace, story)


def test_a_writer_without_the_right_to_leave_events_may_still_write(
    kubeconfig: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Event tells of the write; it is no part of it."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "writer", "namespace": namespace},
        "rules": [
            {"apiGroups": ["holdfast.dev"], "resources": ["inferenceservices"], "verbs": ["*"]}
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "writer", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
        "subjects": [{"kind": "User", "name": "kim", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    kubeconfig.apply(role, binding)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig.kubeconfig_for("kim")))

    async def story(opened: KubernetesTarget) -> None:
        live = await ensured(opened, declared())
        assert await opened.observe(CHAT) == live
        with pytest.raises(HoldfastError, match="events"):
            await opened.history("acme")
        async with target("default") as elsewhere:
            with pytest.raises(HoldfastError, match=r"(?i)forbidden"):
                await elsewhere.list("acme")

    played(namespace, story)


async def nothing_installed(request: web.Request) -> web.StreamResponse:
    return web.Response(status=404, text="404 page not found")


def test_a_cluster_without_the_definition_says_how_to_install_it() -> None:
    async def story() -> None:
        async with serving(nothing_installed) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            for asked in (opened.observe(CHAT), opened.list("acme"), opened.history("acme")):
                with pytest.raises(KindNotServed) as refused:
                    await asked
                assert "holdfast install --export | kubectl apply -f -" in str(refused.value)

    asyncio.run(story())


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError


def test_a_deadline_holds_over_everything_that_a_call_asks() -> None:
    async def story() -> None:
        async with serving(never) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            hasty = opened.within(0.2)
            with pytest.raises(TargetUnavailable, match="did not answer in time"):
                await hasty.observe(CHAT)
            with pytest.raises(TargetUnavailable):
                await anext(aiter(hasty.progress(CHAT)))
            (step,) = make_plan([find_drift(desired=declared(), live=Absent(id=CHAT))]).steps
            assert await hasty.cost(step) is None

    asyncio.run(story())


PODS = {"kind": "PodList", "metadata": {"resourceVersion": "1"}}
SERVICE = {
    "apiVersion": "holdfast.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {
        "name": "chat",
        "namespace": "shop",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 1,
        "labels": {"holdfast.dev/project": "acme"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {"modelRef": "m"},
}
LOGS = {
    "chat-0": ["2026-01-01T00:00:01.5Z one", "2026-01-01T00:00:03Z three"],
    "chat-1": ["2026-01-01T00:00:01.55Z two", "2026-01-01T00:00:04Z four"],
}


async def kubelet(request: web.Request) -> web.StreamResponse:
    """As much of an API server as logs need: three pods, of which one has not begun."""
    where = request.path
    if where in ("/apis/holdfast.dev/v1alpha1", "/api/v1"):
        kind, plural = (
            ("Pod", "pods") if where == "/api/v1" else (SERVICE["kind"], "inferenceservices")
        )
        return web.json_response(
            {"resources": [{"name": plural, "kind": kind, "namespaced": True, "verbs": []}]}
        )
    if where.endswith("/inferenceservices/chat"):
        return web.json_response(SERVICE)
    if where.endswith("/pods"):
        assert request.query["labelSelector"] == "holdfast.dev/workload=chat"
        containers = [{"name": "main"}, {"name": "injected"}]
        names = [*LOGS, "chat-2"]
        items = [{"metadata": {"name": name}, "spec": {"containers": containers}} for name in names]
        return web.json_response(PODS | {"items": items})
    found = re.fullmatch(r".*/pods/(.*)/log", where)
    assert found and request.query["container"] == "main"
    if found[1] not in LOGS:
        return web.json_response(
            {
                "kind": "Status",
                "code": 400,
                "reason": "BadRequest",
                "message": "is waiting to start",
            },
            status=400,
        )
    lines = LOGS[found[1]]
    if request.query.get("follow") == "true":
        response = web.StreamResponse()
        await response.prepare(request)
        more = [f"2026-01-01T00:01:0{place}Z more {found[1]}" for place in range(2)]
        for line in [lines[-1], *more]:
            await response.write(f"{line}\n".encode())
        await asyncio.sleep(3600)
    tail = int(request.query["tailLines"])
    return web.Response(text="".join(f"{line}\n" for line in lines[-tail:] if tail))


def test_logs_of_several_pods_come_in_the_order_of_their_times_with_the_pods_name() -> None:
    async def story() -> None:
        async with serving(kubelet) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            lines = [line async for line in opened.logs(CHAT, tail=10, follow=False)]
            assert lines == ["chat-0: one", "chat-1: two", "chat-0: three", "chat-1: four"]
            last = [line async for line in opened.logs(CHAT, tail=1, follow=False)]
            assert last == ["chat-1: four"]

    asyncio.run(story())


def test_logs_that_are_followed_go_on_without_repeating_a_line() -> None:
    async def story() -> None:
        async with serving(kubelet) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            async with aclosing(opened.logs(CHAT, tail=1, follow=True)) as lines:  # type: ignore[type-var]
                seen = [await anext(lines) for _ in range(5)]
            assert seen[0] == "chat-1: four"
            assert sorted(seen[1:]) == sorted(
                f"{pod}: more {pod}" for pod in LOGS for _ in range(2)
            )

    asyncio.run(story())


def drifted_service(name: str, **spec: Any) -> dict[str, Any]:
    """A service that was declared with one model and is written with another."""
    fields = declared(name, replicas=2).fields
    metadata = {
        **SERVICE["metadata"],
        "name": name,
        "uid": f"uid-{name}",
        "annotations": {"holdfast.dev/declared": json.dumps(fields)},
    }
    written = {"modelRef": "other", "backend": "vllm", "replicas": 2, **spec}
    return {**SERVICE, "metadata": metadata, "spec": written}


def ready_pod(workload: str, seconds: int) -> dict[str, Any]:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    ready = {"type": "Ready", "status": "True",
             "lastTransitionTime": (created + timedelta(seconds=seconds)).isoformat()}  # fmt: skip
    labels = {"holdfast.dev/workload": workload}
    return {
        "metadata": {"name": workload, "labels": labels, "creationTimestamp": created.isoformat()},
        "status": {"conditions": [ready]},
    }


def api_server(
    services: list[dict[str, Any]], pods: list[dict[str, Any]], asked: list[str]
) -> Answer:
    """As much of an API server as a list of drifts needs; notes each list that it gives."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path in ("/apis/holdfast.dev/v1alpha1", "/api/v1"):
            names = {"Pod": "pods", "Node": "nodes", "InferenceService": "inferenceservices"}
            rows = [
                {"name": plural, "kind": kind, "namespaced": kind != "Node", "verbs": []}
                for kind, plural in names.items()
            ]
            return web.json_response({"resources": rows})
        what = request.path.rsplit("/", 1)[-1]
        asked.append(what)
        items = {"inferenceservices": services, "pods": pods}.get(what, [])
        return web.json_response(PODS | {"items": items})

    return answer


def test_what_drifts_cost_is_asked_once_however_many_there_are() -> None:
    asked: list[str] = []
    gpu = {"resources": {"gpu": 1}}
    services = [drifted_service(f"bot-{number}", **gpu) for number in range(30)]
    pods = [ready_pod("bot-3", 41), ready_pod("bot-4", 7), ready_pod("elsewhere", 1)]

    async def story() -> None:
        async with serving(api_server(services, pods, asked)) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            costs = {each.workload.slug: each.cost for each in await opened.drifts("acme")}
            assert len(costs) == 30
            for slug, cost in costs.items():
                assert cost is not None
                assert (cost.kind, cost.pods) == (CostKind.ROLLING, 2)
                assert cost.cold_start == {"bot-3": 41.0, "bot-4": 7.0}.get(slug)

    asyncio.run(story())
    assert sorted(asked) == ["inferenceservices", "nodes", "pods", "pods"]


def test_a_drift_costs_what_writing_the_declaration_would_do_to_pods() -> None:
    spoilt = drifted_service("spoilt")
    spoilt["metadata"]["annotations"]["holdfast.dev/declared"] = '{"replicas": "many"}'
    services = [
        drifted_service("fewer", modelRef="m", replicas=5),
        drifted_service("other"),
        spoilt,
    ]
    asked: list[str] = []

    async def story() -> None:
        async with serving(api_server(services, [], asked)) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            costs = {each.workload.slug: each.cost for each in await opened.drifts("acme")}
        assert costs == {
            "fewer": Cost(kind=CostKind.NONE, added=-3),
            "other": Cost(kind=CostKind.ROLLING, pods=2),
            "spoilt": None,
        }

    asyncio.run(story())


def test_a_cost_that_is_not_known_in_time_keeps_no_drift_from_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.adapters.kubernetes.target.COST_SECONDS", 0.0)

    async def story() -> None:
        answer = api_server([drifted_service("chat")], [], [])
        async with serving(answer) as url, api_for(url) as api:
            opened = KubernetesTarget(api, writer=OURS, clock=SystemClock(), namespace="shop")
            (drift,) = await opened.drifts("acme")
            assert (drift.workload.slug, drift.cost) == ("chat", None)

    asyncio.run(story())
