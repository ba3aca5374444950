"""The client against a real API server: verbs, guards, late kinds, watches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from tests.adapters.kubernetes.harness import CONFIG_MAPS, api_for, cluster_config, eventually
from tests.support.cluster import Cluster

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.core.errors import PermissionDenied, ValidationError
from holdfast.reconcile.kube import ConflictReason, KindNotServed, KubeConflict

T = TypeVar("T")


def on(cluster: Cluster, call: Callable[[KubeApi], Awaitable[T]]) -> T:
    async def called() -> T:
        async with api_for(cluster_config(cluster.kubeconfig)) as api:
            return await call(api)

    return asyncio.run(called())


def config_map(namespace: str, name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def guarded(live: dict[str, Any], namespace: str, **data: str) -> dict[str, Any]:
    """The same object to apply, carrying what was seen of it."""
    wanted = config_map(namespace, **data)
    for field in ("uid", "resourceVersion"):
        wanted["metadata"][field] = live["metadata"][field]
    return wanted


def test_an_applied_object_is_there_under_our_manager(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        await api.apply(config_map(namespace, text="x"))
        found = await api.get(CONFIG_MAPS.ref("a", namespace))
        assert found["data"] == {"text": "x"}
        (entry,) = found["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("us", "Apply")

    on(cluster, story)


def test_a_dry_run_changes_nothing(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        answered = await api.apply(config_map(namespace, text="x"), dry_run=True)
        assert answered["data"] == {"text": "x"}
        assert await api.get(CONFIG_MAPS.ref("a", namespace)) is None

    on(cluster, story)


def test_another_managers_fields_are_named_and_taken_only_by_force(
    cluster: Cluster, namespace: str
) -> None:
    async def story(api: KubeApi) -> None:
        await api.apply(config_map(namespace, text="theirs"), manager="them")
        with pytest.raises(KubeConflict) as raised:
            await api.apply(config_map(namespace, text="ours"))
        assert raised.value.reason is ConflictReason.OWNED
        assert [(each.path, each.manager) for each in raised.value.owners] == [
            (".data.text", "them")
        ]
        await api.patch(CONFIG_MAPS.ref("a", namespace), {"data": {"b": "1"}}, manager="ed")
        with pytest.raises(KubeConflict) as raised:
            await api.apply(config_map(namespace, b="2"))
        assert [(each.manager, each.api_version) for each in raised.value.owners] == [("ed", "v1")]
        forced = await api.apply(config_map(namespace, text="ours"), force=True)
        assert forced["data"]["text"] == "ours"

    on(cluster, story)


def test_an_apply_guarded_by_uid_and_version_never_brings_an_object_back(
    cluster: Cluster, namespace: str
) -> None:
    async def story(api: KubeApi) -> None:
        live = await api.apply(config_map(namespace, text="x"))
        await api.apply(guarded(live, namespace, text="y"))
        with pytest.raises(KubeConflict) as raised:
            await api.apply(guarded(live, namespace, text="z"))
        assert raised.value.reason is ConflictReason.CHANGED
        await api.delete(CONFIG_MAPS.ref("a", namespace))
        with pytest.raises(KubeConflict) as raised:
            await api.apply(guarded(live, namespace, text="z"))
        assert raised.value.reason is ConflictReason.REPLACED
        assert await api.get(CONFIG_MAPS.ref("a", namespace)) is None
        other = await api.create(config_map(namespace, text="other"))
        wrong = guarded({"metadata": {**other["metadata"], "uid": "gone"}}, namespace, text="z")
        with pytest.raises(KubeConflict) as raised:
            await api.apply(wrong, force=True)
        assert raised.value.reason is ConflictReason.REPLACED

    on(cluster, story)


def test_a_deletion_meets_only_the_object_that_was_seen(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        live = await api.create(config_map(namespace, text="x"))
        uid, version = live["metadata"]["uid"], live["metadata"]["resourceVersion"]
        for guards, reason in (
            ({"uid": "another"}, ConflictReason.REPLACED),
            ({"uid": uid, "version": "1"}, ConflictReason.CHANGED),
        ):
            with pytest.raises(KubeConflict) as raised:
                await api.delete(CONFIG_MAPS.ref("a", namespace), **guards)
            assert raised.value.reason is reason
        assert await api.get(CONFIG_MAPS.ref("a", namespace)) is not None
        assert await api.delete(CONFIG_MAPS.ref("a", namespace), uid=uid, version=version)
        assert not await api.delete(CONFIG_MAPS.ref("a", namespace))

    on(cluster, story)


def test_a_name_that_is_taken_cannot_be_created(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        await api.create(config_map(namespace))
        with pytest.raises(KubeConflict) as raised:
            await api.create(config_map(namespace))
        assert raised.value.reason is ConflictReason.EXISTS

    on(cluster, story)


def test_a_json_patch_whose_test_fails_changes_nothing(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        await api.create(config_map(namespace, text="x"))
        replace = {"op": "replace", "path": "/data/text", "value": "y"}
        unmet = {"op": "test", "path": "/data/text", "value": "other"}
        with pytest.raises(ValidationError):
            await api.patch(CONFIG_MAPS.ref("a", namespace), [unmet, replace])
        met = {"op": "test", "path": "/data/text", "value": "x"}
        found = await api.patch(CONFIG_MAPS.ref("a", namespace), [met, replace])
        assert found["data"] == {"text": "y"}

    on(cluster, story)


def test_an_object_the_schema_does_not_know_is_refused_with_its_field(
    cluster: Cluster, namespace: str
) -> None:
    async def story(api: KubeApi) -> None:
        wrong = {**config_map(namespace), "bogus": 1}
        with pytest.raises(ValidationError, match="bogus"):
            await api.apply(wrong)
        with pytest.raises(ValidationError, match="bogus"):
            await api.create(wrong)
        with pytest.raises(ValidationError) as raised:
            await api.create(config_map(namespace, **{"not a key": "x"}))
        assert any("data[not a key]" in each.field for each in raised.value.problems)

    on(cluster, story)


def test_a_refused_secret_is_not_quoted(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": namespace},
            "stringData": {"not a key": "hunter2-hunter2"},
            "bogus": "hunter2-hunter2",
        }
        for call in (api.apply, api.create):
            with pytest.raises(ValidationError) as raised:
                await call(secret)
            assert "hunter2" not in str(raised.value)

    on(cluster, story)


def test_a_long_list_comes_whole_in_pages(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        for number in range(7):
            await api.create(config_map(namespace, f"m{number}"))
        found = await api.list(CONFIG_MAPS.scope(namespace), page_size=3)
        names = {item["metadata"]["name"] for item in found.items}
        assert {f"m{number}" for number in range(7)} <= names
        assert {item["kind"] for item in found.items} == {"ConfigMap"}
        only = await api.list(CONFIG_MAPS.scope(namespace), fields="metadata.name=m3")
        assert len(only.items) == 1

    on(cluster, story)


def test_scale_and_status_are_reached(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        resource = await api.resource_of("apps/v1", "Deployment")
        assert resource.namespaced and {"scale", "status"} <= resource.subresources
        labels = {"app": "bot"}
        containers = [{"name": "main", "image": "registry.example/x:1"}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        await api.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "bot", "namespace": namespace},
                "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
            }
        )
        scaled = {"spec": {"replicas": 1}}
        await api.patch(resource.ref("bot", namespace), scaled, subresource="scale")
        found = await api.request(
            "GET", resource.path("bot", namespace=namespace, subresource="scale")
        )
        assert found["spec"]["replicas"] == 1

    on(cluster, story)


def test_who_may_not_is_told_so(cluster: Cluster, namespace: str) -> None:
    async def story() -> None:
        async with api_for(cluster_config(cluster.kubeconfig_for("nobody"))) as api:
            with pytest.raises(PermissionDenied):
                await api.list(CONFIG_MAPS.scope(namespace))

    asyncio.run(story())


def test_a_kind_that_appears_later_is_found(cluster: Cluster, namespace: str) -> None:
    group = f"{namespace}.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }

    async def story(api: KubeApi) -> None:
        with pytest.raises(KindNotServed):
            await api.resource_of(f"{group}/v1", "Widget")
        made = await api.create(definition)
        crds = await api.resource_of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        try:
            async with asyncio.timeout(30):
                while True:
                    try:
                        widgets = await api.resource_of(f"{group}/v1", "Widget")
                        await api.list(widgets.scope(namespace))
                        break
                    except KindNotServed:
                        await asyncio.sleep(0.1)
            metadata = {"name": "w", "namespace": namespace}
            widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": metadata}
            await api.apply(widget)
            assert (await api.get(widgets.ref("w", namespace)))["kind"] == "Widget"
        finally:
            name = made["metadata"]["name"]
            await api.delete(crds.ref(name), uid=made["metadata"]["uid"])

    on(cluster, story)


def test_an_informer_follows_the_real_thing(cluster: Cluster, namespace: str) -> None:
    async def story(api: KubeApi) -> None:
        await api.create(config_map(namespace, "first", text="x"))
        informer = Informer(api, ResourceScope(resource=CONFIG_MAPS, namespace=namespace))
        running = asyncio.ensure_future(informer.run())

        def text(name: str) -> str | None:
            found = informer.get(name, namespace)
            return None if found is None else found["data"]["text"]

        try:
            await informer.wait_synced(20)
            assert text("first") == "x"
            await api.create(config_map(namespace, "second", text="y"))
            await eventually(lambda: text("second") == "y", "the new object")
            await api.patch(CONFIG_MAPS.ref("first", namespace), {"data": {"text": "z"}})
            await eventually(lambda: text("first") == "z", "the change")
            await api.delete(CONFIG_MAPS.ref("second", namespace))
            await eventually(lambda: text("second") is None, "the deletion")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    on(cluster, story)
