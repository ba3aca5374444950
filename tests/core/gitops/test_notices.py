"""What is told: the fact once, for people and for machines, and no secret of anyone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops import facts
from holdfast.core.gitops.application import ApplicationId, Remediation
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.facts import ApplicationFact, JournalAction
from holdfast.core.gitops.guard import ApprovalRequirement
from holdfast.core.gitops.notices import notice_of
from holdfast.core.gitops.notification import Notice, Severity, notice_cause
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.gitops.source import StaleReason, StaleSource
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Tree

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CHAT = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="prod", name="chat")
APPLICATION = ApplicationId(namespace="gitops", name="chat")
OTHER = ApplicationId(namespace="gitops", name="other")
URL = "https://holdfast.example/drifts/drf-1"


def entry(
    path: str = "spec.replicas",
    desired: Tree = 3,
    live: Tree = 5,
    kind: DriftKind = DriftKind.CONFIGURATION,
    writer: str = "kubectl-edit",
) -> DriftEntry:
    return DriftEntry(
        path=path,
        desired=desired,
        live=live,
        kind=kind,
        cause=Cause.PERSON,
        evidence="",
        writer=Writer(manager=writer) if writer else None,
    )


def drift(*entries: DriftEntry, id: str = "drf-1", note: str = "", **more: object) -> ObjectDrift:
    base = ObjectDrift(
        id=id,
        application=APPLICATION,
        project="p",
        object=CHAT,
        entries=entries or (entry(),),
        commit="c1",
        remediation=Remediation.REVIEW,
        note=note,
        first_seen=AT,
        last_seen=AT,
        url=URL,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def told(
    fact: ApplicationFact,
    application: ApplicationId = APPLICATION,
    at: datetime = AT,
    cluster: str = "eu-1",
) -> Notice:
    notice = notice_of(fact, application, at, cluster)
    assert notice is not None
    return notice


def detected(*entries: DriftEntry, at: datetime = AT, **more: object) -> Notice:
    return told(facts.DriftDetected(drift=drift(*entries, **more)), at=at)


def requirement(text: str) -> ApprovalRequirement:
    return ApprovalRequirement(why=ApprovalReason.MASS_HEAL, message=text)


EVERY: dict[str, Callable[[str, str], ApplicationFact]] = {
    "drift.detected": lambda id, text: facts.DriftDetected(
        drift=drift(
            entry(live=text, writer=text),
            entry("data.password", text, text, DriftKind.SECRET),
            entry("", None, None),
            id=id,
        )
    ),
    "drift.tolerated": lambda id, text: facts.DriftHeld(drift=drift(id=id, note=text, until=AT)),
    "drift.approved": lambda id, text: facts.DriftDecided(
        drift=drift(id=id, plan="sha256:1"),
        decision=JournalAction.APPROVED,
        actor=text,
        comment=text,
    ),
    "drift.rejected": lambda id, text: facts.DriftDecided(
        drift=drift(id=id), decision=JournalAction.REJECTED, actor=text, comment=text
    ),
    "drift.healed": lambda id, text: facts.drift_resolved(
        drift(entry(live=text), id=id, decided_by=text), healed=True
    ),
    "drift.codified": lambda id, text: facts.PullRequestOpened(drift=drift(id=id), url=text),
    "drift.expired": lambda id, text: facts.ToleranceExpired(
        drift=drift(id=id), ended=AT, follows=text, reason=text
    ),
    "drift.failed": lambda id, text: facts.HealFailed(drift=drift(id=id, note=text)),
    "drift.fight": lambda id, text: facts.FightDetected(
        drift=drift(id=id, rounds=(AT, AT, AT)), writers=(text,), since=AT
    ),
    "plan.parked": lambda _, text: facts.HealsBlocked(requirement=requirement(text), count=40),
    "source.stale": lambda _, text: facts.SourceStale(
        repository=text,
        revision="main",
        since=AT,
        stale=StaleSource(reason=StaleReason.UNAVAILABLE, detail=text),
    ),
    "source.recovered": lambda _, text: facts.SourceRecovered(
        repository=text, revision="main", since=AT, commit="c" * 40
    ),
}


@pytest.mark.parametrize("word", EVERY)
def test_every_notice_is_a_cloud_event_in_the_making(word: str) -> None:
    notice = told(EVERY[word]("drf-1", "alice"))
    assert notice.type == f"dev.holdfast.{word}.v1"
    assert notice.source == "/clusters/eu-1/namespaces/gitops"
    assert notice.subject in ("Deployment/prod/chat", "Application/gitops/chat")
    assert notice.data["application"] == "gitops/chat"
    assert notice.title
    assert notice.text
    assert notice.url == (URL if word.startswith("drift.") else "")
    json.dumps(notice.data, allow_nan=False)


@pytest.mark.parametrize("word", EVERY)
def test_the_same_fact_has_the_same_id_and_another_has_another(word: str) -> None:
    make = EVERY[word]
    first = told(make("drf-1", "alice"))
    assert told(make("drf-1", "alice")).id == first.id
    assert told(make("drf-1", "alice"), OTHER).id != first.id
    if word.startswith("drift."):
        assert told(make("drf-2", "alice")).id != first.id


def test_looking_again_at_an_open_drift_does_not_make_it_news() -> None:
    later = AT + timedelta(hours=1)
    assert detected(entry(live=6), at=later).id == detected().id
    healed = facts.drift_resolved(drift(), healed=True)
    assert told(healed, at=later).id != told(healed).id


def test_a_detected_drift_says_what_changed_from_what_and_by_whom() -> None:
    notice = detected(*(entry(f"spec.f{n}") for n in range(8)))
    assert notice.title == "Deployment prod/chat drifted (configuration)"
    assert "by kubectl-edit" in notice.text
    assert "• spec.f0: 5, declared 3" in notice.text
    assert notice.text.endswith("• … and 3 more\nPutting it back: cost unknown.")
    assert notice.severity is Severity.WARNING
    fields = notice.data["fields"]
    assert isinstance(fields, list)
    assert len(fields) == 8


def test_a_fight_names_both_managers() -> None:
    notice = told(EVERY["drift.fight"]("drf-1", "keda"))
    assert notice.title == "holdfast-gitops and keda fight over Deployment prod/chat"
    assert notice.severity is Severity.CRITICAL


def test_the_edits_of_one_person_in_one_application_have_one_cause() -> None:
    other = detected(id="drf-2", object=replace(CHAT, name="web"))
    assert notice_cause(detected()) == notice_cause(other)
    assert notice_cause(detected()) != notice_cause(detected(entry(writer="keda")))


def test_applications_that_follow_one_repository_go_stale_for_one_cause() -> None:
    stale = EVERY["source.stale"]("", "https://git.example/infra.git")
    causes = {notice_cause(told(stale, application)) for application in (APPLICATION, OTHER)}
    assert len(causes) == 1


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", "//evil"])
def test_only_an_address_of_the_web_is_passed_on(url: str) -> None:
    assert detected(url=url).url == ""


def test_what_others_wrote_cannot_forge_lines_or_hide_them() -> None:
    notice = detected(entry(writer="x\x1b[2K\u202eevil"))
    assert notice.text.isascii() or "\u202e" not in notice.text
    assert "\x1b" not in notice.text


@pytest.mark.parametrize("word", EVERY)
def test_no_secret_gets_into_a_notice(word: str) -> None:
    canaries = [
        planted_secret("token of a forge", "ghp_{}{}"),
        planted_secret("password in a URL", "https://git:{}@git.example/x.git"),
        planted_secret("assignment", "password={}"),
        planted_secret("bearer", "Authorization: Bearer {}"),
    ]
    surfaces = Surfaces()
    for canary in canaries:
        notice = told(EVERY[word]("drf-1", canary.value), cluster="eu")
        surfaces.add(f"{word} {canary.label}", notice, json.dumps(notice.data))
    assert surfaces.leaks(canaries) == []


def test_the_values_of_a_secret_are_not_in_its_notice_whatever_they_look_like() -> None:
    canary = planted_secret("plain value", "{}")
    surfaces = Surfaces()
    for each in (
        entry("data.tls", canary.value, canary.value, DriftKind.SECRET),
        entry("/data/API_TOKEN", canary.value, canary.value),
        entry("spec.env[name=HF_TOKEN].value", canary.value, canary.value),
        entry("spec.x", {"password": canary.value}, ["--api-key", canary.value]),
    ):
        notice = detected(each)
        surfaces.add(each.path, notice, json.dumps(notice.data))
    assert surfaces.leaks([canary]) == []


def test_a_huge_drift_makes_a_small_notice() -> None:
    notice = detected(*(entry(f"data.k{n}", "x" * 100_000, "y" * 100_000) for n in range(99)))
    assert len(json.dumps(notice.data)) < 100_000
    assert len(notice.text) < 5_000
