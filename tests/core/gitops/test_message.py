"""What is told: the fact once, for people and for machines, and no secret of anyone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops import message
from holdfast.core.gitops.message import NoticeSubject
from holdfast.core.gitops.notification import Notice, Severity, notice_cause
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Tree

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CHAT = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="prod", name="chat")
ABOUT = NoticeSubject(
    application="gitops/chat",
    at=AT,
    object=CHAT,
    drift="drf-1",
    cluster="eu-1",
    url="https://holdfast.example/drifts/drf-1",
)
WHOLE = replace(ABOUT, object=None, drift="")


def entry(
    path: str = "spec.replicas",
    desired: Tree = 3,
    live: Tree = 5,
    kind: DriftKind = DriftKind.CONFIGURATION,
) -> DriftEntry:
    return DriftEntry(
        path=path,
        desired=desired,
        live=live,
        kind=kind,
        cause=Cause.PERSON,
        evidence="",
        writer=Writer(manager="kubectl-edit"),
    )


def detected(
    about: NoticeSubject = ABOUT, *fields: DriftEntry, writer: str = "kubectl-edit"
) -> Notice:
    return message.drift_detected(
        about, kinds=[DriftKind.CONFIGURATION], fields=fields or (entry(),), writer=writer
    )


EVERY: dict[str, Callable[[NoticeSubject, str], Notice]] = {
    "drift.detected": lambda about, text: message.drift_detected(
        about,
        kinds=[DriftKind.SECRET],
        fields=[entry(live=text), entry("data.password", text, text), entry("", None, None)],
        writer=text,
        remediation=text,
        waits_for_review=True,
    ),
    "drift.tolerated": lambda about, text: message.drift_tolerated(
        about, reason=text, until=AT, actor=text
    ),
    "drift.approved": lambda about, text: message.drift_approved(
        about, actor=text, plan="sha256:1", comment=text
    ),
    "drift.rejected": lambda about, text: message.drift_rejected(about, actor=text, reason=text),
    "drift.healed": lambda about, text: message.drift_healed(
        about, actor=text, fields=[entry(live=text)]
    ),
    "drift.codified": lambda about, text: message.drift_codified(about, pull=text),
    "drift.expired": lambda about, text: message.drift_expired(
        about, ended=AT, follows=text, reason=text
    ),
    "drift.failed": lambda about, text: message.heal_failed(about, reason=text),
    "drift.fight": lambda about, text: message.fight(
        about, ours="holdfast-gitops", theirs=[text], rounds=3, since=AT
    ),
    "plan.parked": lambda about, text: message.approval_required(
        replace(about, object=None), plan="sha256:1", reasons=[text], changes=40
    ),
    "source.stale": lambda about, text: message.source_stale(
        replace(about, object=None), repository=text, revision="main", since=AT, reason=text
    ),
    "source.recovered": lambda about, text: message.source_recovered(
        replace(about, object=None), repository=text, revision="main", since=AT, commit="c" * 40
    ),
}


@pytest.mark.parametrize("word", EVERY)
def test_every_notice_is_a_cloud_event_in_the_making(word: str) -> None:
    told = EVERY[word](ABOUT, "alice")
    assert told.type == f"dev.holdfast.{word}.v1"
    assert told.source == "/clusters/eu-1/namespaces/gitops"
    assert told.subject in ("Deployment/prod/chat", "Application/gitops/chat")
    assert told.data["application"] == "gitops/chat"
    assert told.title
    assert told.text
    assert told.url == ABOUT.url
    json.dumps(told.data, allow_nan=False)


@pytest.mark.parametrize("word", EVERY)
def test_the_same_fact_has_the_same_id_and_another_has_another(word: str) -> None:
    make = EVERY[word]
    told = make(ABOUT, "alice")
    assert make(ABOUT, "alice").id == told.id
    elsewhere = replace(ABOUT, application="gitops/other")
    assert make(elsewhere, "alice").id != told.id
    if word.startswith("drift."):
        assert make(replace(ABOUT, drift="drf-2"), "alice").id != told.id


def test_looking_again_at_an_open_drift_does_not_make_it_news() -> None:
    later = replace(ABOUT, at=AT + timedelta(hours=1))
    assert detected(later, entry(live=6)).id == detected().id
    assert message.drift_healed(later).id != message.drift_healed(ABOUT).id


def test_a_detected_drift_says_what_changed_from_what_and_by_whom() -> None:
    told = detected(ABOUT, *(entry(f"spec.f{n}") for n in range(8)))
    assert told.title == "Deployment prod/chat drifted (configuration)"
    assert "by kubectl-edit" in told.text
    assert "• spec.f0: 5, declared 3" in told.text
    assert told.text.endswith("• … and 3 more")
    assert told.severity is Severity.WARNING
    fields = told.data["fields"]
    assert isinstance(fields, list)
    assert len(fields) == 8


def test_a_fight_names_both_managers() -> None:
    told = message.fight(ABOUT, ours="holdfast-gitops", theirs=["keda"], rounds=3, since=AT)
    assert told.title == "holdfast-gitops and keda fight over Deployment prod/chat"
    assert told.severity is Severity.CRITICAL


def test_the_edits_of_one_person_in_one_application_have_one_cause() -> None:
    other = replace(ABOUT, object=replace(CHAT, name="web"), drift="drf-2")
    assert notice_cause(detected()) == notice_cause(detected(other))
    assert notice_cause(detected()) != notice_cause(detected(writer="keda"))


def test_applications_that_follow_one_repository_go_stale_for_one_cause() -> None:
    causes = {
        notice_cause(
            message.source_stale(
                replace(WHOLE, application=name),
                repository="https://git.example/infra.git",
                revision="main",
                since=AT,
                reason="It did not answer.",
            )
        )
        for name in ("gitops/a", "gitops/b")
    }
    assert len(causes) == 1


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", "//evil"])
def test_only_an_address_of_the_web_is_passed_on(url: str) -> None:
    assert detected(replace(ABOUT, url=url)).url == ""


def test_what_others_wrote_cannot_forge_lines_or_hide_them() -> None:
    told = detected(writer="x\x1b[2K\u202eevil")
    assert told.text.isascii() or "\u202e" not in told.text
    assert "\x1b" not in told.text


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
        told = EVERY[word](replace(ABOUT, cluster="eu"), canary.value)
        surfaces.add(f"{word} {canary.label}", told, json.dumps(told.data))
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
        told = detected(ABOUT, each)
        surfaces.add(each.path, told, json.dumps(told.data))
    assert surfaces.leaks([canary]) == []


def test_a_huge_drift_makes_a_small_notice() -> None:
    told = detected(ABOUT, *(entry(f"data.k{n}", "x" * 100_000, "y" * 100_000) for n in range(99)))
    assert len(json.dumps(told.data)) < 100_000
    assert len(told.text) < 5_000
