"""A GitOps controller for the command line: one application, edited by somebody."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.server import RunningServer

from holdfast.core.gitops.application import Remediation
from holdfast.core.object_ref import ObjectRef

DEPLOYMENT = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="chat", name="bot")
SECRET = ObjectRef(api_version="v1", kind="Secret", namespace="chat", name="creds")


def deployment(value: str = "declared") -> str:
    """A workload with a credential in its environment, as one finds them."""
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: bot}}
spec:
  selector: {{matchLabels: {{app: bot}}}}
  template:
    metadata: {{labels: {{app: bot}}}}
    spec:
      containers:
      - name: main
        image: vllm/vllm-openai:v0.10.2
        env:
        - name: API_TOKEN
          value: {value}
"""


def secret(password: str, key: str = "password") -> str:
    head = "apiVersion: v1\nkind: Secret\nmetadata: {name: creds}\n"
    return f"{head}stringData: {{{key}: {password}}}\n"


@dataclass
class ApplicationDriver:
    """The application, and ways to change the world around it."""

    served: ServedApplications
    world: GitopsWorld

    def commit(self, **files: str) -> None:
        known = self.world.git.files if self.world.git.commits else {}
        texts = {f"{name}.yaml": text for name, text in files.items()}
        self.served.call(lambda: self.world.git.commit(known | texts))

    def reconcile(self) -> None:
        self.served.run(self.world.fetch_and_reconcile())

    def edit(self, ref: ObjectRef, change: Callable[[Any], None]) -> None:
        self.served.call(lambda: self.world.kube.edit(ref, change))
        self.served.reconcile()

    def move(self, value: str = "9") -> str:
        """Somebody changes a declared value; returns the id of the drift."""
        self.edit(config_ref("a"), lambda item: item["data"].update(x=value))
        return self.id("a")

    def id(self, name: str) -> str:
        return next(each.id for each in self.world.drifts if each.object.name == name)

    def data(self, name: str = "a") -> object:
        return self.served.run(self.world.data(name))


def set_image(image: str, token: str | None = None) -> Callable[[Any], None]:
    def change(item: Any) -> None:
        container = item["spec"]["template"]["spec"]["containers"][0]
        container["image"] = image
        if token:
            container["env"][0]["value"] = token

    return change


def set_password(value: str, key: str = "password") -> Callable[[Any], None]:
    encoded = base64.b64encode(value.encode()).decode()
    return lambda item: item["data"].update({key: encoded})


Serve = Callable[..., ApplicationDriver]


def use(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, *scopes: str, name: str = "maria"
) -> None:
    """Talk to this server, with a token of these scopes."""
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_PROJECT", PROJECT)
    monkeypatch.setenv("HOLDFAST_TOKEN", server.token(PROJECT, scopes, name=name))


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve one application; it is settled, and everything decided takes effect at once."""
    with ExitStack() as stack:

        def make(world: GitopsWorld | None = None) -> ApplicationDriver:
            world = world or GitopsWorld(route(Remediation.REVIEW))
            if not world.git.commits:
                world.git.commit(FILES)
            running = stack.enter_context(serve_applications(tmp_path / "server", world))
            running.reconcile()
            use(running.server, monkeypatch, "admin")
            return ApplicationDriver(running, world)

        (tmp_path / "server").mkdir()
        yield make


FILES = {"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")}
__all__ = [
    "DEPLOYMENT",
    "FILES",
    "PROJECT",
    "SECRET",
    "ApplicationDriver",
    "Serve",
    "serve",
    "use",
]
