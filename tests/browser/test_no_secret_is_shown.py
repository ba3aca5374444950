"""Secrets are planted wherever one can be given, and looked for in all that a browser was given.

That is: the page's markup and the fields in it, its address and title, what it keeps, every URL it
asked for and all that was answered, the console, and the server's own log and store.
"""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import ConsoleMessage, Request, expect
from tests.support.browser import Screen, Screens
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, route
from tests.support.planted_secrets import (
    PlantedSecret,
    Surfaces,
    planted_secret,
    planted_token,
    planted_value,
)
from tests.support.processes import ROOT
from tests.support.server import RunningServer, bearer, running_server

from holdfast import Health, ManagementClient, SecretRef, WorkloadSpec
from holdfast.core.gitops.application import Remediation
from holdfast.core.object_ref import ObjectRef

BELOW = f"/ui/p/{PROJECT}"
LEAKY = [sys.executable, str(ROOT / "tests" / "support" / "leaky_backend.py")]
STATE = """() => JSON.stringify([location.href, document.title, document.referrer, document.cookie,
    {...localStorage}, {...sessionStorage}, history.state,
    [...document.querySelectorAll('input, textarea, select')].map((each) => each.value)])"""
RECORD = """
    const ask = window.fetch;
    window.answered = [];
    window.fetch = async (...given) => {
      const answer = await ask(...given);
      const reader = answer.clone().body?.getReader();
      const kept = { text: "" };
      window.answered.push(kept);
      const decoder = new TextDecoder();
      const read = async () => {
        for (let part = await reader.read(); !part.done; part = await reader.read())
          kept.text += decoder.decode(part.value, { stream: true });
      };
      if (reader) read().catch(() => {});
      return answer;
    };
"""
"""Keeps what a page was answered, streams as far as they came."""

DECLARED = planted_secret("a declared value of a Secret", "{}")
LIVE = planted_secret("the live value of a Secret", "{}")
ADDED = planted_secret("a key that was added to a Secret", "{}")
PASSWORD = planted_secret("a password in a ConfigMap", "{}")
IN_URL = planted_secret("a password in the address of a database", "{}")
REPOSITORY = planted_secret("a password in the repository's address", "{}")
WRITER = planted_token("a token as the name of a writer")
COMMENT = planted_token("a token in a comment")
REASON = planted_token("a token in the reason of a hold")
SEARCHED = planted_token("a token that was pasted as a token and is none")
FROM_FILE = planted_secret("a secret of a workload, in its log", "{}")
PROMPT = planted_secret("what was asked of a model", "say {}")


def encoded(secret: PlantedSecret) -> str:
    return base64.b64encode(secret.value.encode()).decode()


def manifests() -> str:
    return f"""\
apiVersion: v1
kind: Secret
metadata: {{name: db}}
data: {{password: {encoded(DECLARED)}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data:
  DB_PASSWORD: {DECLARED.value}
  DATABASE_URL: postgres://maria:{DECLARED.value}@db.example.com/x
  level: info
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    """An application with a Secret and a ConfigMap that drifted, by a writer with an odd name."""
    world = GitopsWorld(route(Remediation.REVIEW))
    source = world.application.spec.source
    url = f"https://maria:{REPOSITORY.value}@git.example.com/team/shop.git"
    spec = replace(world.application.spec, source=replace(source, url=url))
    world.application = replace(world.application, spec=spec)
    world.git.commit({"app.yaml": manifests()})
    secret = ObjectRef(api_version="v1", kind="Secret", namespace=NAMESPACE, name="db")

    def edit() -> None:
        data = {"password": encoded(LIVE), "extra": encoded(ADDED)}
        world.kube.edit(secret, lambda item: item["data"].update(data), manager="kubectl-edit")
        changed = {
            "DB_PASSWORD": PASSWORD.value,
            "DATABASE_URL": f"postgres://maria:{IN_URL.value}@db.example.com/x",
            "level": "debug",
        }
        world.kube.edit(
            config_ref("settings"), lambda item: item["data"].update(changed), manager=WRITER.value
        )

    folder = tmp_path_factory.mktemp("secrets")
    with serve_applications(folder, world) as running:
        running.reconcile()
        running.call(edit)
        running.reconcile()
        yield running


class Watch:
    """Keeps all that one tab was given."""

    def __init__(self, screen: Screen, surfaces: Surfaces) -> None:
        self.screen = screen
        self.surfaces = surfaces
        self.name = "login"
        screen.page.add_init_script(RECORD)
        screen.page.on("request", self._hear_request)
        screen.page.on("console", self._hear_console)

    def _hear_request(self, request: Request) -> None:
        self.surfaces.add(f"{self.name}: requested address", request.url)
        self.surfaces.add(f"{self.name}: referer", request.headers.get("referer", ""))

    def _hear_console(self, message: ConsoleMessage) -> None:
        self.surfaces.add(f"{self.name}: console", message.text)

    def look(self) -> None:
        """Keep what the screen shows now, and what was answered for it."""
        page = self.screen.page
        self.surfaces.add(f"{self.name}: markup", page.content())
        self.surfaces.add(f"{self.name}: address and storage", page.url, page.evaluate(STATE))
        answered = page.evaluate("window.answered.map((each) => each.text)")
        self.surfaces.add(f"{self.name}: answers", *answered)

    def visit(self, name: str, path: str, *, do: Callable[[Screen], Any] | None = None) -> None:
        """Open a screen, do something there, and look at it before and after."""
        self.name = name
        self.screen.go(path)
        expect(self.screen.page.locator("main")).to_be_visible()
        expect(self.screen.page.locator(".loading")).to_have_count(0)
        self.look()
        if do is not None:
            do(self.screen)
            self.look()


def assert_nothing_leaked(surfaces: Surfaces, *planted: PlantedSecret, folder: Path) -> None:
    """Say where anything was found. Fails too where the search itself finds nothing."""
    for file in folder.iterdir():  # the store and the server's log; a replica's is its own
        if file.is_file():
            surfaces.add(f"file {file.name}", file.read_bytes())
    leaks = surfaces.leaks(planted)
    assert not leaks, "\n".join(leaks)
    probe = planted_value("what is really there", "x_project")
    found = surfaces.leaks([probe])
    assert any("markup" in each for each in found)
    assert any("answers" in each for each in found)


def refuse_comment(screen: Screen) -> None:
    """Say no with a token in the comment: it is refused, and the words are given up."""
    screen.press("x")
    dialog = screen.page.get_by_role("dialog")
    dialog.locator("textarea").fill(f"see {COMMENT.value}")
    screen.press("Control+Enter")
    expect(dialog.get_by_role("alert")).to_be_visible()
    screen.press("Escape")
    expect(dialog).to_have_count(0)


def open_windows(screen: Screen) -> None:
    """What each choice would do, the patch of codify included."""
    choices = screen.page.get_by_role("region", name="What you can do").get_by_role("button")
    expect(choices.first).to_be_visible()
    offered = [text for text in choices.all_inner_texts() if not text.startswith("Approve")]
    assert len(offered) >= 3
    for number in range(1, len(offered) + 1):
        choices.nth(number).click()
        expect(screen.page.get_by_role("dialog")).to_be_visible()
        expect(screen.page.locator("dialog .loading")).to_have_count(0)
        screen.press("Escape")
        expect(screen.page.get_by_role("dialog")).to_have_count(0)


def test_no_screen_of_applications_shows_a_secret_or_keeps_one(
    served: ServedApplications, screens: Screens, caplog: pytest.LogCaptureFixture
) -> None:
    token = served.server.token(PROJECT, ["read", "write", "approve", "admin"], name="maria")
    kept = planted_value("the token that signed in", token)
    held = httpx2.post(
        f"{served.url}/api/projects/{PROJECT}/gitops/applications/team.shop/holds",
        json={"reason": f"see {REASON.value}", "seconds": 600, "object": "ConfigMap/chat/other"},
        headers=bearer(token),
    )
    surfaces = Surfaces()
    surfaces.add("hold", held.text)
    screen = screens.open(served.url)
    screen.tolerated += ["401", "400", "403", "409", "404", "503"]
    watch = Watch(screen, surfaces)
    screen.go("/ui/login")
    screen.page.get_by_label("Token").fill(SEARCHED.value)
    screen.press("Enter")
    expect(screen.page.get_by_role("alert")).to_be_visible()
    watch.look()
    screen.sign_in(token)
    cookie = screen.page.context.cookies()[0]["value"]
    assert served.worlds[0].context is not None
    drifts = {each.object.kind: each for each in served.worlds[0].context.state.drifts.values()}
    assert set(drifts) == {"Secret", "ConfigMap"}
    watch.visit("inbox", f"{BELOW}/inbox")
    watch.visit("causes", f"{BELOW}/inbox?group=cause")
    for kind, drift in drifts.items():
        watch.visit(f"drift of a {kind}", f"{BELOW}/drifts/{drift.id}", do=refuse_comment)
        watch.visit(f"choices of a {kind}", f"{BELOW}/drifts/{drift.id}", do=open_windows)
        watch.visit(f"plan of a {kind}", f"{BELOW}/plans/{drift.plan}")
    for tab in ("", "?tab=diff", "?tab=plan"):
        watch.visit(f"application{tab}", f"{BELOW}/applications/team.shop{tab}")
    for name in ("applications", "holds", "rules", "history"):
        watch.visit(name, f"{BELOW}/{name}")
    watch.visit("me", "/ui/me")
    surfaces.add("log", caplog.text)
    planted = (DECLARED, LIVE, ADDED, PASSWORD, IN_URL, REPOSITORY, WRITER, COMMENT, REASON)
    session = planted_value("the cookie", cookie)
    assert_nothing_leaked(
        surfaces, *planted, SEARCHED, kept, session, folder=served.server.db.parent
    )


def put_prompt(screen: Screen) -> None:
    """Ask the model, and wait for its answer."""
    screen.page.get_by_label("Prompt").fill(PROMPT.value)
    screen.press("Control+Enter")
    expect(screen.page.get_by_label("Answer")).to_have_attribute("aria-busy", "false")


def test_no_screen_of_a_workload_shows_what_its_log_and_its_callers_said_in_secret(
    tmp_path: Path, screens: Screens
) -> None:
    secrets = tmp_path / "kept"
    (secrets / "acme" / "db").mkdir(parents=True)
    (secrets / "acme" / "db" / "password").write_text(FROM_FILE.value)
    served = tmp_path / "server"
    served.mkdir()
    with running_server(served, process=True, log_level="debug", secrets_dir=secrets) as server:
        look_at_workload(server, screens, served)


def look_at_workload(server: RunningServer, screens: Screens, folder: Path) -> None:
    token = server.token("acme")
    spec = WorkloadSpec(
        name="leaky",
        model="tiny",
        backend="echo",
        command=shlex.join([*LEAKY, "--model", "tiny"]),
        secrets={"LEAKY_PASSWORD": SecretRef(name="db", key="password")},
        health=Health(path="/health", interval="1s", startup="60s"),
    )
    with ManagementClient(server.url, project="acme", token=token) as owner:
        owner.ensure(spec)
        owner.wait_until_ready("leaky", timeout=60, silent=True)
    surfaces = Surfaces()
    screen = screens.open(server.url)
    watch = Watch(screen, surfaces)
    screen.sign_in(token)
    cookie = screen.page.context.cookies()[0]["value"]
    watch.visit("workloads", "/ui/p/acme/workloads")
    watch.visit("workload", "/ui/p/acme/workloads/leaky")
    expect(screen.page.locator("main")).to_contain_text("LEAKY_PASSWORD is")
    watch.look()
    put_prompt(screen)
    watch.visit("after the prompt", "/ui/p/acme/workloads/leaky")
    watch.visit("history", "/ui/p/acme/history")
    assert server.log is not None
    assert_nothing_leaked(
        surfaces,
        FROM_FILE,
        PROMPT,
        planted_value("the token that signed in", token),
        planted_value("the cookie", cookie),
        folder=folder,
    )
