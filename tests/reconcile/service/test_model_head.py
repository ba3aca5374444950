"""The branch of a pinned model moves on: reported, once, and nothing is done about it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.reconcile.service.test_model_cache import CACHED, served
from tests.support.inference_services import COMMIT, DIGEST, document
from tests.support.operator_world import (
    NAME,
    ManualClock,
    OperatorWorld,
    OperatorWorlds,
)

from holdfast.core.model import DEFAULT_HUB
from holdfast.core.service.facts import ModelMoved
from holdfast.core.service.model_head import HeadQuestion, HubHead, HubProblem
from holdfast.core.service.spec import ModelStatus
from holdfast.reconcile.service.model_head import ModelHeadMonitor
from holdfast.reconcile.service.status import ServiceResult
from holdfast.wire.inference_service_v1alpha1 import service_from_json

NEXT, LAST = "b" * 40, "c" * 40
PINNED = {"modelRef": "org/chat", "modelRevision": COMMIT}
MIRROR = "https://hub.example.com"


class FakeHub:
    """Says what a test tells it to."""

    def __init__(self) -> None:
        self.answer: HubHead | HubProblem = HubHead(commit=COMMIT, has_pin=True)
        self.questions: list[HeadQuestion] = []

    async def find_head(self, question: HeadQuestion) -> HubHead | HubProblem:
        self.questions.append(question)
        await asyncio.sleep(0)
        return self.answer


class HeadWorld:
    """A cluster in memory, and a hub."""

    def __init__(self, world: OperatorWorld) -> None:
        self.world = world
        self.hub = FakeHub()
        world.hubs = (DEFAULT_HUB,)
        self.restart()

    def restart(self, *, asks: bool = True) -> None:
        """Another operator process, which remembers nothing."""
        self.world.hub = self.hub if asks else None
        self.world.restart()

    def declare(self, spec: dict[str, Any]) -> None:
        self.world.declare(spec)
        self.world.converge()

    def ask(self, answer: HubHead | HubProblem | None = None) -> ServiceResult:
        """Ask once, as happens every ten minutes, and make the pass that follows."""
        self.hub.answer = answer or self.hub.answer
        self.world.run(self.monitor.ask(self.world.service()))
        return self.world.reconcile()

    @property
    def monitor(self) -> ModelHeadMonitor:
        assert self.world.monitors.model_heads is not None
        return self.world.monitors.model_heads

    @property
    def model(self) -> ModelStatus:
        status = self.world.service().status
        assert status is not None and status.model is not None
        return status.model

    def moved(self) -> tuple[str, str]:
        return self.world.condition("ModelMoved")


@pytest.fixture
def heads() -> Iterator[HeadWorld]:
    with OperatorWorlds() as worlds:
        yield HeadWorld(worlds.memory())


def told(result: ServiceResult) -> list[str]:
    return [note.message for note in result.notes if note.reason == "ModelMoved"]


def test_a_head_that_moved_is_reported_and_restarts_nothing(heads: HeadWorld) -> None:
    heads.declare(PINNED)
    assert not heads.world.has_condition("ModelMoved")
    assert told(heads.ask()) == []
    assert heads.moved() == ("False", "AtHead")
    before = heads.world.primary()
    result = heads.ask(HubHead(commit=NEXT, has_pin=True))
    message = (
        f"main of org/chat is at {NEXT} now, and {COMMIT} is pinned. Nothing is restarted or "
        "downloaded for that. To serve it, give that commit as modelRevision."
    )
    assert heads.moved() == ("True", "HeadMoved")
    assert heads.world.says("ModelMoved") == message
    assert told(result) == [message]
    assert [type(each) for each in result.facts] == [ModelMoved]
    assert not result.facts[0].warning and not result.facts[0].is_drift
    assert (heads.model.commit, heads.model.branch, heads.model.head) == (COMMIT, "main", NEXT)
    assert [call.subresource for call in heads.world.client.writes] == ["status"]
    assert heads.world.primary() == before
    assert heads.world.condition("Ready")[0] == "True"
    assert heads.world.condition("DriftDetected") == ("False", "None")


def test_it_is_told_once_and_written_once(heads: HeadWorld) -> None:
    heads.declare(PINNED)
    heads.ask(HubHead(commit=NEXT, has_pin=True))
    heads.world.wanted.clear()
    assert told(heads.ask()) == [] and heads.world.client.writes == []
    assert heads.world.wanted == []
    heads.restart()
    result = heads.world.reconcile()
    assert (told(result), heads.world.client.writes) == ([], [])
    assert heads.moved() == ("True", "HeadMoved")
    assert told(heads.ask()) == [] and heads.world.client.writes == []
    assert len(told(heads.ask(HubHead(commit=LAST, has_pin=True)))) == 1
    heads.restart()
    heads.world.reconcile()
    assert len(told(heads.ask(HubHead(commit=NEXT, has_pin=True)))) == 1


def test_a_new_pin_is_compared_anew(heads: HeadWorld) -> None:
    heads.declare(PINNED)
    heads.ask(HubHead(commit=NEXT, has_pin=True))
    heads.declare({**PINNED, "modelRevision": NEXT})
    assert not heads.world.has_condition("ModelMoved")
    assert (heads.model.commit, heads.model.head) == (NEXT, None)
    heads.ask()
    assert heads.moved() == ("False", "AtHead")
    assert [each.pin for each in heads.hub.questions] == [COMMIT, NEXT]


def test_a_branch_in_a_cache_is_compared_with_what_was_downloaded(heads: HeadWorld) -> None:
    served(heads.world, {**CACHED, "modelRevision": "main"})
    heads.ask(HubHead(commit=NEXT))
    assert heads.moved() == ("True", "HeadMoved")
    assert f"and {COMMIT} is downloaded." in heads.world.says("ModelMoved")
    assert (heads.model.commit, heads.model.digest, heads.model.head) == (COMMIT, DIGEST, NEXT)
    (question,) = heads.hub.questions
    assert (question.branch, question.pin, question.digest) == ("main", None, False)
    heads.world.converge()
    assert heads.world.client.writes == []


def test_a_branch_without_a_cache_is_unknown_and_its_head_is_shown(heads: HeadWorld) -> None:
    heads.declare({**PINNED, "modelRevision": "v2"})
    heads.ask(HubHead(commit=NEXT))
    assert heads.moved() == ("Unknown", "NotResolved")
    assert heads.world.says("ModelMoved") == (
        f"v2 of org/chat is at {NEXT}, and what is served is not known: v2 is no commit, and "
        "without a cache each start takes the newest."
    )
    assert (heads.model.commit, heads.model.branch, heads.model.head) == (None, "v2", NEXT)


@pytest.mark.parametrize("has_pin", [False, None])
def test_a_pin_that_is_not_known_to_be_of_the_branch_is_unknown(
    heads: HeadWorld, has_pin: bool | None
) -> None:
    """It may be of another branch, and then `main` never had what is pinned."""
    heads.declare(PINNED)
    assert told(heads.ask(HubHead(commit=NEXT, has_pin=has_pin))) == []
    assert heads.moved() == ("Unknown", "NotOnBranch")


def test_a_hub_that_does_not_answer_is_unknown_only_after_a_while(heads: HeadWorld) -> None:
    heads.declare(PINNED)
    heads.ask(HubHead(commit=NEXT, has_pin=True))
    down = HubProblem(message="hub gave no answer in 20 s.")
    heads.world.clock.time += timedelta(seconds=600)
    heads.ask(down)
    assert heads.moved() == ("True", "HeadMoved")
    heads.world.clock.time += timedelta(seconds=1300)
    assert told(heads.ask(down)) == []
    assert heads.moved() == ("Unknown", "HubUnavailable")
    assert heads.world.says("ModelMoved") == (
        "Whether main moved is not known: hub gave no answer in 20 s."
    )
    assert heads.model.head == NEXT


def test_a_gated_model_is_unknown_and_says_that_no_token_was_read(heads: HeadWorld) -> None:
    reference = {"name": "hub", "key": "token"}
    heads.declare({**PINNED, "secrets": {"HF_TOKEN": reference}})
    heads.ask(HubProblem(message="It is gated.", refused=True))
    assert heads.moved() == ("Unknown", "HubRefused")
    assert heads.world.says("ModelMoved").endswith(
        "It is gated. The operator reads no Secrets, so it asked without the service's token."
    )
    assert [call for call in heads.world.client.calls if call.kind == "Secret"] == []


def test_only_hubs_that_the_operator_was_told_of_are_asked(heads: HeadWorld) -> None:
    """Who declares a service must not be able to send the operator anywhere."""
    heads.declare({**PINNED, "env": {"HF_ENDPOINT": f"{MIRROR}/"}})
    assert heads.moved() == ("Unknown", "HubNotAllowed")
    assert f"may ask {MIRROR}. Start it with --model-hub" in heads.world.says("ModelMoved")
    heads.ask()
    assert heads.hub.questions == []
    heads.world.hubs = (DEFAULT_HUB, MIRROR)
    heads.restart()
    heads.world.reconcile()
    heads.ask()
    assert [each.endpoint for each in heads.hub.questions] == [MIRROR]


@pytest.mark.parametrize(
    "spec",
    [
        {"modelRef": "org/chat"},
        {"modelRef": "/models/chat", "backend": "vllm"},
        {"modelRef": f"oci://registry.example/chat@{DIGEST}"},
        {"modelRef": "qwen3:8b", "backend": "ollama"},
        {**PINNED, "env": {"VLLM_USE_MODELSCOPE": "True"}},
    ],
    ids=["unpinned", "path", "image", "ollama", "modelscope"],
)
def test_nothing_is_asked_where_no_commit_of_a_hub_is_meant(
    heads: HeadWorld, spec: dict[str, Any]
) -> None:
    heads.declare(spec)
    heads.ask()
    assert heads.hub.questions == []
    assert not heads.world.has_condition("ModelMoved")


def test_turned_off_nothing_is_asked_and_nothing_said(heads: HeadWorld) -> None:
    heads.declare(PINNED)
    heads.ask(HubHead(commit=NEXT, has_pin=True))
    heads.restart(asks=False)
    heads.world.reconcile()
    assert not heads.world.has_condition("ModelMoved")
    assert heads.model == ModelStatus(ref="org/chat", revision=COMMIT, commit=COMMIT)


def test_the_digest_of_the_head_is_shown_where_one_is_declared(heads: HeadWorld) -> None:
    spec = {**CACHED, "modelRevision": COMMIT, "modelDigest": DIGEST}
    served(heads.world, spec)
    heads.ask(HubHead(commit=NEXT, has_pin=True, digest=f"sha256:{'d' * 64}"))
    assert heads.hub.questions[-1].digest
    assert heads.model.head_digest == f"sha256:{'d' * 64}"


class TickingClock(ManualClock):
    """Time that goes on by itself while the monitor waits."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_one_question_is_asked_for_all_who_have_it_calmly_and_with_back_off() -> None:
    hub, clock, wanted, times = FakeHub(), TickingClock(), list[str](), list[float]()
    monitor = ModelHeadMonitor(
        hub,
        hubs=[DEFAULT_HUB],
        clock=clock,
        random=lambda: 0.5,
        again=lambda namespace, name: wanted.append(name),
    )
    names = [f"chat-{number}" for number in range(3)]
    for name in names:
        monitor.follow(service_from_json(document(PINNED, name=name)))
    task = asyncio.create_task(monitor.run())

    async def pauses(seconds: float) -> list[float]:
        """Let time go by; returns how long it took each time until somebody was asked."""
        del times[:-1]
        until, count = clock.monotonic() + seconds, len(hub.questions)
        while clock.monotonic() < until:
            await asyncio.sleep(0)
            if len(hub.questions) > count:
                count = len(hub.questions)
                times.append(clock.monotonic())
        return [later - first for first, later in itertools.pairwise(times)]

    start = clock.monotonic()
    assert await pauses(3000) == pytest.approx([600] * 4, abs=2)
    assert times[0] - start < 5
    assert sorted(wanted) == names
    hub.answer = HubProblem(message="down")
    expected = [600, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert await pauses(12_000) == pytest.approx(expected, abs=2)
    for name in names:
        monitor.forget("default", name)
    assert await pauses(5000) == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_service_that_goes_is_not_asked_about_any_more(heads: HeadWorld) -> None:
    heads.declare(PINNED)
    heads.monitor.forget(heads.world.namespace, NAME)
    heads.world.run(heads.monitor.ask(heads.world.service()))
    assert heads.hub.questions == []
