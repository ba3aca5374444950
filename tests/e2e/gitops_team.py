"""GitOps with real parts: a repository on the forge, an Application on the cluster, a controller.

    with running_team(cluster, gitea, directory) as team:
        shop = team.follow({"config.yaml": SETTINGS}, routes=[SELF_HEAL])
        shop.kubectl("patch", "configmap", "settings", "-p", '{"data": {"mode": "slow"}}')
        shop.until_synced()

A team is a namespace of Applications with a controller of its own; what they declare goes into
namespaces of their own. Everything that waits has a deadline, and shows on failure what was there.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tests.support.cluster import AuditEvent, Cluster
from tests.support.control_plane import AdminApi, ApiRequestFailed
from tests.support.controllers import (
    GITOPS_AGENT,
    PROJECT,
    GitopsProcess,
    install_application_crd,
)
from tests.support.gitea import Account, Gitea, GiteaRepository
from tests.support.go_programs import IDENTITY, SOPS, NotBuilt
from tests.support.processes import HOLDFAST, wait_until

from holdfast.adapters.store import TokenScope
from holdfast.core.custom_resource import API_VERSION, GROUP, VERSION
from holdfast.core.gitops.address import HOSTS
from holdfast.wire.crd import APPLICATION

REVIEWER = (TokenScope.READ, TokenScope.WRITE, TokenScope.APPROVE)


class ReviewedController(GitopsProcess):
    """A running controller, and what people see of it."""

    def __init__(self, cluster: Cluster, directory: Path, options: Iterable[str]) -> None:
        super().__init__(cluster, directory, options)
        self.outputs: list[str] = []
        """Everything that commands printed."""

    def token_of(self, name: str) -> str:
        """The token of a reviewer."""
        return self.token(PROJECT, REVIEWER, name=name)

    # Any: JSON as it answers it.
    def read(self, path: str) -> Any:
        """Ask something about applications, as somebody who may."""
        answer = self.ask("GET", path, token=self.token_of("maria"))
        assert answer.is_success, answer.text
        return answer.json()

    def holdfast(self, *words: str, code: int = 0, name: str = "maria") -> str:
        """Run a command against it that ends with a code; give what it printed."""
        ended, printed = self.run(*words, name=name)
        assert ended == code, f"{words}: {ended}\n{printed}"
        return printed

    def run(self, *words: str, name: str = "maria") -> tuple[int, str]:
        """Run a command against it; give its exit code and all that it printed."""
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        ran = subprocess.run(
            [*HOLDFAST, *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "HOLDFAST_URL": self.url,
                "HOLDFAST_PROJECT": PROJECT,
                "HOLDFAST_TOKEN": self.token_of(name),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.outputs += [ran.stdout, ran.stderr]
        return ran.returncode, ran.stdout + ran.stderr


@contextmanager
def running_controller(
    cluster: Cluster, namespace: str, directory: Path, *options: str
) -> Iterator[ReviewedController]:
    """Run a controller for the Applications of one namespace until the block ends."""
    scope = ("--namespace", namespace, "--lease-namespace", namespace)
    programs = ("--kubectl", cluster.programs.path("kubectl"), *_sops_option())
    controller = ReviewedController(cluster, directory, (*scope, *programs, *options))
    with controller.running():
        yield controller
        if controller.process.poll() is None:
            assert controller.stop() == 0, controller.log_tail()


def _sops_option() -> list[str]:
    try:
        return ["--sops", SOPS.find()]
    except NotBuilt:
        return []


TIMEOUT = 30.0
STALE_EXIT_CODE = 5
"""The exit code of a command about a plan that is another by now."""
_INTERVAL = 0.15
_COUNT = itertools.count(1)
_PLURALS = {
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Secret": "api/v1/namespaces/{}/secrets",
    "Service": "api/v1/namespaces/{}/services",
    "Pod": "api/v1/namespaces/{}/pods",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "Application": f"apis/{GROUP}/{VERSION}/namespaces/{{}}/{APPLICATION.plural}",
}
SELF_HEAL = {"name": "heal", "remediation": "self-heal"}
REVIEW = {"name": "review", "remediation": "review"}
PULL = {"name": "propose", "remediation": "pull-request"}
T = TypeVar("T")


@dataclass
class Team:
    """A namespace of Applications, and the controller that follows them."""

    cluster: Cluster
    gitea: Gitea
    namespace: str
    controller: ReviewedController
    scenes: list[FollowedApplication] = field(default_factory=list)

    @cached_property
    def api(self) -> AdminApi:
        """The cluster as admin; to make one costs more than to ask it."""
        return self.cluster.api()

    def follow(
        self,
        files: Mapping[str, str],
        *,
        routes: Sequence[Mapping[str, Any]] = (),
        path: str = "",
        namespace: str = "",
        own: bool = False,
        interval: str = "1h",
        prune: bool = True,
        wait: bool = True,
        watched: bool = True,
        **drift: Any,
    ) -> FollowedApplication:
        """Declare files in a repository of their own, and have an Application follow it.

        `own` makes the namespace this application's alone. `drift` goes to the part of the spec
        with that name. The interval is an hour, so that a webhook is what makes it look, unless
        it is not `watched`.
        """
        repository = GiteaRepository.create(self.gitea, files)
        name = f"shop-{next(_COUNT)}"
        scene = FollowedApplication(
            team=self,
            repository=repository,
            name=name,
            namespace=namespace or self.cluster.create_namespace(name),
            bot=repository.add_member("holdfast"),
        )
        self.scenes.append(scene)
        scene.put_secret("git", token=scene.bot.token, username=scene.bot.name,
                         webhook=scene.hook_secret)  # fmt: skip
        scene.put_secret("age", identity=IDENTITY)
        handling: dict[str, Any] = {"routes": list(routes), **drift}
        if own:
            handling["namespaces"] = [scene.namespace]
        spec: dict[str, Any] = {
            "project": PROJECT,
            "source": {
                "url": repository.url, "interval": interval, "credentials": f"{name}-git",
                "decryption": f"{name}-age", **({"path": path} if path else {}),
            },
            "namespace": scene.namespace,
            "sync": {"automatic": True, "prune": prune, "guard": {"objects": 200}},
            "drift": handling,
            "pullRequests": {"provider": "gitea", "mostOpen": 100, "mostHourly": 100},
        }  # fmt: skip
        self._create("Application", name, spec=spec)
        if watched:
            scene.watch()
        if wait:
            scene.until_synced()
        return scene

    def _create(self, kind: str, name: str, **body: Any) -> None:
        document = {
            "apiVersion": API_VERSION, "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace}, **body,
        }  # fmt: skip
        path = _PLURALS[kind].format(self.namespace)
        self.api.request("POST", f"/{path}?fieldValidation=Strict", document)


# Any, here and below: JSON as Kubernetes, Gitea and the controller answer it.
@dataclass
class FollowedApplication:
    """One Application: its repository, its objects, and what people do to both."""

    team: Team
    repository: GiteaRepository
    name: str
    namespace: str
    bot: Account
    hook_secret: str = "a-secret-that-signs-webhooks"

    @property
    def id(self) -> str:
        return f"{self.team.namespace}/{self.name}"

    @property
    def label(self) -> str:
        """How it is named in the path of a request."""
        return f"{self.team.namespace}.{self.name}"

    @property
    def cluster(self) -> Cluster:
        return self.team.cluster

    @property
    def api(self) -> AdminApi:
        return self.team.api

    @property
    def controller(self) -> ReviewedController:
        return self.team.controller

    # What is there.

    def status(self) -> dict[str, Any]:
        """The status of the Application."""
        found = self.live("Application", self.name, namespace=self.team.namespace)
        status: dict[str, Any] = (found or {}).get("status") or {}
        return status

    def live(self, kind: str, name: str, *, namespace: str = "") -> dict[str, Any] | None:
        """One object as the API server has it."""
        path = _PLURALS[kind].format(namespace or self.namespace)
        try:
            return self.api.request("GET", f"/{path}/{name}")
        except ApiRequestFailed as failure:
            if failure.status == 404:
                return None
            raise

    def there(self, kind: str, name: str) -> dict[str, Any]:
        """One object that has to be there."""
        found = self.live(kind, name)
        assert found is not None, f"{kind} {name} is gone"
        return found

    def data(self, kind: str, name: str) -> dict[str, str]:
        """What a ConfigMap or a Secret holds, in clear."""
        held: dict[str, str] = self.there(kind, name).get("data") or {}
        if kind != "Secret":
            return held
        return {key: base64.b64decode(value).decode() for key, value in held.items()}

    def container(self, name: str) -> dict[str, Any]:
        """The first container of a Deployment."""
        spec = self.there("Deployment", name)["spec"]["template"]["spec"]
        found: dict[str, Any] = spec["containers"][0]
        return found

    def drifts(self, state: str = "open") -> list[dict[str, Any]]:
        """Its drifts, as the controller tells them."""
        path = f"drifts?state={state}&application={self.label}"
        found: list[dict[str, Any]] = self.controller.read(path)["drifts"]
        return found

    def written(self, since: int = 0) -> list[AuditEvent]:
        """What our controller wrote into the namespace, oldest first."""
        found = self.cluster.audit_events(user_agent=GITOPS_AGENT, namespace=self.namespace)
        return [event for event in found if event.wrote and event.resource != "events"][since:]

    # What people do.

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Do something to the objects with kubectl."""
        return self.cluster.kubectl(*words, "-n", self.namespace, stdin=stdin)

    def patch(self, kind: str, name: str, change: object, manager: str = "kubectl-patch") -> None:
        """Change an object past Git."""
        self.kubectl("patch", kind, name, "--type=merge", f"--field-manager={manager}",
                     "-p", json.dumps(change))  # fmt: skip

    def put_secret(self, name: str, **values: str) -> None:
        """Put a credential beside the Application."""
        document = {
            "apiVersion": "v1", "kind": "Secret", "stringData": values,
            "metadata": {
                "name": f"{self.name}-{name}", "namespace": self.team.namespace,
                "annotations": {HOSTS: "127.0.0.1:*, localhost:*"},
            },
        }  # fmt: skip
        path = _PLURALS["Secret"].format(self.team.namespace)
        self.api.request("POST", f"/{path}", document)

    def watch(self) -> None:
        """Have the forge tell the controller of pushes."""
        address = f"{self.controller.url}/hooks/gitea"
        self.repository.add_webhook(address, self.hook_secret, ("push", "pull_request"))

    def holdfast(self, *words: str, code: int = 0) -> str:
        """Run a command as a reviewer; give what it printed."""
        return self.controller.holdfast(*words, code=code)

    def approve(self, kind: str, name: str) -> dict[str, Any]:
        """Approve the drift of an object as a reviewer does: again, if it moved meanwhile."""

        def approved() -> dict[str, Any] | None:
            drift = self.until_drift(kind, name, "awaiting-approval")
            ended, printed = self.controller.run(
                "approve", drift["id"], "--plan-digest", drift["plan"]
            )
            assert ended in (0, STALE_EXIT_CODE), printed
            return drift if ended == 0 else None

        return self.until(approved, f"{kind} {name} to be approved")

    # What has to come about.

    def until(self, question: Callable[[], T | None], what: str, timeout: float = TIMEOUT) -> T:
        """Wait for something, and show how the application stands when it does not come."""
        return wait_until(question, timeout, what, _INTERVAL, self._shown)

    def until_status(
        self, holds: Callable[[dict[str, Any]], object], what: str, timeout: float = TIMEOUT
    ) -> dict[str, Any]:
        def asked() -> dict[str, Any] | None:
            status = self.status()
            return status if status and holds(status) else None

        return self.until(asked, what, timeout)

    def until_synced(self, commit: str | None = None, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Wait until everything is as a commit declares, the newest unless told."""
        wanted = commit or self.repository.head()

        def arrived(status: dict[str, Any]) -> bool:
            return status.get("sync") == "synced" and status.get("revision") == wanted

        return self.until_status(arrived, f"{self.name} to be in sync", timeout)

    def until_drift(self, kind: str, name: str, *states: str, **facts: object) -> dict[str, Any]:
        """Wait for an open drift of an object, in one of these states if any are given."""

        def found() -> dict[str, Any] | None:
            for drift in self.drifts():
                named = (drift["object"]["kind"], drift["object"]["name"])
                if named != (kind, name) or (states and drift["state"] not in states):
                    continue
                if all(drift.get(key) == value for key, value in facts.items()):
                    return drift
            return None

        return self.until(found, f"a drift of {kind} {name} to be {' or '.join(states) or 'seen'}")

    def until_resolved(self, drift: str, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Wait until a drift is over."""

        def over() -> dict[str, Any] | None:
            found: dict[str, Any] = self.controller.read(f"drifts/{drift}")
            return found if found.get("resolved_at") else None

        return self.until(over, f"{drift} to be resolved", timeout)

    def until_healed(self, kind: str, name: str) -> dict[str, Any]:
        """Wait until the last drift of an object is over, and give it."""

        def over() -> dict[str, Any] | None:
            mine = [
                drift
                for drift in self.drifts("all")
                if (drift["object"]["kind"], drift["object"]["name"]) == (kind, name)
            ]
            done = bool(mine) and all(drift.get("resolved_at") for drift in mine)
            return mine[0] if done else None

        return self.until(over, f"{kind} {name} to be healed")

    def until_looked(self, times: int = 1) -> None:
        """Wait until everything was looked at again, so many times."""
        seen = {self._looked_at()}

        def looked() -> bool:
            seen.add(self._looked_at())
            return len(seen) > times

        self.until(looked, f"{times} more looks", timeout=TIMEOUT * times)

    def until_pull(self, kind: str, name: str, **facts: object) -> dict[str, Any]:
        """Wait until a drift has a pull request, and give that."""
        drift = self.until_drift(kind, name, "pull-request", **facts)
        number = int(drift["url"].rpartition("/")[2])
        return self.repository.pull(number)

    def until_settled(self, name: str) -> list[str]:
        """Wait until no rollout of a Deployment is under way; give the pods it has then."""
        if self.live("Deployment", name) is None:
            return []

        def settled() -> bool:
            found = self.there("Deployment", name)
            status, wanted = found.get("status") or {}, found["spec"]["replicas"]
            counts = [status.get(key) for key in ("replicas", "updatedReplicas", "readyReplicas")]
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            return seen and counts == [wanted] * 3

        self.until(settled, f"Deployment {name} to settle")
        pods = self.cluster.objects("pods", self.namespace, f"app={name}")
        return sorted(
            pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
        )

    def merge(self, pull: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a pull request; give its drift once that is over."""
        (drift,) = [each for each in self.drifts() if each.get("url") == pull["html_url"]]
        self.repository.merge(pull["number"])
        return self.until_resolved(drift["id"])

    def changed_files(self, pull: Mapping[str, Any]) -> dict[str, str | None]:
        """What a pull request changes: path to content, None for a file that goes."""
        before = self.repository.files(pull["base"]["ref"])
        after = self.repository.files(pull["head"]["ref"])
        return {
            path: after.get(path)
            for path in sorted({*before, *after})
            if before.get(path) != after.get(path)
        }

    def _looked_at(self) -> str:
        found: str = self.controller.read(f"applications/{self.label}").get("looked_at", "")
        return found

    def _shown(self) -> str:
        with suppress(Exception):
            drifts = [
                (each["object"]["kind"], each["object"]["name"], each["state"], each.get("note"))
                for each in self.drifts()
            ]
            return json.dumps([self.status(), drifts, self.controller.log_tail()], indent=1)
        return self.controller.log_tail()


@contextmanager
def running_team(cluster: Cluster, gitea: Gitea, directory: Path, *options: str) -> Iterator[Team]:
    """Run a controller for a namespace of its own until the block ends."""
    install_application_crd(cluster)
    namespace = cluster.create_namespace("team")
    with running_controller(cluster, namespace, directory, *options) as controller:
        team = Team(cluster=cluster, gitea=gitea, namespace=namespace, controller=controller)
        yield team
    for scene in team.scenes:
        cluster.delete_namespace(scene.namespace)
    cluster.delete_namespace(namespace)
