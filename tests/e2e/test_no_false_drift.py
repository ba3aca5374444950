"""What Git declares and nobody touched is in sync, whatever the cluster makes of it.

Some 230 manifests of all common kinds go through the keeper to a real cluster, whose controllers
then bind, scale, count, aggregate and annotate. And what somebody did touch is found.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.drift_bench import (
    EDITOR,
    DriftBench,
    Edited,
    all_of,
    declared_as_ours,
    drift_bench,
    related,
    told,
)
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import REQUIRED
from tests.support.gateway import GatewayController, gateway_api
from tests.support.go_programs import HELM, NotBuilt
from tests.support.manifests import (
    GATEWAY_TOPIC,
    corpus_items,
    corpus_items_in,
    in_namespace,
    manifests,
)

from holdfast.core.drift import DriftKind
from holdfast.core.ownership.canonical import (
    is_custom,
    leaf_paths,
    path_of_pointer,
    rules_for,
    value_at,
)
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import Declaration
from holdfast.core.tree import Fields, parse_pointer
from holdfast.reconcile.kube import ref_of
from holdfast.wire.yaml import write_document

__all__ = ["gateway_api"]
pytestmark = pytest.mark.cluster

REFUSED_AGAIN = {"Pod mlp-edge/sandboxed"}
"""Admission changed at its creation what nobody may change later, also no apply of the same."""
WRITTEN_ONCE_MORE = {
    "PersistentVolumeClaim", "Gateway", "ValidatingAdmissionPolicy", "FlowSchema",
}  # fmt: skip
"""Kinds whose object the server may write anew at an apply that changes nothing of it.

It stores some once more in the form in which it reads them, and sorts the owners of an object
whose status was applied in the same second.
"""
WRITTEN_EVERY_TIME = {"ServingRuntime mlp-old"}
"""Another version has defaults, which an apply of this one takes out again."""


def test_the_corpus_is_large_and_of_many_kinds() -> None:
    items = corpus_items()
    assert len(items) >= 220
    assert len({item["kind"] for item in items}) >= 60
    assert len({str(ref_of(item)) for item in items}) == len(items)


@pytest.mark.timeout(300)
def test_what_is_applied_and_left_alone_never_drifts_and_what_is_edited_does(
    cluster: Cluster,
) -> None:
    """Right after the apply, after a restart, and when the cluster's controllers are done."""

    async def story() -> None:
        declared = declared_as_ours(corpus_items(without=(GATEWAY_TOPIC,)))
        async with drift_bench(cluster) as bench:
            try:
                at_once = await bench.create(declared)
                assert wrong(at_once) == {}
                bench.restart()
                await assert_in_sync(bench, declared)
                await settled(bench, {str(ref_of(each.item)): each for each in declared})
                bench.restart()
                await assert_in_sync(bench, declared)
                await assert_edits_are_found(bench, declared[::2], at_least=70)
            finally:
                await bench.remove(declared)

    asyncio.run(story())


def test_gateways_and_routes_never_drift(cluster: Cluster, gateway_api: GatewayController) -> None:
    async def story() -> None:
        items = [item for file in manifests() if file.topic == GATEWAY_TOPIC for item in file.items]
        homes = sorted(set(map(home_of, items)))
        made = {home: cluster.create_namespace(home) for home in homes}
        declared = declared_as_ours(in_namespace(item, made[home_of(item)]) for item in items)
        async with drift_bench(cluster) as bench:
            try:
                assert wrong(await bench.create(declared)) == {}
                for each in declared:
                    if each.item["kind"] == "HTTPRoute":
                        ref = ref_of(each.item)
                        gateway_api.accept(ref.namespace, ref.name)
                bench.restart()
                await assert_in_sync(bench, declared)
                await assert_edits_are_found(bench, declared, at_least=5)
            finally:
                for name in made.values():
                    cluster.delete_namespace(name)

    asyncio.run(story())


VERBS = ("apply", "create", "helm")


@pytest.mark.parametrize("verb", VERBS)
def test_what_others_made_is_taken_over_and_nothing_of_it_is_lost(
    cluster: Cluster, namespace: str, tmp_path: Path, verb: str
) -> None:
    items = corpus_items_in(namespace)[VERBS.index(verb) :: len(VERBS)]
    if verb == "helm":
        install(cluster, namespace, items, tmp_path)
    else:
        objects = {"apiVersion": "v1", "kind": "List", "items": items}
        cluster.kubectl(verb, "-n", namespace, "-f", "-", stdin=json.dumps(objects))

    async def story() -> None:
        declared = declared_as_ours(items)
        assert len(declared) >= 40
        async with drift_bench(cluster) as bench:

            async def adopt(each: Declaration) -> tuple[str, set[str]]:
                before, after = await bench.heal(replace(each, applied=False))
                return str(ref_of(each.item)), values(before) - values(after)

            lost = dict(await all_of(adopt, declared))
            assert {name: paths for name, paths in lost.items() if paths} == {}
            bench.restart()
            await assert_in_sync(bench, declared)

    asyncio.run(story())


async def assert_in_sync(bench: DriftBench, declared: list[Declaration]) -> None:
    """No drift, nothing in doubt, and an apply of the same leaves each object as it is."""

    async def compare(each: Declaration) -> tuple[str, ObjectDiff]:
        return str(ref_of(each.item)), await bench.diff(each)

    assert wrong(dict(await all_of(compare, declared))) == {}

    async def heal_again(each: Declaration) -> str | None:
        name = str(ref_of(each.item))
        if name in REFUSED_AGAIN:
            return None
        for _ in range(3):  # a controller may write its status in between, more than once
            before, after = await bench.heal(each)
            assert values(before) == values(after), name
            if version(before) == version(after):
                return None
            reported = before.get("status") != after.get("status")
            if not reported and each.item["kind"] not in WRITTEN_ONCE_MORE:
                break
        return None if name in WRITTEN_EVERY_TIME or has_empty_list(each.item) else name

    assert list(filter(None, await all_of(heal_again, declared))) == []


async def settled(bench: DriftBench, by_name: Mapping[str, Declaration]) -> None:
    """Wait until every controller of the cluster has done to the corpus what it does."""
    done: dict[str, Any] = {
        "Deployment mlp-serving/chat": lambda live: live["spec"]["replicas"] == 3,
        "Deployment mlp-serving/router": lambda live: live["status"].get("readyReplicas") == 3,
        "DaemonSet mlp-batch/gpu-health": lambda live: live["status"]["numberReady"] == 2,
        "Job mlp-batch/shards": lambda live: live["status"].get("active") == 2,
        "Pod mlp-tenant/tolerant": lambda live: live["status"]["phase"] == "Running",
        "PersistentVolumeClaim mlp-serving/llama-weights": bound,
        "PersistentVolumeClaim mlp-serving/shared-weights": bound,
        "PersistentVolume mlp-weights-0": bound,
        "PersistentVolumeClaim mlp-batch/scratch": bound,
        "Secret mlp-serving/puller-token": lambda live: "token" in live.get("data", {}),
        "ClusterRole mlp-admin": lambda live: live["rules"],
        "ClusterRole mlp-support": lambda live: live["rules"],
        "ResourceQuota mlp-tenant/compute": lambda live: live["status"]["used"]["pods"] == "3",
        "HorizontalPodAutoscaler mlp-edge/proxy": lambda live: live["status"].get("conditions"),
        "PodDisruptionBudget mlp-serving/chat": lambda live: live["status"]["expectedPods"],
        "ValidatingAdmissionPolicy mlp-names": lambda live: "typeChecking" in live["status"],
        "APIService v1.traps.mlp.example": lambda live: live["status"].get("conditions"),
        "Namespace mlp-lab": lambda live: live["status"]["phase"] == "Active",
    }
    await asyncio.gather(
        *(bench.until(by_name[name], holds, "to settle") for name, holds in done.items())
    )


def bound(live: dict[str, Any]) -> bool:
    return bool(live["status"]["phase"] == "Bound")


async def assert_edits_are_found(
    bench: DriftBench, declared: list[Declaration], *, at_least: int
) -> None:
    """Each edit is told with its place, its kind and its writer."""

    async def one(each: Declaration) -> tuple[Edited, ObjectDiff, Fields] | None:
        edited = await bench.edit(each)
        if edited is None:
            return None
        live = await bench.live(each)
        return edited, await bench.resource_manager.diff(each, live), live

    # An edited definition may end its kind.
    last = [each for each in declared if each.item["kind"] == "CustomResourceDefinition"]
    rest = [each for each in declared if each not in last]
    seen = list(filter(None, [*await all_of(one, rest), *await all_of(one, last)]))
    assert len(seen) >= at_least
    missed = {
        f"{ref_of(edited.declared.item)} {edited.pointed}": told(verdict.field_drifts)
        for edited, verdict, live in seen
        if not is_told(edited, verdict, live)
    }
    assert missed == {}


def is_told(edited: Edited, verdict: ObjectDiff, live: Fields) -> bool:
    item = edited.declared.item
    kind, version = str(item["kind"]), str(item["apiVersion"])
    metadata: Any = live["metadata"]
    rules = rules_for(kind, version, read_ownership(metadata["managedFields"]))
    path = path_of_pointer(live, parse_pointer(edited.pointed), rules)
    for found in verdict.drifted:
        if not related(found.change.path, path) or found.writer is None:
            continue
        expected = DriftKind.CONFIGURATION
        if kind == "Secret" and path[0] == "data":
            expected = DriftKind.SECRET
        elif found.change.path[-1] == "image":
            expected = DriftKind.IMAGE
        if found.kind is expected and found.writer.manager == EDITOR:
            return verdict.state is ObjectState.DRIFTED
    return False


def wrong(verdicts: Mapping[str, ObjectDiff]) -> dict[str, list[str]]:
    """What is said of objects that should be in sync."""
    return {
        name: [str(found.state), *told(found.field_drifts)]
        for name, found in verdicts.items()
        if found.state is not ObjectState.IN_SYNC
        or any(each.field_class is FieldClass.OWNED for each in found.field_drifts)
    }


def values(live: Fields) -> set[str]:
    """Every value of an object that is not the server's bookkeeping."""
    kept: dict[str, Any] = copy.deepcopy({k: v for k, v in live.items() if k != "status"})
    for name in ("managedFields", "resourceVersion", "generation"):
        kept["metadata"].pop(name, None)
    notes = kept["metadata"].get("annotations", {})
    for name in ("holdfast.dev/applied", "deployment.kubernetes.io/revision"):
        notes.pop(name, None)
    found = set()
    for path in leaf_paths(kept):
        value: Any = kept
        for step in path:
            value = value[step]
        found.add(f"{path}={json.dumps(value, sort_keys=True)}")
    return found


def version(live: dict[str, Any]) -> str:
    found: str = live["metadata"]["resourceVersion"]
    return found


def has_empty_list(item: Fields) -> bool:
    """True for an object of a built-in kind that the server writes anew at every apply.

    It takes an empty list, which it does not store, for another value than none.
    """

    def inside(tree: object) -> bool:
        if isinstance(tree, dict):
            return any(map(inside, tree.values()))
        return isinstance(tree, list) and (not tree or any(map(inside, tree)))

    return not is_custom(str(item["apiVersion"])) and inside(item)


def home_of(item: Fields) -> str:
    return str(value_at(item, ("metadata", "namespace")))


def install(cluster: Cluster, namespace: str, items: list[Fields], directory: Path) -> None:
    try:
        program = HELM.find()
    except NotBuilt as missing:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    templates = directory / "chart" / "templates"
    templates.mkdir(parents=True)
    (directory / "chart" / "Chart.yaml").write_text(
        "apiVersion: v2\nname: corpus\nversion: 1.0.0\n"
    )
    for index, item in enumerate(items):
        text = write_document(item).replace("{{", '{{ "{{" }}')
        (templates / f"{index}.yaml").write_text(text)
    ran = subprocess.run(
        [program, "install", "corpus", str(directory / "chart"), "-n", namespace],
        env=cluster.kubectl_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
