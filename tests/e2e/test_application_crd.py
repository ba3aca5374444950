"""A real API server takes the definition of Application and refuses what `validate()` refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.applications import ACCEPTED, FULL, REFUSED, document
from tests.support.cluster import Cluster
from tests.support.control_plane import ApiRequestFailed
from tests.support.refused import RefusedSpec

from holdfast.core.custom_resource import GROUP, VERSION, Condition
from holdfast.core.errors import InvalidSpec
from holdfast.core.gitops.application import ApplicationStatus, ObjectSummary
from holdfast.wire.application_v1alpha1 import application_from_json, status_to_json
from holdfast.wire.crd import APPLICATION, make_crd

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    cluster.install_definitions(make_crd(APPLICATION))


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def put(cluster: Cluster, found: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    """Create an object as a strict client does."""
    namespace = found["metadata"]["namespace"]
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{APPLICATION.plural}"
    query = "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")
    return cluster.api().request("POST", path + query, found)


def test_the_definition_is_served_under_its_short_name(cluster: Cluster, namespace: str) -> None:
    found = cluster.get("crd", APPLICATION.name)
    assert not [
        each
        for each in found["status"]["conditions"]
        if each["type"] == "NonStructuralSchema" and each["status"] == "True"
    ]
    put(cluster, document(namespace=namespace))
    for word in ("holdapp", "holdfast", APPLICATION.name):
        assert "shop" in cluster.kubectl("get", word, "-n", namespace)


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if case.server], ids=lambda case: case.why
)
def test_what_is_wrong_is_refused_before_it_is_stored(cluster: Cluster, case: RefusedSpec) -> None:
    """The sentence is ours where several fields are joined, and names the field elsewhere."""
    wrong = document(case.change, namespace="default")
    with pytest.raises(InvalidSpec) as ours:
        application_from_json(wrong)
    with pytest.raises(ApiRequestFailed) as refusal:
        put(cluster, wrong, dry=True)
    assert refusal.value.status == 422
    said = json.loads(str(refusal.value).partition(": ")[2])["message"]
    sentences = [f"{problem.reason} {problem.fix}" for problem in ours.value.problems]
    assert f"spec.{case.field}" in said or any(sentence in said for sentence in sentences), said
    assert "s3cr3t-word" not in said


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if not case.server], ids=lambda case: case.why
)
def test_what_the_api_server_cannot_tell_is_told_by_the_controller(
    cluster: Cluster, case: RefusedSpec
) -> None:
    """When this fails the API server has learnt it: say so in the table."""
    stored = put(cluster, document(case.change, namespace="default"), dry=True)
    with pytest.raises(InvalidSpec):
        application_from_json(stored)


@pytest.mark.parametrize("why", ACCEPTED)
def test_what_is_right_is_stored_as_it_was_written(
    cluster: Cluster, namespace: str, why: str
) -> None:
    """No default is written into what the user left unset: that would be drift in Git."""
    right = document(ACCEPTED[why], namespace=namespace)
    stored = put(cluster, right)
    assert stored["spec"] == right["spec"]
    assert application_from_json(stored).spec == application_from_json(right).spec


@pytest.mark.parametrize("name", ["a" * 64, "dots.in"])
def test_a_name_that_is_no_label_is_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(ApiRequestFailed, match=r"metadata\.name: it is not 1 to 63"):
        put(cluster, document(name=name, namespace="default"), dry=True)


def test_an_unknown_field_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiRequestFailed, match="unknown field"):
        put(cluster, document({"repository": "x"}, namespace="default"), dry=True)


def test_the_columns_show_what_matters(cluster: Cluster, namespace: str) -> None:
    put(cluster, document(FULL, namespace=namespace))
    status = ApplicationStatus(
        sync="drifted", health="healthy", revision="0123456789abcdef0123456789abcdef01234567",
        drifted=2, objects=7, observed_generation=1,
        not_in_sync=(ObjectSummary(object="Deployment a/b", standing="drifted", drift="drf-1"),),
        conditions=(Condition(type="Ready", status="True", reason="Succeeded",
                              last_transition_time="2026-11-16T10:00:00Z"),),
    )  # fmt: skip
    cluster.kubectl(
        "patch", "holdapp", "shop", "-n", namespace, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": status_to_json(status)}),
    )  # fmt: skip
    head, row = cluster.kubectl("get", "holdapp", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "PROJECT", "SYNC", "HEALTH", "REVISION", "DRIFT", "AGE"]
    assert row.split()[:-1] == ["shop", "acme", "drifted", "healthy", "0123456", "2"]
    stored = application_from_json(cluster.get("holdapp", "shop", namespace))
    assert stored.status == status
