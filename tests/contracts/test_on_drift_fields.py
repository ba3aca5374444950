"""The OnDrift table once more, for each field that a plain number of replicas does not stand for.

Each is shown in the plan that creates it, told as drift by its own name when it was changed or
taken out behind Holdfast's back, put back whole under `reconcile` and left under the others. A
target that cannot honour it says so before anything is planned or written, under every policy.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.contracts.drift_worlds import TARGETS, World, observed, remote, target_case, world

from holdfast import Live, OnDrift, Outcome, ValidationError, WorkloadSpec
from holdfast.core.plan import Action
from holdfast.core.tree import Fields, Path, json_pointer
from holdfast.testing import a_spec

__all__ = ["remote", "world"]

NUMBERS = itertools.count(1)
COMMIT, OTHER_COMMIT = "0123456789abcdef0123456789abcdef01234567", "f" * 40
DIGEST, OTHER_DIGEST = "sha256:" + "cd" * 32, "sha256:" + "ab" * 32
CACHE: Fields = {"size": "50Gi"}


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What somebody else writes to one field, as a workload has it and as the resource has it."""

    name: str
    value: Any  # Any: a tree; None takes the field out
    resource: Fields

    @property
    def fields(self) -> Fields:
        return {self.name: self.value}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A field, what is declared of it, and in which ways it is moved."""

    declared: dict[str, Any]  # Any: arguments of WorkloadSpec
    ways: dict[str, Moved]
    path: Path
    """Of the field that the drift is told by."""
    on_one_machine: bool = False
    beside: dict[str, Any] = field(default_factory=dict)
    """What else has to be declared."""


def row(
    name: str,
    declared: Any,
    changed: Any,
    *,
    path: Path = (),
    resource: Fields | None = None,
    removed: Fields | None = None,
    **more: Any,
) -> Row:
    """A field that is changed, and taken out where that leaves a valid resource.

    `resource` and `removed` are both of these as merges of the custom resource's spec.
    """
    ways = {"changed": Moved(name=name, value=changed, resource=resource or {name: changed})}
    if removed is not None:
        ways["taken out"] = Moved(name=name, value=None, resource=removed)
    return Row(declared={name: declared}, ways=ways, path=path or (name,), **more)


ROWS = {
    "pod_template": row(
        "pod_template",
        {"metadata": {"labels": {"team": "chat"}}},
        {"metadata": {"labels": {"team": "other"}}},
        path=("pod_template", "metadata", "labels", "team"),
        resource={"podTemplate": {"metadata": {"labels": {"team": "other"}}}},
        removed={"podTemplate": None},
    ),
    "a sidecar added to pod_template": row(
        "pod_template",
        {"metadata": {"labels": {"team": "chat"}}},
        {
            "metadata": {"labels": {"team": "chat"}},
            "spec": {"containers": [{"name": "miner", "image": "evil:1"}]},
        },
        path=("pod_template", "spec"),
        resource={"podTemplate": {"spec": {"containers": [{"name": "miner", "image": "evil:1"}]}}},
    ),
    "cache": row("cache", CACHE, {"size": "80Gi"}, path=("cache", "size"), removed={"cache": None}),
    "suspend": row(
        "suspend",
        {"reason": "INC-1432", "until": "2099-11-20T18:00:00Z"},
        {"reason": "INC-1432", "until": "2020-11-20T18:00:00Z"},
        path=("suspend", "until"),
        removed={"suspend": None},
    ),
    "an end of suspend that nobody declared": row(
        "suspend",
        {"reason": "INC-1432"},
        {"reason": "INC-1432", "until": "2020-11-20T18:00:00Z"},
        path=("suspend", "until"),
    ),
    "scale to zero": row(
        "autoscaling",
        {"min": 0, "max": 1, "idle_after": "10m"},
        {"min": 0, "max": 1, "idle_after": "10h"},
        path=("autoscaling", "idle_after"),
        resource={"autoscaling": {"idleAfter": "10h"}},
    ),
    "a bound of zero": row(
        "autoscaling",
        {"min": 0, "max": 1},
        {"min": 1, "max": 1},
        path=("autoscaling", "min"),
        resource={"minReplicas": 1},
        removed={"minReplicas": None, "maxReplicas": None},
        beside={"resources": {"cpu": "1"}},
    ),
    "adapters": row(
        "adapters",
        [{"name": "sql", "source": "/lora/sql"}],
        [{"name": "sql", "source": "/lora/evil"}],
        removed={"adapters": None},
        on_one_machine=True,
    ),
    "no adapters": row(
        "adapters", [], [{"name": "sql", "source": "/lora/sql"}], on_one_machine=True
    ),
    "model_revision": row(
        "model_revision",
        COMMIT,
        OTHER_COMMIT,
        resource={"modelRevision": OTHER_COMMIT},
        removed={"modelRevision": None},
        on_one_machine=True,
    ),
    "model_digest": row(
        "model_digest",
        DIGEST,
        OTHER_DIGEST,
        resource={"modelDigest": OTHER_DIGEST},
        removed={"modelDigest": None},
        beside={"cache": CACHE},
    ),
    "canary.model_revision": row(
        "canary",
        {"weight": 5, "model_revision": COMMIT},
        {"weight": 5, "model_revision": OTHER_COMMIT},
        path=("canary", "model_revision"),
        resource={"canary": {"modelRevision": OTHER_COMMIT}},
        on_one_machine=True,
    ),
    "canary.env": row(
        "canary",
        {"weight": 5, "env": {"A": "1"}},
        {"weight": 5, "env": {"A": "2"}},
        path=("canary", "env", "A"),
        resource={"canary": {"env": {"A": "2"}}},
    ),
    "resources.accelerators": row(
        "resources",
        {"accelerators": {"amd.com/gpu": 1}},
        {"accelerators": {"amd.com/gpu": 2}},
        path=("resources", "accelerators", "amd.com/gpu"),
        resource={"resources": {"accelerators": {"amd.com/gpu": 2}}},
    ),
    "nodes": row("nodes", 2, 4, removed={"nodes": None}, beside={"resources": {"gpu": 8}}),
}
ON_ONE_MACHINE = ("embedded", "remote")
REFUSED, HONOURED, MOVES = [], [], []
for target, (name, each) in itertools.product(TARGETS, ROWS.items()):
    if target[0] in ON_ONE_MACHINE and not each.on_one_machine:
        REFUSED.append(target_case(target, name))
        continue
    HONOURED.append(target_case(target, name))
    MOVES += [target_case(target, name, way) for way in each.ways]


def spec_of(name: str) -> WorkloadSpec:
    """A declaration with this field, that pods and local processes alike could be started by."""
    found = ROWS[name]
    return a_spec(
        name=f"chat-{next(NUMBERS)}",
        model="org/chat",
        command=None,
        **found.declared,
        **found.beside,
    )


@pytest.mark.parametrize(("world", "name"), REFUSED, indirect=["world"])
def test_a_target_that_cannot_honour_a_field_refuses_it_when_it_plans(
    world: World, name: str
) -> None:
    spec, written = spec_of(name), world.written()
    with pytest.raises(ValidationError, match="cannot honour"):
        world.client.plan([spec])
    for policy in OnDrift:
        with pytest.raises(ValidationError, match="cannot honour"):
            world.client.ensure(spec, on_drift=policy)
    assert spec.slug not in [live.id.slug for live in world.client.list()]
    assert world.written() == written


@pytest.mark.parametrize(("world", "name"), HONOURED, indirect=["world"])
def test_an_absent_workload_is_planned_and_created_with_the_field_and_then_in_sync(
    world: World, name: str
) -> None:
    spec = spec_of(name)
    (top,) = ROWS[name].declared
    (step,) = world.client.plan([spec]).changes
    assert (step.action, step.write[top]) == (Action.CREATE, spec.fields()[top])
    for policy in OnDrift:
        noticed, ref, plan = observed(world, spec, policy)
        assert ref is not None and plan is not None
        expected = Outcome.CREATED if policy is OnDrift.RECONCILE else Outcome.UNCHANGED
        assert (noticed, ref.outcome) == ("quiet", expected)
    assert not world.client.plan([spec])
    live = world.client.get(spec.slug)
    assert (live.generation, live.fields[top]) == (1, spec.fields()[top])


LEAVING = {
    OnDrift.FAIL: ("raised", None),
    OnDrift.DRY_RUN: ("quiet", Outcome.PLANNED),
    OnDrift.WARN: ("warned", Outcome.LEFT),
    OnDrift.IGNORE: ("quiet", Outcome.LEFT),
}


@pytest.mark.parametrize(("world", "name", "way"), MOVES, indirect=["world"])
def test_a_field_that_was_moved_is_told_left_and_put_back_as_the_table_says(
    world: World, name: str, way: str
) -> None:
    found = ROWS[name]
    moved, spec = found.ways[way], spec_of(name)
    declared = spec.fields()[moved.name]
    before: Live = world.client.ensure(spec).live
    world.move(before, moved.fields, moved.resource)
    before = world.client.get(spec.slug)
    assert before.fields.get(moved.name) != declared
    written = world.written()

    for policy, expected in LEAVING.items():
        noticed, ref, plan = observed(world, spec, policy)
        assert (noticed, ref and ref.outcome) == expected
        assert plan is not None
        (step,) = plan.changes
        assert step.write[moved.name] == declared
        assert found.path in [each.change.path for each in step.fields]
    (step,) = world.client.plan([spec]).changes
    assert step.write == {moved.name: declared}, "and nothing else is written"
    (opened,) = world.client.drifts(slug=spec.slug)
    assert json_pointer(found.path) in [each.path for each in opened.fields]
    writers = {each.writer.manager for each in opened.fields if each.writer is not None}
    # Where nobody keeps a log, a removal leaves no name behind.
    assert writers == {"curl"} or (way == "taken out" and not writers)
    after = world.client.get(spec.slug)
    assert (after.version, after.fields) == (before.version, before.fields)
    assert world.written() == written

    noticed, ref, _ = observed(world, spec, OnDrift.RECONCILE)
    assert (noticed, ref and ref.outcome) == ("quiet", Outcome.UPDATED)
    after = world.client.get(spec.slug)
    assert (after.uid, after.fields[moved.name]) == (before.uid, declared)
    assert world.client.ensure(spec, on_drift="fail").outcome is Outcome.UNCHANGED
    assert world.client.drifts(slug=spec.slug) == []
