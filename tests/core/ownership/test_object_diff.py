"""A diff joins what each signal alone cannot show, and says what it rests on.

The objects were captured from a real cluster after real edits: tests/support/edits.py.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.edits import DEPLOYMENT, EDITS, SERVER, Edit, with_change
from tests.support.ownership import KEY, MANAGER, NOW, declaration_of, diff_as_operator

from holdfast.core.drift import Cause, DriftKind, cause_of
from holdfast.core.errors import ConfigurationError
from holdfast.core.live import Writer
from holdfast.core.ownership.delegated import FieldClass, OwnershipContext
from holdfast.core.ownership.ignore import AmountKind, IgnoreRule
from holdfast.core.ownership.object_diff import (
    ObjectDiff,
    ObjectState,
    cache_key,
    diff_object,
)
from holdfast.core.ownership.signals import APPLIED_PATH, Signal
from holdfast.core.ownership.signals import declare as sealed
from holdfast.core.tree import show_path

BY_NAME = {edit.name: edit for edit in EDITS}


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def captured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BY_NAME[name].file.read_text())
    return found


def live_after(name: str) -> dict[str, Any]:
    live: dict[str, Any] = captured(name)["live"]
    return live


def paths(found: ObjectDiff) -> list[str]:
    return [show_path(item.change.path) for item in found.drifted]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_gets_its_state_kind_writer_and_cause(edit: Edit) -> None:
    found = diff_as_operator(edit.item, live_after(edit.name))
    assert found.state is edit.state
    assert {
        (
            show_path(item.change.path),
            item.signal,
            item.cause,
            item.writer.manager if item.writer else None,
            item.kind,
            item.field_class,
        )
        for item in found.field_drifts
    } == {
        (item.path, item.signal, item.cause, item.manager, item.kind, item.field_class)
        for item in edit.field_drifts
    }
    assert all(item.evidence for item in found.field_drifts)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_after_a_dry_run_nothing_is_suspect(edit: Edit) -> None:
    answer = captured(edit.name)["dry_run"]
    found = diff_as_operator(edit.item, live_after(edit.name), dry_run=answer or None)
    assert found.state is (edit.after_dry_run or edit.state)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_what_a_heal_answers_is_in_sync_save_for_additions(edit: Edit) -> None:
    """The answer of a dry run is the object as it would be after an apply."""
    answer = captured(edit.name)["dry_run"]
    if answer:
        found = diff_as_operator(edit.item, answer)
        assert {item.signal for item in found.drifted} <= {Signal.ADDED}


def test_no_secret_shows_in_a_diff() -> None:
    found = diff_as_operator(
        BY_NAME["a secret and one more"].item, live_after("a secret and one more")
    )
    assert paths(found) == ["data.more", "data.token"]
    assert "hunter2" not in repr(found)
    assert "aHVudGVyMg" not in repr(found)


def test_an_object_that_is_gone_or_another_is_a_drift_of_resource() -> None:
    gone = diff_as_operator(DEPLOYMENT, None)
    other = diff_object(
        declared=declaration_of(DEPLOYMENT, uid="another"),
        live=live_after("nothing"),
        key=KEY,
        now=NOW,
    )
    for found in (gone, other):
        assert found.state is ObjectState.DRIFTED
        assert [item.kind for item in found.field_drifts] == [DriftKind.RESOURCE]


def test_owning_nothing_is_no_alarm_before_the_first_apply() -> None:
    live = live_after("nothing")
    del live["metadata"]["managedFields"]
    assert diff_as_operator(DEPLOYMENT, live).state is ObjectState.WIPED
    never = declaration_of(DEPLOYMENT, applied=False)
    assert diff_object(declared=never, live=live, key=KEY, now=NOW).state is ObjectState.IN_SYNC


def test_an_unknown_merged_writer_stays_unknown() -> None:
    live = live_after("kubectl set image")
    for entry in live["metadata"]["managedFields"]:
        if entry["manager"] == "kubectl-set":
            entry["manager"] = "ancient-changes"
            del entry["time"]
    [found] = diff_as_operator(DEPLOYMENT, live).drifted
    assert (found.cause, found.kind) == (Cause.UNKNOWN, DriftKind.IMAGE)
    assert "its writer is unknown" in found.evidence


def test_a_value_that_we_own_and_did_not_declare_needs_a_dry_run() -> None:
    """Either Git moved on, which an apply cures, or admission rewrote it, which none does."""
    live = live_after("nothing")

    def relabel(item: dict[str, Any]) -> None:
        item["metadata"]["labels"]["app"] = "rewritten"

    rewritten = with_change(live, relabel)
    assert diff_as_operator(DEPLOYMENT, rewritten).state is ObjectState.SUSPECT
    [admission] = diff_as_operator(DEPLOYMENT, rewritten, dry_run=rewritten).drifted
    assert admission.cause is Cause.ADMISSION
    [declared] = diff_as_operator(DEPLOYMENT, rewritten, dry_run=live).drifted
    assert declared.cause is Cause.UNKNOWN


def test_a_diff_is_remembered_for_one_object_one_version_and_one_declaration() -> None:
    live = live_after("nothing")
    uid, version = live["metadata"]["uid"], live["metadata"]["resourceVersion"]
    assert cache_key(live, "sha256:1") == (uid, version, "sha256:1")


def cache(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1"}
    return {"apiVersion": "x.example/v1", "kind": "Cache", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("same_as", "declared", "live", "alike"),
    [
        (AmountKind.QUANTITY, "1.25G", "1250M", True),
        (AmountKind.QUANTITY, "1", 1, True),
        (AmountKind.QUANTITY, "0.5", "500m", True),
        (AmountKind.QUANTITY, "1.25G", "1300M", False),
        (AmountKind.QUANTITY, "big", "large", False),
        (AmountKind.QUANTITY, "1", True, False),
        (AmountKind.QUANTITY, "90s", "1m30s", False),
        (AmountKind.DURATION, "90s", "1m30s", True),
        (AmountKind.DURATION, "1500ms", "1.5s", True),
        (AmountKind.DURATION, "90s", "91s", False),
        (AmountKind.DURATION, "90s", 90, False),
    ],
)
def test_a_rule_says_what_a_custom_resources_field_amounts_to(
    same_as: AmountKind, declared: Any, live: Any, alike: bool
) -> None:
    """Nobody but its controller knows; without the rule every other spelling is drift."""
    item, seen = cache(deep={"size": declared}), cache(deep={"size": live})
    assert weighed(item, seen).differing, "without a rule"
    for given in (rule(pointer="/spec/deep/size", same_as=same_as),
                  rule(glob="spec.**.size", kind="Cache", same_as=same_as)):  # fmt: skip
        found = weighed(item, seen, given)
        assert (not found.differing) is alike
        assert found.ignored_paths == (), "it hides nothing"
    other = rule(pointer="/spec/deep/size", kind="Other", same_as=same_as)
    assert weighed(item, seen, other).differing


def weighed(item: Any, seen: Any, *rules: IgnoreRule) -> ObjectDiff:
    declared = replace(declaration_of(item), applied=False)
    return diff_object(
        fast_path=False, declared=declared, live=seen, key=KEY, now=NOW, ignore=rules
    )


def rule(**fields: Any) -> IgnoreRule:
    return IgnoreRule(name="r", owner="ana", **fields)


@pytest.mark.parametrize(
    ("given", "ignored_paths"),
    [
        (rule(pointer="/spec/template/spec/containers/0/image"), True),
        (rule(glob="spec.**.containers[name=*].image"), True),
        (rule(glob="spec.template.spec.containers[name=server]"), True),
        (rule(manager="kubectl-*"), True),
        (rule(manager="kubectl-set", kind="Deployment", object_name="b*"), True),
        (rule(pointer="/spec/replicas"), False),
        (rule(glob="spec.*.image"), False),
        (rule(manager="helm"), False),
        (rule(manager="kubectl-set", kind="Service"), False),
        (rule(manager="kubectl-set", namespace="elsewhere"), False),
        (rule(manager="kubectl-set", expires=NOW), False),
        (rule(manager="kubectl-set", expires=NOW + timedelta(hours=1)), True),
    ],
)
def test_a_rule_hides_what_it_names_and_the_diff_says_so(
    given: IgnoreRule, ignored_paths: bool
) -> None:
    found = diff_as_operator(DEPLOYMENT, live_after("kubectl set image"), ignore=[given])
    assert found.state is (ObjectState.IN_SYNC if ignored_paths else ObjectState.DRIFTED)
    assert [(name, show_path(path)) for name, path in found.ignored_paths] == (
        [("r", f"{SERVER}.image")] if ignored_paths else []
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: rule(),
        lambda: rule(pointer=""),
        lambda: rule(pointer="/spec"),
        lambda: rule(glob="**"),
        lambda: rule(glob="spec.**"),
        lambda: rule(manager="*"),
    ],
)
def test_a_rule_for_a_whole_object_is_refused(build: Callable[[], IgnoreRule]) -> None:
    with pytest.raises(ConfigurationError, match="whole object"):
        build()


def test_a_rule_hides_security_only_when_it_says_so() -> None:
    name = "a container and a privilege added by another manager"
    live = live_after(name)
    found = diff_as_operator(DEPLOYMENT, live, ignore=[rule(manager="miner-operator")])
    assert paths(found) == ["spec.template.spec.hostNetwork"]
    allowed = diff_as_operator(
        DEPLOYMENT, live, ignore=[rule(manager="miner-operator", security=True)]
    )
    assert allowed.state is ObjectState.IN_SYNC


def test_an_addition_of_a_trusted_manager_is_only_observed() -> None:
    live = live_after("a container and a privilege added by another manager")
    context = OwnershipContext(trusted=frozenset({"miner-operator"}))
    found = diff_as_operator(DEPLOYMENT, live, context=context)
    assert found.state is ObjectState.IN_SYNC
    assert {item.field_class for item in found.field_drifts} == {FieldClass.OBSERVED}


def without_replicas(item: dict[str, Any]) -> None:
    del item["spec"]["replicas"]


def test_replicas_that_were_not_declared_are_nobodys_drift() -> None:
    live = live_after("kubectl scale")
    found = diff_as_operator(with_change(DEPLOYMENT, without_replicas), live)
    assert found.state is ObjectState.IN_SYNC
    assert [item.field_class for item in found.field_drifts] == [FieldClass.OBSERVED]


def test_a_container_is_not_welcome_under_the_name_of_a_system_controller() -> None:
    live = live_after("a container and a privilege added by another manager")
    for entry in live["metadata"]["managedFields"]:
        if entry["manager"] == "miner-operator":
            entry["manager"] = "kube-controller-manager"
    added = ["spec.template.spec.containers[name=miner]", "spec.template.spec.hostNetwork"]
    assert paths(diff_as_operator(DEPLOYMENT, live)) == added


@pytest.mark.parametrize(
    ("writer", "cause"),
    [
        (Writer(manager="kube-controller-manager", subresource="scale"), Cause.AUTOSCALER),
        (Writer(manager="kube-controller-manager", subresource="status"), Cause.CONTROLLER),
        (Writer(manager="kubectl", subresource="scale"), Cause.PERSON),
        (Writer(manager="OpenAPI-Generator"), Cause.PERSON),
        (Writer(manager="backup-operator"), Cause.CONTROLLER),
        (Writer(manager="holdfast-replicas", operation="apply"), Cause.CONTROLLER),
        (Writer(manager="helm"), Cause.GITOPS),
        (Writer(manager="helm-controller"), Cause.GITOPS),
        (Writer(manager="ancient-changes"), Cause.UNKNOWN),
        (Writer(manager="before-first-apply"), Cause.UNKNOWN),
    ],
)
def test_a_writer_is_judged_by_its_manager_and_subresource(writer: Writer, cause: Cause) -> None:
    assert cause_of(writer) is cause


def test_a_write_to_scale_has_a_writer_and_no_time() -> None:
    [found] = diff_as_operator(DEPLOYMENT, live_after("kubectl scale")).drifted
    assert found.evidence == "kubectl (update, scale) wrote it at an unknown time"


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_judging_changes_nothing_that_it_was_given(edit: Edit) -> None:
    found = captured(edit.name)
    before = copy.deepcopy((edit.item, found))
    diff_as_operator(edit.item, found["live"], dry_run=found["dry_run"] or None)
    assert (edit.item, found) == before


@pytest.mark.parametrize("lands", [False, True])
def test_a_rule_may_let_a_declared_change_land(lands: bool) -> None:
    """While drift of the same field stays hidden."""
    hiding = rule(glob="spec.**.image", lands=lands)
    declared = sealed(DEPLOYMENT, MANAGER)
    live = live_after("nothing")
    live["metadata"].setdefault("annotations", {})["holdfast.dev/applied"] = declared.digest

    def newer(item: dict[str, Any]) -> None:
        item["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/vllm:v9"

    drifted = with_change(live, newer)
    found = diff_object(declared=declared, live=drifted, key=KEY, now=NOW, ignore=[hiding])
    assert [item.field_class for item in found.field_drifts if item.rule] == [FieldClass.IGNORED]
    renewed = sealed(with_change(DEPLOYMENT, newer), MANAGER)
    found = diff_object(declared=renewed, live=live, key=KEY, now=NOW, ignore=[hiding])
    image = next(item for item in found.field_drifts if item.change.path[-1] == "image")
    assert (image.field_class, image.pending) == (
        (FieldClass.OWNED, True) if lands else (FieldClass.IGNORED, True)
    )


def test_what_the_server_derives_from_a_new_declaration_is_no_drift() -> None:
    """As the second name of a service account, which follows the first."""
    live = live_after("nothing")
    live["metadata"].setdefault("annotations", {})[APPLIED_PATH[-1]] = "of the declaration before"
    pod = live["spec"]["template"]["spec"]
    pod["serviceAccount"] = pod["serviceAccountName"] = "one"

    def newer(item: dict[str, Any]) -> None:
        item["spec"]["template"]["spec"]["serviceAccountName"] = "two"

    renewed = sealed(with_change(DEPLOYMENT, newer), MANAGER)
    answer = copy.deepcopy(live)
    answer["metadata"]["annotations"][APPLIED_PATH[-1]] = renewed.digest
    made = answer["spec"]["template"]["spec"]
    made["serviceAccount"] = made["serviceAccountName"] = "two"
    found = diff_object(declared=renewed, live=live, key=KEY, now=NOW, dry_run=answer)
    assert "spec.template.spec.serviceAccount" in {
        show_path(each.change.path) for each in found.differing
    }
    assert not paths(found)
