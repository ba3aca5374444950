"""What a heal leaves behind on a real cluster: the declaration, and what others may keep."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.edits import DEPLOYMENT, SECRET, SERVICE, with_change
from tests.support.ownership import MANAGER, ResourceBench, apply, field_managers, run_on_cluster

from holdfast.core.errors import ValidationError
from holdfast.core.ownership.delegated import REPLICA_SEED_MANAGER, OwnershipContext
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import AppliedRecord, Declaration
from holdfast.core.tree import show_path
from holdfast.reconcile.kube import ConflictReason, KubeConflict, ref_of

pytestmark = pytest.mark.cluster
OURS = (MANAGER, "Apply")


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def pod(live: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = live["spec"]["template"]["spec"]
    return found


def server(live: dict[str, Any]) -> dict[str, Any]:
    return next(item for item in pod(live)["containers"] if item["name"] == "server")


def containers(live: dict[str, Any]) -> list[str]:
    return [item["name"] for item in pod(live)["containers"]]


def variables(live: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in server(live)["env"]}


def without_replicas(item: dict[str, Any]) -> None:
    del item["spec"]["replicas"]


async def assert_in_sync(bench: ResourceBench, declared: Declaration) -> None:
    found = await bench.diff(declared)
    assert found.state is ObjectState.IN_SYNC, found.field_drifts


def test_a_variable_and_a_container_added_by_hand_go(cluster: Cluster, namespace: str) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(declared)
        bench.kubectl("set", "env", "deployment/bot", "A=9", "NEW=1")
        more = {"containers": [{"name": "miner", "image": "registry.example/m:1"}]}
        bench.patch("deployment", "strategic", {"spec": {"template": {"spec": more}}})
        healed = await bench.heal(declared)
        assert variables(healed) == {"A": "1", "B": "2"}
        assert containers(healed) == ["server"]
        assert field_managers(healed) == {OURS}
        await assert_in_sync(bench, declared)

    run_on_cluster(cluster, namespace, story)


def test_a_renamed_container_comes_back_alone(cluster: Cluster, namespace: str) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(declared)
        path = "/spec/template/spec/containers/0/name"
        bench.patch("deployment", "json", [{"op": "replace", "path": path, "value": "other"}])
        healed = await bench.heal(declared)
        assert containers(healed) == ["server"]
        await assert_in_sync(bench, declared)

    run_on_cluster(cluster, namespace, story)


def test_a_port_that_was_moved_under_its_name_is_moved_back(
    cluster: Cluster, namespace: str
) -> None:
    """A plain apply is refused: the name would stand for two ports."""

    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(SERVICE)
        made: Any = (await bench.resource_manager.create(declared)).live
        bench.patch(
            "service", "json", [{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]
        )
        live = await bench.live(declared)
        with pytest.raises(ValidationError):
            await bench.client.apply(declared.item, manager=MANAGER, force=True)
        found = await bench.resource_manager.diff(declared, live)
        healed: Any = (await bench.resource_manager.heal(declared, live, found)).live
        assert [port["port"] for port in healed["spec"]["ports"]] == [80]
        assert healed["spec"]["clusterIP"] == made["spec"]["clusterIP"]
        await assert_in_sync(bench, declared)

    run_on_cluster(cluster, namespace, story)


def test_a_volume_source_and_a_strategy_of_others_make_way(
    cluster: Cluster, namespace: str
) -> None:
    """Old and new exclude each other, so that a plain apply is refused."""

    async def story(bench: ResourceBench) -> None:
        item = copy.deepcopy(DEPLOYMENT)
        item["spec"]["strategy"] = {"type": "Recreate"}
        declared = bench.declared(item)
        await bench.resource_manager.create(declared)
        swapped = {"name": "models", "hostPath": {"path": "/"}}
        bench.patch(
            "deployment",
            "json",
            [{"op": "replace", "path": "/spec/template/spec/volumes/0", "value": swapped}],
        )
        healed = await bench.heal(declared)
        assert pod(healed)["volumes"] == [{"name": "models", "emptyDir": {}}]
        bench.patch("deployment", "merge", {"spec": {"strategy": {"type": "RollingUpdate"}}})
        healed = await bench.heal(declared)
        assert healed["spec"]["strategy"] == {"type": "Recreate"}
        await assert_in_sync(bench, declared)

    run_on_cluster(cluster, namespace, story)


def test_a_wiped_record_is_restored_and_pruning_works_again(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        item = copy.deepcopy(DEPLOYMENT)
        pod(item)["containers"].append({"name": "extra", "image": "registry.example/x:1"})
        declared = bench.declared(item)
        await bench.resource_manager.create(declared)
        bench.patch("deployment", "merge", {"metadata": {"managedFields": [{}]}})
        bench.kubectl("set", "env", "deployment/bot", "-c", "server", "A=9", "NEW=1")
        assert (await bench.diff(declared)).state is ObjectState.WIPED
        healed = await bench.heal(declared)
        assert variables(healed)["A"] == "1"
        found = await bench.diff(declared)
        assert found.state is ObjectState.DRIFTED  # the record was lost, so who added it is unknown
        healed = await bench.heal(declared)
        assert variables(healed) == {"A": "1", "B": "2"}
        await assert_in_sync(bench, declared)
        shorter = bench.declared(DEPLOYMENT)
        healed = await bench.heal(shorter)
        assert containers(healed) == ["server"]
        await assert_in_sync(bench, shorter)

    run_on_cluster(cluster, namespace, story)


def test_what_a_controller_added_and_what_a_trusted_one_added_stays(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(declared)
        bench.kubectl("label", "deployment", "bot", "seen=yes", "--field-manager=backup-operator")
        more = {"containers": [{"name": "logs", "image": "registry.example/l:1"}]}
        patch = {"spec": {"template": {"spec": more}}}
        bench.patch("deployment", "strategic", patch, "--field-manager=log-injector")
        bench.kubectl("set", "env", "deployment/bot", "-c", "server", "NEW=1")
        context = OwnershipContext(trusted=frozenset({"log-injector"}))
        healed = await bench.heal(declared, context=context)
        assert variables(healed) == {"A": "1", "B": "2"}
        assert sorted(containers(healed)) == ["logs", "server"]
        assert healed["metadata"]["labels"]["seen"] == "yes"

    run_on_cluster(cluster, namespace, story)


def test_replicas_are_handed_to_an_autoscaler_and_back_without_a_drop(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(declared)
        handed = bench.declared(with_change(DEPLOYMENT, without_replicas))
        healed = await bench.heal(handed)
        assert healed["spec"]["replicas"] == 2
        assert field_managers(healed) == {OURS, (REPLICA_SEED_MANAGER, "Apply")}
        await assert_in_sync(bench, handed)
        bench.kubectl("autoscale", "deployment", "bot", "--min=3", "--max=5", "--cpu=50%")
        cluster.wait("deployment", "bot", namespace, lambda live: live["spec"]["replicas"] == 3)
        assert (await bench.heal(handed))["spec"]["replicas"] == 3
        assert ("kube-controller-manager", "Update") in field_managers(await bench.live(handed))
        bench.kubectl("delete", "hpa", "bot")
        healed = await bench.heal(declared, context=OwnershipContext(autoscaler=""))
        assert healed["spec"]["replicas"] == 2
        assert field_managers(healed) == {OURS}

    run_on_cluster(cluster, namespace, story)


def test_declared_replicas_are_not_fought_over_with_an_autoscaler(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(declared)
        bench.kubectl("autoscale", "deployment", "bot", "--min=3", "--max=5", "--cpu=50%")
        cluster.wait("deployment", "bot", namespace, lambda live: live["spec"]["replicas"] == 3)
        bench.kubectl("set", "env", "deployment/bot", "A=9")
        healed = await bench.heal(declared)
        assert variables(healed)["A"] == "1"
        assert healed["spec"]["replicas"] == 3

    run_on_cluster(cluster, namespace, story)


def test_an_object_that_is_gone_or_another_one_is_not_written(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(SERVICE)
        first: Any = (await bench.resource_manager.create(declared)).live
        bench.kubectl("set", "selector", "service", "bot", "app=other")
        live = await bench.live(declared)
        found = await bench.resource_manager.diff(declared, live)
        bench.kubectl("delete", "service", "bot")
        with pytest.raises(KubeConflict) as gone:
            await bench.resource_manager.heal(declared, live, found)
        assert gone.value.reason is ConflictReason.REPLACED
        assert await bench.client.get(ref_of(declared.item)) is None
        bench.kubectl("create", "service", "clusterip", "bot", "--tcp=90")
        with pytest.raises(KubeConflict):
            await bench.resource_manager.heal(declared, live, found)
        known = bench.declared(SERVICE, uid=first["metadata"]["uid"])
        with pytest.raises(KubeConflict) as replaced:
            await bench.resource_manager.heal(known, await bench.live(declared), found)
        assert replaced.value.reason is ConflictReason.REPLACED
        assert (await bench.live(declared))["spec"]["ports"][0]["port"] == 90

    run_on_cluster(cluster, namespace, story)


def test_an_object_that_moved_since_it_was_seen_is_not_written(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(SERVICE)
        await bench.resource_manager.create(declared)
        bench.patch(
            "service", "json", [{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]
        )
        live = await bench.live(declared)
        found = await bench.resource_manager.diff(declared, live)
        bench.kubectl("label", "service", "bot", "team=search")
        with pytest.raises(KubeConflict) as moved:
            await bench.resource_manager.heal(declared, live, found)
        assert moved.value.reason is ConflictReason.CHANGED
        assert (await bench.live(declared))["spec"]["ports"][0]["port"] == 81

    run_on_cluster(cluster, namespace, story)


def test_an_object_on_its_way_out_is_left_alone(cluster: Cluster, namespace: str) -> None:
    async def story(bench: ResourceBench) -> None:
        item = with_change(
            SERVICE, lambda it: it["metadata"].update(finalizers=["holdfast.dev/test"])
        )
        declared = bench.declared(item)
        await bench.resource_manager.create(declared)
        bench.kubectl("set", "selector", "service", "bot", "app=other")
        bench.kubectl("delete", "service", "bot", "--wait=false")
        before = await bench.live(declared)
        assert await bench.heal(declared) == before
        assert await bench.resource_manager.seed_replicas(before) == before
        assert await bench.live(declared) == before
        bench.patch("service", "merge", {"metadata": {"finalizers": None}})

    run_on_cluster(cluster, namespace, story)


def test_drift_that_is_left_alone_stays_while_a_declared_change_lands(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        first = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(first)
        bench.kubectl("set", "env", "deployment/bot", "A=9", "B-")

        def longer(item: dict[str, Any]) -> None:
            pod(item)["terminationGracePeriodSeconds"] = 77

        declared = bench.declared(with_change(DEPLOYMENT, longer), previous=first.item)
        found = await bench.diff(declared)
        leave = frozenset(item.change.path for item in found.drifted)
        healed = await bench.heal(declared, leave=leave)
        assert pod(healed)["terminationGracePeriodSeconds"] == 77
        assert variables(healed) == {"A": "9"}
        after = await bench.diff(declared)
        assert {item.change.path for item in after.drifted} == leave
        healed = await bench.heal(declared)
        assert variables(healed) == {"A": "1", "B": "2"}

    run_on_cluster(cluster, namespace, story)


@pytest.mark.parametrize("lands", [False, True])
def test_an_ignored_field_keeps_its_value_and_a_declared_change_lands_if_the_rule_says_so(
    cluster: Cluster, namespace: str, lands: bool
) -> None:
    async def story(bench: ResourceBench) -> None:
        first = bench.declared(DEPLOYMENT)
        await bench.resource_manager.create(first)
        bench.kubectl("set", "env", "deployment/bot", "A=9")
        bench.kubectl("set", "image", "deployment/bot", "server=registry.example/vllm:v2")
        rules = [IgnoreRule(name="r", owner="ana", glob="spec.**.env[name=*]", lands=lands)]
        healed = await bench.heal(first, ignore=rules)
        assert variables(healed) == {"A": "9", "B": "2"}
        assert server(healed)["image"] == "registry.example/vllm:v1"

        def renew(item: dict[str, Any]) -> None:
            server(item)["env"] = [{"name": "A", "value": "3"}, {"name": "B", "value": "4"}]
            server(item)["image"] = "registry.example/vllm:v3"

        renewed = bench.declared(with_change(DEPLOYMENT, renew), previous=first.item)
        healed = await bench.heal(renewed, ignore=rules)
        assert server(healed)["image"] == "registry.example/vllm:v3"
        assert variables(healed) == ({"A": "3", "B": "4"} if lands else {"A": "9", "B": "2"})

    run_on_cluster(cluster, namespace, story)


def test_a_value_added_to_a_secret_goes_and_the_rest_is_put_back(
    cluster: Cluster, namespace: str
) -> None:
    async def story(bench: ResourceBench) -> None:
        declared = bench.declared(SECRET)
        before: Any = (await bench.resource_manager.create(declared)).live
        bench.patch("secret", "merge", {"stringData": {"token": "hunter2-next", "more": "x"}})
        healed = await bench.heal(declared)
        assert healed["data"] == before["data"]

    run_on_cluster(cluster, namespace, story)


def test_an_account_that_may_only_read_gets_a_verdict(cluster: Cluster, namespace: str) -> None:
    """Values that differ are drift; a doubt that only a dry run could settle is none."""

    async def prepare(bench: ResourceBench) -> None:
        await bench.resource_manager.create(bench.declared(DEPLOYMENT))
        for version in ("v2", "v1"):
            image = f"server=registry.example/vllm:{version}"
            bench.kubectl("set", "image", "deployment/bot", image)
        bench.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--user=reader")

    async def story(bench: ResourceBench) -> None:
        assert (await bench.diff(bench.declared(DEPLOYMENT))).state is ObjectState.IN_SYNC

        def more(item: dict[str, Any]) -> None:
            item["spec"]["replicas"] = 3

        assert (await bench.diff(bench.declared(with_change(DEPLOYMENT, more)))).differing

    run_on_cluster(cluster, namespace, prepare)
    run_on_cluster(cluster, namespace, story, kubeconfig=cluster.kubeconfig_for("reader"))


@pytest.mark.parametrize("item", [DEPLOYMENT, SERVICE, SECRET], ids=lambda item: item["kind"])
def test_what_the_server_stored_is_as_recorded_when_the_declaration_changes(
    cluster: Cluster, namespace: str, item: dict[str, Any]
) -> None:
    """Defaults and spellings of the server are no edit: only what was declared anew differs."""

    async def story(bench: ResourceBench) -> None:
        first = bench.declared(item)
        written = await bench.resource_manager.create(first)
        assert written.altered == ()
        record = AppliedRecord(
            digest=first.digest, values=bench.resource_manager.values(first, written.live)
        )
        labels = {**item["metadata"].get("labels", {}), "tier": "two"}
        anew = {**item, "metadata": {**item["metadata"], "labels": labels}}
        found = await bench.diff(bench.declared(anew, record=record))
        assert found.drifted == ()
        anew_paths = {each.change.path[-1] for each in found.differing if each.pending}
        assert anew_paths - {"holdfast.dev/applied"} == {"tier"}

    run_on_cluster(cluster, namespace, story)


@pytest.mark.parametrize("moved", [False, True], ids=["alone", "beside a commit"])
def test_an_edit_that_is_signed_as_ours_is_drift_and_goes(
    cluster: Cluster, namespace: str, moved: bool
) -> None:
    """`kubectl apply --server-side --force-conflicts` with our name and a made-up digest."""

    async def story(bench: ResourceBench) -> None:
        first = bench.declared(DEPLOYMENT)
        written = await bench.resource_manager.create(first)
        record = AppliedRecord(
            digest=first.digest, values=bench.resource_manager.values(first, written.live)
        )
        forged = copy.deepcopy(first.item)
        metadata: Any = forged["metadata"]
        metadata["annotations"]["holdfast.dev/applied"] = "sha256:made-up"
        evil: Any = forged
        server(evil)["image"] = "registry.example/evil:1"
        pod(evil)["containers"].append({"name": "miner", "image": "registry.example/m:1"})
        apply(cluster, forged, namespace)
        item = with_change(DEPLOYMENT, lambda new: new["spec"].update(minReadySeconds=5))
        declared = bench.declared(item if moved else DEPLOYMENT, record=record)
        found = await bench.diff(declared)
        paths = {show_path(each.change.path) for each in found.drifted}
        assert "spec.template.spec.containers[name=server].image" in paths
        assert "spec.template.spec.containers[name=miner]" in paths
        pending = {show_path(each.change.path) for each in found.differing if each.pending}
        assert ("spec.minReadySeconds" in pending) is moved
        healed = await bench.heal(declared)
        assert server(healed)["image"] == "registry.example/vllm:v1"
        assert containers(healed) == ["server"]

    run_on_cluster(cluster, namespace, story)
