"""GitOps on a real cluster and a real forge, on this machine, in a minute or two.

Run it with `make demo-gitops`. It starts a Kubernetes control plane (pods are scheduled but not
run), a Gitea and `holdfast gitops`, and then changes things that Git declares by hand.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster  # noqa: E402
from tests.support.gitea import Gitea, GiteaRepository, find_or_build_gitea  # noqa: E402
from tests.support.go_programs import NotBuilt  # noqa: E402
from tests.support.processes import wait_until  # noqa: E402
from tests.support.testbed import NoTestbed, find_or_build_testbed, say_on_stderr  # noqa: E402

HOLDFAST = Path(sys.executable).with_name("holdfast")
PROJECT, PLATFORM, NAMESPACE = "acme", "platform", "chat"
HOOK = "signs-what-the-forge-says"
WAIT_SECONDS = 180.0
LONG = 5.0
"""Seconds of waiting after which it is said what for."""
CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: support-bot
data:
  MAX_TOKENS: "512"    # what a reply may cost
  LOG_LEVEL: INFO
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: support-bot
spec:
  replicas: 2
  selector:
    matchLabels: {app: support-bot}
  template:
    metadata:
      labels: {app: support-bot}
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.11.0
          envFrom:
            - configMapRef: {name: support-bot}
"""
APPLICATION = """\
apiVersion: holdfast.dev/v1alpha1
kind: Application
metadata: {{name: support-bot, namespace: {platform}}}
spec:
  project: {project}
  source: {{url: {url}, path: deploy, credentials: git}}
  namespace: {namespace}
  sync: {{automatic: true}}             # new commits are applied by themselves
  pullRequests: {{provider: gitea}}
  drift:
    routes:                           # the first that matches a drift decides
      - name: settings-are-proposed
        match: {{kinds: [ConfigMap]}}
        remediation: pull-request
      - name: images-are-reviewed
        match: {{paths: ["spec.**.image"]}}
        remediation: review
      - name: all-else-heals
        remediation: self-heal
"""


T = TypeVar("T")


class Demo:
    """One cluster, one forge, one controller, and a narrator who types commands."""

    def __init__(self, cluster: Cluster, repository: GiteaRepository, clone: Path) -> None:
        self.cluster = cluster
        self.repository = repository
        self.clone = clone
        self.environment: dict[str, str] = {}
        self._chapter = 0

    def title(self, text: str) -> None:
        self._chapter += 1
        print(f"\n{self._chapter}. {text}", flush=True)

    def kubectl(self, *words: str) -> None:
        """Type a kubectl command, as a reader would."""
        _print_command("kubectl", *words)
        _print_output(self.cluster.kubectl(*words))

    def holdfast(self, *words: str) -> None:
        """Type a holdfast command. One that lists open drift says so by its exit code."""
        _print_command("holdfast", *words)
        ran = subprocess.run(
            [HOLDFAST, *words], env=self.environment, capture_output=True, text=True, timeout=60
        )
        _print_output(ran.stdout + ran.stderr)
        if ran.returncode not in (0, 2):
            sys.exit(f"holdfast {words[0]} ended with {ran.returncode}")

    # Any: JSON as the command prints it, here and below.
    def drifts(self) -> list[dict[str, Any]]:
        """Ask for the open ones, without typing."""
        command = [HOLDFAST, "drift", "list", "-o", "json"]
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        found: list[dict[str, Any]] = json.loads(ran.stdout)["items"]
        return found

    def git(self, *words: str) -> None:
        """Type a git command in a clone of the repository."""
        _print_command("git", *words)
        command = ["git", *words]
        _print_output(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def until(self, what: str, **status: object) -> None:
        """Wait until the Application's status is so."""

        def so() -> bool:
            found = self.cluster.get("applications.holdfast.dev", "support-bot", PLATFORM)
            now = found.get("status") or {}
            return all(now.get(name) == value for name, value in status.items())

        self._wait(so, what)

    def drift(self, state: str) -> dict[str, Any]:
        """Wait for a drift in that state, and give it."""

        def found() -> dict[str, Any] | None:
            return next((each for each in self.drifts() if each["state"] == state), None)

        return self._wait(found, f"a drift to be {state}")

    def until_settled(self) -> None:
        """Wait until no drift is open."""
        self._wait(lambda: not self.drifts(), "the last drift to end")
        self.until("everything to be as declared", sync="synced", health="healthy")

    def _wait(self, predicate: Callable[[], T], what: str) -> T:
        """Ask once a second, since each question is a program of its own; say what takes long."""
        asked_at = time.monotonic()
        told = False

        def ask() -> T:
            nonlocal told
            found = predicate()
            if not found and not told and time.monotonic() - asked_at > LONG:
                told = True
                print(f"   (waiting for {what})", flush=True)
            return found

        return wait_until(ask, WAIT_SECONDS, what, every=1.0)


def tell(demo: Demo) -> None:
    """The whole story."""
    declare_application(demo)
    propose_setting(demo)
    review_image(demo)
    heal_replicas(demo)
    demo.title("Everything that drifted, who did it, and how it ended.")
    demo.holdfast("drift", "history")


def declare_application(demo: Demo) -> None:
    demo.title("A repository says what runs. An Application says what to do when that changes.")
    demo.git("ls-files", "deploy")
    application = APPLICATION.format(
        project=PROJECT, platform=PLATFORM, namespace=NAMESPACE, url=demo.repository.url
    )
    demo.clone.joinpath("application.yaml").write_text(application)
    _print_command("cat", "application.yaml")
    _print_output(application)
    demo.kubectl("apply", "--server-side", "-f", "application.yaml")
    demo.until("it to be applied", sync="synced", health="healthy")
    demo.kubectl("get", "configmap,deployment", "-n", NAMESPACE, "-l", "holdfast.dev/application")
    demo.holdfast("status")


def propose_setting(demo: Demo) -> None:
    demo.title("Somebody changes a setting by hand. It becomes a pull request.")
    patch = '{"data":{"MAX_TOKENS":"2048"}}'
    demo.kubectl("patch", "configmap/support-bot", "-n", NAMESPACE, "--type=merge", "-p", patch)
    demo.drift("pull-request")
    demo.holdfast("drift", "list")
    pull = demo.repository.pulls("open")[0]
    print(f"   On the forge: pull request #{pull['number']}, “{pull['title']}”")
    _print_output(_plain_text(pull["body"]))
    demo.git("fetch", "--quiet")
    demo.git("diff", "--unified=1", f"main...origin/{pull['head']['ref']}")
    print("   Maria likes it, and merges it.")
    began = time.monotonic()
    demo.repository.merge(pull["number"])
    demo.until("the merge to be followed", sync="synced", revision=demo.repository.head())
    print(f"   In sync {time.monotonic() - began:.1f} s later: Git declares 2048 now.")
    demo.holdfast("status", "support-bot")


def review_image(demo: Demo) -> None:
    demo.title("Somebody tries another image. That waits for a review.")
    image = "server=vllm/vllm-openai:nightly"
    demo.kubectl("set", "image", "deployment/support-bot", image, "-n", NAMESPACE)
    drift = demo.drift("awaiting-approval")
    demo.holdfast("drift", "show", drift["id"])
    print("   Maria approves exactly that plan; were it another one by now, nothing would be done.")
    demo.holdfast("approve", drift["id"], "--comment", "back to the release", "--yes")
    demo.until_settled()
    demo.kubectl("get", "deployment/support-bot", "-n", NAMESPACE, "-o", "wide")


def heal_replicas(demo: Demo) -> None:
    demo.title("Somebody scales it by hand. That heals by itself.")
    before = demo.cluster.get("deployment", "support-bot", NAMESPACE)
    demo.kubectl("scale", "deployment/support-bot", "--replicas=7", "-n", NAMESPACE)
    began = time.monotonic()
    demo.cluster.wait(
        "deployment",
        "support-bot",
        NAMESPACE,
        lambda live: live["spec"] == before["spec"],
        WAIT_SECONDS,
    )
    print(f"   2 replicas again {time.monotonic() - began:.1f} s after kubectl had ended.")
    demo.until_settled()


def _print_command(*words: str) -> None:
    print(f"   $ {shlex.join(words)}", flush=True)


def _print_output(text: str) -> None:
    for line in text.strip("\n").splitlines():
        print(f"     {line}".rstrip(), flush=True)


def _plain_text(body: str) -> str:
    """Fold the sentences of a pull request; its marks for machines are not for reading."""
    body = body.partition("<!--")[0].strip()
    return "\n".join(
        line if line.startswith("|") else textwrap.fill(line, 96) for line in body.splitlines()
    )


@contextmanager
def controller(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Run `holdfast gitops` until the block ends; give its address."""
    log = folder / "gitops.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [HOLDFAST, "gitops", "--namespace", PLATFORM, "--lease-namespace", PLATFORM,
             "--allow-local", "--db", folder / "gitops.db", "--port", "0", "--log-format", "json"],
            env=cluster.kubectl_environment(), stdout=output, stderr=output,
        )  # fmt: skip

    def address() -> str | None:
        said = log.read_text()
        if process.poll() is not None:
            sys.exit(f"holdfast gitops ended with {process.returncode}:\n{said[-2000:]}")
        listens = said.partition("listens on ")[2].split()
        return listens[0] if listens else None

    try:
        yield wait_until(address, WAIT_SECONDS, "holdfast gitops to answer")
    finally:
        process.terminate()
        process.wait(30)


def reviewer(folder: Path, address: str) -> Mapping[str, str]:
    """Make a project and a token; give the environment of who uses it."""
    store = str(folder / "gitops.db")
    subprocess.run([HOLDFAST, "project", "create", PROJECT, "--db", store], check=True,
                   capture_output=True)  # fmt: skip
    token = subprocess.run(
        [HOLDFAST, "token", "create", "--db", store, "-p", PROJECT, "--name", "maria",
         "--scope", "write", "--scope", "approve", "-o", "name"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "HOLDFAST_URL": address,
        "HOLDFAST_PROJECT": PROJECT,
        "HOLDFAST_TOKEN": token,
    }


def play(cluster: Cluster, gitea: Gitea, folder: Path) -> None:
    """Set the stage, and tell."""
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    cluster.kubectl(
        "wait", "--for=condition=Established", "crd/applications.holdfast.dev", "--timeout=30s"
    )
    for name in (PLATFORM, NAMESPACE):
        cluster.kubectl("create", "namespace", name)
    files = {"deploy/configmap.yaml": CONFIG, "deploy/deployment.yaml": DEPLOYMENT}
    repository = GiteaRepository.create(gitea, files, name="support-bot")
    bot = repository.add_member("holdfast")
    values = {"token": bot.token, "username": bot.name, "webhook": HOOK}
    cluster.apply({
        "apiVersion": "v1", "kind": "Secret", "stringData": values,
        "metadata": {
            "name": "git", "namespace": PLATFORM,
            "annotations": {"holdfast.dev/hosts": "127.0.0.1:*"},  # it goes to no other host
        },
    })  # fmt: skip
    with controller(cluster, folder) as address:
        repository.add_webhook(f"{address}/hooks/gitea", HOOK, ("push", "pull_request"))
        repository.clone(str(folder / "clone"))
        demo = Demo(cluster, repository, folder / "clone")
        demo.environment = dict(reviewer(folder, address))
        with chdir(demo.clone):
            tell(demo)
            if os.environ.get("STAY"):
                stay(demo)
            else:
                print(
                    f"\nIts page is at {address}/ui/; make demo-gitops STAY=1 stays up for a look."
                )


def stay(demo: Demo) -> None:
    """Leave something to decide, name links that sign in, and wait until the reader goes."""
    demo.title("Have a look yourself: another image waits for your review.")
    image = "server=vllm/vllm-openai:nightly"
    demo.kubectl("set", "image", "deployment/support-bot", image, "-n", NAMESPACE)
    demo.drift("awaiting-approval")
    print("   A link signs one browser in, within a minute. Enter gives another, q ends.")
    try:
        while True:
            demo.holdfast("ui", "--no-open", "-o", "name")
            if input().strip().lower() == "q":
                return
    except EOFError:  # nobody is there to press a key: stay until Ctrl-C
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def main() -> None:
    try:
        find_or_build_testbed(say_on_stderr)
        find_or_build_gitea(say_on_stderr)
    except (NoTestbed, NotBuilt) as missing:
        sys.exit(str(missing))
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as made:
        folder = Path(made)
        print("Starting a Kubernetes control plane, Gitea and holdfast gitops ...", flush=True)
        cluster = Cluster.join(folder / "cluster")
        gitea = Gitea(folder / "gitea")
        try:
            gitea.start()
            play(cluster, gitea, folder)
        finally:
            gitea.stop()
            cluster.stop()
    print("\nAll of it is gone again. docs/how-to/gitops.md has you do it on a cluster of yours.")


if __name__ == "__main__":
    main()
