"""Every screen, on a phone, a laptop and a wall, dark and light: nothing to complain about.

With HOLDFAST_SCREENSHOTS=1 the pictures of the README and of the docs are made anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screen, Screens
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.server import RunningServer, running_server

from holdfast import ManagementClient, WorkloadSpec
from holdfast.core.gitops.application import MatchSpec, Remediation
from holdfast.core.object_ref import ObjectRef

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
REMAKE = os.environ.get("HOLDFAST_SCREENSHOTS") == "1"
SIZES = [(360, 780), (1280, 800), (1920, 1080)]
PROMPT = "".join(
    f"{place}. {line}\n"
    for place, line in enumerate(
        ["You answer questions about orders.", "Be short.", "Name the order.", "Say please."] * 6
    )
)
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: 2
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.10.2
          args: [--max-model-len, "8192"]
"""


def prompts(text: str) -> str:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: support-bot-prompts\ndata:\n"
    return f'{head}  MAX_TOKENS: "512"\n  prompt.txt: |\n{lines}'


def deployment_ref(name: str) -> ObjectRef:
    return ObjectRef(api_version="apps/v1", kind="Deployment", namespace="chat", name=name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    """An application of which much drifted, by several hands."""
    world = GitopsWorld(
        route(
            Remediation.REVIEW,
            name="settings-are-reviewed",
            match=MatchSpec(kinds=("ConfigMap",)),
        ),
        route(Remediation.REPORT, name="the-rest-is-reported"),
    )
    names = ["support-bot", "bge-m3", "reranker"]
    files = {f"deploy/{name}.yaml": DEPLOYMENT.format(name=name) for name in names}
    files["deploy/prompts.yaml"] = prompts(PROMPT)
    files |= {f"deploy/{name}-env.yaml": configmap(f"{name}-env", x="1") for name in names}
    world.git.commit(files)

    def edit() -> None:
        changed = PROMPT.replace("6. Name the order.", "6. Name the order and its date.")
        prompt = {"prompt.txt": changed, "MAX_TOKENS": "2048"}
        world.kube.edit(
            config_ref("support-bot-prompts"),
            lambda item: item["data"].update(prompt),
            manager="kubectl-edit",
        )
        world.edit("bge-m3-env", manager="helm")
        world.edit("reranker-env", manager="kubectl-edit")

        def upgrade(item: dict[str, object]) -> None:
            server = item["spec"]["template"]["spec"]["containers"][0]  # type: ignore[index]
            server["image"] = "vllm/vllm-openai:v0.11.0"
            server["args"] = ["--max-model-len", "16384"]

        world.kube.edit(deployment_ref("support-bot"), upgrade, manager="kubectl-set")
        world.kube.edit(
            deployment_ref("bge-m3"),
            lambda item: item["spec"].update(replicas=5),
            manager="kubectl-scale",
        )

    with serve_applications(tmp_path_factory.mktemp("screens"), world) as running:
        running.reconcile()
        running.call(edit)
        running.reconcile()
        yield running


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A control plane with one workload that drifted. Nothing of it runs here."""
    with running_server(tmp_path_factory.mktemp("plane"), run=False) as server:
        spec = WorkloadSpec(name="support-bot", model="org/tiny", backend="vllm", replicas=2)
        with ManagementClient(
            server.url, project="acme", token=server.token("acme", name="deploy-script")
        ) as owner:
            owner.ensure(spec)
            uid = owner.get("support-bot").uid
        answer = httpx2.patch(
            f"{server.url}/api/workloads/{uid}",
            json={"model_name": "org/another"},
            headers={"Authorization": f"Bearer {server.token('acme', name='ops-laptop')}"},
        )
        assert answer.status_code == 200, answer.text
        yield server


def application_paths(served: ServedApplications) -> dict[str, str]:
    assert served.worlds[0].context is not None
    drifts = served.worlds[0].context.state.drifts.values()
    by_name = {drift.object.name: drift for drift in drifts}
    drift = by_name["support-bot-prompts"]
    below = f"/ui/p/{PROJECT}"
    return {
        "inbox": f"{below}/inbox",
        "causes": f"{below}/inbox?group=cause",
        "drift": f"{below}/drifts/{drift.id}",
        "drift-image": f"{below}/drifts/{by_name['support-bot'].id}",
        "plan": f"{below}/plans/{drift.plan}",
        "applications": f"{below}/applications",
        "application": f"{below}/applications/team.shop",
        "application-diff": f"{below}/applications/team.shop?tab=diff",
        "application-plan": f"{below}/applications/team.shop?tab=plan",
        "holds": f"{below}/holds",
        "rules": f"{below}/rules",
        "history": f"{below}/history",
        "me": "/ui/me",
        "nowhere": f"{below}/nowhere",
    }


WORKLOAD_PATHS = {
    "workload-inbox": "/ui/p/acme/inbox",
    "workloads": "/ui/p/acme/workloads",
    "workload": "/ui/p/acme/workloads/support-bot",
    "workload-history": "/ui/p/acme/history",
}
PICTURES = {
    ("inbox", 1280, "light"), ("drift", 1280, "light"), ("drift", 1280, "dark"),
    ("history", 1280, "light"), ("inbox", 360, "dark"),
}  # fmt: skip


def settle(screen: Screen) -> None:
    """Wait until a screen has read what it shows."""
    expect(screen.page.locator("main")).to_be_visible()
    expect(screen.page.locator(".loading")).to_have_count(0)


def check(screen: Screen, name: str, width: int, scheme: str) -> list[str]:
    """Return what is wrong with a screen as it stands."""
    settle(screen)
    found = [f"{name}: {each}" for each in screen.check_accessibility()]
    wide = screen.page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{name}: is {wide} wide on {width}")
    if REMAKE and (name, width, scheme) in PICTURES:
        IMAGES.mkdir(exist_ok=True)
        screen.page.screenshot(path=IMAGES / f"{name}-{scheme}-{width}.png")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_screen_of_applications(
    served: ServedApplications,
    screens: Screens,
    width: int,
    height: int,
    scheme: Literal["light", "dark"],
) -> None:
    token = served.server.token(PROJECT, ["read", "write", "approve", "admin"], name="maria")
    screen = screens.open(served.url, token, width=width, height=height, scheme=scheme)
    found = []
    for name, path in application_paths(served).items():
        screen.page.evaluate(
            "(path) => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')) }",
            path,
        )
        found += check(screen, name, width, scheme)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_screen_of_workloads(
    plane: RunningServer,
    screens: Screens,
    width: int,
    height: int,
    scheme: Literal["light", "dark"],
) -> None:
    token = plane.token("acme", name="maria")
    screen = screens.open(plane.url, width=width, height=height, scheme=scheme)
    screen.go("/ui/login")
    found = check(screen, "login", width, scheme)
    screen.sign_in(token)
    for name, path in WORKLOAD_PATHS.items():
        screen.page.evaluate(
            "(path) => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')) }",
            path,
        )
        found += check(screen, name, width, scheme)
    screen.go(WORKLOAD_PATHS["workload-inbox"])
    screen.rows.first.click()
    found += check(screen, "workload-drift", width, scheme)
    assert not found, "\n".join(found)


def test_windows_over_a_screen(served: ServedApplications, screens: Screens) -> None:
    token = served.server.token(PROJECT, ["read", "write", "approve", "admin"], name="maria")
    screen = screens.open(served.url, token, path=application_paths(served)["drift"])
    settle(screen)
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    found = []
    for key in ("?", "Control+k", "x", "z", "h", "i", "r", "c"):
        screen.press(key)
        dialog = screen.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        expect(screen.page.locator("dialog .loading")).to_have_count(0)
        found += [f"{key}: {each}" for each in screen.check_accessibility()]
        screen.press("Escape")
        expect(dialog).to_have_count(0)
    assert not found, "\n".join(found)


def test_a_phone_in_forced_colours_and_without_motion_shows_the_same(
    served: ServedApplications, screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read"], name="joe")
    screen = screens.open(
        served.url, token, width=360, height=780, forced_colors="active", reduced_motion="reduce"
    )
    settle(screen)
    expect(screen.row("support-bot-prompts")).to_contain_text("Needs approval")
    moving = screen.page.evaluate("document.getAnimations().length")
    assert moving == 0
