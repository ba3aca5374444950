"""What the GitOps benchmarks run on: a repository on a forge, Applications, the controller.

Every Application has a folder and a namespace of its own. The first commit declares one object
for each, the second one everything.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import gitea as forge
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.gitea_repository import GiteaRepository
from tests.support.processes import wait_until
from tests.support.testbed import say_on_stderr

from bench.kube import HOLDFAST
from holdfast.adapters.kubernetes.objects import Object, Resource
from holdfast.wire.yaml import write_document

TEAM = "bench-team"
HOOK = "signs-webhooks"
FILE = 100
"""Objects in one file."""
KINDS = ("configmaps", "secrets", "services")
APPLICATIONS = Resource(
    group="holdfast.dev", version="v1alpha1", kind="Application", plural="applications",
    namespaced=True,
)  # fmt: skip
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
        [HOLDFAST, "gitops", "--namespace", TEAM, "--no-elect", "--db", str(store), "--port", "0",
         "--allow-local", "--log-format", "json", "--log-level", "warning", *options],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=log,
        stderr=log,
    )  # fmt: skip

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
    forge.find_or_build(say_on_stderr)
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
