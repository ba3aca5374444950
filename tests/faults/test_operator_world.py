"""What else a cluster does to an operator: admission, foreign hands, poison, kinds that vanish."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.kube_faults import KubeFaults, faults_before
from tests.faults.operator_story import CREATE, STORY, Stage, history
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH, ApiRequestFailed
from tests.support.controllers import (
    SERVICES,
    condition,
    install_service_crd,
    running_operator,
)
from tests.support.processes import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
OPTIONS = ("--resync", "3s", "--no-leader-election")


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    install_service_crd(cluster)


@pytest.fixture
def operated(kube: KubeFaults, cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    with running_operator(cluster, namespace, tmp_path, *OPTIONS, kubeconfig=kube.kubeconfig):
        yield Stage(cluster, namespace)


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def policy(kind: str, namespace: str, rules: list[Any], spec: dict[str, Any]) -> list[Any]:
    """An admission policy for one namespace, and its binding."""
    match = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceRules": rules,
    }
    group = "admissionregistration.k8s.io/v1"
    actions = {"validationActions": ["Deny"]} if kind.startswith("Validating") else {}
    return [
        {
            "apiVersion": group,
            "kind": kind,
            "metadata": {"name": namespace},
            "spec": {"failurePolicy": "Fail", "matchConstraints": match, **spec},
        },
        {
            "apiVersion": group,
            "kind": f"{kind}Binding",
            "metadata": {"name": namespace},
            "spec": {"policyName": namespace, **actions},
        },
    ]


def rule(group: str, resource: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": [resource],
    }


def drop(cluster: Cluster, documents: list[Any]) -> None:
    for each in documents:
        name = each["metadata"]["name"]
        cluster.kubectl("delete", each["kind"], name, "--ignore-not-found")


def refused(stage: Stage, path: str, item: dict[str, Any]) -> bool:
    """Whether admission refuses an object now; it takes a while to hear of a policy."""
    try:
        stage.api.request("POST", f"{path % stage.namespace}?dryRun=All", item)
    except ApiRequestFailed:
        return True
    return False


PROBE = {"metadata": {"name": "probe-svc"}, "spec": {"ports": [{"port": 1}]}}
SERVICE_PATH = "/api/v1/namespaces/%s/services"


def test_one_child_that_admission_refuses_is_told_and_the_rest_is_made(
    operated: Stage, cluster: Cluster, kube: KubeFaults
) -> None:
    documents = policy(
        "ValidatingAdmissionPolicy",
        operated.namespace,
        [rule("", "services", "CREATE")],
        {
            "validations": [
                {"expression": "!object.metadata.name.endsWith('-svc')", "message": "no fronts"}
            ]
        },
    )
    cluster.apply(*documents)
    try:
        operated.wait(lambda: refused(operated, SERVICE_PATH, PROBE), "the policy")
        operated.create("bot", {"replicas": 1})
        operated.wait(lambda: "no fronts" in json.dumps(operated.status("bot")), "the reason")
        operated.wait(lambda: len(operated.children()) == 3, "the other children")
        assert not operated.status("bot").get("ready")
        before = len(kube.calls)
        wait_until(lambda: len(kube.calls) > before, 60, "another try by the resync")
        assert not operated.status("bot").get("ready")
    finally:
        drop(cluster, documents)
    operated.wait(lambda: operated.settled("bot"), "peace without the policy")
    assert max(history(kube, "bot").values()) == 1


def test_admission_that_rewrites_our_field_makes_no_hot_loop(
    operated: Stage, cluster: Cluster, kube: KubeFaults
) -> None:
    documents = policy(
        "MutatingAdmissionPolicy",
        operated.namespace,
        [rule("", "services", "CREATE", "UPDATE")],
        {
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": '[JSONPatch{op: "replace", path: "/spec/ports/0/name",'
                        ' value: "theirs"}]'
                    },
                }
            ],
        },
    )
    cluster.apply(*documents)
    try:
        probe = {"metadata": {"name": "p"}, "spec": {"ports": [{"port": 1, "name": "ours"}]}}

        def rewritten() -> bool:
            path = f"{SERVICE_PATH % operated.namespace}?dryRun=All"
            made = operated.api.request("POST", path, probe)
            return bool(made["spec"]["ports"][0]["name"] == "theirs")

        operated.wait(rewritten, "the policy")
        operated.create("bot", {"replicas": 1})
        operated.wait(lambda: operated.child("services/bot-svc"), "the Service")
        began = len(kube.calls)
        # Another service lives through a whole change meanwhile: several resyncs of both.
        operated.play(["other"], (CREATE,), settled=False)
        operated.change("other", {"env": {"A": "7"}})
        primary = "deployments/other-primary"
        operated.wait(lambda: '"7"' in json.dumps(operated.child(primary)), "the other's change")
        wrote = [c for c in kube.calls[began:] if c.about.endswith("/bot-svc") and c.write]
        assert len(wrote) < 30
    finally:
        drop(cluster, documents)
    operated.wait(lambda: operated.settled("bot"), "peace without the policy")


def test_a_webhook_that_is_down_is_waited_out(
    operated: Stage, cluster: Cluster, kube: KubeFaults
) -> None:
    name = operated.namespace
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "down.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [rule("apps", "deployments", "CREATE", "UPDATE")],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "timeoutSeconds": 1,
            }
        ],
    }
    bare = {"metadata": {"name": "p"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                         "spec": {"containers": [{"name": "c", "image": "i"}]}}}}  # fmt: skip
    cluster.apply(hook)
    try:
        path = "/apis/apps/v1/namespaces/%s/deployments"
        operated.wait(lambda: refused(operated, path, bare), "the webhook")
        operated.create("bot", {"replicas": 1})
        operated.wait(lambda: operated.status("bot").get("observedGeneration"), "a status")
        tries = [c for c in kube.calls if c.about.endswith("/bot-primary") and c.method == "PATCH"]
        operated.wait(
            lambda: condition(operated.status("bot"), "Ready").get("status") != "True", "not ready"
        )
        assert len(tries) < 60
    finally:
        drop(cluster, [hook])
    operated.wait(lambda: operated.settled("bot"), "peace without the webhook")
    assert max(history(kube, "bot").values()) == 1


def test_a_namespace_that_is_going_takes_nothing_with_it(
    kube: KubeFaults, cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.create_namespace()
    stage = Stage(cluster, namespace)
    with running_operator(
        cluster, namespace, tmp_path, *OPTIONS, kubeconfig=kube.kubeconfig
    ) as operator:
        stage.play(["a", "b"], (CREATE,))
        before = len(kube.calls)
        cluster.delete_namespace(namespace)

        def gone() -> bool:
            try:
                stage.api.request("GET", f"/api/v1/namespaces/{namespace}")
            except ApiRequestFailed as failed:
                return failed.status == 404
            return False

        wait_until(gone, 100, "the namespace to be gone")
        assert operator.process.poll() is None
        assert sum(call.write for call in kube.calls[before:]) < 100


def test_poison_beside_them_stops_no_other_service(operated: Stage, cluster: Cluster) -> None:
    poison: list[dict[str, Any]] = [
        {"annotations": {"holdfast.dev/applied": "\x07{not json", "holdfast.dev/paused": "[}"}},
        {"annotations": {"a.example.com/x": "y" * 200_000}},
        {"labels": {f"l{n}": "x" * 60 for n in range(2000)}},
        {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "nobody", "uid": "no-such-uid"}
            ]
        },
        {"finalizers": ["example.com/never"]},
    ]
    path = f"/apis/holdfast.dev/v1alpha1/namespaces/{operated.namespace}/inferenceservices"
    for number, metadata in enumerate(poison):
        item = {
            "apiVersion": "holdfast.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": f"poison{number}", **metadata},
            "spec": {"modelRef": "m", "replicas": 1},
        }
        operated.api.request("POST", path, item)
    operated.play(["a", "b"], (CREATE, STORY[1]))
    # The last one can go once somebody takes its finalizer away.
    cluster.kubectl(
        "patch", SERVICES, "poison4", "-n", operated.namespace,
        "--type=merge", "-p", '{"metadata":{"finalizers":null}}',
    )  # fmt: skip


def test_corrupted_children_are_healed_and_foreign_objects_left(
    operated: Stage, cluster: Cluster, kube: KubeFaults
) -> None:
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "taken-primary", "namespace": operated.namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "theirs:1"}]},
            },
        },
    }
    cluster.apply(foreign)
    operated.create("taken", {"replicas": 1})
    (first,) = operated.play(["bot"], (CREATE,))
    deployments = f"/apis/apps/v1/namespaces/{operated.namespace}/deployments"
    services = f"/api/v1/namespaces/{operated.namespace}/services"
    for path, damage in (
        (f"{deployments}/bot-primary", {"metadata": {"ownerReferences": None}}),
        (f"{deployments}/bot-primary", {"metadata": {"labels": {"holdfast.dev/role": "x"}}}),
        (f"{services}/bot-svc", {"spec": {"selector": {"holdfast.dev/workload": "other"}}}),
        (f"{services}/bot-svc", {"metadata": {"annotations": {"holdfast.dev/applied": "}{"}}}),
    ):
        operated.api.request("PATCH", path, damage, content_type=MERGE_PATCH)
        operated.wait(
            lambda: operated.worlds(["bot"]) == first and operated.settled("bot"),
            f"{damage} to be healed",
        )
    theirs = operated.child("deployments/taken-primary")
    assert theirs is not None
    assert theirs["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs:1"
    assert "ownerReferences" not in theirs["metadata"]
    assert not operated.status("taken").get("ready")
    assert not [about for about in kube.deleted() if "taken" in about]
    operated.delete("taken")
    assert operated.child("deployments/taken-primary") is not None


LEAVES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"modelRef": "leaf-one"}, {"modelRef": "leaf-two"}),
    ({"image": "example/leaf-one:1"}, {"image": "example/leaf-two:1"}),
    ({"command": ["leaf-one"]}, {"command": ["leaf-two"]}),
    ({"args": ["--leaf-one"]}, {"args": ["--leaf-two"]}),
    ({"env": {"LEAF": "leaf-one"}}, {"env": {"LEAF": "leaf-two"}}),
    (
        {"secrets": {"LEAF": {"name": "leaf-one", "key": "k"}}},
        {"secrets": {"LEAF": {"name": "leaf-two", "key": "k"}}},
    ),
    ({"imagePullSecrets": ["leaf-one"]}, {"imagePullSecrets": ["leaf-two"]}),
    ({"serviceAccountName": "leaf-one"}, {"serviceAccountName": "leaf-two"}),
    (
        {"modelVolume": {"claim": "leaf-one", "path": "/m"}},
        {"modelVolume": {"claim": "leaf-two", "path": "/m"}},
    ),
    ({"resources": {"cpu": "111m"}}, {"resources": {"cpu": "112m"}}),
    ({"resources": {"memory": "111Mi"}}, {"resources": {"memory": "112Mi"}}),
    ({"healthCheck": {"path": "/leaf-one"}}, {"healthCheck": {"path": "/leaf-two"}}),
    ({"healthCheck": {"interval": "111s"}}, {"healthCheck": {"interval": "112s"}}),
    ({"rollout": {"drainTimeout": "111s"}}, {"rollout": {"drainTimeout": "112s"}}),
    (
        {"scheduling": {"nodeSelector": {"leaf-one": "x"}}},
        {"scheduling": {"nodeSelector": {"leaf-one": None, "leaf-two": "x"}}},
    ),
]


def test_every_field_is_followed_when_it_is_set_changed_and_taken_away(operated: Stage) -> None:
    """A child that has nothing of the first value, all of the second, and then neither."""
    (first,) = operated.play(["bot"], (CREATE,))
    before = operated.get("bot")["spec"]

    def shown() -> str:
        return json.dumps(operated.worlds(["bot"]))

    for one, two in LEAVES:
        words = [word for word in ("leaf-one", "111", "leaf-two", "112") if word in json.dumps(two)]
        operated.change("bot", one)
        operated.wait(lambda: shown() != json.dumps(first), f"{one}")
        operated.change("bot", two)
        operated.wait(lambda words=words: words[-1] in shown(), f"{two}")
        assert "leaf-one" not in shown()
        operated.change("bot", back(two, before))
        operated.wait(lambda: operated.worlds(["bot"]) == first, f"no trace of {two}")


def back(change: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that undoes another one."""
    undone: dict[str, Any] = {}
    for key, value in change.items():
        held = old.get(key)
        nested = isinstance(value, dict) and isinstance(held, dict)
        undone[key] = back(value, held) if nested else held
    return undone


def test_where_a_service_ends_does_not_depend_on_its_way_there(operated: Stage) -> None:
    chance = random.Random(20261116)
    choices: list[dict[str, Any]] = [
        {"env": {"A": "2"}},
        {"env": {"A": "1", "B": "x"}},
        {"env": {"B": None}},
        {"replicas": 1, "minReplicas": None, "maxReplicas": None},
        {"replicas": None, "minReplicas": 1, "maxReplicas": 2},
        {"modelRef": "other"},
        {"resources": {"cpu": "200m"}},
        {"healthCheck": {"path": "/ready"}},
        {"canary": {"modelRef": "c", "weight": 50}},
        {"canary": None},
    ]
    operated.create("walked", {"replicas": 1})
    for _ in range(25):
        operated.change("walked", chance.choice(choices))
    for last in (choices[3], choices[9]):
        operated.change("walked", last)
    operated.wait(lambda: operated.settled("walked"), "the end of the walk")
    spec = operated.get("walked")["spec"]
    item = {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "fresh"},
        "spec": spec,
    }
    path = f"/apis/holdfast.dev/v1alpha1/namespaces/{operated.namespace}/inferenceservices"
    operated.api.request("POST", path, item)
    operated.wait(lambda: operated.settled("fresh"), "the fresh one")

    def equal() -> bool:
        worlds = operated.worlds(["walked", "fresh"])
        return bool(worlds["walked"] == worlds["fresh"])

    operated.wait(equal, "both to be alike")


def test_a_definition_that_is_deleted_ends_no_operator(tmp_path: Path) -> None:
    """On a cluster of its own, as everybody else's services would go too."""
    private = Cluster.join(tmp_path / "private")
    try:
        install_service_crd(private)
        namespace = private.create_namespace()
        stage = Stage(private, namespace)
        with (
            faults_before(private, tmp_path, namespace=namespace) as kube,
            running_operator(
                private, namespace, tmp_path, *OPTIONS, kubeconfig=kube.kubeconfig
            ) as operator,
        ):
            stage.play(["bot"], (CREATE,))
            private.kubectl("delete", "crd", SERVICES)
            operator.wait_for("watch-interrupted")
            assert not kube.deleted()
            install_service_crd(private)
            stage.play(["next"], (CREATE,))
            assert operator.process.poll() is None
    finally:
        private.stop()
