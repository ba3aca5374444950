"""What both clients do, on the memory target."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.both_clients import CLIENT_KINDS, DrivenClient

from holdfast import (
    Backend,
    ConfigurationError,
    DriftError,
    DriftWarning,
    NotFound,
    OnAbsent,
    OnDrift,
    Outcome,
    StalePlan,
    TargetUnavailable,
    ValidationError,
    WorkloadSpec,
)
from holdfast.core.errors import NOTHING_CHANGED, OUTCOME_UNKNOWN, Problem
from holdfast.testing import (
    a_spec,
    async_memory_client,
    drift,
    fail_next,
    memory_client,
    remove,
    set_available,
    writes,
)

Client = Any  # either colour, under the same names
PROBLEM = Problem(field="replicas", reason="it is too much.", fix="Use less.")


@pytest.fixture(params=CLIENT_KINDS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    made = memory_client() if request.param == "sync" else DrivenClient(async_memory_client())
    with made:
        yield made


def test_absent_is_created_and_present_is_left_alone(client: Client) -> None:
    first = client.ensure(a_spec())
    second = client.ensure(a_spec())
    assert (first.outcome, second.outcome) == (Outcome.CREATED, Outcome.UNCHANGED)
    assert (first.project_slug, first.workload_slug) == ("test", "support-bot")
    assert len(writes(client)) == 1


def test_drift_is_put_back_and_the_plan_says_who_moved_what(client: Client) -> None:
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9, by="kubectl-edit")
    ref = client.ensure(a_spec(replicas=2))
    assert ref.outcome is Outcome.UPDATED
    assert client.get("support-bot").fields["replicas"] == 2
    moved = ref.plan.steps[0].fields[0]
    assert (moved.change.live, moved.writer.manager) == (9, "kubectl-edit")


def test_fail_raises_a_validation_error_with_the_plan(client: Client) -> None:
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9)
    with pytest.raises(ValidationError) as raised:
        client.ensure(a_spec(replicas=2), on_drift="fail")
    assert isinstance(raised.value, DriftError)
    assert raised.value.plan.changes[0].write == {"replicas": 2}
    assert client.get("support-bot").fields["replicas"] == 9


def test_dry_run_returns_the_plan_and_applying_it_mends_the_drift(client: Client) -> None:
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9)
    ref = client.ensure(a_spec(replicas=2), on_drift=OnDrift.DRY_RUN)
    assert ref.outcome is Outcome.PLANNED and ref.plan
    client.apply(ref.plan)
    assert client.get("support-bot").fields["replicas"] == 2


def test_warn_warns_and_logs_and_ignore_does_neither(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        with pytest.warns(DriftWarning, match="replicas"):
            assert client.ensure(a_spec(replicas=2), on_drift="warn").outcome is Outcome.LEFT
        assert [record.getMessage().split()[0] for record in caplog.records] == ["workload_drifted"]
        caplog.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert client.ensure(a_spec(replicas=2), on_drift="ignore").outcome is Outcome.LEFT
        assert not caplog.records
    assert client.get("support-bot").fields["replicas"] == 9


def test_the_warning_points_at_the_line_of_the_caller() -> None:
    client = memory_client()
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9)
    with pytest.warns(DriftWarning) as caught:
        client.ensure(a_spec(replicas=2), on_drift="warn")
    assert caught[0].filename == __file__


def test_the_absent_case_has_a_policy_of_its_own(client: Client) -> None:
    planned = client.ensure(a_spec(), on_absent=OnAbsent.PLAN)
    assert planned.outcome is Outcome.PLANNED and planned.live is None
    with pytest.raises(NotFound, match="on_absent"):
        client.ensure(a_spec(), on_absent="fail")
    assert client.list() == []


@pytest.mark.parametrize("name", ["DRY_RUN", "dry-run", "dry_run"])
def test_policies_are_accepted_as_text(client: Client, name: str) -> None:
    client.ensure(a_spec())
    assert client.ensure(a_spec(), on_drift=name).outcome is Outcome.UNCHANGED


def test_an_unknown_policy_is_refused_with_the_names_there_are(client: Client) -> None:
    with pytest.raises(ValidationError, match="reconcile, fail, dry_run"):
        client.ensure(a_spec(), on_drift="yolo")
    with pytest.raises(ValidationError, match="WorkloadSpec"):
        client.ensure({"name": "chat"})
    assert client.list() == []


def test_a_call_names_its_project_before_the_spec_and_the_spec_before_the_client(
    client: Client,
) -> None:
    assert client.ensure(a_spec()).project_slug == "test"
    assert client.ensure(a_spec(project="of-spec")).project_slug == "of-spec"
    assert client.ensure(a_spec(project="of-spec"), project="of-call").project_slug == "of-call"


def test_ensure_all_stops_before_the_first_write_when_one_has_drifted(client: Client) -> None:
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9)
    specs = [a_spec(name="another"), a_spec(replicas=2)]
    with pytest.raises(DriftError) as raised:
        client.ensure_all(specs, on_drift="fail")
    assert len(raised.value.plan.changes) == 2
    assert [live.id.slug for live in client.list()] == ["support-bot"]


def test_ensure_all_refuses_one_slug_twice(client: Client) -> None:
    with pytest.raises(ValidationError, match="declared twice"):
        client.ensure_all([a_spec(), a_spec(replicas=3)])
    assert client.list() == []


def test_ensure_all_says_what_was_done_when_one_fails(client: Client) -> None:
    specs = [a_spec(name=name) for name in ("first", "second", "third")]
    lost = TargetUnavailable("The answer was lost.", changed=OUTCOME_UNKNOWN)
    fail_next(client, lost, after_effect=True, slug="second")
    with pytest.raises(TargetUnavailable) as raised:
        client.ensure_all(specs)
    assert "first (created)" in raised.value.changed
    assert OUTCOME_UNKNOWN in raised.value.changed
    assert [live.id.slug for live in client.list()] == ["first", "second"]


def test_a_plan_changes_nothing_and_is_refused_once_the_world_moved(client: Client) -> None:
    plan = client.plan([a_spec(), a_spec(name="another")])
    assert len(plan.changes) == 2 and client.list() == []
    client.ensure(a_spec())
    with pytest.raises(StalePlan, match="created meanwhile"):
        client.apply(plan)
    assert [live.id.slug for live in client.list()] == ["support-bot"]


def test_get_raises_not_found_and_delete_says_whether_it_was_there(client: Client) -> None:
    with pytest.raises(NotFound):
        client.get("support-bot")
    assert client.delete("support-bot") is False
    client.ensure(a_spec())
    assert client.delete("support-bot") is True
    assert client.delete("support-bot") is False


def test_a_target_that_does_not_answer_is_never_taken_as_empty(client: Client) -> None:
    client.ensure(a_spec())
    set_available(client, False)
    for call in (
        lambda: client.ensure(a_spec()),
        lambda: client.plan(a_spec()),
        lambda: client.get("support-bot"),
        client.list,
        lambda: client.delete("support-bot"),
    ):
        with pytest.raises(TargetUnavailable):
            call()
    set_available(client, True)
    assert client.get("support-bot").generation == 1


def test_an_answer_lost_after_the_effect_is_found_by_the_next_call(client: Client) -> None:
    fail_next(client, after_effect=True)
    with pytest.raises(TargetUnavailable):
        client.ensure(a_spec())
    assert client.ensure(a_spec()).outcome is Outcome.UNCHANGED
    assert len(writes(client)) == 1


def test_an_error_after_the_effect_does_not_say_that_nothing_was_changed(client: Client) -> None:
    ordered = TargetUnavailable("The answer was lost.")
    for name in ("first", "second"):
        fail_next(client, ordered, after_effect=True)
        with pytest.raises(TargetUnavailable) as raised:
            client.ensure(a_spec(name=name))
        assert raised.value.changed == OUTCOME_UNKNOWN
    assert ordered.changed == NOTHING_CHANGED, "it is the caller's own"
    fail_next(client, ValidationError(problems=[PROBLEM]), after_effect=True, slug="third")
    with pytest.raises(ValidationError) as refused:
        client.ensure_all([a_spec(name=name) for name in ("new", "third")])
    assert NOTHING_CHANGED not in str(refused.value)
    assert "new (created)" in refused.value.changed and str(PROBLEM) in refused.value.changed
    assert [live.id.slug for live in client.list()] == ["first", "new", "second", "third"]


def test_a_ref_is_shown_in_a_line(client: Client) -> None:
    ref = client.ensure(a_spec())
    assert str(ref) == "test/support-bot created"
    assert repr(ref) == f"<EndpointRef test/support-bot created by {ref.plan.id}>"


def test_a_workload_deleted_behind_our_back_is_created_again(client: Client) -> None:
    first = client.ensure(a_spec()).live
    assert remove(client, "support-bot")
    again = client.ensure(a_spec())
    assert again.outcome is Outcome.CREATED and again.live.uid != first.uid


def test_drifts_and_history_tell_the_story(client: Client) -> None:
    client.ensure(a_spec(replicas=2))
    drift(client, "support-bot", replicas=9, by="curl")
    (opened,) = client.drifts()
    assert opened.fields[0].path == "/replicas" and opened.resolved_at is None
    client.ensure(a_spec(replicas=2))
    assert client.drifts() == []
    (resolved,) = client.drifts(include_resolved=True, slug="support-bot")
    assert resolved.resolution == "reconciled"
    assert [row.action for row in client.history()] == ["updated", "updated", "created"]
    assert [row.generation for row in client.history(limit=2)] == [3, 2]


def test_watch_shows_what_is_there_and_then_each_change(client: Client) -> None:
    client.ensure(a_spec())
    seen = client.watch(timeout=30)
    assert next(seen).kind == "present"
    client.ensure(a_spec(name="another"))
    change = next(seen)
    assert (change.kind, change.live.id.slug) == ("created", "another")
    client.delete("another")
    assert next(seen).kind == "deleted"
    seen.close()


def test_without_a_project_a_remote_client_says_what_to_set(client: Client) -> None:
    from holdfast import ManagementClient

    remote = ManagementClient("https://host.example", token="ik_sdk_a_b")
    with pytest.raises(ConfigurationError, match="HOLDFAST_PROJECT"):
        remote.get("support-bot")


def test_a_custom_backend_is_a_plain_name(client: Client) -> None:
    spec = WorkloadSpec(name="mine", model="m", backend="my-server")
    assert client.ensure(spec).live.fields["backend"] == "my-server"
    assert Backend.VLLM == "vllm"
