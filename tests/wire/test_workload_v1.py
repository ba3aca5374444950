"""Workloads on the HTTP wire, under the published client's names and under our own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.strategies import lives, specs

from holdfast.core.drift import Situation, find_drift
from holdfast.core.live import Live, Status
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields
from holdfast.core.workload import Desired, WorkloadSpec
from holdfast.wire.spec_v1 import spec_from_fields
from holdfast.wire.workload_v1 import (
    CreateForm,
    UpdateForm,
    WorkloadForm,
    create_fields,
    update_fields,
    workload_from_json,
    workload_to_json,
)

WHERE = WorkloadId(project="acme", slug="chat")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIVE = Live(
    id=WHERE, uid="u1", version="v1", generation=3, created_at=NOW, updated_at=NOW,
    fields={
        "name": "Chat", "model": "m", "backend": "vllm", "command": "vllm serve m", "replicas": 2,
        "vllm_version": "0.11", "config": {"a": 1},
    },
)  # fmt: skip


def sent(live: Live) -> dict[str, Any]:  # Any: parsed JSON
    parsed: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(workload_to_json(live, project_id="p1"))
    )
    return parsed


def read(form: type, **given: Any) -> Any:  # Any: either form, built from parsed JSON
    return msgspec.json.decode(msgspec.json.encode(given), type=form)


@given(lives())
def test_a_workload_reads_back_equal(live: Live) -> None:
    body = msgspec.json.encode(workload_to_json(live, project_id="p1"))
    assert workload_from_json(msgspec.json.decode(body, type=WorkloadForm)) == live


@given(lives())
def test_every_answer_has_what_the_published_client_needs(live: Live) -> None:
    answer = sent(live)
    for name in (
        "id", "project_id", "name", "slug", "task_type", "backend", "model_name", "created_at",
        "updated_at",
    ):  # fmt: skip
        assert isinstance(answer[name], str)


def test_an_answer_has_both_sets_of_names() -> None:
    answer = sent(LIVE)
    assert answer["model_name"] == "m"
    assert answer["config"] == {"a": 1, "command": "vllm serve m", "vllm_version": "0.11"}
    assert answer["execution_policy"] == "fixed"
    assert answer["execution_policy_config"] == {"replicas": 2}
    assert answer["task_type"] == "text2text"
    assert answer["created_at"] == "2030-01-01T00:00:00Z"
    assert answer["spec"] == LIVE.fields
    assert (answer["project_slug"], answer["workload_slug"]) == ("acme", "chat")
    assert (answer["version"], answer["generation"]) == ("v1", 3)


def test_a_workload_with_hardly_any_fields_can_still_be_answered() -> None:
    bare = replace(LIVE, fields={}, created_at=None, updated_at=None)
    answer = sent(bare)
    assert (answer["name"], answer["backend"], answer["model_name"]) == ("chat", "custom", "")
    assert answer["created_at"] == "1970-01-01T00:00:00Z"
    assert "config" not in answer


def test_an_answer_of_another_version_is_read_for_what_is_known() -> None:
    answer = {**sent(LIVE), "invented": 1}
    del answer["status"]
    again = workload_from_json(msgspec.convert(answer, type=WorkloadForm))
    assert again == replace(LIVE, status=Status())


@given(specs())
def test_what_an_answer_says_under_the_old_names_is_no_drift(spec: WorkloadSpec) -> None:
    """A client that writes back what it read must not cause drift."""
    live = replace(LIVE, id=WorkloadId(project="acme", slug=spec.slug), fields=spec.fields())
    answer = sent(live)
    shared = {
        name: answer[name]
        for name in UpdateForm.__struct_fields__
        if name in answer and name not in ("execution_policy", "execution_policy_config")
    }
    written = update_fields(read(UpdateForm, **shared))
    after = {name: value for name, value in {**live.fields, **written}.items() if value is not None}
    drift = find_drift(
        desired=Desired(id=live.id, fields=live.fields), live=replace(live, fields=after)
    )
    assert drift.situation is Situation.IN_SYNC
    spec_from_fields(spec.slug, after)


def test_a_create_becomes_fields_under_our_names() -> None:
    form = read(
        CreateForm, name="Chat Bot", slug="chat", backend="vllm", model_name="m",
        task_type="text2text", config={"command": "vllm serve m", "a": 1, "vllm_version": None},
        execution_policy="fixed", execution_policy_config={"replicas": 2}, description=None,
    )  # fmt: skip
    slug, fields = create_fields(form)
    assert slug == "chat"
    assert fields == {
        "name": "Chat Bot", "backend": "vllm", "model": "m", "task_type": "text2text",
        "command": "vllm serve m", "config": {"a": 1}, "execution_policy": "fixed",
        "execution_policy_config": {"replicas": 2},
    }  # fmt: skip


def test_a_create_without_a_slug_is_named_after_its_name() -> None:
    form = read(CreateForm, name="Chat Bot", backend="vllm", model_name="m")
    assert create_fields(form) == (
        "Chat Bot",
        {"name": "Chat Bot", "backend": "vllm", "model": "m"},
    )


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {}),
        ({"name": "x"}, {"name": "x"}),
        ({"model_name": "m"}, {"model": "m"}),
        ({"description": None}, {"description": None}),
        ({"config": None}, {"command": None, "vllm_version": None, "config": None}),
        ({"config": {}}, {"command": None, "vllm_version": None, "config": None}),
        (
            {"config": {"command": "a", "b": 1}},
            {"command": "a", "vllm_version": None, "config": {"b": 1}},
        ),
        (
            {"execution_policy": None, "execution_policy_config": None},
            {"execution_policy": None, "execution_policy_config": None},
        ),
    ],
)
def test_an_update_touches_what_it_names_and_clears_what_is_null(
    given: dict[str, object], fields: Fields
) -> None:
    assert update_fields(read(UpdateForm, **given)) == fields


@pytest.mark.parametrize(
    ("form", "given"),
    [
        (CreateForm, {"name": "x", "backend": "b", "model_name": "m", "id": "theirs"}),
        (CreateForm, {"name": "x", "backend": "b", "model_name": "m", "project_id": "theirs"}),
        (CreateForm, {"name": "x", "backend": "b"}),
        (CreateForm, {"name": 5, "backend": "b", "model_name": "m"}),
        (CreateForm, {"name": "x", "backend": "b", "model_name": "m", "config": []}),
        (UpdateForm, {"slug": "other"}),
        (UpdateForm, {"task_type": "embedding"}),
        (UpdateForm, {"generation": 5}),
        (UpdateForm, {"status": {}}),
        (UpdateForm, {"name": None}),
        (UpdateForm, {"model_name": None}),
    ],
)
def test_fields_that_are_not_the_callers_are_refused(form: type, given: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(form, **given)
