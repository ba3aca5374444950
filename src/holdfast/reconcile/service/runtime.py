"""Keeps what pods serve as declared: asks their engines, compares, and puts back.

Beside the passes, so that an engine that hangs holds up nobody. A pass hands over what each variant
was told to serve (`expect`) and reads what was found (`findings`); a difference that appears or
goes asks for another pass. Ready pods are asked after each start, and then every minute.

Adapters are put back through the engine's own API where it has one. Anything else takes a restart,
and a comparison that is wrong must not become a loop of them: a pod is deleted only for a field
that some pod of the same declaration was seen to serve rightly, one pod at a time, and never again
for a field that was wrong in the pod that came in its place. Of several nodes the pod that leads is
asked, and never deleted: its whole group would go with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from holdfast.core.backends import DEFAULT_BACKEND, POD_PORT, BackendProfile, backend_profile
from holdfast.core.engine_answer import EngineReport, Unreported
from holdfast.core.engine_report import (
    DeclaredRuntime,
    FieldComparison,
    RuntimeDifference,
    RuntimeMatch,
    adapter_requests,
    compare_runtime,
    differences_of,
    read_declaration,
    root_field,
    served_digest,
)
from holdfast.core.errors import HoldfastError
from holdfast.core.fight import is_fighting, next_heal_at, recent_rounds
from holdfast.core.ownership.canonical import value_at
from holdfast.core.service.children import PRIMARY, ROLE_LABEL, selector
from holdfast.core.service.pod import MODEL_ANNOTATION
from holdfast.core.service.pod_overlay import CONTAINER
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields, Tree, digest
from holdfast.reconcile.kube import KubeClient, ObjectRef, Scope
from holdfast.reconcile.ports import Clock, EngineApi

_LOG = logging.getLogger("holdfast.runtime")
ASK_EVERY = 60.0
"""Seconds between two questions to a pod that goes on running."""
_TICK = 0.5
_SETTLE = 1.0
"""Seconds after a pod's change in which further ones are waited for."""

ListPods: TypeAlias = Callable[[InferenceService], Awaitable[Sequence[Fields]]]
"""Gives the pods of a service. Raises HoldfastError where they could not be read."""


class ObstacleKind(StrEnum):
    """What keeps a difference from being put back."""

    POLICY = "policy"
    UNKNOWN_FIELDS = "unknown-fields"
    """The spec has fields of a later version."""
    SUSPENDED = "suspended"
    FIGHT = "fight"
    """It came back after each of several times that it was put back."""
    RESTARTING = "restarting"
    """Another pod is being restarted."""
    RESTART_USELESS = "restart-useless"
    """The pod that came in the place of one that was restarted serves the same."""
    NEVER_RIGHT = "never-right"
    """No pod of this declaration has been seen to serve it as declared."""
    ROLLOUT = "rollout"
    WHOLE_GROUP = "whole-group"
    """All pods of several nodes would start anew."""
    NO_ANSWER = "no-answer"
    """The engine was told, and did not say whether it took it."""
    DELETE_FAILED = "delete-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeObstacle:
    """Why what a pod serves otherwise is left for now."""

    kind: ObstacleKind
    until: datetime | None = None
    """Of a fight."""
    engine_said: str = ""
    """Why adapters could not be put back through the engine, where that was tried first."""
    error: str = ""
    """Why the pod could not be deleted."""


class NotAskedReason(StrEnum):
    """Why nothing is known of any pod."""

    NOT_YET = "not-yet"
    NO_QUESTIONS = "no-questions"
    """Nobody knows how to ask an engine of this kind."""
    UNLISTED = "unlisted"
    """The pods could not be listed."""
    NONE_READY = "none-ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAsked:
    """Why nothing is known of any pod, with what the sentence about it names."""

    reason: NotAskedReason
    backend: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFinding:
    """What one pod serves, field by field."""

    pod: str
    comparisons: tuple[FieldComparison, ...]
    obstacle: RuntimeObstacle | None = None
    """Why what differs is not being put back; None where it is, or nothing differs."""

    @property
    def differences(self) -> tuple[RuntimeDifference, ...]:
        """What it serves otherwise than declared."""
        return differences_of(self.pod, self.comparisons)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFindings:
    """What is known of the pods of one service."""

    pods: tuple[PodFinding, ...] = ()
    not_asked: NotAsked | None = None
    """Why nothing is known of any pod; None where something is."""
    healed: tuple[RuntimeDifference, ...] = ()
    """What was put back last."""
    heals: int = 0
    """How often something was put back."""
    weights: tuple[str | None, ...] = ()
    """The digests of what the primary's pods serve, each once. None is of a pod that tells none."""

    @property
    def differences(self) -> tuple[RuntimeDifference, ...]:
        """What pods serve otherwise than declared."""
        return tuple(each for pod in self.pods for each in pod.differences)

    @property
    def obstacles(self) -> tuple[RuntimeObstacle, ...]:
        """Why some of that is not being put back, each reason once."""
        found = (each.obstacle for each in self.pods)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    @property
    def unknown_fields(self) -> tuple[tuple[str, FieldComparison], ...]:
        """What was not told, by pod."""
        return tuple(
            (pod.pod, each)
            for pod in self.pods
            for each in pod.comparisons
            if each.match is RuntimeMatch.UNKNOWN
        )


NOT_ASKED = RuntimeFindings(not_asked=NotAsked(reason=NotAskedReason.NOT_YET))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """What the pods of one variant were told to serve."""

    command: tuple[str, ...]
    declared: DeclaredRuntime
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedPod:
    pod: str
    uid: str
    role: str
    variant: _Variant | None
    url: str
    comparisons: tuple[FieldComparison, ...]
    report: EngineReport | None = None

    @property
    def weights(self) -> str | None:
        if self.variant is None or self.report is None:
            return None
        return served_digest(self.variant.declared, self.report)

    @property
    def differing(self) -> tuple[FieldComparison, ...]:
        return tuple(each for each in self.comparisons if each.match is RuntimeMatch.DIFFERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restart:
    """A pod that was deleted, until another one is there in its place."""

    uid: str
    known: frozenset[str]
    """The pods that were there before."""
    ready: int
    digest: str
    differences: tuple[RuntimeDifference, ...]


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One service whose pods are asked."""

    service: InferenceService
    backend: BackendProfile
    variants: dict[str, _Variant] = field(default_factory=dict)
    held: ObstacleKind | None = None
    findings: RuntimeFindings = NOT_ASKED
    due: float = 0.0
    task: asyncio.Task[None] | None = None
    proven: set[tuple[str, str]] = field(default_factory=set)
    """Declaration and field that some pod was seen to serve rightly."""
    useless: set[tuple[str, str]] = field(default_factory=set)
    """Those that a restart did not bring right."""
    restart: _Restart | None = None
    rounds: dict[tuple[str, str], tuple[datetime, ...]] = field(default_factory=dict)
    """When a field of a variant was put back."""


class RuntimeMonitor:
    """Asks the engines of every service that a pass handed over. `run` does so until cancelled."""

    def __init__(
        self,
        engines: EngineApi,
        client: KubeClient,
        *,
        clock: Clock,
        again: Callable[[str, str], None],
        list_pods: ListPods | None = None,
    ) -> None:
        """`again` asks for a pass over the service of that namespace and name, of which something
        new is known."""
        self._engines = engines
        self._client = client
        self._clock = clock
        self._again = again
        self._list_pods = list_pods or self._list_from_cluster
        self._watched: dict[tuple[str, str], _Watched] = {}

    def expect(
        self,
        service: InferenceService,
        templates: Mapping[str, Fields],
        *,
        held: ObstacleKind | None,
    ) -> None:
        """Say what the pods of each variant were told to serve.

        `held` says why what differs is not to be put back; it is where that is None.
        """
        key = (service.namespace, service.name)
        watched = self._watched.get(key)
        if watched is None or watched.service.uid != service.uid:
            if watched is not None:
                self.forget(service.namespace, service.name)
            watched = self._watched[key] = _Watched(
                service=service, backend=backend_profile(service.spec.backend or DEFAULT_BACKEND)
            )
        if held != watched.held:
            watched.due = 0.0
        watched.service, watched.held = service, held
        watched.backend = backend_profile(service.spec.backend or DEFAULT_BACKEND)
        variants = {
            role: _read_variant(service, role, template, watched.backend)
            for role, template in templates.items()
        }
        if variants != watched.variants:
            watched.variants, watched.due = variants, 0.0
            kept = {each.digest for each in variants.values()}
            watched.proven = {each for each in watched.proven if each[0] in kept}
            watched.useless = {each for each in watched.useless if each[0] in kept}
        if not watched.backend.queries:
            name = service.spec.backend or DEFAULT_BACKEND
            why = NotAsked(reason=NotAskedReason.NO_QUESTIONS, backend=name)
            watched.findings = RuntimeFindings(not_asked=why)

    def forget(self, namespace: str, name: str) -> None:
        """Ask no more about a service that is gone."""
        watched = self._watched.pop((namespace, name), None)
        if watched is not None and watched.task is not None:
            watched.task.cancel()

    def findings(self, service: InferenceService) -> RuntimeFindings:
        """What is known of its pods now."""
        watched = self._watched.get((service.namespace, service.name))
        return watched.findings if watched else NOT_ASKED

    def pod_changed(self, namespace: str, name: str) -> None:
        """Ask soon: a pod of this service was started, became ready or went."""
        watched = self._watched.get((namespace, name))
        if watched is not None:
            watched.due = min(watched.due, self._clock.monotonic() + _SETTLE)

    async def run(self) -> None:
        """Ask whoever is due, each service in a task of its own."""
        try:
            while True:
                now = self._clock.monotonic()
                for watched in list(self._watched.values()):
                    if watched.due <= now and watched.task is None and watched.backend.queries:
                        self._start(watched, now)
                await self._clock.sleep(_TICK)
        finally:
            tasks = [each.task for each in self._watched.values() if each.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, watched: _Watched, now: float) -> None:
        watched.due = now + ASK_EVERY
        watched.task = asyncio.create_task(self._ask_and_tell(watched))

    async def _ask_and_tell(self, watched: _Watched) -> None:
        try:
            await self.ask(watched.service)
        except Exception:
            # Its findings stay as they were; it is asked again in a minute.
            service = f"{watched.service.namespace}/{watched.service.name}"
            _LOG.exception("runtime-not-asked", extra={"service": service})
        finally:
            watched.task = None

    async def ask(self, service: InferenceService) -> None:
        """Ask the pods of a service once, and put back what differs where that is wanted."""
        watched = self._watched.get((service.namespace, service.name))
        if watched is None:
            return
        before = watched.findings
        watched.findings = await self._find(watched)
        if watched.findings != before:
            self._again(watched.service.namespace, watched.service.name)

    async def _find(self, watched: _Watched) -> RuntimeFindings:
        kept = replace(NOT_ASKED, healed=watched.findings.healed, heals=watched.findings.heals)
        try:
            pods = await self._list_pods(watched.service)
        except HoldfastError as error:
            why = NotAsked(reason=NotAskedReason.UNLISTED, error=error.happened)
            return replace(kept, not_asked=why)
        ready = [pod for pod in pods if _is_ready(pod) and _belongs(pod, watched.service)]
        asked = await asyncio.gather(*(self._ask_pod(watched, pod) for pod in ready))
        healed: list[RuntimeDifference] = []
        self._follow_restart(watched, asked, pods, healed)
        for pod in asked:
            if pod.variant is not None:
                watched.proven |= {
                    (pod.variant.digest, root_field(each.field))
                    for each in pod.comparisons
                    if each.match is RuntimeMatch.IN_SYNC
                }
        found = [await self._restore(watched, pod, asked, healed) for pod in asked]
        if healed:
            kept = replace(kept, healed=tuple(healed), heals=kept.heals + 1)
        if not found:
            return replace(kept, not_asked=NotAsked(reason=NotAskedReason.NONE_READY))
        weights = {each.weights for each in asked if each.role == PRIMARY}
        return replace(
            kept,
            not_asked=None,
            pods=tuple(sorted(found, key=lambda each: each.pod)),
            weights=tuple(sorted(weights, key=str)),
        )

    async def _ask_pod(self, watched: _Watched, pod: Fields) -> _AskedPod:
        metadata = ("metadata",)
        role = str(value_at(pod, (*metadata, "labels", ROLE_LABEL)))
        variant = watched.variants.get(role)
        asked = _AskedPod(
            pod=str(value_at(pod, (*metadata, "name"))),
            uid=str(value_at(pod, (*metadata, "uid"))),
            role=role,
            variant=variant,
            url=_url(str(value_at(pod, ("status", "podIP")))),
            comparisons=(),
        )
        if variant is None or _command_of(_server(pod)) != variant.command:
            why = (
                "It was started by another command line than the declared one: a rollout is under"
                " way, or an admission policy changed it."
            )
            return replace(asked, variant=None, comparisons=(_not_compared(why),))
        return await self._ask_engine(watched, asked)

    async def _ask_engine(self, watched: _Watched, asked: _AskedPod) -> _AskedPod:
        assert asked.variant is not None  # noqa: S101  # asked by both callers
        report = await self._engines.report(asked.url, watched.backend)
        comparisons = compare_runtime(asked.variant.declared, report)
        return replace(asked, report=report, comparisons=comparisons)

    async def _restore(
        self,
        watched: _Watched,
        asked: _AskedPod,
        every: Sequence[_AskedPod],
        healed: list[RuntimeDifference],
    ) -> PodFinding:
        if not asked.differing or asked.variant is None:
            return PodFinding(pod=asked.pod, comparisons=asked.comparisons)
        if watched.held is not None:
            return _left(asked, RuntimeObstacle(kind=watched.held))
        fields = {root_field(each.field) for each in asked.differing}
        until = self._fight_until(watched, asked.role, fields)
        if until is not None:
            return _left(asked, RuntimeObstacle(kind=ObstacleKind.FIGHT, until=until))
        engine_said = ""
        if fields == {"adapters"}:
            before = PodFinding(pod=asked.pod, comparisons=asked.comparisons).differences
            asked, answer = await self._send_adapters(watched, asked)
            if not asked.differing:
                if asked.report is not None and not isinstance(asked.report.adapters, Unreported):
                    self._count_round(watched, asked.role, fields)
                    healed += before
                return PodFinding(pod=asked.pod, comparisons=asked.comparisons)
            engine_said = answer.reason if answer is not None else ""
            if answer is not None and answer.unreachable:
                kind = ObstacleKind.NO_ANSWER
                return _left(asked, RuntimeObstacle(kind=kind, engine_said=engine_said))
        obstacle = await self._restart(watched, asked, every, fields)
        if obstacle is not None:
            obstacle = replace(obstacle, engine_said=engine_said)
        return _left(asked, obstacle)

    async def _send_adapters(
        self, watched: _Watched, asked: _AskedPod
    ) -> tuple[_AskedPod, Unreported | None]:
        """Put adapters back through the engine; ask again; say what it refused."""
        assert asked.variant is not None  # noqa: S101  # asked by the caller
        report, declared = asked.report, asked.variant.declared.adapters
        if report is None or declared is None or isinstance(report.adapters, Unreported):
            return asked, None
        requests = adapter_requests(watched.backend, declared, report.adapters)
        if requests is None:
            why = "The engine cannot load or unload these adapters while it runs."
            return asked, Unreported(reason=why)
        for request in requests:
            answer = await self._engines.send(asked.url, request)
            if answer is not None:
                return await self._ask_engine(watched, asked), answer
        return await self._ask_engine(watched, asked), None

    async def _restart(
        self,
        watched: _Watched,
        asked: _AskedPod,
        every: Sequence[_AskedPod],
        fields: set[str],
    ) -> RuntimeObstacle | None:
        """Delete the pod, so that another one starts; says why where that is not done."""
        assert asked.variant is not None  # noqa: S101  # asked by the caller
        if watched.restart is not None and watched.restart.uid == asked.uid:
            return None
        if (kind := _restart_obstacle(watched, asked.variant, every, fields)) is not None:
            return RuntimeObstacle(kind=kind)
        ref = ObjectRef(
            api_version="v1", kind="Pod", namespace=watched.service.namespace, name=asked.pod
        )
        try:
            await self._client.delete(ref, uid=asked.uid)
        except HoldfastError as error:
            return RuntimeObstacle(kind=ObstacleKind.DELETE_FAILED, error=error.happened)
        self._count_round(watched, asked.role, fields)
        watched.restart = _Restart(
            uid=asked.uid,
            known=frozenset(each.uid for each in every),
            ready=len(every),
            digest=asked.variant.digest,
            differences=PodFinding(pod=asked.pod, comparisons=asked.comparisons).differences,
        )
        return None

    def _follow_restart(
        self,
        watched: _Watched,
        asked: Sequence[_AskedPod],
        pods: Sequence[Fields],
        healed: list[RuntimeDifference],
    ) -> None:
        """See what came in the place of a pod that was deleted."""
        restart = watched.restart
        if restart is None or any(
            value_at(pod, ("metadata", "uid")) == restart.uid for pod in pods
        ):
            return
        if all(each.digest != restart.digest for each in watched.variants.values()):
            watched.restart = None  # another declaration is rolled out, so nothing is known of it
            return
        fields = {root_field(each.field) for each in restart.differences}
        fresh = [each for each in asked if each.uid not in restart.known]
        for pod in fresh:
            wrong = fields & {root_field(each.field) for each in pod.differing}
            watched.useless |= {(restart.digest, each) for each in wrong}
        if fresh and len(asked) >= restart.ready:
            watched.restart = None
            if not {(restart.digest, each) for each in fields} & watched.useless:
                healed += restart.differences

    def _fight_until(self, watched: _Watched, role: str, fields: Iterable[str]) -> datetime | None:
        now = self._clock.now()
        times = [watched.rounds.get((role, each), ()) for each in fields]
        waits = [next_heal_at(rounds, now) for rounds in times if is_fighting(rounds, now)]
        return max((each for each in waits if each is not None), default=None)

    def _count_round(self, watched: _Watched, role: str, fields: Iterable[str]) -> None:
        now = self._clock.now()
        for each in fields:
            rounds = (*watched.rounds.get((role, each), ()), now)
            watched.rounds[role, each] = recent_rounds(rounds, now)

    async def _list_from_cluster(self, service: InferenceService) -> Sequence[Fields]:
        labels = ",".join(f"{name}={value}" for name, value in selector(service.name).items())
        scope = Scope(api_version="v1", kind="Pod", namespace=service.namespace, labels=labels)
        return (await self._client.list(scope)).items


def _left(asked: _AskedPod, obstacle: RuntimeObstacle | None) -> PodFinding:
    return PodFinding(pod=asked.pod, comparisons=asked.comparisons, obstacle=obstacle)


def _restart_obstacle(
    watched: _Watched, variant: _Variant, every: Sequence[_AskedPod], fields: set[str]
) -> ObstacleKind | None:
    """Why a pod is not to be restarted now; None where it is."""
    if watched.restart is not None:
        return ObstacleKind.RESTARTING
    keys = {(variant.digest, each) for each in fields}
    if keys & watched.useless:
        return ObstacleKind.RESTART_USELESS
    if not keys <= watched.proven:
        return ObstacleKind.NEVER_RIGHT
    if any(each.variant is None for each in every):
        return ObstacleKind.ROLLOUT
    if watched.service.spec.multi_node:
        return ObstacleKind.WHOLE_GROUP
    return None


def _read_variant(
    service: InferenceService, role: str, template: Fields, backend: BackendProfile
) -> _Variant:
    container = _server(template)
    command = _command_of(container)
    variables = {
        str(each.get("name")): str(each["value"])
        for each in _items(container.get("env"))
        if isinstance(each.get("value"), str)
    }
    spec, adapters = service.spec, service.spec.adapters
    model = str(value_at(template, ("metadata", "annotations", MODEL_ANNOTATION)) or spec.model_ref)
    weights = None
    if backend.tells_digest:
        # A canary that was promoted is rendered as the primary.
        first = role == PRIMARY and model == spec.model_ref
        weights = spec.model_digest if first else spec.canary_model_digest
    named = [[each.name, each.source, each.strength] for each in adapters or ()]
    return _Variant(
        command=command,
        declared=read_declaration(
            command,
            backend,
            model=model,
            variables=variables,
            adapters=adapters,
            digest=weights,
        ),
        digest=digest([list(command), named, adapters is None, weights]),
    )


def _server(holder: Fields) -> Fields:
    """The container of the engine, of a pod or of a pod template."""
    containers = _items(value_at(holder, ("spec", "containers")))
    return next((each for each in containers if each.get("name") == CONTAINER), {})


def _command_of(container: Fields) -> tuple[str, ...]:
    parts = [container.get("command"), container.get("args")]
    return tuple(str(part) for line in parts if isinstance(line, list) for part in line)


def _items(value: Tree) -> list[Fields]:
    held = value if isinstance(value, list) else []
    return [each for each in held if isinstance(each, dict)]


def _is_ready(pod: Fields) -> bool:
    if value_at(pod, ("metadata", "deletionTimestamp")) is not None:
        return False
    conditions = _items(value_at(pod, ("status", "conditions")))
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready and isinstance(value_at(pod, ("status", "podIP")), str)


def _belongs(pod: Fields, service: InferenceService) -> bool:
    """True for a pod of one of its Deployments, or one that leads a group of several nodes.

    By what controls it, as a label alone is anybody's to write. Those that follow a leader are of
    StatefulSets that are called after it.
    """
    owners = _items(value_at(pod, ("metadata", "ownerReferences")))
    controller = next((each for each in owners if each.get("controller") is True), {})
    name = str(controller.get("name"))
    match controller.get("kind"):
        case "ReplicaSet":
            return name.startswith(f"{service.name}-")
        case "StatefulSet":
            return name == f"{service.name}-{PRIMARY}"
    return False


def _url(address: str) -> str:
    return f"http://[{address}]:{POD_PORT}" if ":" in address else f"http://{address}:{POD_PORT}"


def _not_compared(why: str) -> FieldComparison:
    return FieldComparison(field="model", match=RuntimeMatch.UNKNOWN, reason=why)
