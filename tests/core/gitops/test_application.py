"""An Application is checked as a whole, and every problem is named at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.applications import (
    ACCEPTED,
    HEAL,
    PULL,
    REFUSED,
    document,
    ignore,
    matching,
    routes,
    source,
)
from tests.support.refused import RefusedSpec

from holdfast.core.errors import InvalidSpec
from holdfast.core.gitops.address import has_credential, is_repository
from holdfast.core.gitops.application import (
    ApplicationId,
    ApplicationSpec,
    MatchSpec,
    Remediation,
    RouteSpec,
)
from holdfast.core.gitops.application_validation import RULES, spec_problems
from holdfast.core.gitops.routes import shadowed_routes
from holdfast.wire.application_v1alpha1 import application_from_json


def refusal(change: Any, **named: str) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        application_from_json(document(change, **named))
    return caught.value


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_wrong_one_is_refused_and_says_where(case: RefusedSpec) -> None:
    error = refusal(case.change)
    assert case.field in [problem.field for problem in error.problems]
    assert "s3cr3t-word" not in str(error)
    for problem in error.problems:
        assert problem.reason.endswith(".")
        assert problem.fix.endswith(".")


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_one_mistake_is_one_problem(case: RefusedSpec) -> None:
    """A user who made one mistake reads one sentence, or two where a credential is in the open."""
    assert len(refusal(case.change).problems) <= 1 + ("s3cr3t" in str(case.change))


@pytest.mark.parametrize("why", ACCEPTED)
def test_what_is_right_is_accepted(why: str) -> None:
    application_from_json(document(ACCEPTED[why])).validate()


def test_every_rule_is_broken_by_some_case() -> None:
    """A rule that no case breaks is a rule that nobody has seen at work."""
    said = {f"{p.reason} {p.fix}" for case in REFUSED for p in refusal(case.change).problems}
    rules = [rule for found in RULES.values() for rule in found]
    assert [rule.field for rule in rules if f"{rule.reason} {rule.fix}" not in said] == []


def test_all_problems_are_named_at_once() -> None:
    wrong = {
        **source(url="git://x", interval="1s", path="../x"),
        **routes(HEAL, {**PULL, "name": "r0"}),
        "project": "?",
        "notify": [{"name": "a", "kind": "slack"}],
    }
    wrong["drift"] |= ignore()["drift"]
    assert {
        "project", "source.url", "source.interval", "source.path", "drift.routes",
        "drift.ignore[0]", "notify[0].url",
    } <= {problem.field for problem in refusal(wrong).problems}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"source": {"url": 3}},
        {"source": []},
        {"source": "https://x"},
        {"drift": {"routes": {}}},
        {"drift": {"routes": ["x"]}},
        {"drift": {"ignore": [{"name": 1, "owner": [], "pointer": {}}]}},
        {"sync": {"windows": [{"kind": "allow", "schedule": 5, "duration": True}]}},
        {"notify": [None]},
        {"pullRequests": {"labels": "a", "draft": "yes"}},
    ],
)
def test_values_of_the_wrong_type_are_problems_and_not_crashes(change: Any) -> None:
    assert refusal(change).problems


def test_a_spec_that_was_built_in_python_is_checked_the_same() -> None:
    spec: Any = ApplicationSpec(project="acme", source={"url": "x"})  # type: ignore[arg-type]
    assert [problem.field for problem in spec_problems(spec)] == ["source"]
    with pytest.raises(InvalidSpec, match="The Application has 1 problem"):
        spec.validate()


@pytest.mark.parametrize("name", ["a" * 64, "Shop", "a.b", "-a", "", "a\n", "ä"])
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    assert [p.field for p in refusal({}, name=name).problems] == ["metadata.name"]


@pytest.mark.parametrize(
    ("namespace", "name", "good"),
    [("a" * 31, "b" * 31, True), ("a" * 31, "b" * 32, False), ("", "b" * 63, True)],
)
def test_a_name_that_does_not_fit_a_label_with_its_namespace_is_refused(
    namespace: str, name: str, good: bool
) -> None:
    """Cut to size, two names could become one, and one application could prune another's."""
    found = document(name=name, namespace=namespace)
    if good:
        assert len(application_from_json(found).id.label) <= 63
    else:
        assert "with the namespace" in str(refusal({}, name=name, namespace=namespace))


def test_no_two_names_have_the_same_label() -> None:
    ids = [
        ApplicationId(namespace=a, name=b) for a in ("", "a", "a-b", "b") for b in ("a", "a-b", "b")
    ]
    assert len({each.label for each in ids}) == len(ids)


def route(**match: Any) -> RouteSpec:
    return RouteSpec(
        name="x", remediation=Remediation.REPORT, match=MatchSpec(**match) if match else None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wide", "narrow", "hidden"),
    [
        ({}, {"kinds": ("Pod",)}, True),
        ({"kinds": ("*",)}, {}, True),
        ({"kinds": ("Pod", "Job")}, {"kinds": ("Job",), "names": ("a",)}, True),
        ({"kinds": ("Pod",)}, {"kinds": ("Pod", "Job")}, False),
        ({"kinds": ("Pod",)}, {}, False),
        ({"managers": ("kube*",)}, {"managers": ("kubectl*",)}, True),
        ({"managers": ("kubectl*",)}, {"managers": ("kube*",)}, False),
        ({"managers": ("k*l",)}, {"managers": ("k*",)}, False),
        ({"paths": ("spec.a", "spec.b")}, {"paths": ("spec.b",)}, True),
        ({"paths": ("spec.**",)}, {"paths": ("spec.b",)}, False),
        ({"drift": ("image",)}, {"drift": ("image",), "causes": ("person",)}, True),
        ({"drift": ("image",), "causes": ("person",)}, {"drift": ("image",)}, False),
        (
            {"drift": ("image", "configuration", "resource", "secret")},
            {"kinds": ("Pod",)},
            True,
        ),
        ({"drift": ("image", "configuration", "resource")}, {"kinds": ("Pod",)}, False),
    ],
)
def test_a_route_is_hidden_by_one_that_takes_all_it_is_for(
    wide: Any, narrow: Any, hidden: bool
) -> None:
    found = shadowed_routes([route(**wide), route(kinds=("Unrelated",)), route(**narrow)])
    assert ([place for place, _ in found if place == 2] == [2]) is hidden


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://github.com/acme/shop", True),
        ("https://git.example.com:8443/a/b.git", True),
        ("https://[2001:db8::1]/a", True),
        ("ssh://git@host/a", True),
        ("host:path", True),
        ("git@host:/abs/path", True),
        ("file:///srv/git", True),
        ("http://localhost:3000/a/b", True),
        ("http://localhost.evil.example/a/b", False),
        ("https://host", False),
        ("https://host/", False),
        ("HTTPS://host/a", False),
        ("fd::3", False),
        ("host:-x", False),
        ("-u@host:x", False),
        ("//host/share", False),
        ("a", False),
        ("", False),
        ("https://host/a\n", False),
    ],
)
def test_only_what_git_can_be_given_is_an_address(url: str, good: bool) -> None:
    assert is_repository(url) is good
    assert not has_credential(url)


def test_a_route_between_is_no_shield() -> None:
    error = refusal(
        routes({**HEAL, **matching(kinds=["Pod"])}, {**PULL, **matching(kinds=["Job"])},
               {**PULL, **matching(kinds=["Pod"])})
    )  # fmt: skip
    assert [str(problem) for problem in error.problems] == [
        "drift.routes[2]: it can never match: r0 comes before it and takes all that it is for. "
        "Put it before, narrow the other one, or take it out."
    ]
