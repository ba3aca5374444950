"""The operator on a real cluster, as a real process: what it heals, leaves and costs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.cluster import Cluster, KubectlFailed
from tests.support.controllers import (
    OPERATOR_AGENT,
    SERVICES,
    OperatorProcess,
    condition,
    install_service_crd,
    object_exists,
    running_operator,
    service_status,
    small_service,
    wait_service_status,
    writes,
)
from tests.support.processes import wait_until
from tests.support.promql import unanswered_queries

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    install_service_crd(cluster)


@pytest.fixture(scope="module")
def kept(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, OperatorProcess]]:
    """A namespace with an operator and a service that is ready, for stories about edits."""
    namespace = cluster.create_namespace()
    with running_operator(cluster, namespace, tmp_path_factory.mktemp("operator")) as operator:
        cluster.apply(small_service(namespace))
        wait_service_status(cluster, namespace, lambda status: status.get("ready"))
        yield namespace, operator
    cluster.delete_namespace(namespace)


def spec_of(cluster: Cluster, namespace: str, name: str = "bot-primary") -> dict[str, Any]:
    spec: dict[str, Any] = cluster.get("deployment", name, namespace)["spec"]
    return spec


def settled(cluster: Cluster, namespace: str) -> None:
    """Wait until the rollouts that an edit began have ended."""
    wait_service_status(cluster, namespace, lambda status: status.get("ready"))


def quiet_writes(cluster: Cluster, namespace: str) -> list[str]:
    """What the operator wrote, once it has written nothing for three seconds."""
    before, since = writes(cluster, namespace), time.monotonic()
    until = since + 60
    while time.monotonic() - since < 3:
        assert time.monotonic() < until, "the operator keeps writing"
        time.sleep(0.25)
        if (now := writes(cluster, namespace)) != before:
            before, since = now, time.monotonic()
    return before


PROBE = json.dumps(
    [{"op": "replace", "path": "/spec/template/spec/containers/0/readinessProbe/periodSeconds",
      "value": 77}]
)  # fmt: skip
EDITS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "the image, in an editor": (("edit", "deployment/bot-primary"), "kubectl-edit", "image"),
    "a variable, added": (("set", "env", "deployment/bot-primary", "EVIL=1"), "kubectl-set", "env"),
    "a variable, changed": (("set", "env", "deployment/bot-primary", "A=2"), "kubectl-set", "env"),
    "the resources": (
        ("set", "resources", "deployment/bot-primary", "--limits=memory=128Mi"),
        "kubectl-set",
        "resources",
    ),
    "a probe, by a patch": (
        ("patch", "deployment/bot-primary", "--type=json", "-p", PROBE),
        "kubectl-patch",
        "readinessProbe",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_undone_and_said_to_be_whose_it_was(
    edit: str, cluster: Cluster, kept: tuple[str, OperatorProcess], tmp_path: Path
) -> None:
    namespace, _ = kept
    call, manager, field = EDITS[edit]
    settled(cluster, namespace)
    before = cluster.get("deployment", "bot-primary", namespace)
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import re, sys\n"
        "text = open(sys.argv[1]).read()\n"
        "open(sys.argv[1], 'w').write(re.sub(r'image: .*', 'image: evil:1', text))\n"
    )
    with patch.dict(os.environ, {"KUBE_EDITOR": f"{sys.executable} {editor}"}):
        cluster.kubectl(*call, "-n", namespace)

    def healed(live: dict[str, Any]) -> bool:
        moved: bool = live["metadata"]["generation"] >= before["metadata"]["generation"] + 2
        return moved and live["spec"] == before["spec"]

    cluster.wait("deployment", "bot-primary", namespace, healed)

    def attributed(status: dict[str, Any]) -> bool:
        said = condition(status, "DriftDetected")
        return (
            said["reason"] == "Healed" and manager in said["message"] and field in said["message"]
        )

    wait_service_status(cluster, namespace, attributed)

    def told() -> bool:
        events = cluster.objects("events", namespace)
        return any(
            each["reason"] == "DriftHealed"
            and manager in each["message"]
            and field in each["message"]
            for each in events
        )

    wait_until(told, 20, "the event")


def test_a_label_that_a_controller_added_is_left(
    cluster: Cluster, kept: tuple[str, OperatorProcess]
) -> None:
    namespace, _ = kept
    settled(cluster, namespace)
    cluster.kubectl("label", "deployment/bot-primary", "mesh=on", "-n", namespace,
                    "--field-manager=mesh-controller")  # fmt: skip
    cluster.kubectl("set", "image", "deployment/bot-primary", "*=evil:1", "-n", namespace)
    cluster.wait("deployment", "bot-primary", namespace,
                 lambda live: "evil" not in json.dumps(live["spec"]))  # fmt: skip
    assert cluster.get("deployment", "bot-primary", namespace)["metadata"]["labels"]["mesh"] == "on"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("deployment", "bot-primary"), ("service", "bot-svc"), ("poddisruptionbudget", "bot-pdb")],
)
def test_a_deleted_child_comes_back(
    kind: str, name: str, cluster: Cluster, kept: tuple[str, OperatorProcess]
) -> None:
    namespace, _ = kept
    settled(cluster, namespace)
    uid = cluster.get(kind, name, namespace)["metadata"]["uid"]
    cluster.kubectl("delete", kind, name, "-n", namespace, "--wait=false")
    wait_until(
        lambda: (
            object_exists(cluster, kind, name, namespace)
            and cluster.get(kind, name, namespace)["metadata"]["uid"] != uid
        ),
        30,
        f"the {kind} to come back",
    )


def test_a_child_whose_label_was_taken_away_gets_it_back(
    cluster: Cluster, kept: tuple[str, OperatorProcess]
) -> None:
    """The operator follows its children by that label, so the child falls out of its sight."""
    namespace, _ = kept
    settled(cluster, namespace)
    label = "app.kubernetes.io/managed-by"
    uid = cluster.get("service", "bot-svc", namespace)["metadata"]["uid"]
    cluster.kubectl("label", "service/bot-svc", f"{label}-", "-n", namespace)
    found = cluster.wait("service", "bot-svc", namespace,
                         lambda live: label in live["metadata"]["labels"])  # fmt: skip
    assert found["metadata"]["uid"] == uid


def test_at_rest_it_asks_nothing_and_writes_nothing(
    cluster: Cluster, kept: tuple[str, OperatorProcess]
) -> None:
    """Watches apart, which are answered when they end, and the lease, which must be renewed."""
    namespace, operator = kept
    settled(cluster, namespace)
    quiet_writes(cluster, namespace)

    def asked() -> list[str]:
        found = cluster.audit_events(user_agent=OPERATOR_AGENT, namespace=namespace)
        return [
            event.uri for event in found if event.resource != "leases" and event.verb != "watch"
        ]

    before = asked()
    time.sleep(6)
    assert asked() == before
    assert operator.ask("/healthz") == "ok\n"
    assert operator.ask("/readyz") == "ok\n"
    figures = operator.ask("/metrics")
    assert 'workqueue_depth{name="inferenceservice"} 0.0' in figures
    assert 'leader_election_master_status{name="holdfast-operator"} 1.0' in figures
    assert f'holdfast_drift_resolved_total{{namespace="{namespace}"' in figures
    assert unanswered_queries("holdfast-operator", figures) == []


def test_a_service_is_made_ready_scaled_and_taken_away_whole(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with running_operator(cluster, namespace, tmp_path):
        cluster.apply(small_service(namespace))
        made = wait_service_status(cluster, namespace, lambda status: status.get("ready"))
        assert made["readyReplicas"] == 2
        cluster.apply(small_service(namespace, {"replicas": 3}))
        wait_service_status(
            cluster, namespace, lambda status: status["ready"] and status["readyReplicas"] == 3
        )
        cluster.kubectl("delete", SERVICES, "bot", "-n", namespace)

        def left() -> list[str]:
            kinds = "deployments,services,hpa,pdb,replicasets,pods"
            return cluster.kubectl("get", kinds, "-n", namespace, "-o", "name").split()

        wait_until(lambda: not left(), 60, "everything to be gone")
        time.sleep(1)
        assert left() == []


def test_an_autoscaler_that_scales_for_real_is_never_fought(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with running_operator(cluster, namespace, tmp_path, "--resync", "2s"):
        cluster.set_usage(namespace, cpu="80m", memory="10Mi")
        cluster.apply(
            small_service(namespace, {"replicas": None, "minReplicas": 2, "maxReplicas": 4})
        )
        wait_service_status(cluster, namespace, lambda status: status.get("ready"))
        time.sleep(1)
        before = writes(cluster, namespace, "deployments")
        cluster.set_usage(namespace, cpu="200m", memory="10Mi")
        cluster.wait("deployment", "bot-primary", namespace,
                     lambda live: live["spec"]["replicas"] == 4, timeout=60)  # fmt: skip
        wait_service_status(
            cluster, namespace, lambda status: status["ready"] and status["replicas"] == 4
        )
        time.sleep(5)
        assert spec_of(cluster, namespace)["replicas"] == 4
        assert writes(cluster, namespace, "deployments") == before
        assert writes(cluster, namespace, "deployments/scale") == []


@pytest.mark.parametrize("policy", ["warn", "fail", "dry_run", "ignore"])
def test_under_other_policies_an_edit_stays_and_nothing_is_written_to_it(
    policy: str, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with running_operator(cluster, namespace, tmp_path, "--resync", "2s"):
        cluster.apply(small_service(namespace, {"onDrift": policy}))
        wait_service_status(cluster, namespace, lambda status: status.get("ready"))
        time.sleep(1)
        before = writes(cluster, namespace, "deployments")
        cluster.kubectl("set", "env", "deployment/bot-primary", "A=2", "-n", namespace)
        wait_service_status(
            cluster,
            namespace,
            lambda status: "kubectl-set" in condition(status, "DriftDetected")["message"],
        )
        time.sleep(4)
        assert '"2"' in json.dumps(spec_of(cluster, namespace))
        assert writes(cluster, namespace, "deployments") == before


def test_with_no_right_to_write_it_writes_nothing_and_lives_on(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    cluster.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "reader", "namespace": namespace},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
        }
    )
    cluster.kubectl("create", "rolebinding", "reader", "-n", namespace, "--role=reader",
                    f"--serviceaccount={namespace}:reader")  # fmt: skip
    identity = cluster.kubeconfig_for_service_account("reader", namespace)
    cluster.apply(small_service(namespace))
    with running_operator(
        cluster, namespace, tmp_path, "--no-leader-election", kubeconfig=identity
    ) as it:
        assert it.wait_for("not-reconciled")["code"] == "permission-denied"
        assert it.ask("/healthz") == "ok\n"
        assert it.stop() == 0
    user = f"system:serviceaccount:{namespace}:reader"
    found = cluster.audit_events(user=user)
    assert found
    assert [event for event in found if event.wrote] == []


@pytest.mark.parametrize("end", [OperatorProcess.stop, OperatorProcess.kill], ids=["stop", "kill"])
def test_when_the_leader_ends_another_takes_over(
    end: Callable[[OperatorProcess], object], cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with (
        running_operator(cluster, namespace, tmp_path, name="first") as first,
        running_operator(
            cluster, namespace, tmp_path, name="second", until="waiting-for-lease"
        ) as second,
    ):
        cluster.apply(small_service(namespace))
        wait_service_status(cluster, namespace, lambda status: status.get("ready"))
        assert second.logs("working") == []
        end(first)
        second.wait_for("working", timeout=40)
        cluster.kubectl("set", "image", "deployment/bot-primary", "*=evil:1", "-n", namespace)
        cluster.wait("deployment", "bot-primary", namespace,
                     lambda live: "evil" not in json.dumps(live["spec"]))  # fmt: skip


def resynced(
    cluster: Cluster, namespace: str, tmp_path: Path, *, count: int, resync: int, patience: float
) -> None:
    """Make services, let all of them be looked at ten times, and count what was written."""
    for number in range(count):
        text = small_service(namespace, {"replicas": 1}, name=f"bot-{number}")
        path = f"/apis/holdfast.dev/v1alpha1/namespaces/{namespace}/inferenceservices"
        cluster.api().request("POST", path, text)
    with running_operator(cluster, namespace, tmp_path, "--resync", f"{resync}s") as operator:

        def ready() -> bool:
            found = cluster.objects(SERVICES, namespace)
            return sum((each.get("status") or {}).get("ready", False) for each in found) == count

        wait_until(ready, patience, "every service to be ready")

        def looks() -> float:
            lines = operator.ask("/metrics").splitlines()
            named = "controller_runtime_reconcile_total{"
            return sum(float(line.split()[-1]) for line in lines if line.startswith(named))

        before, seen = quiet_writes(cluster, namespace), looks()
        wait_until(lambda: looks() >= seen + 10 * count, patience, "ten looks at each")
        assert writes(cluster, namespace) == before


def test_ten_resyncs_write_nothing(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    resynced(cluster, namespace, tmp_path, count=3, resync=1, patience=60)


@pytest.mark.long
def test_ten_resyncs_of_a_thousand_services_write_nothing(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    resynced(cluster, namespace, tmp_path, count=1000, resync=20, patience=1500)


def test_one_look_makes_what_is_declared_and_ends(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    cluster.apply(small_service(namespace))
    with running_operator(
        cluster, namespace, tmp_path, "--once", "--no-leader-election", until=""
    ) as operator:
        assert operator.process.wait(60) == 0
    assert object_exists(cluster, "deployment", "bot-primary", namespace)
    assert service_status(cluster, namespace)["observedGeneration"] == 1


def test_a_heal_that_admission_denies_is_told_and_comes_when_the_policy_goes(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    group, name = "admissionregistration.k8s.io/v1", namespace
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["deployments"],
    }
    other = "object.spec.template.spec.containers[0].image.startsWith('example.com/')"
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [rule],
            },
            "validations": [{"expression": other, "message": "only our registry"}],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }

    def denied() -> bool:
        try:
            cluster.kubectl("set", "image", "deployment/bot-primary", "server=elsewhere/x", "-n",
                            namespace, "--dry-run=server")  # fmt: skip
        except KubectlFailed:
            return True
        return False

    with running_operator(cluster, namespace, tmp_path) as operator:
        cluster.apply(small_service(namespace))
        settled(cluster, namespace)
        cluster.apply(policy, binding)
        try:
            wait_until(denied, 30, "the policy to hold")
            image = "server=example.com/other:1"
            cluster.kubectl("set", "image", "deployment/bot-primary", image, "-n", namespace)
            status = wait_service_status(
                cluster,
                namespace,
                lambda it: condition(it, "UpToDate").get("reason") == "WriteRefused",
            )
            assert "only our registry" in condition(status, "UpToDate")["message"]
            told = ("get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}")
            wait_until(lambda: "WriteRefused" in cluster.kubectl(*told), 20, "the event")
        finally:
            cluster.kubectl("delete", "validatingadmissionpolicybinding", name)
            cluster.kubectl("delete", "validatingadmissionpolicy", name)
        wait_service_status(
            cluster,
            namespace,
            lambda it: condition(it, "UpToDate").get("reason") == "AsDeclared",
            timeout=90,
        )
        assert operator.logs("not-reconciled")


def test_a_writer_every_second_is_not_answered_every_second(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Each heal of a pod template makes a rollout, so a fight costs more than the drift."""
    with running_operator(cluster, namespace, tmp_path):
        cluster.apply(small_service(namespace))
        settled(cluster, namespace)
        before = len(writes(cluster, namespace, "deployments"))
        for number in range(10):
            image = f"server=example.com/other:{number}"
            cluster.kubectl("set", "image", "deployment/bot-primary", image, "-n", namespace)
            time.sleep(1)
        status = wait_service_status(
            cluster,
            namespace,
            lambda it: condition(it, "DriftDetected").get("reason") == "Fighting",
        )
        said = condition(status, "DriftDetected")["message"]
        assert "kubectl-set and holdfast-operator keep changing" in said
        assert len(writes(cluster, namespace, "deployments")) - before <= 4


@pytest.mark.parametrize("election", [(), ("--no-leader-election",)], ids=["elected", "alone"])
def test_one_look_beside_an_operator_at_work_is_refused_and_writes_nothing(
    election: tuple[str, ...], cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with running_operator(cluster, namespace, tmp_path, name="installed"):
        cluster.apply(small_service(namespace))
        wait_service_status(cluster, namespace, lambda status: status.get("ready"))
        before = quiet_writes(cluster, namespace)
        with running_operator(
            cluster, namespace, tmp_path, "--once", *election, name="second", until=""
        ) as second:
            assert second.process.wait(60) != 0
        assert "renews it" in (tmp_path / "second.log").read_text()
        assert writes(cluster, namespace) == before
