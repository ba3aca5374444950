"""The GitOps controller: from a commit to applied, from an edit to detected and healed, at rest.

Everything is compared with a bare client that does the same without thinking, in the same run on
the same API server. The cluster's own controllers sleep, so that theirs is not measured.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import signal
import statistics
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.gitea import Gitea, GiteaRepository, find_or_build_gitea
from tests.support.processes import wait_until
from tests.support.testbed import say_on_stderr

from bench.kube import HOLDFAST, all_of, connected, cpu_seconds, percentile, running_cluster
from bench.operator import signal_controllers
from bench.report import Row
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, Resource
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.wire.yaml import write_document

TEAM = "bench-team"
HOOK = "signs-webhooks"
FILE = 100
"""Objects in one file."""
KINDS = ("configmaps", "secrets", "services")
APPLICATIONS = Resource(
    group="holdfast.dev",
    version="v1alpha1",
    kind="Application",
    plural="applications",
    namespaced=True,
)
CONFIGS = Resource(group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True)
SERVICES = Resource(group="", version="v1", kind="Service", plural="services", namespaced=True)
START = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is declared, and in how many Applications."""

    objects: int
    applications: int

    def __str__(self) -> str:
        many = "1 Application" if self.applications == 1 else f"{self.applications} Applications"
        return f"{self.objects:,} objects in {many}"

    @property
    def each(self) -> int:
        return self.objects // self.applications

    def names(self) -> list[str]:
        return [f"app-{number:03d}" for number in range(self.applications)]


def declared(number: int, note: str = "as declared") -> Object:
    """One object: six ConfigMaps, a Secret, two Services and a paused Deployment in every ten."""
    name = f"o-{number:05d}"
    head = {"name": name, "labels": {"app": name, "team": "bench"}}
    match number % 10:
        case 6:
            data = {"token": base64.b64encode(f"secret of {name}".encode()).decode()}
            return {"apiVersion": "v1", "kind": "Secret", "metadata": head, "data": data}
        case 7 | 8:
            port = {"name": "http", "port": 80, "targetPort": 8000, "protocol": "TCP"}
            spec = {"clusterIP": "None", "selector": {"app": name}, "ports": [port]}
            return {"apiVersion": "v1", "kind": "Service", "metadata": head, "spec": spec}
        case 9:
            return {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": head,
                "spec": {
                    "replicas": 0,
                    "paused": True,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "spec": _pod()},
                },
            }
        case _:
            data = {f"KEY_{n}": f"value {n} of {name}" for n in range(8)} | {"note": note}
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": data}


def _pod() -> Object:
    container = {
        "name": "server",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192"],
        "env": [{"name": f"VARIABLE_{n}", "value": f"value {n}"} for n in range(6)],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
    }
    return {"containers": [container]}


class Stage:
    """One repository and its clone, and the namespaces of one size."""

    def __init__(self, cluster: Cluster, repository: GiteaRepository, size: Size) -> None:
        self.cluster = cluster
        self.repository = repository
        self.size = size
        self.clone = cluster.directory / f"clone-{size.applications}"
        bot = repository.add_member(f"holdfast-{size.applications}")
        self._credentials = {"token": bot.token, "username": bot.name, "webhook": HOOK}

    def declare(
        self, *, all_of_it: bool, note: str = "as declared", within: Sequence[str] = ()
    ) -> str:
        """Commit and push what is declared, by some Applications or all; give the commit.

        `note` is in the first object of each.
        """
        if not self.clone.exists():
            self.repository.clone(str(self.clone))
        for name in within or self.size.names():
            folder = self.clone / f"in-{self.size.applications}" / name
            folder.mkdir(parents=True, exist_ok=True)
            count = self.size.each if all_of_it else 1
            for first in range(0, count, FILE):
                items = [
                    declared(number, note if number == 0 else "as declared")
                    for number in range(first, min(count, first + FILE))
                ]
                text = "---\n".join(write_document(item) for item in items)
                (folder / f"part-{first // FILE:03d}.yaml").write_text(text)
        self.git("add", "--all")
        self.git("-c", "user.name=bench", "-c", "user.email=b@x.test", "commit", "-qm", "A change")
        self.git("push", "--quiet", "origin", "main")
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *words: str) -> str:
        command = ["git", "-C", str(self.clone), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def follow(self) -> None:
        """Make the namespaces, and the Applications that declare what is in them."""
        secret = {"apiVersion": "v1", "kind": "Secret", "stringData": self._credentials}
        bound = {"holdfast.dev/hosts": "127.0.0.1:*"}
        metadata = {"name": "git", "namespace": TEAM, "annotations": bound}
        items: list[Object] = [{**secret, "metadata": metadata}]
        for name in self.size.names():
            items.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.cluster.apply(*items)
        self.cluster.apply(*map(self._application, self.size.names()))

    def _application(self, name: str) -> Object:
        heal = {"name": "heal", "match": {"kinds": ["ConfigMap"]}, "remediation": "self-heal"}
        return {
            "apiVersion": APPLICATIONS.api_version,
            "kind": APPLICATIONS.kind,
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {
                "project": "bench",
                "source": {
                    "url": self.repository.url,
                    "path": f"in-{self.size.applications}/{name}",
                    "interval": "1h",
                    "credentials": "git",
                },
                "namespace": name,
                "sync": {"automatic": True, "guard": {"percent": 100}},
                "drift": {"routes": [heal]},
            },
        }

    def clear(self) -> None:
        """Take everything away again, a kind at a time."""
        api = self.cluster.api()
        api.request("DELETE", f"/apis/holdfast.dev/v1alpha1/namespaces/{TEAM}/applications")
        for name in self.size.names():
            clear_namespace(self.cluster, name)


def clear_namespace(cluster: Cluster, name: str) -> None:
    """Remove the objects of a namespace, which itself stays: nobody is there to finish it."""
    for kind in KINDS:
        _remove(cluster, f"/api/v1/namespaces/{name}/{kind}")
    _remove(cluster, f"/apis/apps/v1/namespaces/{name}/deployments")


def _remove(cluster: Cluster, path: str) -> None:
    def gone() -> bool:
        try:
            return not cluster.api().request("DELETE", path).get("items")
        except TimeoutError:
            return False

    wait_until(gone, 600, f"{path} to be empty")


@dataclass(slots=True, kw_only=True)
class Controller:
    """A running `holdfast gitops`."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def memory(self) -> int:
        """Bytes that it holds now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def looks(self) -> int:
        """How often everything of some application was looked at, by its own count."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.search(r"^holdfast_plan_duration_seconds_count\S* (\S+)", text, re.MULTILINE)
        return int(float(found[1])) if found else 0


@contextlib.contextmanager
def controller(cluster: Cluster, store: Path, *options: str) -> Iterator[Controller]:
    """Run it until the block ends."""
    path = cluster.directory / "gitops.log"
    log = path.open("ab")
    begun = log.tell()
    process = subprocess.Popen(
        [
            HOLDFAST,
            "gitops",
            "--namespace",
            TEAM,
            "--no-elect",
            "--db",
            str(store),
            "--port",
            "0",
            "--allow-local",
            "--log-format",
            "json",
            "--log-level",
            "warning",
            *options,
        ],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=log,
        stderr=log,
    )

    def answers() -> str | None:
        said = path.read_bytes()[begun:].decode(errors="replace")
        if process.poll() is not None:
            raise RuntimeError(f"the controller ended with {process.returncode}: {said[-2000:]}")
        listens = said.partition("listens on ")[2].split()
        return listens[0] if listens else None

    try:
        yield Controller(process=process, url=wait_until(answers, START, "the controller"))
    finally:
        process.terminate()
        process.wait(60)
        log.close()


@contextlib.contextmanager
def running_forge(cluster: Cluster) -> Iterator[Gitea]:
    """Start a Gitea of the benchmark's own."""
    find_or_build_gitea(say_on_stderr)
    gitea = Gitea(cluster.directory / "gitea")
    try:
        gitea.start()
        yield gitea
    finally:
        gitea.stop()


def timed_git(stage: Stage) -> float:
    """Seconds of `git ls-remote` and `git fetch` of what is new, as a person would type them."""
    began = time.perf_counter()
    stage.git("ls-remote", "origin", "refs/heads/main")
    stage.git("fetch", "--quiet", "origin", "main")
    return time.perf_counter() - began


OBJECTS = 1_000
LARGE = 10_000
"""From this size on there are a hundred Applications, below ten."""
CONFIG, SERVICE = range(1, 6), range(7, 9)
"""Which of every ten objects are ConfigMaps, but for the first, and which are Services."""
EDITS = 40
COMMITS = 3
LOOKS = 10
AGENT = "holdfast-gitops"
PLAIN = "bench-plain"
PATIENCE = 900.0


class Seen:
    """What a bare client's watches tell of the things that are measured."""

    def __init__(self, *informers: Informer) -> None:
        self.informers = informers
        self._changed = asyncio.Event()
        for informer in informers:
            informer.add_handler(lambda old, new: self._changed.set())

    async def until(self, holds: Callable[[], object], process: Controller) -> None:
        """Wait for a change after which it holds."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                if process.process.poll() is not None:
                    raise RuntimeError("the controller ended")
                self._changed.clear()
                await self._changed.wait()


def measure(objects: int = OBJECTS) -> list[Row]:
    """The same objects in one Application, and in many."""
    many = 100 if objects >= LARGE else 10
    with running_cluster() as cluster, running_forge(cluster) as gitea:
        cluster.kubectl("apply", "--server-side", "-f", "deploy/crds")
        for name in (TEAM, PLAIN):
            cluster.kubectl("create", "namespace", name)
        signal_controllers(cluster, signal.SIGSTOP)
        try:
            repository = GiteaRepository.create(gitea)
            rows = []
            for applications in (1, many):
                size = Size(objects=objects, applications=applications)
                rows += asyncio.run(_measure(Stage(cluster, repository, size)))
            return rows
        finally:
            signal_controllers(cluster, signal.SIGCONT)


async def _measure(stage: Stage) -> list[Row]:
    cluster, size = stage.cluster, stage.size
    store = cluster.directory / f"gitops-{size.applications}.db"
    async with connected(cluster) as api:
        limit = await _plain(api, cluster, size)
        first = stage.declare(all_of_it=False)
        stage.follow()
        async with _watched(api) as (applications, configs, services):
            with controller(cluster, store) as process:
                hook = stage.repository.add_webhook(f"{process.url}/hooks/gitea", HOOK)
                seen = Seen(applications, configs, services)
                await seen.until(lambda: _at(applications, size, first), process)
                before = process.memory
                rows = [await _commit(stage, seen, applications, process, limit)]
                held = (process.memory - before) / size.objects
                names = size.names()
                rows.append(await _commits(stage, api, seen, process, names[:1]))
                if len(names) > 1:
                    rows.append(await _commits(stage, api, seen, process, names))
                rows.append(await _detect(api, size, seen, process))
                rows += await _heal(api, size, seen, configs, process)
                rows.append(_memory(size, held))
            stage.repository.ask("DELETE", f"/hooks/{hook}")
            rows += await _rest(stage, store)
        stage.clear()
    return rows


async def _plain(api: KubeApi, cluster: Cluster, size: Size) -> float:
    """Objects in a second when a bare client applies them, sixteen at a time."""
    items = [_placed(declared(number), PLAIN) for number in range(size.objects)]
    took = await all_of(lambda item: api.apply(item, manager="plain"), items)
    clear_namespace(cluster, PLAIN)
    return size.objects / took


async def _commit(
    stage: Stage, seen: Seen, applications: Informer, process: Controller, limit: float
) -> Row:
    """One commit that declares everything, until every Application says that it is applied."""
    commit = stage.declare(all_of_it=True)
    began = time.perf_counter()
    await seen.until(lambda: _at(applications, stage.size, commit), process)
    rate = stage.size.objects / (time.perf_counter() - began)
    return Row(
        what=f"commit → applied, {stage.size}, against plain applies",
        ours=f"{rate:.0f}/s",
        peer=f"{limit:.0f}/s",
        ratio=rate / limit,
    )


async def _commits(
    stage: Stage, api: KubeApi, seen: Seen, process: Controller, within: list[str]
) -> Row:
    """Commits that change one object of each of some Applications, until it is so in all."""
    _, configs, _ = seen.informers
    ours: list[float] = []
    bare: list[float] = []
    for number in range(COMMITS):
        note = f"commit {number} to {len(within)}"
        stage.declare(all_of_it=True, note=note, within=within)
        began = time.perf_counter()
        await seen.until(
            lambda note=note: all(_note(configs, 0, name) == note for name in within), process
        )
        ours.append(time.perf_counter() - began)
        items = [_placed(declared(10 * index, note), PLAIN) for index in range(len(within))]
        applied = await all_of(lambda item: api.apply(item, manager="plain", force=True), items)
        bare.append(timed_git(stage) + applied)
    changes = f"{len(within)} change{'s' if len(within) > 1 else ''}"
    return _times(
        f"commit of {changes} → applied, {stage.size}, against ls-remote, fetch, apply",
        statistics.median(ours),
        statistics.median(bare),
    )


async def _detect(api: KubeApi, size: Size, seen: Seen, process: Controller) -> Row:
    """Edits of Services, which are reported: until the Application's status says so."""
    applications, _, services = seen.informers
    heard: list[float] = []
    told: list[float] = []
    for index in range(EDITS):
        place, number = _edited(size, index, SERVICE)
        name = f"o-{number:05d}"
        for value, drifted in ((f"edit-{index}", 1), (name, 0)):
            began = time.perf_counter()
            patch = {"spec": {"selector": {"app": value}}}
            call = asyncio.create_task(
                api.patch(SERVICES.ref(name, place), patch, manager="kubectl-edit")
            )
            await seen.until(
                lambda value=value, place=place, name=name: (
                    _spec(services, name, place)["selector"]["app"] == value
                ),
                process,
            )
            bare = time.perf_counter() - began
            await seen.until(
                lambda place=place, drifted=drifted: (
                    _status(applications, place).get("drifted") == drifted
                ),
                process,
            )
            if drifted:
                heard.append(bare)
                told.append(time.perf_counter() - began)
            await call
    return _times(
        f"edit → drift in the status, p50, {size}, against a bare watch",
        percentile(told, 0.5),
        percentile(heard, 0.5),
    )


async def _heal(
    api: KubeApi, size: Size, seen: Seen, configs: Informer, process: Controller
) -> list[Row]:
    """Edits of ConfigMaps, until a bare watch tells the declared value again."""
    healed: list[float] = []
    bare: list[float] = []
    await api.apply(_placed(declared(1), PLAIN), manager="plain", force=True)
    for index in range(EDITS):
        place, number = _edited(size, index, CONFIG)
        name, wanted = f"o-{number:05d}", f"edit {index}"
        had = _version(configs, name, place)
        began = time.perf_counter()
        patch = {"data": {"note": wanted}}
        answer = await api.patch(CONFIGS.ref(name, place), patch, manager="kubectl-edit")
        patched = time.perf_counter() - began
        edited = str(answer["metadata"]["resourceVersion"])
        await seen.until(
            lambda name=name, place=place, number=number, skip=(had, edited): (
                _version(configs, name, place) not in skip
                and _note(configs, number, place) == "as declared"
            ),
            process,
        )
        healed.append(time.perf_counter() - began)
        began = time.perf_counter()
        item = _placed(declared(1, wanted), PLAIN)
        await api.apply(item, manager="plain", force=True)
        bare.append(patched + time.perf_counter() - began)
    return [
        _times(
            f"edit → healed, {name}, {size}, against patch + apply",
            percentile(healed, share),
            percentile(bare, share),
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


async def _rest(stage: Stage, store: object) -> list[Row]:
    """Start again, and look at everything many times while nothing happens."""
    cluster, size = stage.cluster, stage.size
    pause = max(2, size.objects // 1_000)
    began = time.perf_counter()
    with controller(cluster, store, "--resync", f"{pause}s") as process:  # type: ignore[arg-type]
        await _looked(process, size.applications)
        started = time.perf_counter() - began
        await _looked(process, 2 * size.applications)
        mark = len(cluster.audit_events(user_agent=AGENT))
        before, looks = cpu_seconds(process.process.pid), process.looks()
        await _looked(process, looks + LOOKS * size.applications)
        spent = cpu_seconds(process.process.pid) - before
        each = spent / (process.looks() - looks) * size.applications
        asked = [
            event
            for event in cluster.audit_events(user_agent=AGENT)[mark:]
            if event.resource != "leases"  # asked for by the clock, whoever looks at what
        ]
    # A watch that broke is resumed with a list, whether anybody looks or not.
    resumed = {event.resource for event in asked if event.verb == "watch"}
    writes = sum(event.wrote for event in asked)
    limit = 3 + size.objects / 1000
    reads = (
        sum(
            event.verb != "watch" and not (event.verb == "list" and event.resource in resumed)
            for event in asked
        )
        - writes
    )
    return [
        Row(
            what=f"restart → everything looked at, {size}, limit 3 s and 1 s for each 1,000",
            ours=f"{started:.1f} s",
            peer=f"{limit:.1f} s",
            ratio=limit / started,
        ),
        Row(
            what=f"processor for one look at everything, {size}, limit 0.3 ms an object",
            ours=f"{each:.2f} s",
            peer=f"{size.objects * 0.0003:.2f} s",
            ratio=size.objects * 0.0003 / each,
            goal=1.0,
        ),
        Row(
            what=f"API calls of {LOOKS} looks at everything, {size} (none is 1)",
            ours=f"{reads} reads, {writes} writes",
            peer="0",
            ratio=1 / (1 + reads + writes),
            goal=1.0,
        ),
    ]


async def _looked(process: Controller, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while process.looks() < count:  # noqa: ASYNC110  # it is counted elsewhere
            await asyncio.sleep(1)


@asynccontextmanager
async def _watched(api: KubeApi) -> AsyncIterator[tuple[Informer, Informer, Informer]]:
    informers = tuple(
        Informer(api, ResourceScope(resource=resource, namespace=namespace))
        for resource, namespace in ((APPLICATIONS, TEAM), (CONFIGS, ""), (SERVICES, ""))
    )
    tasks = [asyncio.create_task(each.run()) for each in informers]
    try:
        for each in informers:
            await each.wait_synced(60)
        yield informers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _edited(size: Size, index: int, kinds: range) -> tuple[str, int]:
    """Spread edits over Applications: a namespace and the number of an object, never the same.

    To edit one again and again while it is healed would be a fight, which the controller ends.
    """
    nth = index // size.applications
    number = nth // len(kinds) * 10 + kinds[nth % len(kinds)]
    return size.names()[index % size.applications], number


def _at(applications: Informer, size: Size, commit: str) -> bool:
    found = [_status(applications, name) for name in size.names()]
    return all(each.get("sync") == "synced" and each.get("revision") == commit for each in found)


def _status(applications: Informer, name: str) -> Object:
    found = applications.get(name, TEAM) or {}
    return found.get("status") or {}


def _spec(services: Informer, name: str, place: str) -> Object:
    found = services.get(name, place)
    return found["spec"] if found else {"selector": {"app": ""}}


def _note(configs: Informer, number: int, place: str) -> object:
    found = configs.get(f"o-{number:05d}", place)
    return found["data"].get("note") if found else None


def _version(configs: Informer, name: str, place: str) -> str:
    held = configs.packed(name, place)
    return held.version if held else ""


def _placed(item: Object, namespace: str) -> Object:
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def _times(what: str, ours: float, peer: float) -> Row:
    return Row(
        what=what, ours=f"{ours * 1000:.0f} ms", peer=f"{peer * 1000:.0f} ms", ratio=peer / ours
    )


def _memory(size: Size, held: float) -> Row:
    return Row(
        what=f"memory of the controller for each object, {size}, limit 40 kB",
        ours=f"{held / 1000:.1f} kB",
        peer="40 kB",
        ratio=40_000 / held,
        goal=1.0,
    )
