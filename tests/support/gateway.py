"""The Gateway API on the test cluster: its real definitions, and a controller that tests play.

The definitions come from the project's Go module, fetched once per machine over plain HTTP and
kept beside the programs of the test cluster. No gateway runs: a test says when a route is
accepted, and so decides what the operator gets to see. Used through the fixture `gateway_api`.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import REQUIRED
from tests.support.control_plane import MERGE_PATCH
from tests.support.testbed import cache_root

__all__ = ["GatewayController", "gateway_api"]

MODULE = "sigs.k8s.io/gateway-api"
VERSION = "v1.7.0"
SHA256 = "f9041f93ad3b2572089afa858ceac74e0545e7769490ae774039ed0f841f3d6d"
GROUP = "gateway.networking.k8s.io"
KINDS = ("gateways", "httproutes")
TIMEOUT = 60.0


class NoGatewayApi(Exception):
    """The definitions are not there; the text says why."""


class GatewayController:
    """What a gateway's controller would say about routes, said by the test."""

    def __init__(self, cluster: Cluster, name: str = "holdfast.dev/played-by-a-test") -> None:
        self._api = cluster.api()
        self._name = name

    # Any: objects of the Kubernetes API as they come over the wire, here and below.
    def route(self, namespace: str, name: str) -> dict[str, Any]:
        return self._api.request("GET", self._path(namespace, name))

    def accept(self, namespace: str, name: str) -> None:
        """Take the route over as it is now, for every parent it names."""
        self._say(namespace, name, {"Accepted": "True", "ResolvedRefs": "True"})

    def refuse(self, namespace: str, name: str) -> None:
        """Say that its backends cannot be found."""
        self._say(namespace, name, {"Accepted": "True", "ResolvedRefs": "False"})

    def weights(self, namespace: str, name: str) -> dict[str, int]:
        """The shares on the live route, by the name of the Service."""
        (rule,) = self.route(namespace, name)["spec"]["rules"]
        return {each["name"]: each["weight"] for each in rule["backendRefs"]}

    def _say(self, namespace: str, name: str, said: dict[str, str]) -> None:
        route = self.route(namespace, name)
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": kind if status == "True" else "BackendNotFound",
                "message": "",
                "observedGeneration": route["metadata"]["generation"],
                "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            for kind, status in said.items()
        ]
        parents = [
            {"parentRef": ref, "controllerName": self._name, "conditions": conditions}
            for ref in route["spec"]["parentRefs"]
        ]
        self._api.request(
            "PATCH",
            self._path(namespace, name) + "/status",
            {"status": {"parents": parents}},
            content_type=MERGE_PATCH,
        )

    def _path(self, namespace: str, name: str) -> str:
        return f"/apis/{GROUP}/v1/namespaces/{namespace}/httproutes/{name}"


@pytest.fixture(scope="session")
def gateway_api(cluster: Cluster, pytestconfig: pytest.Config) -> GatewayController:
    """The cluster with the Gateway API in it, and the hand that plays its gateways."""
    try:
        documents = gateway_definitions()
    except NoGatewayApi as missing:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(str(missing))
        _print_uncaptured(pytestconfig, f"SKIPPED: tests with the Gateway API. {missing}")
        pytest.skip(str(missing))
    cluster.apply(*documents)
    names = [f"crd/{kind}.{GROUP}" for kind in KINDS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    return GatewayController(cluster)


def gateway_definitions() -> list[dict[str, Any]]:
    """Give the CustomResourceDefinitions, fetching the module where it is not cached."""
    directory = cache_root() / "gateway-api" / VERSION
    if not directory.exists():
        _fetch(directory)
    files = (directory / f"{GROUP}_{kind}.yaml" for kind in KINDS)
    return [yaml.safe_load(file.read_text()) for file in files]


def _fetch(directory: Path) -> None:
    url = f"{_proxy()}/{MODULE}/@v/{VERSION}.zip"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310  # https or what GOPROXY says
            archive = answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise NoGatewayApi(f"{url} could not be fetched: {error}. Set GOPROXY?") from error
    if hashlib.sha256(archive).hexdigest() != SHA256:
        raise NoGatewayApi(f"{url} is not the file that it was; nothing was kept.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="fetching-", dir=directory.parent) as scratch,
        zipfile.ZipFile(io.BytesIO(archive)) as module,
    ):
        made = Path(scratch) / "definitions"
        made.mkdir()
        for kind in KINDS:
            file = f"{GROUP}_{kind}.yaml"
            name = f"{MODULE}@{VERSION}/config/crd/standard/{file}"
            (made / file).write_bytes(module.read(name))
        try:
            made.rename(directory)
        except OSError:  # another process was faster
            if not directory.exists():
                raise
            shutil.rmtree(made)


def _proxy() -> str:
    for each in os.environ.get("GOPROXY", "").replace("|", ",").split(","):
        if each.startswith(("http://", "https://")):
            return each.rstrip("/")
    return "https://proxy.golang.org"


def _print_uncaptured(config: pytest.Config, text: str) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        print(text, file=sys.stderr, flush=True)
        return
    with capture.global_and_fixture_disabled():
        print(f"\n{text}", file=sys.stderr, flush=True)
