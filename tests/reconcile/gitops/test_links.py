"""Deep links: every notice, Kubernetes Event and pull request leads to what it is about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.gitops_world import GitopsWorld, configmap, route

from holdfast.core.gitops import facts
from holdfast.core.gitops.application import PullRequestKind, Remediation, SyncSpec
from holdfast.core.gitops.wording import MAX_MESSAGE
from holdfast.reconcile.gitops.reporting import event_of

BASE = "https://holdfast.example.com"
HERE = f"{BASE}/ui/p/ml-platform"


def make_world(
    remediation: Remediation, *, base_url: str = BASE, **more: PullRequestKind
) -> GitopsWorld:
    world = GitopsWorld(route(remediation, **more))
    world.base_url = base_url
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    return world


async def test_notices_and_events_about_a_drift_link_to_it() -> None:
    world = make_world(Remediation.REVIEW)
    await world.reconcile()
    world.edit("a")
    result = await world.reconcile()
    id = world.drifts[0].id
    assert {notice.url for notice in world.notices} == {f"{HERE}/drifts/{id}"}
    told = [event.message for event in result.events]
    assert told
    assert all(message.endswith(f" See {HERE}/drifts/{id}") for message in told)


async def test_a_persons_decision_is_told_with_the_link() -> None:
    world = make_world(Remediation.REVIEW)
    await world.reconcile()
    world.edit("a")
    await world.reconcile()
    (drift,) = world.drifts
    world.notices.clear()
    await world.review().reject("ml-platform", drift.id, actor="maria", comment="it stays")
    assert [notice.url for notice in world.notices] == [f"{HERE}/drifts/{drift.id}"]


@pytest.mark.parametrize("pull", list(PullRequestKind))
async def test_a_pull_request_links_to_its_drift(pull: PullRequestKind) -> None:
    world = make_world(Remediation.PULL_REQUEST, pull=pull)
    await world.reconcile()
    world.edit("a")
    await world.reconcile()
    (drift,) = world.drifts
    assert world.forge is not None
    (opened,) = world.forge.pulls.values()
    assert f"[See it in Holdfast]({HERE}/drifts/{drift.id})." in opened.body
    assert opened.body.rstrip().endswith("-->"), "the marker stays last"


async def test_a_plan_that_waits_is_linked_as_a_plan() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.base_url = BASE
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    await world.reconcile()
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(8)})
    result = await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans
    (event,) = [each for each in result.events if each.reason == "Parked"]
    assert event.message.endswith(f" See {HERE}/plans/{plan}")
    assert [each.url for each in world.notices if "parked" in each.type] == [f"{HERE}/plans/{plan}"]


async def test_a_source_that_is_stale_is_linked_as_its_application() -> None:
    world = make_world(Remediation.REVIEW)
    await world.reconcile()
    world.git.down = "it did not answer"
    result = await world.fetch_and_reconcile()
    (event,) = [each for each in result.events if each.reason == "SourceStale"]
    assert event.message.endswith(f" See {HERE}/applications/team.shop")


async def test_without_a_base_url_there_is_no_link() -> None:
    world = make_world(Remediation.PULL_REQUEST, base_url="")
    await world.reconcile()
    world.edit("a")
    result = await world.reconcile()
    assert world.forge is not None
    (opened,) = world.forge.pulls.values()
    assert "Holdfast](" not in opened.body
    assert not any("/ui/" in each.message for each in result.events)
    assert {each.url for each in world.notices} <= {"", opened.url}


async def test_a_link_in_an_event_is_never_cut() -> None:
    world = make_world(Remediation.REVIEW)
    await world.reconcile()
    world.edit("a")
    await world.reconcile()
    long = replace(world.drifts[0], note="x" * 3 * MAX_MESSAGE)
    link = f"{HERE}/drifts/{long.id}"
    event = event_of(facts.HealFailed(drift=long), link)
    assert event is not None
    assert len(event.message) == MAX_MESSAGE
    assert event.message.endswith(f"… See {link}")
