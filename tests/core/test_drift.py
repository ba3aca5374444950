"""Drift gets a kind, a writer and a cause, and an unread side is never an absent one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from tests.strategies import drifts, specs

from holdfast.core.drift import (
    Cause,
    Drift,
    DriftKind,
    Situation,
    cause_of,
    find_drift,
    kind_of,
)
from holdfast.core.live import (
    Absent,
    FailedReplica,
    Live,
    OutdatedReplica,
    Status,
    Unknown,
    Writer,
)
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, make_plan
from holdfast.core.show import plan_text
from holdfast.core.tree import Fields, Path
from holdfast.core.workload import Desired, WorkloadSpec, desired_of

WHERE = WorkloadId(project="acme", slug="chat")


def live(fields: Fields, writers: dict[str, Writer] | None = None) -> Live:
    return Live(
        id=WHERE, uid="u1", version="v1", generation=1, fields=fields, writers=writers or {}
    )


def test_the_four_situations() -> None:
    desired = Desired(id=WHERE, fields={"replicas": 2})
    for observed, situation in (
        (Absent(id=WHERE), Situation.ABSENT),
        (Unknown(id=WHERE, reason="timed out"), Situation.UNKNOWN),
        (live({"replicas": 2, "name": "x"}), Situation.IN_SYNC),
        (live({"replicas": 3}), Situation.DRIFTED),
    ):
        drift = find_drift(desired=desired, live=observed)
        assert drift.situation is situation
        assert drift.live is observed
        assert bool(drift.fields) is (situation is Situation.DRIFTED)


@given(drifts())
def test_a_drift_has_fields_exactly_when_it_is_drifted(drift: Drift) -> None:
    assert bool(drift.fields) is (drift.situation is Situation.DRIFTED)
    assert set(drift.kinds) == {field.kind for field in drift.fields}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (("secrets", "A", "name"), DriftKind.SECRET),
        (("image",), DriftKind.IMAGE),
        (("canary", "image"), DriftKind.IMAGE),
        (("vllm_version",), DriftKind.IMAGE),
        (("env", "A"), DriftKind.CONFIGURATION),
        (("replicas",), DriftKind.CONFIGURATION),
    ],
)
def test_a_path_has_a_kind(path: Path, kind: DriftKind) -> None:
    assert kind_of(path) is kind


@pytest.mark.parametrize(
    ("manager", "cause"),
    [
        ("kubectl-edit", Cause.PERSON),
        ("Mozilla", Cause.PERSON),
        ("curl", Cause.PERSON),
        ("holdfast-sdk", Cause.PERSON),
        ("helm", Cause.GITOPS),
        ("helm-controller", Cause.GITOPS),
        ("argocd-application-controller", Cause.GITOPS),
        ("keda-operator", Cause.AUTOSCALER),
        ("horizontal-pod-autoscaler", Cause.AUTOSCALER),
        ("kube-controller-manager", Cause.CONTROLLER),
        ("something-else", Cause.UNKNOWN),
        ("", Cause.UNKNOWN),
    ],
)
def test_a_writer_is_judged_by_its_tool(manager: str, cause: Cause) -> None:
    assert cause_of(Writer(manager=manager)) is cause


def test_no_writer_is_an_unknown_cause() -> None:
    assert cause_of(None) is Cause.UNKNOWN


def test_each_change_names_the_last_writer_of_its_field() -> None:
    editor = Writer(manager="kubectl-edit", actor="maria", at=datetime(2030, 1, 1, tzinfo=UTC))
    drift = find_drift(
        desired=Desired(id=WHERE, fields={"env": {"A": "1"}, "model": "m"}),
        live=live({"env": {"A": "2"}, "model": "n"}, {"env": editor}),
    )
    env, model = drift.fields
    assert (env.writer, env.cause) == (editor, Cause.PERSON)
    assert (model.writer, model.cause) == (None, Cause.UNKNOWN)


def test_a_count_that_was_written_as_a_policy_still_names_its_writer() -> None:
    editor = Writer(manager="curl")
    drift = find_drift(
        desired=Desired(id=WHERE, fields={"replicas": 1}),
        live=live(
            {"execution_policy": "fixed", "execution_policy_config": {"replicas": 2}},
            {"execution_policy_config": editor},
        ),
    )
    assert drift.fields[0].writer == editor


def test_kinds_stand_once_and_in_one_order() -> None:
    drift = find_drift(
        desired=Desired(
            id=WHERE,
            fields={"secrets": {"A": {"name": "n", "key": "k"}}, "image": "i", "model": "m"},
        ),
        live=live({}),
    )
    assert drift.kinds == (DriftKind.CONFIGURATION, DriftKind.IMAGE, DriftKind.SECRET)


@given(specs())
def test_a_spec_lies_in_its_own_project_or_in_the_given_one(spec: WorkloadSpec) -> None:
    desired = desired_of(spec, project="fallback", source="a.yaml:1")
    assert desired.id == WorkloadId(project=spec.project or "fallback", slug=spec.slug)
    assert desired.fields == spec.fields()
    assert desired.source == "a.yaml:1"


def test_a_revision_follows_the_declaration_and_not_where_it_stood() -> None:
    one = Desired(id=WHERE, fields={"a": 1, "b": 2}, source="x.yaml")
    assert one.revision == Desired(id=WHERE, fields={"b": 2, "a": 1}).revision
    assert one.revision != Desired(id=WHERE, fields={"a": 1}).revision
    other = WorkloadId(project="acme", slug="other")
    assert one.revision != Desired(id=other, fields=one.fields).revision


def test_a_writer_is_shown_with_its_credential() -> None:
    assert str(Writer(manager="curl", actor="ops")) == "curl (ops)"
    assert str(Writer(manager="curl")) == "curl"


def stuck(written: Fields, *runs: OutdatedReplica) -> Live:
    """A workload whose new replica fails, with what serves in its place."""
    failed = FailedReplica(name="primary-2", generation=2, reason="It exited with code 3.")
    return replace(live(written), status=Status(failed=(failed,), outdated=runs))


def old(fields: Fields | None, secrets: tuple[str, ...] = ()) -> OutdatedReplica:
    return OutdatedReplica(name="primary-1", generation=1, fields=fields, secrets=secrets)


def test_what_is_written_and_does_not_run_is_drift_with_the_reason() -> None:
    desired = Desired(id=WHERE, fields={"image": "new", "name": "x"})
    seen = stuck({"image": "new", "name": "x"}, old({"image": "old"}))
    drift = find_drift(desired=desired, live=seen)
    assert drift.situation is Situation.DRIFTED
    (field,) = drift.fields
    assert (field.change.path, field.change.live, field.change.desired) == (
        ("image",),
        "old",
        "new",
    )
    assert "exited with code 3" in field.evidence
    step = make_plan([drift]).steps[0]
    assert step.action is Action.UPDATE
    assert step.write == {"image": "new"}
    assert "exited with code 3" in plan_text(make_plan([drift]))


def test_a_rollout_under_way_is_no_drift() -> None:
    desired = Desired(id=WHERE, fields={"image": "new"})
    seen = replace(live({"image": "new"}), status=Status(outdated=(old({"image": "old"}),)))
    assert find_drift(desired=desired, live=seen).situation is Situation.IN_SYNC


def test_a_replica_that_cannot_start_is_drift_even_when_nothing_serves_in_its_place() -> None:
    desired = Desired(id=WHERE, fields={"image": "new"})
    for seen in (stuck({"image": "new"}), stuck({"image": "new"}, old(None))):
        drift = find_drift(desired=desired, live=seen)
        assert [each.change.path for each in drift.fields] == [("replicas", "primary-2")]
        assert drift.kinds == (DriftKind.RESOURCE,)
        step = make_plan([drift]).steps[0]
        assert (step.action, step.write) == (Action.UPDATE, {})


def test_going_back_to_what_still_runs_is_a_change_of_what_is_written() -> None:
    desired = Desired(id=WHERE, fields={"image": "old"})
    drift = find_drift(desired=desired, live=stuck({"image": "new"}, old({"image": "old"})))
    (field,) = drift.fields
    assert (field.change.live, field.change.desired) == ("new", "old")


def test_a_field_that_nobody_declared_is_no_drift_when_it_runs_otherwise() -> None:
    desired = Desired(id=WHERE, fields={"name": "x"})
    seen = stuck({"image": "new", "name": "x"}, old({"image": "old"}))
    assert find_drift(desired=desired, live=seen).situation is Situation.IN_SYNC


def test_a_rotated_secret_that_did_not_arrive_is_secret_drift() -> None:
    fields: Fields = {"secrets": {"HF_TOKEN": "hub/token"}}
    drift = find_drift(
        desired=Desired(id=WHERE, fields=fields), live=stuck(fields, old({}, ("HF_TOKEN",)))
    )
    assert drift.kinds == (DriftKind.SECRET,)
