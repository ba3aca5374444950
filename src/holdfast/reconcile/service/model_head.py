"""Asks model hubs which commit a branch is at, so that the status can say that it moved on.

Beside the passes, so that a hub that hangs holds up nobody. A pass says which service it is about
and gets what is known (`follow`); an answer that is another than before asks for another pass. One
question is asked once however many services have it, every ten minutes, and less and less often
where no answer comes. Nothing is ever restarted, downloaded or written to a pod because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.service.facts import ConditionReason
from holdfast.core.service.model_head import (
    HeadQuestion,
    HubHead,
    HubProblem,
    ModelHead,
    head_question,
)
from holdfast.core.service.spec import InferenceService
from holdfast.reconcile.ports import Clock

_LOG = logging.getLogger("holdfast.model-heads")
ASK_EVERY = 600.0
"""Seconds between two questions about a branch, one tenth more or less."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Between two questions where no answer comes."""
KEEP_ANSWER = 1800.0
"""Seconds for which an answer holds while the hub does not give another: a hub that is restarted
is no news about a model."""
_SPREAD = 5.0
"""Seconds over which first questions are spread, after a start."""
_TICK = 0.5


class HubApi(Protocol):
    """The model hubs that may be asked."""

    async def find_head(self, question: HeadQuestion) -> HubHead | HubProblem:
        """Ask which commit a branch is at. Reads only, within bounds of time and bytes.

        Never raises: what was not told is a problem, with the reason.
        """


@dataclass(slots=True, kw_only=True)
class _Asked:
    """One question, and what came of it."""

    question: HeadQuestion
    due: float
    services: set[tuple[str, str]] = field(default_factory=set)
    head: ModelHead
    answered_at: float | None = None
    failures: int = 0
    task: asyncio.Task[None] | None = None


class ModelHeadMonitor:
    """Asks about the models of every service that a pass handed over. `run` does so until
    cancelled."""

    def __init__(
        self,
        hub: HubApi,
        *,
        hubs: Collection[str],
        clock: Clock,
        random: Callable[[], float],
        again: Callable[[str, str], None],
    ) -> None:
        """`hubs` are the addresses that may be asked. `again` asks for a pass over the service of
        that namespace and name, of whose model something new is known."""
        self._hub = hub
        self._hubs = tuple(each.rstrip("/") for each in hubs)
        self._clock = clock
        self._random = random
        self._again = again
        self._asked: dict[HeadQuestion, _Asked] = {}
        self._questions: dict[tuple[str, str], HeadQuestion] = {}

    def follow(self, service: InferenceService) -> ModelHead | None:
        """Give what is known of a service's model, and have it asked about from now on.

        None for a model that there is nothing to ask about.
        """
        key = (service.namespace, service.name)
        question = head_question(service, self._hubs)
        if self._questions.get(key) != question:
            self.forget(*key)
        if not isinstance(question, HeadQuestion):
            return question
        asked = self._asked.get(question)
        if asked is None:
            asked = self._asked[question] = _Asked(
                question=question,
                due=self._clock.monotonic() + self._random() * _SPREAD,
                head=ModelHead(branch=question.branch),
            )
        asked.services.add(key)
        self._questions[key] = question
        return asked.head

    def forget(self, namespace: str, name: str) -> None:
        """Ask no more about the model of a service that is gone, or has another model."""
        key = (namespace, name)
        question = self._questions.pop(key, None)
        asked = self._asked.get(question) if question is not None else None
        if asked is None:
            return
        asked.services.discard(key)
        if not asked.services:
            del self._asked[asked.question]
            if asked.task is not None:
                asked.task.cancel()

    async def run(self) -> None:
        """Ask whatever is due, each question in a task of its own."""
        try:
            while True:
                for asked in list(self._asked.values()):
                    if asked.task is None and asked.due <= self._clock.monotonic():
                        asked.task = asyncio.create_task(self._ask_and_tell(asked))
                await self._clock.sleep(_TICK)
        finally:
            tasks = [each.task for each in self._asked.values() if each.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, service: InferenceService) -> None:
        """Ask about the model of one service now."""
        question = self._questions.get((service.namespace, service.name))
        asked = self._asked.get(question) if question is not None else None
        if asked is not None:
            await self._ask(asked)

    async def _ask_and_tell(self, asked: _Asked) -> None:
        try:
            await self._ask(asked)
        except Exception:
            # What is known stays as it was; it is asked again later.
            asked.due = self._clock.monotonic() + ASK_EVERY
            _LOG.exception("model-head-not-asked", extra={"repo": asked.question.repo})
        finally:
            asked.task = None

    async def _ask(self, asked: _Asked) -> None:
        answer = await self._hub.find_head(asked.question)
        before, now = asked.head, self._clock.monotonic()
        if isinstance(answer, HubHead):
            asked.failures, asked.answered_at = 0, now
            asked.head = ModelHead(branch=asked.question.branch, found=answer)
            pause = ASK_EVERY
        else:
            pause = min(FIRST_PAUSE * 2 ** min(asked.failures, 10), LONGEST_PAUSE)
            pause = max(pause, answer.retry_after or 0.0)
            asked.failures += 1
            held = asked.answered_at is not None and now - asked.answered_at < KEEP_ANSWER
            if answer.refused or not held:
                asked.head = _unknown(asked.question, answer)
        asked.due = now + pause * (0.9 + 0.2 * self._random())
        if asked.head != before:
            for namespace, name in sorted(asked.services):
                self._again(namespace, name)


def _unknown(question: HeadQuestion, problem: HubProblem) -> ModelHead:
    reason = ConditionReason.HUB_UNAVAILABLE
    message = problem.message
    if problem.refused:
        reason = ConditionReason.HUB_REFUSED
        if question.token:
            message += " The operator reads no Secrets, so it asked without the service's token."
    return ModelHead(branch=question.branch, reason=reason, message=message)
