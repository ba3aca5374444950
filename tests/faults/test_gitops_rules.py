"""Rules and expressions that somebody wrote to hide too much, or to keep the controller busy.

Whatever is not refused is done in time that grows with its length: each test here would run into
the time limit of the suite if one of them backtracked.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
from tests.faults.gitops_story import PROJECT
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap, route

from holdfast.core.errors import ConfigurationError, HoldfastError, ValidationError
from holdfast.core.gitops.application import DriftSpec, IgnoreSpec, MatchSpec, Remediation
from holdfast.core.gitops.application_validation import spec_problems
from holdfast.core.gitops.external_ignore import pattern_of_jq
from holdfast.core.gitops.ignore import FIELDS, MANAGERS, annotated_rules, ignore_problems
from holdfast.core.glob import Glob
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.ignore import IgnoreRule

MANY = 10_000
WHOLE = ["", "/", "//", "/spec", "/metadata", "/data", "/kind", "///"]
MALFORMED = [
    "spec/replicas", "~", "/spec/~", "/spec/~2", "/a~2/b", "/spec/~01~", "/spec//replicas/",
    "/a" * MANY, "/a/" + "~" * MANY, "/" + "a" * MANY, "#/spec/replicas",
]  # fmt: skip
HARMLESS = ["/spec/-", "/spec/-1", "/spec/99999999999999999999", "/__proto__/x", "/spec/\u202ex"]
GLOBS = {
    "stars": "*" * MANY,
    "stars and a name": "*" * MANY + "x",
    "many small stars": "a*" * MANY + "b",
    "many wide stars": "**.a" * MANY,
    "brackets": "[" * MANY,
    "open classes": "[a-z" * MANY,
    "nested": "(" * MANY + "a*" + ")*" * MANY,
    "braces": "{a,b}" * MANY,
}
PATHS = ["a" * MANY, ".".join("a" * MANY), "a.b[name=" + "*" * MANY + "]", "x"]


def rule(**given: object) -> IgnoreSpec:
    return IgnoreSpec(name="r", owner="team", **given)  # type: ignore[arg-type]


def refused(spec: IgnoreSpec) -> bool:
    """True when an application with such a rule is refused before anything is looked at."""
    world = GitopsWorld(drift=DriftSpec(ignore=(spec,)))
    found = spec_problems(world.application.spec)
    return any(problem.field.startswith("drift.ignore[0]") for problem in found)


@pytest.mark.parametrize("pointer", WHOLE, ids=repr)
def test_a_pointer_that_would_hide_a_whole_object_is_refused(pointer: str) -> None:
    assert refused(rule(pointer=pointer))
    assert ignore_problems(rule(pointer=pointer), "i")
    if len(pointer.split("/")) < 3:
        with pytest.raises((ConfigurationError, ValidationError)):
            IgnoreRule(name="r", owner="team", pointer=pointer)


@pytest.mark.parametrize("pointer", MALFORMED, ids=lambda text: ascii(text[:20]))
def test_what_is_no_pointer_is_refused_and_not_repeated_at_length(pointer: str) -> None:
    spec = rule(pointer=pointer)
    assert refused(spec)
    told = "".join(str(problem) for problem in ignore_problems(spec, "i"))
    assert len(told) < 1000


@pytest.mark.parametrize("pointer", HARMLESS, ids=ascii)
async def test_a_pointer_to_nothing_hides_nothing(pointer: str) -> None:
    spec = rule(pointer=pointer, kind="ConfigMap")
    if refused(spec):
        return
    world = GitopsWorld(route(Remediation.REPORT), drift=DriftSpec(ignore=(spec,)))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"))
    result = await world.reconcile()
    assert result.status.drifted == 1


@pytest.mark.parametrize("pointer", [*WHOLE, *MALFORMED], ids=lambda text: ascii(text[:20]))
def test_an_annotation_cannot_hide_an_object_either(pointer: str) -> None:
    item = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "annotations": {FIELDS: pointer}},
    }  # fmt: skip
    found = annotated_rules(item)  # type: ignore[arg-type]
    assert found.rules == ()
    assert sum(map(len, found.not_understood)) < 2000 * max(1, pointer.count(","))


@pytest.mark.parametrize("manager", ["*", "**", "*" * MANY])
def test_a_rule_for_every_manager_is_refused(manager: str) -> None:
    item = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "annotations": {MANAGERS: manager}},
    }  # fmt: skip
    assert annotated_rules(item).rules == ()  # type: ignore[arg-type]
    assert refused(rule(manager=manager))


POD = "spec.template.spec"
SECURITY = [
    ("Deployment", f"{POD}.{field}")
    for field in (
        "securityContext", "securityContext.runAsUser", "serviceAccountName", "serviceAccount",
        "automountServiceAccountToken", "hostNetwork", "hostPID", "hostIPC", "hostUsers",
        "containers.0.image", "initContainers.0.image", "containers.0.securityContext.privileged",
        "volumes.0.hostPath", "containers.0.securityContext.capabilities.add",
    )
] + [
    ("Role", "rules.0"), ("ClusterRole", "rules.0.verbs"), ("RoleBinding", "subjects.0"),
    ("ClusterRoleBinding", "roleRef.name"), ("Secret", "data.password"),
    ("NetworkPolicy", "spec.ingress"), ("ValidatingWebhookConfiguration", "webhooks.0"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "field"), SECURITY)
def test_a_field_of_security_is_not_hidden_by_the_way(kind: str, field: str) -> None:
    pointer = "/" + field.replace(".", "/")
    assert refused(rule(pointer=pointer, kind=kind))
    assert refused(rule(path=field, kind=kind))
    assert not refused(rule(pointer=pointer, kind=kind, security=True))
    item = {
        "apiVersion": "v1", "kind": kind,
        "metadata": {"name": "a", "namespace": "n", "annotations": {FIELDS: pointer}},
    }  # fmt: skip
    assert annotated_rules(item).rules == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("hidden", ["/spec/template", "spec.**", "spec.template.*", "spec.temp*"])
async def test_a_rule_for_what_stands_around_it_hides_no_field_of_security(hidden: str) -> None:
    given = {"pointer": hidden} if hidden.startswith("/") else {"path": hidden}
    world = GitopsWorld(route(Remediation.REPORT), drift=DriftSpec(ignore=(rule(**given),)))
    if refused(rule(**given)):
        return
    world.git.commit(
        {
            "d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n"
            "  selector: {matchLabels: {app: d}}\n  template:\n"
            "    metadata: {labels: {app: d}}\n    spec:\n"
            "      serviceAccountName: small\n      containers: [{name: c, image: i}]\n"
        }
    )
    await world.reconcile()
    ref = ObjectRef(api_version="apps/v1", kind="Deployment", namespace=NAMESPACE, name="d")
    world.kube.edit(
        ref, lambda item: item["spec"]["template"]["spec"].update(serviceAccountName="root")
    )
    result = await world.reconcile()
    assert result.status.drifted == 1


@pytest.mark.parametrize("name", GLOBS)
def test_a_hostile_glob_is_refused_or_matched_in_one_reading(name: str) -> None:
    text = GLOBS[name]
    steps = 0

    def count(frame: object, event: str, arg: object) -> object:
        nonlocal steps
        steps += event == "line"
        return count

    made = Glob(text)
    for path in PATHS:
        steps, before = 0, sys.gettrace()
        sys.settrace(count)  # type: ignore[arg-type]
        try:
            made.matches(path)
        finally:
            sys.settrace(before)
        assert steps <= 20 * (len(path) + 1), "so many steps for each character, and no more"


@pytest.mark.parametrize("name", GLOBS)
@pytest.mark.parametrize("part", ["kinds", "names", "namespaces", "managers", "paths"])
async def test_a_hostile_condition_of_a_route_is_refused_or_passed_over(
    part: str, name: str
) -> None:
    match = MatchSpec(**{part: (GLOBS[name],)})  # type: ignore[arg-type]
    world = GitopsWorld(route(Remediation.SELF_HEAL, match=match))
    if spec_problems(world.application.spec):
        return
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="a" * MANY))
    await world.reconcile()
    assert world.context is not None


@pytest.mark.parametrize(
    "expression",
    [
        "", ".", "..", ".a" * MANY, ".[]" * MANY, '.["' * MANY, ".a|" * MANY, "." + "a" * MANY,
        "recurse", "..|.a", "def f: f; f", "[range(1e9)]", ".a[] | select(.b == \"" + "c" * MANY,
        "." + " " * MANY + "|", ".a[-1]", ".a[99999999999]", ".a as $x | $x", "input", "env.HOME",
    ],
    ids=lambda text: ascii(text[:16]),
)  # fmt: skip
def test_an_expression_that_is_more_than_a_path_is_not_understood(expression: str) -> None:
    assert pattern_of_jq(expression) is None


@pytest.mark.parametrize("path", ["*", "**", "**.*", "*.*", "[*]", ".", "", "spec", "data.x.", "/"])
async def test_a_person_can_hide_for_a_while_only_what_drifted(path: str) -> None:
    world = GitopsWorld(route(Remediation.REPORT))
    world.git.commit({"a.yaml": configmap("a", x="1", y="1")})
    await world.reconcile()
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"))
    await world.reconcile()
    (drift,) = world.drifts
    until = world.clock.now() + timedelta(hours=1)
    try:
        rules = await world.review().ignore(
            PROJECT, drift.id, actor="maria", until=until, reason="", path=path
        )
    except HoldfastError:
        rules = ()
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(y="9"))
    result = await world.reconcile()
    assert result.status.drifted == 1, "whatever was hidden, the other field still shows"
    assert len(rules) <= 1
