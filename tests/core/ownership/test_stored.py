"""What the API server makes of a declared value is no drift; what anybody else makes of it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.core.ownership.applied_objects import applied, fields_v1_of
from tests.support.ownership import declaration_of, diff_as_operator

from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.managed_fields import keyed_lists, read_ownership
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import declare as sealed
from holdfast.core.tree import show_path

GPU = {"key": "gpu", "operator": "Exists"}
READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def made(kind: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **fields}


def pod(**spec: Any) -> dict[str, Any]:
    return made("Pod", spec=spec)


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "a", **fields}])


def stored(item: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The object as applied, with other values in the server's form."""
    live = applied(item)
    for path, value in changes.items():
        around: Any = live
        *way, last = path.split("__")
        for step in way:
            around = around[int(step) if step.isdigit() else step]
        around[last] = value
    return live


FORMS = [
    ("a Pod that tolerates more", pod(tolerations=[GPU]), {"spec__tolerations": [GPU, READY]}),
    (
        "a Pod whose runtime class has nodes of its own",
        pod(nodeSelector={"a": "1"}),
        {"spec__nodeSelector": {"a": "1", "b": "2"}},
    ),
    (
        "an amount below a thousandth",
        container(resources={"requests": {"cpu": "100u"}}),
        {"spec__containers__0__resources": {"requests": {"cpu": "1m"}}},
    ),
    (
        "an empty pull policy",
        container(imagePullPolicy=""),
        {"spec__containers__0__imagePullPolicy": "Always"},
    ),
    (
        "a probe that says zero",
        container(livenessProbe={"periodSeconds": 0}),
        {"spec__containers__0__livenessProbe": {"periodSeconds": 10}},
    ),
    ("an empty type of a Secret", made("Secret", type=""), {"type": "Opaque"}),
    (
        "a target port of zero",
        made("Service", spec={"ports": [{"port": 80, "targetPort": 0}]}),
        {"spec__ports__0__targetPort": 80},
    ),
    (
        "bytes in lines",
        made("ConfigMap", binaryData={"a": "AAEC\nAwQF\n"}),
        {"binaryData__a": "AAECAwQF"},
    ),
    (
        "a finalizer beside ours",
        made("PersistentVolumeClaim") | {"metadata": {"name": "x", "finalizers": ["ours/a"]}},
        {"metadata__finalizers": ["ours/a", "kubernetes.io/pvc-protection"]},
    ),
    (
        "a zero in a list that is written as a whole",
        made("Thing", "x.example/v1", spec={"columns": [{"name": "a", "priority": 0}]}),
        {"spec__columns": [{"name": "a"}]},
    ),
    (
        "a size in another notation",
        made("CSIStorageCapacity", "storage.k8s.io/v1", maximumVolumeSize="1e12"),
        {"maximumVolumeSize": "1T"},
    ),
]


@pytest.mark.parametrize(
    ("item", "changes"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS]
)
def test_the_servers_own_form_of_a_value_is_no_drift(
    item: dict[str, Any], changes: dict[str, Any]
) -> None:
    found = diff_as_operator(item, stored(item, **changes))
    assert found.state is ObjectState.IN_SYNC, found.field_drifts


OTHERS = [
    (pod(tolerations=[GPU]), {"spec__tolerations": [READY]}),
    (container(imagePullPolicy=""), {"spec__containers__0__imagePullPolicy": "Never"}),
    (
        container(livenessProbe={"periodSeconds": 0}),
        {"spec__containers__0__livenessProbe": {"periodSeconds": 99}},
    ),
    (
        made("Service", spec={"ports": [{"port": 80, "targetPort": 0}]}),
        {"spec__ports__0__targetPort": 8080},
    ),
    (made("ConfigMap", binaryData={"a": "AAEC"}), {"binaryData__a": "AAED"}),
    (made("ConfigMap", data={"imagePullPolicy": ""}), {"data__imagePullPolicy": "Always"}),
    (
        made("Thing", "x.example/v1", spec={"imagePullPolicy": ""}),
        {"spec__imagePullPolicy": "Always"},
    ),
    (
        container(resources={"requests": {"cpu": "100u"}}),
        {"spec__containers__0__resources": {"requests": {"cpu": "2m"}}},
    ),
]


@pytest.mark.parametrize(("item", "changes"), OTHERS)
def test_any_other_value_is(item: dict[str, Any], changes: dict[str, Any]) -> None:
    assert diff_as_operator(item, stored(item, **changes)).state is not ObjectState.IN_SYNC


def test_what_somebody_adds_to_a_pods_tolerations_later_leaves_a_doubt() -> None:
    """They own the list from then on: the short way round admission ends there."""
    item = pod(tolerations=[GPU], containers=[{"name": "a"}])
    live = stored(item, spec__tolerations=[GPU, READY])
    ours = live["metadata"]["managedFields"][0]
    theirs = copy.deepcopy(ours) | {"manager": "kubectl-edit", "operation": "Update"}
    theirs["fieldsV1"] = fields_v1_of([("spec", "tolerations")])
    del ours["fieldsV1"]["f:spec"]["f:tolerations"]
    live["metadata"]["managedFields"].append(theirs)
    found = diff_as_operator(item, live)
    assert found.state is ObjectState.SUSPECT
    assert [show_path(each.change.path) for each in found.field_drifts] == ["spec.tolerations"]


def test_the_rules_of_a_role_that_gathers_others_are_not_ours() -> None:
    item = made("ClusterRole", "rbac.authorization.k8s.io/v1", rules=[])
    gathered = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    assert diff_as_operator(item, stored(item, rules=gathered)).state is not ObjectState.IN_SYNC
    item["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    found = diff_as_operator(item, stored(item, rules=gathered))
    assert found.state is ObjectState.IN_SYNC
    assert [each.field_class for each in found.field_drifts] == [FieldClass.DELEGATED]


def created(item: dict[str, Any], live: dict[str, Any], added: tuple[str, ...]) -> dict[str, Any]:
    """The object as if somebody had made it by other means, and we had joined."""
    made = applied(item) | {"spec": live["spec"]}
    ours = made["metadata"]["managedFields"][0]
    theirs = copy.deepcopy(ours) | {"manager": "kubectl-create", "operation": "Update"}
    theirs["fieldsV1"] = fields_v1_of([added])
    made["metadata"]["managedFields"].append(theirs)
    return made


ACCOUNT = made("Deployment", "apps/v1", spec={"template": {"spec": {"serviceAccountName": "a"}}})
PORTS = made("Service", spec={"ports": [{"port": 80}]})
POLICY = made("NetworkPolicy", "networking.k8s.io/v1", spec={"podSelector": {}})


@pytest.mark.parametrize(
    ("item", "added", "ours", "theirs"),
    [
        (ACCOUNT, ("spec", "template", "spec", "serviceAccount"), "a", "root"),
        (PORTS, ("spec", "ports", "[port=80,protocol=TCP]", "targetPort"), 80, 22),
        (POLICY, ("spec", "policyTypes"), ["Ingress"], ["Egress"]),
    ],
)
def test_what_the_server_derives_counts_as_nobodys_addition(
    item: dict[str, Any], added: tuple[str, ...], ours: object, theirs: object
) -> None:
    """Whoever creates an object owns its defaults, and did not write them."""
    for value, state in ((ours, ObjectState.IN_SYNC), (theirs, ObjectState.DRIFTED)):
        live = copy.deepcopy(item)
        around: Any = live
        for step in added[:-1]:
            around = around[0] if step.startswith("[") else around[step]
        around[added[-1]] = value
        assert diff_as_operator(item, created(item, live, added)).state is state


def test_a_null_is_not_sent_for_a_built_in_kind() -> None:
    item = made("Service", spec={"selector": None, "ports": [{"port": 80, "protocol": None}]})
    declared = sealed(item, "us")
    assert declared.item["spec"] == {"ports": [{"port": 80}]}
    assert declared.digest == declaration_of(item).digest
    custom = made("Thing", "x.example/v1", spec={"maybe": None})
    assert sealed(custom, "us").item["spec"] == {"maybe": None}


def test_the_default_of_a_key_is_learned_from_an_item_that_did_not_send_it() -> None:
    fields = {"f:pairs": {'k:{"host":"one","port":443}': {".": {}, "f:host": {}}}}
    entry = {"manager": "us", "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}
    assert keyed_lists(read_ownership([entry])) == {"pairs": "host,port=443"}
    assert keyed_lists(read_ownership([entry | {"operation": "Update"}])) == {"pairs": "host,port"}
