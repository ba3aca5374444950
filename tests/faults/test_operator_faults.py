"""The whole operator behind a failing API server: the same ends by the same creates and deletes."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.faults.kube_faults import KubeFaults, calls
from tests.faults.operator_story import (
    CHANGE,
    CREATE,
    SERVICES,
    SHORT,
    STORY,
    Stage,
    Step,
    World,
    about,
    address,
    history,
    status_problems,
)
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH, ApiRequestFailed
from tests.support.controllers import condition, install_service_crd, running_operator
from tests.support.fault_proxy import When
from tests.support.processes import wait_until

pytestmark = pytest.mark.cluster
Fault = Callable[[KubeFaults, When], None]

FAULTS: dict[str, Fault] = {
    **{
        str(code): lambda kube, when, code=code: kube.answer(when, code)
        for code in (400, 401, 403, 404, 409, 410, 422, 500, 503, 504)
    },
    "429": lambda kube, when: kube.answer(when, 429, retry_after=1),
    "502 of a gateway": lambda kube, when: kube.answer(when, 502, html=True),
    "200 of a gateway": lambda kube, when: kube.answer(when, 200, html=True),
    "no answer to what was done": lambda kube, when: kube.drop_response(when),
    "504 for what was done": lambda kube, when: kube.lose_answer(when, 504),
    "a reset before": lambda kube, when: kube.reset_connection(when),
    "a reset after": lambda kube, when: kube.reset_connection(when, after_commit=True),
    "half a body": lambda kube, when: kube.cut_response(when, after_bytes=400),
}
SMOKE = (
    "409",
    "422",
    "500",
    "504 for what was done",
    "a reset after",
    "no answer to what was done",
)
CALLS, SURE, ROUNDS = 36, 30, 2
"""About so many calls the whole story takes; at least so many; and the rounds they are met in."""
SOON = ("--resync", "3s", "--no-leader-election")
"""A refusal for good is looked at again by the resync alone, so it must not be far."""


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    install_service_crd(cluster)


@pytest.fixture
def stage(cluster: Cluster, namespace: str) -> Stage:
    return Stage(cluster, namespace)


def compare(
    kube: KubeFaults, stage: Stage, names: Sequence[str], steps: Sequence[Step], quiet: str
) -> None:
    """Play for all and hold each against the one that nothing happened to."""
    worlds = stage.play([quiet, *names], steps)
    for step, world in zip(steps, worlds, strict=True):
        for name in names:
            assert world[name] == world[quiet], f"{name} after '{step.name}'"
    stage.end([quiet, *names])
    for name in names:
        assert history(kube, name) == history(kube, quiet), name
    assert not status_problems(kube, stage.namespace)


def test_a_fault_at_a_write_of_the_operator_changes_neither_end_nor_writes(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    hits = {}
    for nth, fault in enumerate(SMOKE, start=1):
        name = f"s{nth}"
        hits[name] = calls(path=address(name), nth=nth, times=2)
        FAULTS[fault](kube, hits[name])
    with running_operator(cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig):
        compare(kube, stage, list(hits), SHORT, "quiet")
    assert all(when.hit for when in hits.values())


STATES = ("403", "429", "504", "half a body", "no answer to what was done")
DOWNLOADER = ("--downloader-image", "registry.test/holdfast:1")


def states_of(stage: Stage, names: Sequence[str]) -> list[dict[str, World]]:
    """Suspend services with a change, resume them, give them a cache and take it away; what there
    is of each after each step."""
    claims = f"/api/v1/namespaces/{stage.namespace}/persistentvolumeclaims"
    jobs = f"/apis/batch/v1/namespaces/{stage.namespace}/jobs"

    def all_of(what: str, holds: Callable[[str], bool]) -> dict[str, World]:
        stage.wait(lambda: all(map(holds, names)), what)
        return stage.worlds(names)

    def there(path: str, name: str) -> bool:
        held = stage.api.request("GET", path)["items"]
        return any(each["metadata"]["name"].startswith(f"{name}-model") for each in held)

    def change(spec: dict[str, object]) -> None:
        for name in names:
            stage.change(name, spec)

    def says(name: str, kind: str, reason: str) -> bool:
        return condition(stage.status(name), kind).get("reason") == reason

    change({"suspend": {"reason": "INC-1"}, "env": {"A": "2"}})
    worlds = [all_of("the suspension", lambda name: says(name, "UpToDate", "Suspended"))]
    change({"suspend": None})
    worlds.append(all_of("its end", stage.settled))
    change({"cache": {"size": "1Gi"}})
    worlds.append(
        all_of(
            "the downloads",
            lambda name: there(jobs, name) and says(name, "ModelCached", "Downloading"),
        )
    )
    change({"cache": None})
    worlds.append(
        all_of(
            "the end of the caches",
            lambda name: not there(claims, name) and not there(jobs, name) and stage.settled(name),
        )
    )
    return worlds


def test_faults_while_it_is_suspended_and_while_a_model_is_downloaded_change_nothing(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    """Time-outs, refusals and halves of lists and objects: one each few calls, to each service its
    own sort."""
    hits = []
    names = [f"s{place}" for place in range(len(STATES))]
    for name, fault in zip(names, STATES, strict=True):
        mine = rf"/{name}(-[a-z]+)?(-[0-9a-f]+)?(/status)?(\?|$)|model-download(=|%3D){name}(&|,|$)"
        for nth in range(4, 40, 5):
            hits.append(calls(path=mine, nth=nth))
            FAULTS[fault](kube, hits[-1])
    first = {"replicas": 1, "modelRef": "org/chat", "podTemplate": OVERLAY}
    with running_operator(
        cluster, stage.namespace, tmp_path, *SOON, *DOWNLOADER, kubeconfig=kube.kubeconfig
    ):
        for name in ("quiet", *names):
            stage.create(name, first)
        stage.wait(lambda: all(map(stage.settled, ("quiet", *names))), "all to be ready")
        for step in states_of(stage, ["quiet", *names]):
            for name in names:
                assert step[name] == step["quiet"], name
        quiet = made_and_deleted(kube, "quiet")
        for what in ("jobs/NAME-model", "persistentvolumeclaims/NAME-models"):
            assert (quiet[f"create {what}"], quiet[f"delete {what}"]) == (1, 1)
        for name in names:
            assert made_and_deleted(kube, name) == quiet, name
    assert sum(each.hit for each in hits) > len(hits) // 2
    assert not status_problems(kube, stage.namespace)


OVERLAY = {
    "metadata": {"labels": {"team": "chat"}},
    "spec": {"containers": [{"name": "exporter", "image": "registry.test/exporter:1"}]},
}


def made_and_deleted(kube: KubeFaults, name: str) -> Counter[str]:
    """The history of a service, with its Jobs, whose names have a digest at their end."""
    found: Counter[str] = Counter()
    for what, count in history(kube, name).items():
        found[re.sub(r"-model-[0-9a-f]+$", "-model", what)] += count
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_fault_at_any_call_of_the_operator_changes_neither_end_nor_writes(
    turn: int, kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    """Each service has a fault of its own, each time at another call of the whole story.

    Over all rounds every call meets some faults, and every fault some calls. How many calls there
    are varies with how the rollouts go, so those of the last ones may not be hit.
    """
    hits = {}
    for place, fault in enumerate(FAULTS):
        name = f"s{place}"
        nth = 1 + (place + turn * CALLS // ROUNDS) % CALLS
        hits[name] = calls(path=address(name), nth=nth)
        FAULTS[fault](kube, hits[name])
        if nth > SURE:
            del hits[name]
    names = [f"s{place}" for place in range(len(FAULTS))]
    with running_operator(cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig):
        compare(kube, stage, names, STORY, "quiet")
    assert all(when.hit for when in hits.values())


def test_an_operator_killed_between_two_writes_is_finished_by_the_next(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    stage.create("bot", {"replicas": 1})
    hung = calls(path=address("bot"), writes=True, nth=2)
    kube.hang(hung, after_bytes=0)
    with running_operator(
        cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig, name="first"
    ) as operator:
        stage.wait(lambda: hung.hit, "the second write")
        operator.kill()
    kube.heal()
    assert len(stage.children()) < 4
    with running_operator(
        cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig, name="next"
    ):
        stage.wait(lambda: stage.settled("bot"), "the rest")
    assert len(stage.children()) == 4
    assert set(history(kube, "bot").values()) == {1}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_operator_killed_after_every_single_write_still_gets_there(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    """No life of it gets beyond one write: what is half done is finished by the next."""
    quiet = "quiet"
    with running_operator(cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig):
        reference = stage.play([quiet])
        stage.end([quiet])
    lives = Lives(kube, cluster, stage.namespace, tmp_path)
    threading.Thread(target=lives.run, daemon=True).start()
    try:
        worlds = stage.play(["bot"])
    finally:
        lives.stop()
    for step, mine, theirs in zip(STORY, worlds, reference, strict=True):
        assert mine["bot"] == theirs[quiet], f"after '{step.name}'"
    assert history(kube, "bot") == history(kube, quiet)
    assert lives.count > 20


class Lives:
    """Operators one after the other, each killed when a write of it has taken effect."""

    def __init__(self, kube: KubeFaults, cluster: Cluster, namespace: str, directory: Path) -> None:
        self._kube = kube
        self._cluster = cluster
        self._namespace = namespace
        self._directory = directory
        self._stop = threading.Event()
        self._done = threading.Event()
        self.count = 0

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                self._live()
        finally:
            self._done.set()

    def _live(self) -> None:
        self.count += 1
        self._kube.heal()
        hung = calls(path=address("bot"), writes=True)
        # The write is done and its answer is never seen: that is where the process dies.
        self._kube.hang(hung, after_bytes=0)
        with running_operator(
            self._cluster,
            self._namespace,
            self._directory,
            *SOON,
            kubeconfig=self._kube.kubeconfig,
            name=f"life{self.count}",
        ) as operator:
            while not self._stop.is_set() and not self._written(hung):
                self._stop.wait(0.02)
            operator.kill()

    def _written(self, hung: calls) -> bool:
        if not hung.hit:
            return False
        last = [r for r in self._kube.requests if r.method in ("PATCH", "DELETE")]
        return any(not r.finished and r.status is not None for r in last)

    def stop(self) -> None:
        self._stop.set()
        assert self._done.wait(60)
        self._kube.heal()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_storm_of_other_writers_neither_stops_the_operator_nor_makes_it_spin(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    def changed() -> bool:
        primary = stage.child("deployments/bot-primary")
        assert primary is not None
        (container,) = primary["spec"]["template"]["spec"]["containers"]
        return {"name": "A", "value": "3"} in container["env"]

    with running_operator(cluster, stage.namespace, tmp_path, kubeconfig=kube.kubeconfig):
        stage.play(["bot"], SHORT)
        with Storm(stage) as storm:
            wait_until(lambda: storm.writes > 100, 60, "the storm")
            began = len(kube.calls)
            before = storm.writes
            stage.change("bot", {"env": {"A": "3"}})

            def honest() -> None:
                # The status is read first: the change may land in between, and never go back.
                if stage.settled("bot"):
                    assert changed(), "said to be done, and is not"

            def blown() -> bool:
                honest()
                return storm.writes > before + 300

            wait_until(blown, 120, "some of the storm")
            ours = sum(map(about("bot"), kube.calls[began:]))
            assert ours <= storm.writes - before

        def peaceful() -> bool:
            honest()
            return stage.settled("bot") and changed()

        stage.wait(peaceful, "peace after the storm")


class Storm:
    """Twenty writers who keep changing a note on the Deployment."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._blow, args=(n,)) for n in range(20)]
        self.writes = 0

    def __enter__(self) -> Storm:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _blow(self, writer: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self._stage.namespace}/deployments/bot-primary"
        count = 0
        while not self._stop.wait(0.02):
            count += 1
            note = {"metadata": {"annotations": {f"storm.example.com/w{writer}": str(count)}}}
            with suppress(OSError):  # a server that is too slow for the storm
                self._stage.api.request("PATCH", path, note, content_type=MERGE_PATCH)
                self.writes += 1


@pytest.mark.long
def test_in_peace_the_operator_writes_nothing_and_two_of_them_do_not_fight(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    """Two without an election, as while one version takes over from another."""
    options = ("--resync", "1s", "--no-leader-election")
    with ExitStack() as both:
        for name in ("old", "new"):
            both.enter_context(
                running_operator(
                    cluster,
                    stage.namespace,
                    tmp_path,
                    *options,
                    kubeconfig=kube.kubeconfig,
                    name=name,
                )
            )
        stage.play(["bot"], SHORT)
        before = stage.child("deployments/bot-primary")

        def wrote() -> int:
            return sum(call.write and about("bot")(call) for call in kube.calls)

        # What the last step still has to say comes first; then five looks of each in a row are
        # without a write. Nothing tells from outside that a look was, so time has to.
        seen = -1

        def quiet_for_five_looks() -> bool:
            nonlocal seen
            start = seen = wrote()
            time.sleep(5.5)
            return wrote() == start

        wait_until(quiet_for_five_looks, 60, "peace")
        time.sleep(5.5)
        assert wrote() == seen
        assert stage.child("deployments/bot-primary") == before
        assert max(history(kube, "bot").values()) == 1


@pytest.fixture
def operated(kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path) -> Iterator[Stage]:
    with running_operator(cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig):
        yield stage


@pytest.mark.long
def test_a_change_there_and_back_ends_where_it_began(operated: Stage, kube: KubeFaults) -> None:
    (first,) = operated.play(["bot"], (CREATE,))
    for _ in range(5):
        for value in ("2", "1"):
            operated.change("bot", {"env": {"A": value}})
    operated.wait(lambda: operated.settled("bot"), "peace")
    assert operated.worlds(["bot"]) == first
    assert max(history(kube, "bot").values()) == 1


@pytest.mark.long
def test_what_is_deleted_while_the_operator_is_down_leaves_nothing(
    kube: KubeFaults, stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    with running_operator(cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig):
        stage.play(["bot"], SHORT)
    stage.end(["bot"])
    stage.create("bot", {"replicas": 1, "env": {"A": "9"}})
    made = len(kube.calls)
    with running_operator(
        cluster, stage.namespace, tmp_path, *SOON, kubeconfig=kube.kubeconfig, name="next"
    ):
        stage.wait(lambda: stage.settled("bot"), "the new service of that name")
    new = [call for call in kube.calls[made:] if call.status == 201 and about("bot")(call)]
    assert sorted(call.about.split("/")[0] for call in new if call.resource != "events") == [
        "deployments", "poddisruptionbudgets", "services", "services",
    ]  # fmt: skip


@pytest.mark.long
def test_a_service_made_anew_under_its_name_gets_children_of_its_own(
    operated: Stage, kube: KubeFaults
) -> None:
    operated.play(["bot"], SHORT)
    old = operated.get("bot")["metadata"]["uid"]
    operated.delete("bot")
    operated.create("bot", {"replicas": 1})
    new = operated.get("bot")["metadata"]["uid"]
    assert new != old

    def owned() -> bool:
        there = [item for about, item in operated.children().items() if "/bot-" in about]
        owners = {ref["uid"] for item in there for ref in item["metadata"]["ownerReferences"]}
        return owners == {new} and len(there) == 4

    operated.wait(owned, "children of the new one alone")
    operated.wait(lambda: operated.settled("bot"), "peace")


@pytest.mark.long
def test_a_bad_spec_harms_nothing_and_reverting_it_heals(operated: Stage) -> None:
    (first,) = operated.play(["bot"], (CREATE,))
    for bad in (
        {"resources": {"cpu": "9000"}},
        {"image": "nowhere.invalid/none:1"},
        {"env": {"A": "x" * 200_000}},
    ):
        operated.change("bot", bad)
        generation = operated.get("bot")["metadata"]["generation"]
        operated.wait(
            lambda generation=generation: (
                operated.status("bot").get("observedGeneration") == generation
            ),
            "the bad spec to be looked at",
        )
        operated.change("bot", {"resources": {"cpu": "100m"}, "image": None, "env": {"A": "1"}})
        operated.wait(lambda: operated.settled("bot"), "peace after the bad spec")
        assert operated.worlds(["bot"]) == first


@pytest.mark.long
@pytest.mark.parametrize("length", [1, 40, 41, 63, 253])
def test_a_name_of_any_length_works_or_is_refused_before_anything_is_made(
    length: int, operated: Stage, cluster: Cluster
) -> None:
    name = "n" * length
    if length > 40:
        with pytest.raises(ApiRequestFailed) as raised:
            operated.create(name)
        assert raised.value.status == 422
        assert not operated.children()
        assert not cluster.api().request("GET", SERVICES % operated.namespace)["items"]
        return
    operated.play([name], (CREATE, CHANGE))
    operated.end([name])
