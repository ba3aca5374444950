"""A workload as a document."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import specs, trees

from holdfast.core.errors import ValidationError
from holdfast.core.workload import SPEC_FIELDS, WorkloadSpec
from holdfast.wire.spec_v1 import spec_from_document, spec_from_fields, spec_to_document

GOOD = {"name": "chat", "model": "m", "backend": "vllm"}


@given(specs())
def test_a_spec_reads_back_equal(spec: WorkloadSpec) -> None:
    assert spec_from_document(spec_to_document(spec)) == spec


@given(specs())
def test_a_spec_reads_back_equal_through_json(spec: WorkloadSpec) -> None:
    again = spec_from_document(json.loads(json.dumps(spec_to_document(spec))))
    assert again == spec
    assert again.fields() == spec.fields()


@given(specs())
def test_stored_fields_are_a_spec(spec: WorkloadSpec) -> None:
    assert spec_from_fields(spec.slug, spec.fields()).fields() == spec.fields()


def test_a_document_says_what_it_is() -> None:
    document = spec_to_document(WorkloadSpec(**GOOD, project="acme"))
    assert list(document.items())[:4] == [
        ("apiVersion", "holdfast.dev/v1"),
        ("kind", "Workload"),
        ("slug", "chat"),
        ("project", "acme"),
    ]


def test_the_head_may_be_left_out_and_null_means_unset() -> None:
    spec = spec_from_document({**GOOD, "slug": None, "replicas": None})
    assert spec == WorkloadSpec(**GOOD)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"apiVersion": "v1"}, "apiVersion"),
        ({"apiVersion": None}, "apiVersion"),
        ({"kind": "Plan"}, "kind"),
        ({"kind": ["Workload"]}, "kind"),
        ({"replica": 1}, "replica"),
        ({"spec": {}}, "spec"),
        ({"status": {}}, "status"),
        ({"id": "x"}, "id"),
        ({"generation": 1}, "generation"),
        ({True: 1}, "True"),
        ({"name": None}, "name"),
        ({"model": None}, "model"),
        ({"backend": None}, "backend"),
        ({"fields": 1}, "fields"),
        ({"__class__": 1}, "__class__"),
    ],
)
def test_what_does_not_belong_is_refused_by_name(given: dict[object, object], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        spec_from_document({**GOOD, **given})
    assert field in [problem.field for problem in caught.value.problems]


def test_problems_of_the_document_and_of_the_spec_are_named_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        spec_from_document({"kind": "x", "typo": 1, "replicas": -1, "name": "chat"})
    assert [problem.field for problem in caught.value.problems] == [
        "kind", "typo", "model", "backend", "replicas",
    ]  # fmt: skip


@pytest.mark.parametrize("document", [None, 5, "x", [], [GOOD], b"{}"])
def test_what_is_no_mapping_is_refused(document: object) -> None:
    with pytest.raises(ValidationError, match="mapping of fields"):
        spec_from_document(document)


@pytest.mark.parametrize("name", ["slug", "project", "apiVersion", "kind", "id", "nonsense"])
def test_fields_cannot_carry_an_identity(name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        spec_from_fields("chat", {**GOOD, name: "holdfast.dev/v1"})
    assert [problem.field for problem in caught.value.problems] == [name]


@given(st.dictionaries(st.one_of(st.sampled_from(SPEC_FIELDS), st.text()), trees(), max_size=6))
def test_any_mapping_is_read_or_refused_and_nothing_else(document: dict[str, object]) -> None:
    with suppress(ValidationError):
        spec_from_document({**GOOD, **document})


def test_an_unknown_name_is_not_echoed_when_it_is_a_token() -> None:
    token = "ik_sdk_0a1b2c3d_" + "f" * 64
    with pytest.raises(ValidationError) as caught:
        spec_from_document({**GOOD, token: 1, "\x1b[31m": 2})
    assert "ffff" not in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()
