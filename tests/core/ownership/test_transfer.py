"""Fields change owners one by one: what is drift becomes ours, the rest stays whose it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.edits import DEPLOYMENT, EDITS, SERVER, with_change
from tests.support.ownership import MANAGER, declaration_of, diff_as_operator

from holdfast.core.ownership.delegated import OwnershipContext
from holdfast.core.ownership.healing import (
    drops_replicas,
    item_to_apply,
    release_unknown_owners,
    take_over_additions,
    take_over_obstacles,
)
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.tree import show_path

BY_NAME = {edit.name: edit for edit in EDITS}
ADDED = "a container and a privilege added by another manager"


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def live_after(name: str, *, text: bool = False) -> dict[str, Any]:
    live: dict[str, Any] = json.loads(BY_NAME[name].file.read_text())["live"]
    for entry in live["metadata"]["managedFields"] if text else ():
        entry["fieldsV1"] = json.dumps(entry["fieldsV1"])
    return live


def owned(managed: object, manager: str) -> set[str]:
    entries = read_ownership(managed).entries
    found = [entry.paths for entry in entries if entry.manager == manager and not entry.subresource]
    return {show_path(path) for paths in found for path in paths}


@pytest.mark.parametrize("text", [False, True], ids=["as mappings", "as text"])
@pytest.mark.parametrize(
    ("name", "manager", "moved"),
    [
        (ADDED, "miner-operator", "spec.template.spec.hostNetwork"),
        (ADDED, "miner-operator", "spec.template.spec.containers[name=miner].image"),
        (
            "kubectl set env, a changed and a new variable",
            "kubectl-set",
            f"{SERVER}.env[name=NEW].value",
        ),
        (
            "a volume swapped for the host's",
            "kubectl-patch",
            "spec.template.spec.volumes[name=models].hostPath.type",
        ),
    ],
)
def test_an_addition_moves_whole_and_nothing_else_does(
    name: str, manager: str, moved: str, text: bool
) -> None:
    edit, live = BY_NAME[name], live_after(name, text=text)
    before = live["metadata"]["managedFields"]
    managed = take_over_additions(
        declaration_of(edit.item), live, diff_as_operator(edit.item, live)
    )
    assert moved in owned(managed, MANAGER)
    assert moved not in owned(managed, manager)
    assert owned(before, MANAGER) <= owned(managed, MANAGER)
    assert owned(before, manager) | owned(before, MANAGER) == owned(managed, manager) | owned(
        managed, MANAGER
    )


def test_what_is_trusted_or_ignored_is_not_moved() -> None:
    live = live_after(ADDED)
    trusted = OwnershipContext(trusted=frozenset({"miner-operator"}))
    found = diff_as_operator(DEPLOYMENT, live, context=trusted)
    assert take_over_additions(declaration_of(DEPLOYMENT), live, found) is None
    rule = IgnoreRule(name="r", owner="ana", glob="spec.**.containers[name=miner]")
    found = diff_as_operator(DEPLOYMENT, live, ignore=[rule])
    managed = take_over_additions(declaration_of(DEPLOYMENT), live, found)
    assert "spec.template.spec.hostNetwork" in owned(managed, MANAGER)
    assert "spec.template.spec.containers[name=miner]" in owned(managed, "miner-operator")


def test_no_object_without_additions_is_touched() -> None:
    for name in ("nothing", "kubectl set image", "a label of a controller", "wiped ownership"):
        live = live_after(name)
        found = diff_as_operator(BY_NAME[name].item, live)
        assert take_over_additions(declaration_of(BY_NAME[name].item), live, found) is None
    live = live_after("nothing")
    assert (
        take_over_obstacles(declaration_of(DEPLOYMENT), live, diff_as_operator(DEPLOYMENT, live))
        is None
    )


def test_after_a_wipe_unknown_writers_keep_only_what_is_not_ours() -> None:
    live = live_after("nothing")
    ours = live["metadata"]["managedFields"][0]
    extra = {'k:{"name":"server"}': {".": {}, "f:image": {}, "f:terminationMessagePath": {}}}
    fields = {
        "f:spec": {
            "f:paused": {},
            "f:replicas": {},
            "f:template": {"f:spec": {"f:containers": extra}},
        }
    }
    unknown = ours | {"manager": "before-first-apply", "operation": "Update", "fieldsV1": fields}
    live["metadata"]["managedFields"] = [ours, unknown]
    managed = release_unknown_owners(declaration_of(DEPLOYMENT), live)
    assert owned(managed, "before-first-apply") == {"spec.paused"}
    assert owned(managed, MANAGER) == owned([ours], MANAGER)


def test_a_field_that_is_left_alone_is_left_out_or_keeps_its_value() -> None:
    """Left out where others own it; written as it is where leaving it out would delete it."""
    live = live_after("kubectl set image")
    path = ("spec", "template", "spec", "containers", "[name=server]", "image")
    item: Any = item_to_apply(
        declaration_of(DEPLOYMENT), live, diff_as_operator(DEPLOYMENT, live), [path]
    )
    [container] = item["spec"]["template"]["spec"]["containers"]
    assert "image" not in container
    assert container["env"] == DEPLOYMENT["spec"]["template"]["spec"]["containers"][0]["env"]
    untouched = live_after("nothing")
    more = with_change(DEPLOYMENT, lambda item: item["spec"].update(replicas=7))
    item = item_to_apply(
        declaration_of(more), untouched, diff_as_operator(more, untouched), [("spec", "replicas")]
    )
    assert item["spec"]["replicas"] == 2


def test_a_selector_is_left_out_as_a_whole() -> None:
    edit = BY_NAME["a selector of a service"]
    live = live_after(edit.name)
    found = diff_as_operator(edit.item, live)
    item: Any = item_to_apply(
        declaration_of(edit.item), live, found, [found.drifted[0].change.path]
    )
    assert item["spec"] == {"ports": edit.item["spec"]["ports"]}


def test_replicas_would_drop_only_while_nobody_else_holds_them() -> None:
    shorter = with_change(DEPLOYMENT, lambda item: item["spec"].pop("replicas"))
    assert drops_replicas(shorter, declaration_of(shorter), live_after("nothing"))
    assert not drops_replicas(DEPLOYMENT, declaration_of(DEPLOYMENT), live_after("nothing"))
    assert not drops_replicas(shorter, declaration_of(shorter), live_after("an autoscaler"))
