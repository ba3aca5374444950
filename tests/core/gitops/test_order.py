"""The order of objects: what others need comes first, and goes last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.gitops.plan import apply_rank, in_apply_order, in_delete_order
from holdfast.core.object_ref import ObjectRef

ORDER = [
    ("v1", "Namespace"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ServiceAccount"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "Secret"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Service"),
    ("coordination.k8s.io/v1", "Lease"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("holdfast.dev/v1alpha1", "InferenceService"),
]


def ref(kind: tuple[str, str], name: str = "x") -> ObjectRef:
    return ObjectRef(api_version=kind[0], kind=kind[1], namespace="", name=name)


def test_what_others_need_comes_first() -> None:
    assert in_apply_order(map(ref, reversed(ORDER)), lambda each: each) == [
        ref(kind) for kind in ORDER
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("v1", "Secret"), ("v1", "ConfigMap")),
        (("v1", "Secret"), ("external-secrets.io/v1", "ExternalSecret")),
        (("apps/v1", "Deployment"), ("apps/v1beta1", "Deployment")),
        (("serving.knative.dev/v1", "Service"), ("example.com/v1", "Thing")),
    ],
)
def test_these_have_the_same_place(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert apply_rank(ref(one)) == apply_rank(ref(other))


REFS = st.lists(st.builds(ref, st.sampled_from(ORDER), st.text(max_size=3)), max_size=30)


@given(refs=REFS)
def test_equals_keep_their_order_and_deletion_is_the_other_way_round(
    refs: list[ObjectRef],
) -> None:
    numbered = list(enumerate(refs))
    applied = in_apply_order(numbered, lambda each: each[1])
    assert applied == sorted(numbered, key=lambda each: (apply_rank(each[1]), each[0]))
    assert in_delete_order(numbered, lambda each: each[1]) == applied[::-1]
