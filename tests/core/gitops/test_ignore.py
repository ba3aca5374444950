"""Ignore rules of an application and of an object: what they hide, and what they must not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.gitops.application import IgnoreSpec
from holdfast.core.gitops.ignore import annotated_rules, ignore_problems, ignore_rules_of
from holdfast.core.live import Writer
from holdfast.core.ownership.canonical import OBJECT_RULES
from holdfast.core.ownership.ignore import IgnoreRule

NOW = datetime(2026, 11, 16, tzinfo=UTC)


# Any: an object of the Kubernetes API as it comes over the wire.
def web(**annotations: str) -> dict[str, Any]:
    found = {f"holdfast.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "annotations": found},
    }


def hides(rules: tuple[IgnoreRule, ...], *path: str, by: str = "someone") -> bool:
    writer = Writer(manager=by, operation="Update")
    return any(
        rule.hides(path, item=web(), rules=OBJECT_RULES, writer=writer, now=NOW) for rule in rules
    )


def spec(**given: Any) -> IgnoreSpec:
    return IgnoreSpec(name="r", owner="team-a", **given)


def test_every_part_of_a_spec_reaches_the_rule() -> None:
    (rule,) = ignore_rules_of([
        spec(pointer="/spec/replicas", manager="keda*", kind="Deployment", object_name="w*",
             namespace="shop", expires="2026-11-20T18:00:00+01:00", security=True, lands=True)
    ])  # fmt: skip
    assert rule == IgnoreRule(
        name="r", owner="team-a", pointer="/spec/replicas", manager="keda*", kind="Deployment",
        object_name="w*", namespace="shop", security=True, lands=True,
        expires=datetime(2026, 11, 20, 17, tzinfo=UTC),
    )  # fmt: skip


def test_a_rule_ends_when_it_expires() -> None:
    rules = ignore_rules_of([spec(pointer="/spec/replicas", expires="2026-11-15T00:00:00Z")])
    assert not hides(rules, "spec", "replicas")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "i"),
        ({"manager": "*"}, "i"),
        ({"pointer": "/spec"}, "i.pointer"),
        ({"pointer": ""}, "i.pointer"),
        ({"pointer": "/"}, "i.pointer"),
        ({"pointer": "//"}, "i.pointer"),
        ({"pointer": "/spec/"}, "i.pointer"),
        ({"pointer": "/spec/~2"}, "i.pointer"),
        ({"pointer": "/a" * 40}, "i.pointer"),
        ({"pointer": "/spec/replicas", "path": "spec.replicas"}, "i"),
        ({"path": "**"}, "i"),
        ({"path": "spec"}, "i"),
        ({"pointer": "/spec/template/spec/securityContext/runAsUser"}, "i.pointer"),
        ({"path": "spec.**.securityContext.*"}, "i.path"),
        ({"path": "spec.**.serviceAccountName"}, "i.path"),
        ({"kind": "Secret", "pointer": "/data/token"}, "i.pointer"),
        ({"kind": "ClusterRole", "path": "rules.**.verbs"}, "i.path"),
        ({"pointer": "/spec/replicas", "expires": "2026-02-31T00:00:00Z"}, "i.expires"),
    ],
)
def test_a_rule_that_hides_too_much_is_refused(given: Any, where: str) -> None:
    (problem,) = ignore_problems(spec(**given), "i")
    assert problem.field == where
    assert problem.reason.endswith(".")
    assert problem.fix.endswith(".")


@pytest.mark.parametrize(
    "given",
    [
        {"pointer": "/spec/replicas"},
        {"pointer": "/metadata/annotations/a~1b"},
        {"path": "spec.**.env[name=HTTP_*]"},
        {"manager": "keda-operator"},
        {"kind": "Secret", "pointer": "/metadata/labels/x"},
        {"kind": "Secret", "pointer": "/data/token", "security": True},
        {"pointer": "/spec/template/spec/securityContext/runAsUser", "security": True},
    ],
)
def test_a_rule_for_one_field_is_taken(given: Any) -> None:
    assert ignore_problems(spec(**given), "i") == []


def test_an_object_can_say_itself_which_fields_are_not_its_authors() -> None:
    text = "/spec/replicas, /spec/template/metadata/annotations/a~1b\n/spec/paused"
    found = annotated_rules(web(ignore_fields=text, ignore_managers="keda-operator,flagger*"))
    assert found.not_understood == ()
    assert hides(found.rules, "spec", "replicas")
    assert hides(found.rules, "spec", "paused")
    assert hides(found.rules, "spec", "template", "metadata", "annotations", "a/b")
    assert hides(found.rules, "spec", "strategy", by="flagger-loadtester")
    assert not hides(found.rules, "spec", "strategy")
    assert {rule.name for rule in found.rules} == {
        "annotation holdfast.dev/ignore-fields of Deployment shop/web",
        "annotation holdfast.dev/ignore-managers of Deployment shop/web",
    }


@pytest.mark.parametrize(
    "text", ["/spec", "", "/", "spec.replicas", "/spec/~2", "/spec/template/spec/hostNetwork"]
)
def test_an_object_cannot_hide_itself(text: str) -> None:
    found = annotated_rules(web(ignore_fields=text, ignore_managers="**"))
    assert found.rules == ()
    assert len(found.not_understood) == 1 + bool(text)


def test_an_object_without_such_annotations_has_no_rules() -> None:
    assert annotated_rules(web()).rules == ()
