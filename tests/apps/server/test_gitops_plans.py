"""Plans by id or digest: what they would change and cost, whether they count, and what moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.server import bearer

from holdfast.core.gitops.application import Remediation, SyncSpec
from holdfast.reconcile.gitops.application_state import open_state

BASE = "https://holdfast.example.com"


class Here:
    """One drift that waits, and one plan that a guard holds back."""

    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops",
            headers=bearer(served.server.token(PROJECT, ["admin"], name="maria")),
            timeout=20,
        )

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def drift(self) -> Any:
        (found,) = self.get("/drifts")["drifts"]
        return found

    @property
    def waiting(self) -> str:
        assert self.world.context is not None
        (found,) = self.world.context.state.plans
        return found


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    world = GitopsWorld(route(Remediation.REVIEW), sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    with serve_applications(tmp_path, world, base_url=BASE) as running:
        running.passes = False
        running.reconcile()
        running.call(lambda: world.edit("c0"))
        world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
        running.run(world.fetch_and_reconcile())
        found = Here(running, world)
        with found.http:
            yield found


def test_a_plan_that_waits_tells_its_fields_its_cost_and_that_it_is_current(here: Here) -> None:
    found = here.get(f"/plans/{here.waiting}")
    assert (found["current"], found["moved"]) == (True, [])
    assert len(found["fields"]) == len(found["steps"]) == 8
    first = found["fields"][0]
    assert (first["path"], first["action"], first["object"]["kind"]) == ("", "delete", "ConfigMap")
    assert found["cost"] == {"kind": "none"}
    assert found["page"] == f"{BASE}/ui/p/{PROJECT}/plans/{here.waiting}"
    digits = found["digest"].removeprefix("sha256:")
    assert here.get(f"/plans/{digits}") == here.get(f"/plans/sha256-{digits}") == found


def test_the_fields_of_a_plan_survive_a_restart(here: Here) -> None:
    assert here.world.context is not None
    before = here.world.context.state.plans
    state = here.served.run(
        open_state(here.world.ledger_store, here.world.application.id, here.world.clock)
    )
    assert state.plans == before
    assert all(plan.fields for plan in state.plans.values())


def test_the_plan_of_a_drift_is_found_by_its_digest(here: Here) -> None:
    drift = here.drift
    digits = drift["plan"].removeprefix("sha256:")
    found = here.get(f"/plans/{digits}")
    assert found == here.get(f"/plans/plan-{digits[:8]}")
    assert (found["drift"], found["digest"], found["current"]) == (drift["id"], drift["plan"], True)
    (field,) = found["fields"]
    assert (field["path"], field["live"], field["desired"]) == ("data.x", "9", "1")
    assert field["writer"]["manager"] == "kubectl-edit"
    assert found["cost"] == drift["cost"]


def test_a_decided_plan_stays_readable(here: Here) -> None:
    waiting = here.waiting
    before = here.get(f"/plans/{waiting}")
    answer = here.http.post(f"/plans/{waiting}/approve", json={"plan": before["digest"]})
    assert answer.status_code == 200
    assert answer.json()["fields"] == before["fields"]
    assert here.get(f"/plans/{waiting}")["approved_by"].startswith("maria (")
    here.served.reconcile()
    assert here.world.context is not None
    assert not here.world.context.state.plans, "it was carried out"
    after = here.get(f"/plans/{waiting}")
    assert (after["fields"], after["steps"]) == (before["fields"], before["steps"])
    assert not after["current"]
    assert "approved by maria" in after["moved"][0]


def test_the_plan_of_a_drift_stays_readable_once_it_was_put_back(here: Here) -> None:
    drift = here.drift
    digits = drift["plan"].removeprefix("sha256:")
    here.http.post(f"/drifts/{drift['id']}/approve", json={"plan": drift["plan"]})
    here.served.reconcile()
    after = here.get(f"/plans/{digits}")
    assert (after["current"], after["drift"]) == (False, drift["id"])
    assert after["approved_by"].startswith("maria (")
    assert [each["path"] for each in after["fields"]] == ["data.x"]
    assert "is as declared again" in after["moved"][-1]


def test_a_plan_that_moved_says_what_moved_and_is_not_approved(here: Here) -> None:
    drift = here.drift
    digits = drift["plan"].removeprefix("sha256:")
    here.served.call(lambda: here.world.edit("c0", "10"))
    here.served.reconcile()
    stale = here.get(f"/plans/{digits}")
    assert not stale["current"]
    assert any("drift of data.x by kubectl-edit" in each for each in stale["moved"])
    assert stale["fields"] == [], "what it would have changed is not kept, and not guessed"
    assert any("update" in step for step in stale["steps"])
    answer = here.http.post(f"/drifts/{drift['id']}/approve", json={"plan": drift["plan"]})
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_plan")
    now = here.drift["plan"].removeprefix("sha256:")
    assert now != digits
    assert here.get(f"/plans/{now}")["current"]


def test_a_plan_that_git_overtook_says_so(here: Here) -> None:
    waiting = here.waiting
    here.world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    here.served.run(here.world.fetch_and_reconcile())
    found = here.get(f"/plans/{waiting}")
    assert not found["current"]
    assert "Git or the cluster moved" in found["moved"][0]


@pytest.mark.parametrize(
    "name", ["plan-00000000", "nonsense", "0" * 64, "plan-", "sha256-x", "abc"]
)
def test_a_plan_that_is_none_is_not_found(here: Here, name: str) -> None:
    answer = here.http.get(f"/plans/{name}")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
