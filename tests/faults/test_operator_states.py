"""Every call of a pass fails once, in each state that a service may be in besides serving.

At rest, waking, suspended and resumed, with a download under way, done, failed or not wanted any
more, with a podTemplate and adapters: one call after the other is not answered, refused, put off or
answered into the void. The end, and how often each object was created and deleted, is that of a
quiet run; and what lasts is told as unknown, with nothing deleted because of it.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from tests.reconcile.service.test_model_cache import CACHED, CLAIM, end, jobs, served
from tests.reconcile.service.test_scale_to_zero import REST, asked, at_rest, later, seen
from tests.support.inference_services import COMMIT, DIGEST, scaled
from tests.support.operator_world import (
    NAME,
    OperatorWorld,
    OperatorWorlds,
    RecordedCall,
    RecordingKubeClient,
)

from holdfast.core.errors import ApiError, HoldfastError, PermissionDenied, TargetUnavailable
from holdfast.reconcile.kube import KubeClient, KubeConflict, ObjectRef, Scope

T = TypeVar("T")
KINDS = {
    "Deployment": "apps/v1",
    "Service": "v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodDisruptionBudget": "policy/v1",
    "PersistentVolumeClaim": "v1",
    "Job": "batch/v1",
}
FAULTS: dict[str, tuple[HoldfastError, bool]] = {
    "no answer": (TargetUnavailable("It did not answer in time."), False),
    "403": (PermissionDenied("It is forbidden."), False),
    "429": (ApiError("429: too many requests."), False),
    "no answer to what was done": (TargetUnavailable("It did not answer in time."), True),
}
"""What the operator is told, and whether a write took effect all the same."""


class FaultyKubeClient(RecordingKubeClient):
    """Fails one call of the operator, or all that match, as a `Fault` says."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(client)
        self.seen: list[RecordedCall] = []
        self.at: int | None = None
        self.error: HoldfastError = TargetUnavailable("No answer.")
        self.after = False
        self.hit: RecordedCall | None = None
        self.history: list[RecordedCall] = []

    def _due(self, call: RecordedCall) -> bool:
        self.seen.append(call)
        due = len(self.seen) == self.at
        self.hit = call if due else self.hit
        return due

    def _read(self, verb: str, kind: str, name: str) -> None:
        super()._read(verb, kind, name)
        if self._due(RecordedCall(verb=verb, kind=kind, name=name)):
            raise self.error

    async def _write(
        self, verb: str, ref: ObjectRef, write: Callable[[], Awaitable[T]], **facts: Any
    ) -> T:
        call = RecordedCall(verb=verb, kind=ref.kind, name=ref.name, **facts)
        due = self._due(call)
        if due and not self.after:
            raise self.error
        done = await super()._write(verb, ref, write, **facts)
        self.history.append(call)
        if due:
            raise self.error
        return done


@dataclass(frozen=True, kw_only=True)
class Story:
    """How a service got where it is, and what happens then."""

    before: Callable[[OperatorWorld], None]
    then: Callable[[OperatorWorld], None]
    over: Callable[[OperatorWorld], None] = lambda world: None
    """What happens once the passes after that found rest."""


def declared(change: dict[str, Any]) -> Callable[[OperatorWorld], None]:
    return lambda world: void(world.declare(change))


def void(_: object) -> None:
    """Drop an answer."""


def settled(change: dict[str, Any]) -> Callable[[OperatorWorld], None]:
    def start(world: OperatorWorld) -> None:
        world.declare(change)
        world.converge()

    return start


def resting(**change: Any) -> Callable[[OperatorWorld], None]:
    def start(world: OperatorWorld) -> None:
        at_rest(world, **change)
        world.settle()
        world.reconcile()

    return start


def idle(world: OperatorWorld) -> None:
    later(world, 61)
    seen(world)


def suspended_and_edited(world: OperatorWorld) -> None:
    world.declare({"minReplicas": 2, "maxReplicas": 5})
    world.converge()
    world.declare({"suspend": {"reason": "INC-1"}})
    world.reconcile()
    world.set_image()
    world.delete("Service", f"{NAME}-svc")
    world.reconcile()


def downloading(world: OperatorWorld) -> None:
    world.declare(CACHED)
    world.reconcile()
    world.reconcile()


def downloaded(world: OperatorWorld) -> None:
    """The download that is under way ends well."""
    for revision, job in jobs(world).items():
        if not (job.get("status") or {}).get("conditions"):
            end(world, revision, commit=COMMIT, digest=DIGEST)


def failed(world: OperatorWorld) -> None:
    downloading(world)
    end(world, "main", how="Failed", error="No such model.")


def claim_lost(world: OperatorWorld) -> None:
    world.delete("PersistentVolumeClaim", CLAIM)


OVERLAY = {
    "podTemplate": {
        "spec": {"containers": [{"name": "exporter", "image": "registry.example/exporter:1"}]}
    },
    "service": {"ports": [{"name": "grpc", "port": 8001}]},
}
LORA = {"modelRef": "org/chat", "adapters": [{"name": "sql", "source": "/lora/sql"}]}
AWAKE = {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}
STORIES = {
    "it is put to rest": Story(before=settled(REST), then=idle, over=idle),
    "it is put to rest beside an autoscaler": Story(
        before=settled({**REST, "maxReplicas": 3}), then=idle, over=idle
    ),
    "it rests on": Story(before=resting(), then=seen),
    "it wakes": Story(before=resting(), then=asked),
    "it wakes beside an autoscaler": Story(before=resting(maxReplicas=3), then=asked),
    "it may not rest any more": Story(before=resting(), then=declared(AWAKE)),
    "it may not rest any more, and is suspended for a while": Story(
        before=resting(), then=declared({**AWAKE, "suspend": {"reason": "x"}}), over=declared(AWAKE)
    ),
    "it rests and drifts": Story(before=resting(), then=lambda world: world.set_image()),
    "it is suspended and changed": Story(
        before=settled(scaled()),
        then=declared({"suspend": {"reason": "INC-1"}, "replicas": 4}),
    ),
    "it is suspended and drifts": Story(
        before=settled({"suspend": {"reason": "INC-1", "until": "2026-11-16T12:00:00Z"}}),
        then=lambda world: void((world.declare({"suspend": {"reason": "x"}}), world.set_image())),
    ),
    "it is resumed": Story(before=settled({}), then=declared({"replicas": 4, "suspend": None})),
    "it is resumed with what was left": Story(before=suspended_and_edited, then=declared({})),
    "it gets a cache": Story(before=settled({}), then=declared(CACHED), over=downloaded),
    "its model is downloaded": Story(before=downloading, then=downloaded),
    "its download failed": Story(before=failed, then=lambda world: None),
    "it gets another revision": Story(
        before=served, then=declared({**CACHED, "modelRevision": "v2"}), over=downloaded
    ),
    "its revision is changed while it is downloaded": Story(
        before=downloading, then=declared({**CACHED, "modelRevision": "v2"}), over=downloaded
    ),
    "its claim is deleted": Story(before=served, then=claim_lost, over=downloaded),
    "it is suspended while it is downloaded": Story(
        before=downloading,
        then=declared({**CACHED, "modelRevision": "v2", "suspend": {"reason": "INC-1"}}),
    ),
    "it loses its cache": Story(
        before=served, then=declared({"modelRef": "org/chat", "modelRevision": "main"})
    ),
    "it gets a sidecar and a port": Story(before=settled({}), then=declared(OVERLAY)),
    "it loses both": Story(before=settled(OVERLAY), then=declared({})),
    "it gets adapters": Story(before=settled({"modelRef": "org/chat"}), then=declared(LORA)),
}


def passes(world: OperatorWorld, client: FaultyKubeClient) -> int:
    """Pass after pass, as the queue makes them, until two in a row wrote nothing; how many
    of them raised."""
    quiet = errors = 0
    for _ in range(40):
        written = len(client.history)
        try:
            requeue = world.run(world.reconciler.reconcile(world.service())).requeue_after
        except KubeConflict:
            requeue, written = 1.0, -1
        except HoldfastError:
            errors += 1
            requeue, written = 1.0, -1
        world.settle()
        quiet = quiet + 1 if written == len(client.history) else 0
        if quiet >= 2:
            return errors
        later(world, min(requeue or 1.0, 5.0))
    raise AssertionError("no rest")


def snapshot(world: OperatorWorld) -> dict[str, str]:
    """What there is of the service, without what differs from run to run."""
    found = {}
    uids: dict[str, str] = {}
    items = []
    for kind, api_version in KINDS.items():
        scope = Scope(api_version=api_version, kind=kind, namespace=world.namespace)
        items += [(kind, each) for each in world.run(world.client.client.list(scope)).items]
    for place, (kind, item) in enumerate(items):
        metadata: Any = item["metadata"]
        uids[metadata["uid"]] = f"uid-{kind}-{place}"
        if kind == "Job":
            uids[metadata["name"]] = f"job-{place}"
    uids[world.service().uid] = "uid-service"
    for kind, item in items:
        metadata = item["metadata"]
        spec: Any = item.get("spec") or {}
        kept: Any = {"spec": {part: spec[part] for part in spec if "clusterIP" not in part}}
        kept |= {part: metadata.get(part) for part in ("name", "labels", "ownerReferences")}
        text = json.dumps(kept, sort_keys=True)
        for uid, name in uids.items():
            text = text.replace(uid, name)
        found[f"{kind}/{uids.get(metadata['name'], metadata['name'])}"] = text
    return found


def writes(client: FaultyKubeClient) -> Counter[str]:
    """How often each object was created, and how often it was deleted."""
    made: Counter[str] = Counter()
    for call in client.history:
        name = "" if call.kind == "Job" else call.name
        if call.verb == "delete" or call.created:
            made[f"{'delete' if call.verb == 'delete' else 'create'} {call.kind} {name}"] += 1
    return made


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What a story led to."""

    world: dict[str, str]
    writes: Counter[str]
    calls: list[RecordedCall]
    hit: RecordedCall | None
    errors: int
    conditions: dict[str, tuple[str, str]]


def suffer(world: OperatorWorld, client: FaultyKubeClient, kind: str) -> None:
    """Some passes in which one kind cannot be read: each says so, and none deletes a thing of
    that kind or of another on that account."""
    asked: list[RecordedCall] = []

    def failing(call: RecordedCall) -> HoldfastError | None:
        if call.kind != kind or call.verb not in ("get", "list"):
            return None
        asked.append(call)
        return client.error

    client.failing = failing
    for _ in range(4):
        del asked[:]
        with suppress(HoldfastError):
            world.run(world.reconciler.reconcile(world.service()))
        if asked:
            assert world.condition("UpToDate") == ("Unknown", "ApiError")
            assert world.condition("Ready")[0] in ("Unknown", "False")
        if asked and kind == "Deployment":
            assert world.condition("Available") == ("Unknown", "ApiError")
            assert world.condition("Ready") == ("Unknown", "ApiError")
        world.settle()
        later(world, 1)
    assert not [call for call in client.history if (call.verb, call.kind) == ("delete", kind)]
    client.failing = lambda call: None


class Stage:
    """A story told again and again from where it begins."""

    def __init__(self, worlds: OperatorWorlds, story: Story) -> None:
        self._worlds, self._story = worlds, story
        self._first = worlds.memory()
        story.before(self._first)

    def tell(self, at: int | None = None, fault: str = "no answer", outage: str = "") -> Ending:
        world = self._worlds.memory()
        world.clock.time = self._first.clock.time
        world.client = client = FaultyKubeClient(copy.deepcopy(self._first.client.client))
        world.restart()
        self._story.then(world)
        client.at = at
        client.error, client.after = FAULTS[fault]
        if outage:
            suffer(world, client, outage)
        errors = passes(world, client)
        self._story.over(world)
        errors += passes(world, client)
        status = world.service().status
        assert status is not None
        return Ending(
            world=snapshot(world),
            writes=writes(client),
            calls=client.seen,
            hit=client.hit,
            errors=errors,
            conditions={
                each.type: (each.status, each.reason)
                for each in status.conditions
                if each.type != "DriftDetected"  # what was put back stays to be read
            },
        )


@pytest.fixture
def worlds() -> Iterator[OperatorWorlds]:
    with OperatorWorlds() as made:
        yield made


READS = 14
"""Calls that only read and are failed, from the first on: a pass makes fewer, and the next ones
ask the same."""


@pytest.mark.parametrize("name", STORIES)
def test_a_call_that_fails_once_changes_neither_the_end_nor_what_is_made_and_deleted(
    worlds: OperatorWorlds, name: str
) -> None:
    stage = Stage(worlds, STORIES[name])
    quiet = stage.tell()
    assert quiet.errors == 0
    hits: list[tuple[int, str]] = []
    for place, call in enumerate(quiet.calls, start=1):
        if call.verb in ("apply", "patch", "delete"):
            hits += [(place, "no answer to what was done"), (place, "403")]
        elif place <= READS:
            hits.append((place, ("no answer", "403", "429")[place % 3]))
    for at, fault in hits:
        ending = stage.tell(at, fault)
        where = f"{fault} at call {at}, {ending.hit}"
        assert ending.hit is not None, where
        assert ending.world == quiet.world, where
        assert ending.writes == quiet.writes, where
        assert ending.conditions == quiet.conditions, where


@pytest.mark.parametrize("name", STORIES)
def test_a_kind_that_cannot_be_read_for_a_while_is_unknown_and_the_end_is_the_same(
    worlds: OperatorWorlds, name: str
) -> None:
    stage = Stage(worlds, STORIES[name])
    quiet = stage.tell()
    for kind in KINDS:
        ending = stage.tell(outage=kind)
        assert ending.world == quiet.world, kind
        assert ending.writes == quiet.writes, kind
        assert ending.conditions == quiet.conditions, kind
