"""A story that services live through under a running operator, and what is left of it in the end.

The fault tests play it for many services at once, each with a fault of its own at another call,
and compare every service with the one that nothing happened to: its children field by field at
each step, and how often each of them was created and deleted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.kube_faults import ApiCall, KubeFaults, api_call_of
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH, AdminApi, ApiRequestFailed
from tests.support.controllers import small_service
from tests.support.processes import wait_until

from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.service.spec import PLURAL

SERVICES = f"/apis/{GROUP}/{VERSION}/namespaces/%s/{PLURAL}"
CHILDREN = {
    "deployments": "/apis/apps/v1/namespaces/%s/deployments",
    "services": "/api/v1/namespaces/%s/services",
    "horizontalpodautoscalers": "/apis/autoscaling/v2/namespaces/%s/horizontalpodautoscalers",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
}
PATIENCE = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of the spec, and what there has to be besides a status that has caught up."""

    name: str
    change: dict[str, Any]  # Any: a part of a spec, as JSON
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


CANARY = "deployments/NAME-canary"
HPA = "horizontalpodautoscalers/NAME-hpa"
CREATE = Step(name="create", change={"replicas": 1}, present=("deployments/NAME-primary",))
CHANGE = Step(name="change the environment", change={"env": {"A": "2"}})
STORY = (
    CREATE,
    CHANGE,
    Step(name="scale", change={"replicas": 3}),
    Step(
        name="begin a canary",
        change={"canary": {"modelRef": "llama3-8b-q8", "weight": 33}},
        present=(CANARY,),
    ),
    Step(name="step the canary", change={"canary": {"weight": 67}}, present=(CANARY,)),
    Step(
        name="end the canary",
        change={"canary": None},
        absent=(CANARY, "services/NAME-canary"),
    ),
    Step(
        name="autoscale",
        change={"replicas": None, "minReplicas": 1, "maxReplicas": 2},
        present=(HPA,),
    ),
    Step(
        name="scale by hand again",
        change={"replicas": 1, "minReplicas": None, "maxReplicas": None},
        absent=(HPA,),
    ),
)
SHORT = (CREATE, CHANGE)

World = dict[str, Any]
"""The children of one service by kind and name, without what differs from run to run."""


class Stage:
    """A namespace with services in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.api: AdminApi = cluster.api()
        self.namespace = namespace

    def create(self, name: str, change: dict[str, Any] | None = None) -> dict[str, Any]:
        item = small_service(self.namespace, change, name=name)
        return self.api.request("POST", SERVICES % self.namespace, item)

    def change(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        path = f"{SERVICES % self.namespace}/{name}"
        return self.api.request("PATCH", path, {"spec": change}, content_type=MERGE_PATCH)

    def delete(self, name: str) -> None:
        self.api.request("DELETE", f"{SERVICES % self.namespace}/{name}")

    def get(self, name: str) -> dict[str, Any]:
        return self.api.request("GET", f"{SERVICES % self.namespace}/{name}")

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get(name).get("status") or {}
        return status

    def child(self, about: str) -> dict[str, Any] | None:
        kind, _, name = about.partition("/")
        try:
            return self.api.request("GET", f"{CHILDREN[kind] % self.namespace}/{name}")
        except ApiRequestFailed as failed:
            if failed.status != 404:
                raise
            return None

    def children(self) -> dict[str, dict[str, Any]]:
        """Every child there is, by kind and name."""
        found = {}
        for kind, path in CHILDREN.items():
            for item in self.api.request("GET", path % self.namespace)["items"]:
                found[f"{kind}/{item['metadata']['name']}"] = item
        return found

    def wait(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        wait_until(holds, seconds, what)

    def settled(self, name: str) -> bool:
        """The status has caught up with the spec and says that all is well."""
        found = self.get(name)
        status = found.get("status") or {}
        caught_up = status.get("observedGeneration") == found["metadata"]["generation"]
        canary = found["spec"].get("canary")
        state = status.get("canary") or {}
        moved = not canary or (state.get("phase"), state.get("declared")) == (
            "Running",
            canary["weight"],
        )
        return bool(caught_up and status.get("ready") and moved)

    def reached(self, names: Sequence[str], step: Step) -> bool:
        there = self.children()

        def as_told(name: str) -> bool:
            present = all(each.replace("NAME", name) in there for each in step.present)
            absent = not any(each.replace("NAME", name) in there for each in step.absent)
            return present and absent

        return all(as_told(name) for name in names) and all(map(self.settled, names))

    def play(
        self,
        names: Sequence[str],
        steps: Sequence[Step] = STORY,
        *,
        settled: bool = True,
    ) -> list[dict[str, World]]:
        """Live through the steps; give the children of each service after each step."""
        worlds = []
        for step in steps:
            for name in names:
                if step.name == "create":
                    self.create(name, step.change)
                else:
                    self.change(name, step.change)
            if settled:
                self.wait(lambda step=step: self.reached(names, step), f"'{step.name}' to be done")
            worlds.append(self.worlds(names))
        return worlds

    def end(self, names: Sequence[str]) -> None:
        """Delete services and wait until nothing is left of them."""
        for name in names:
            self.delete(name)
        mine = tuple(f"/{name}-" for name in names)

        def gone() -> bool:
            return not any(part in about for about in self.children() for part in mine)

        self.wait(gone, "the children to be collected")

    def worlds(self, names: Sequence[str]) -> dict[str, World]:
        there = self.children()
        for name in names:
            leave_number_to_autoscaler(there, name)
        return {
            name: {
                unnamed(about, name): plain(item, name)
                for about, item in there.items()
                if f"/{name}-" in about
            }
            for name in names
        }


def leave_number_to_autoscaler(there: dict[str, dict[str, Any]], name: str) -> None:
    """Keep only of a number that an autoscaler moves whether it fell to the least there may be."""
    scaler = there.get(HPA.replace("NAME", name))
    primary = there.get(f"deployments/{name}-primary")
    if scaler is not None and primary is not None:
        fell = primary["spec"]["replicas"] <= scaler["spec"]["minReplicas"]
        primary["spec"]["replicas"] = "the least" if fell else "more than the least"


def plain(item: dict[str, Any], name: str) -> Any:
    """Give what was declared of an object, with the service's name left out."""
    metadata = item["metadata"]
    spec = {k: v for k, v in item["spec"].items() if k not in ("clusterIP", "clusterIPs")}
    kept = {
        "labels": metadata.get("labels"),
        "annotations": {
            k: v
            for k, v in (metadata.get("annotations") or {}).items()
            # The one is a digest over the name, the other counts changes on the way.
            if k not in ("holdfast.dev/applied", "deployment.kubernetes.io/revision")
        },
        "owners": [each["kind"] for each in metadata.get("ownerReferences", ())],
        "spec": spec,
    }
    return json.loads(unnamed(json.dumps(kept), name))


def unnamed(text: str, name: str) -> str:
    """Put NAME for a service's name where it stands as a word: names may be one letter long."""
    return re.sub(rf"\b{re.escape(name)}\b", "NAME", text)


def history(kube: KubeFaults, name: str) -> Counter[str]:
    """How often the operator created and deleted each child of one service."""
    made: Counter[str] = Counter()
    for call in kube.calls:
        if call.name.startswith(f"{name}-") and "/" not in call.resource and call.write:
            if call.status == 201:
                made[f"create {call.resource}/{unnamed(call.name, name)}"] += 1
            elif call.method == "DELETE" and call.status in (200, 202):
                made[f"delete {call.resource}/{unnamed(call.name, name)}"] += 1
    return made


def address(name: str) -> str:
    """Match the address of a service or of one of its children."""
    return rf"/{name}(-[a-z]+)?(/status)?(\?|$)"


def about(name: str) -> Callable[[ApiCall], bool]:
    """The calls of the operator about one service: itself, and its children."""
    return lambda call: call.name == name or call.name.startswith(f"{name}-")


def status_problems(kube: KubeFaults, namespace: str) -> list[str]:
    """Statuses that were written for a generation older than one that was reported before."""
    newest: dict[str, int] = {}
    problems = []
    for request in kube.requests:
        call = api_call_of(request)
        if call.resource == f"{PLURAL}/status" and call.namespace == namespace:
            said = json.loads(request.body)["status"].get("observedGeneration", 0)
            if said < newest.get(call.name, 0):
                problems.append(f"{call.name}: {said} after {newest[call.name]}")
            newest[call.name] = max(said, newest.get(call.name, 0))
    return problems
