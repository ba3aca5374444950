"""A saved plan reads back as it was written, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import drifts, lives, trees, writers

from holdfast.core.cost import Cost, CostKind, DeviceNeed
from holdfast.core.drift import Drift, find_drift
from holdfast.core.errors import ValidationError
from holdfast.core.live import Absent, Live, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Plan, delete_plan, make_plan, with_cost
from holdfast.core.workload import Desired
from holdfast.wire.decode import reshape
from holdfast.wire.plan_v1 import (
    StepForm,
    WriterForm,
    plan_from_json,
    plan_to_json,
    step_from_json,
    step_to_json,
)

WHERE = WorkloadId(project="acme", slug="chat")
SEEN = Live(
    id=WHERE, uid="u1", version="v1", generation=1, fields={"model": "n", "env": {"A": "1"}},
    writers={"model": Writer(manager="curl", actor="ops")},
)  # fmt: skip
COST = Cost(
    kind=CostKind.ROLLING, pods=2, cold_start=41.5, blocked=True,
    devices=(DeviceNeed(resource="nvidia.com/gpu", needed=1, free=0),),
)  # fmt: skip
_PLAN = make_plan(
    [
        find_drift(desired=Desired(id=WHERE, fields={"model": "m", "env": {}}), live=SEEN),
        find_drift(
            desired=Desired(id=WorkloadId(project="acme", slug="embed"), fields={"model": "e"}),
            live=Absent(id=WorkloadId(project="acme", slug="embed")),
        ),
    ]
)
PLAN = Plan(steps=tuple(with_cost(step, COST) for step in _PLAN.steps))


def saved(plan: Plan) -> bytes:
    return msgspec.json.encode(plan_to_json(plan))


def document() -> dict[str, Any]:  # Any: a parsed document, to be edited
    parsed: dict[str, Any] = json.loads(saved(PLAN))
    return parsed


@given(st.lists(drifts(), max_size=2))
def test_a_plan_reads_back_equal(found: list[Drift]) -> None:
    plan = make_plan(found)
    again = plan_from_json(saved(plan))
    assert again == plan
    assert again.digest == plan.digest
    assert str(again) == str(plan)


@given(lives())
def test_a_deletion_reads_back_equal(live: Live) -> None:
    assert plan_from_json(saved(delete_plan(live))) == delete_plan(live)


@given(drifts())
def test_a_step_reads_back_equal(drift: Drift) -> None:
    (step,) = make_plan([drift]).steps
    body = msgspec.json.encode(step_to_json(step))
    assert step_from_json(msgspec.json.decode(body, type=StepForm)) == step


@given(writers())
def test_a_writer_reads_back_equal(writer: Writer) -> None:
    body = msgspec.json.encode(reshape(WriterForm, writer))
    assert reshape(Writer, msgspec.json.decode(body, type=WriterForm)) == writer


def test_what_a_step_costs_reads_back_and_what_is_of_the_moment_makes_no_other_plan() -> None:
    assert plan_from_json(saved(PLAN)) == PLAN
    later = replace(
        COST, blocked=False, cold_start=None, devices=(replace(COST.devices[0], free=9),)
    )
    assert Plan(steps=tuple(with_cost(step, later) for step in _PLAN.steps)).digest == PLAN.digest
    assert _PLAN.digest != PLAN.digest


def test_a_saved_plan_says_what_it_is() -> None:
    parsed = document()
    assert parsed["apiVersion"] == "holdfast.dev/v1"
    assert parsed["kind"] == "Plan"
    assert parsed["id"] == PLAN.id
    assert parsed["digest"] == PLAN.digest
    assert parsed["steps"][0]["changes"][1] == {
        "path": "/model", "kind": "configuration", "desired": "m", "live": "n",
        "writer": {"manager": "curl", "actor": "ops"}, "cause": "person",
    }  # fmt: skip


EDITS: list[tuple[str, Any]] = [
    ("id", "plan-00000000"),
    ("id", ""),
    ("digest", "sha256:" + "0" * 64),
    ("digest", ""),
    ("steps", []),
    ("steps.0.action", "nothing"),
    ("steps.0.action", "delete"),
    ("steps.0.reason", "trust me"),
    ("steps.0.disruption", "none"),
    ("steps.0.slug", "other"),
    ("steps.0.project", "other"),
    ("steps.0.uid", "u2"),
    ("steps.0.uid", None),
    ("steps.0.version", "v2"),
    ("steps.0.write", {}),
    ("steps.0.write.model", "x"),
    ("steps.0.write.replicas", 9),
    ("steps.0.changes", []),
    ("steps.0.changes.1.path", "/backend"),
    ("steps.0.changes.1.desired", "x"),
    ("steps.0.changes.1.live", "m"),
    ("steps.0.changes.1.kind", "image"),
    ("steps.0.changes.1.cause", "gitops"),
    ("steps.0.changes.1.writer", None),
    ("steps.0.changes.1.writer.manager", "argocd"),
    ("steps.0.changes.1.writer.actor", "maria"),
    ("steps.0.cost", None),
    ("steps.0.cost.kind", "none"),
    ("steps.0.cost.pods", 0),
    ("steps.0.cost.added", 1),
    ("steps.0.cost.devices", []),
    ("steps.0.cost.devices.0.needed", 0),
]


def edited(path: str, value: object) -> bytes:
    parsed = document()
    *parents, last = path.split(".")
    at: Any = parsed
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = value
    return json.dumps(parsed).encode()


@pytest.mark.parametrize(("path", "value"), EDITS)
def test_an_edited_plan_is_refused(path: str, value: object) -> None:
    with pytest.raises(ValidationError, match="edited after it was made"):
        plan_from_json(edited(path, value))


@pytest.mark.parametrize(
    "path", ["more", "steps.0.more", "steps.0.changes.0.more", "steps.0.changes.0.Path"]
)
def test_a_field_that_means_nothing_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="unknown field"):
        plan_from_json(edited(path, 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("apiVersion", "holdfast.dev/v2"),
        ("kind", "Workload"),
        ("kind", "\x1b[31m"),
        ("kind", 5),
        ("steps", {}),
        ("steps.0.action", "destroy"),
        ("steps.0.write", []),
        ("steps.0.changes.0.path", "model"),
        ("steps.0.changes.0.path", ""),
        ("steps.0.slug", "../../etc"),
        ("steps.0.slug", "\x1b[31m"),
        ("steps.0.slug", ""),
        ("steps.0.project", "No Slug"),
    ],
)
def test_another_document_is_refused(path: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        plan_from_json(edited(path, value))
    assert str(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\x00", b"{", b"[]", b"null", b'"plan"', b"{}" * 2, b"\xff", b'{"id": "\xff"}',
        b'{"id": "\\ud800"}', b"\xef\xbb\xbf{}", b'{"steps": [{}]}', b"[" * 100_000,
        b'{"steps": ' + b"[" * 100_000, b'{"digest": 1e400}', b'{"id": NaN}',
        b'{"steps": [{"project": "a", "slug": "b", "action": "create", "write": {"a": 1e999}}]}',
        b'{"id": ' + b"1" * 5000 + b"}",
        "plan", '"\ud800"',
    ],
    ids=lambda text: ascii(text[:24]),
)  # fmt: skip
def test_hostile_documents_are_refused(text: bytes | str) -> None:
    with pytest.raises(ValidationError) as caught:
        plan_from_json(text)
    assert str(caught.value).isascii()


def test_a_refused_document_is_not_echoed() -> None:
    token = "ik_sdk_0a1b2c3d_" + "f" * 64
    for path in ("kind", "apiVersion", token, "steps.0.action", "steps.0.slug", "steps.0.project"):
        with pytest.raises(ValidationError) as caught:
            plan_from_json(edited(path, token))
        assert "ffff" not in str(caught.value)


@given(st.one_of(trees().map(json.dumps).map(str.encode), st.binary()))
def test_any_other_bytes_are_refused_and_nothing_else_happens(text: bytes) -> None:
    with pytest.raises(ValidationError):
        plan_from_json(text)


def test_an_empty_plan_reads_back() -> None:
    assert plan_from_json(saved(Plan(steps=()))) == Plan(steps=())


def test_a_plan_without_a_reason_can_still_be_shown() -> None:
    plan = Plan(steps=tuple(replace(step, reason="", fields=()) for step in PLAN.steps))
    again = plan_from_json(saved(plan))
    assert again.to_markdown()
    assert str(again)
