"""Other tools' objects: who applies them, what those tools were told, and their ignore rules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.gitops.external_ignore import (
    ExternalIgnoreRules,
    pattern_of_jq,
    read_external_rules,
)
from holdfast.core.gitops.objects import ForeignOwner
from holdfast.core.gitops.owners import (
    NO_FOREIGN_SETTINGS,
    foreign_settings_of,
    owner_of,
    owning_application,
)
from holdfast.core.live import Writer
from holdfast.core.ownership.canonical import OBJECT_RULES

NOW = datetime(2026, 11, 16, tzinfo=UTC)
TRACKING = "argocd.argoproj.io/tracking-id"


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def web(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
    }


FLUX = {
    "kustomize.toolkit.fluxcd.io/name": "apps",
    "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
}
FLUX_HELM = {
    "helm.toolkit.fluxcd.io/name": "apps",
    "helm.toolkit.fluxcd.io/namespace": "flux-system",
}
INSTANCE = {"app.kubernetes.io/instance": "shop"}
ARGO_WROTE = [{"manager": "argocd-controller", "operation": "Update"}]


@pytest.mark.parametrize(
    ("metadata", "owner", "name"),
    [
        ({}, None, None),
        (
            {"annotations": {TRACKING: "shop:apps/Deployment:shop/web"}},
            ForeignOwner.ARGO_CD,
            ("", "shop"),
        ),
        (
            {"annotations": {TRACKING: "team_shop:apps/Deployment:shop/web"}},
            ForeignOwner.ARGO_CD,
            ("team", "shop"),
        ),
        # The mark of another object, copied onto this one.
        ({"annotations": {TRACKING: "shop:apps/Deployment:shop/api"}}, None, None),
        ({"annotations": {TRACKING: "shop:apps/Deployment:elsewhere/web"}}, None, None),
        ({"annotations": {TRACKING: "shop:/Service:shop/web"}}, None, None),
        ({"annotations": {TRACKING: "nonsense"}}, None, None),
        ({"labels": {"argocd.argoproj.io/instance": "shop"}}, ForeignOwner.ARGO_CD, ("", "shop")),
        # Charts set this label too, so by itself it says nothing.
        ({"labels": INSTANCE}, None, None),
        ({"labels": INSTANCE, "managedFields": ARGO_WROTE}, ForeignOwner.ARGO_CD, ("", "shop")),
        ({"labels": FLUX}, ForeignOwner.FLUX, ("flux-system", "apps")),
        (
            {"labels": FLUX_HELM, "annotations": {"meta.helm.sh/release-name": "apps"}},
            ForeignOwner.FLUX,
            ("flux-system", "apps"),
        ),
        ({"annotations": {"meta.helm.sh/release-name": "shop"}}, ForeignOwner.HELM, None),
        # What `helm template` writes, also into Git.
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, None, None),
        ({"labels": {"holdfast.dev/application": "shop.web"}}, None, None),
        ({"labels": None, "annotations": 3}, None, None),
    ],
)
def test_an_object_is_applied_by(metadata: Any, owner: ForeignOwner | None, name: Any) -> None:
    assert owner_of(web(**metadata)) is owner
    assert owning_application(web(**metadata)) == name


@pytest.mark.parametrize(
    ("annotation", "value", "asked"),
    [
        ("argocd.argoproj.io/compare-options", "IgnoreExtraneous", ["welcome"]),
        ("argocd.argoproj.io/compare-options", "ServerSideDiff=true", []),
        ("argocd.argoproj.io/sync-options", "Prune=false", ["keep"]),
        ("argocd.argoproj.io/sync-options", "Replace=true, Prune=false,Delete=false", ["keep"]),
        ("argocd.argoproj.io/sync-options", "Prune=true", []),
        ("argocd.argoproj.io/skip-reconcile", "true", ["unmanaged"]),
        ("kustomize.toolkit.fluxcd.io/reconcile", "disabled", ["unmanaged"]),
        ("kustomize.toolkit.fluxcd.io/reconcile", "enabled", []),
        ("kustomize.toolkit.fluxcd.io/ssa", "IfNotPresent", ["create_only"]),
        ("kustomize.toolkit.fluxcd.io/ssa", "Ignore", ["unmanaged"]),
        ("kustomize.toolkit.fluxcd.io/ssa", "Merge", []),
        ("kustomize.toolkit.fluxcd.io/ssa", "Override", []),
        ("kustomize.toolkit.fluxcd.io/prune", "disabled", ["keep"]),
        ("helm.toolkit.fluxcd.io/driftDetection", "disabled", ["unmanaged"]),
        ("helm.sh/resource-policy", "keep", ["keep"]),
    ],
)
def test_a_setting_asks_for(annotation: str, value: str, asked: list[str]) -> None:
    terms = foreign_settings_of(web(annotations={annotation: value}))
    names = ("unmanaged", "create_only", "keep", "welcome")
    assert sorted(name for name in names if getattr(terms, name)) == asked
    assert len(terms.because) == len(asked)
    assert all(told.startswith(annotation) for told in terms.because)


def test_without_settings_nothing_is_asked_for() -> None:
    assert foreign_settings_of(web(annotations={"team": "a"})) == NO_FOREIGN_SETTINGS


def argo(*entries: Any) -> ExternalIgnoreRules:
    found = read_external_rules(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {"ignoreDifferences": list(entries)},
        }
    )
    assert found is not None
    return found


def flux(kind: str, spec: Any) -> ExternalIgnoreRules:
    group = "helm" if kind == "HelmRelease" else "kustomize"
    found = read_external_rules(
        {
            "apiVersion": f"{group}.toolkit.fluxcd.io/v2",
            "kind": kind,
            "metadata": {"name": "apps", "namespace": "flux-system"},
            "spec": spec,
        }
    )
    assert found is not None
    return found


def hidden(
    rules: ExternalIgnoreRules, *path: str, item: Any = None, by: str = "someone"
) -> list[str]:
    """The names of the rules that hide a field."""
    return [
        rule.name
        for rule in rules.found.rules
        if rule.hides(
            path,
            item=item or web(),
            rules=OBJECT_RULES,
            writer=Writer(manager=by, operation="Update"),
            now=NOW,
        )
    ]


def test_argo_cds_rules_become_ours_and_say_where_they_came_from() -> None:
    found = argo(
        {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]},
        {
            "group": "*",
            "kind": "*",
            "name": "web",
            "managedFieldsManagers": ["kube-controller-manager"],
        },
        {
            "group": "apps",
            "kind": "Deployment",
            "jqPathExpressions": [
                ".spec.template.spec.containers[].resources",
                '.spec.template.metadata.annotations["example.com/at"]',
                '.spec.template.spec.initContainers[] | select(.name == "injected")',
            ],
        },
        {"kind": "Service", "jsonPointers": ["/spec/clusterIP"]},
    )
    place = "argo-cd Application argocd/shop ignoreDifferences"
    pod = ("spec", "template", "spec")
    assert found.found.not_understood == ()
    assert hidden(found, "spec", "replicas") == [f"{place}[0]"]
    assert hidden(found, "spec", "paused", by="kube-controller-manager") == [f"{place}[1]"]
    assert hidden(found, *pod, "containers", "[name=main]", "resources", "limits") == [
        f"{place}[2]"
    ]
    assert hidden(found, *pod, "containers", "[name=main]", "image") == []
    assert hidden(found, "spec", "template", "metadata", "annotations", "example.com/at") == [
        f"{place}[2]"
    ]
    assert hidden(found, *pod, "initContainers", "[name=injected]", "image") == [f"{place}[2]"]
    assert hidden(found, *pod, "initContainers", "[name=own]", "image") == []
    assert hidden(found, "spec", "clusterIP") == []


@pytest.mark.parametrize(
    "entry",
    [
        {"jsonPointers": ["/spec"]},
        {"jsonPointers": [""]},
        {"jsonPointers": ["/"]},
        {"jsonPointers": ["spec.replicas"]},
        {"jsonPointers": ["/spec/~2"]},
        {"jsonPointers": ["/spec" + "/x" * 10_000]},
        {"kind": "RoleBinding", "jsonPointers": ["/subjects/0"]},
        {"jqPathExpressions": ["."]},
        {"jqPathExpressions": [".spec"]},
        {"jqPathExpressions": ["def f: f; f"]},
        {"jqPathExpressions": [".. | .image?"]},
        {"jqPathExpressions": [".spec.a | keys"]},
        {"jqPathExpressions": ['.spec.env[] | select(.name | test("^A"))']},
        {"managedFieldsManagers": ["*"]},
    ],
)
def test_what_hides_too_much_or_is_not_understood_is_told(entry: Any) -> None:
    found = argo(entry)
    assert found.found.rules == ()
    assert [told[:50] for told in found.found.not_understood] == [
        "argo-cd Application argocd/shop ignoreDifferences["
    ]


def test_fluxs_rules_become_ours() -> None:
    target = {"kind": "Deployment", "name": "web.*"}
    rules = [{"paths": ["/spec/replicas"], "target": target}]
    for found, place in (
        (flux("Kustomization", {"ignore": rules}), "flux Kustomization flux-system/apps ignore[0]"),
        (
            flux("HelmRelease", {"driftDetection": {"mode": "enabled", "ignore": rules}}),
            "flux HelmRelease flux-system/apps driftDetection.ignore[0]",
        ),
    ):
        other = web()
        other["metadata"]["name"] = "api"
        assert hidden(found, "spec", "replicas") == [place]
        assert hidden(found, "spec", "replicas", item=other) == []
        assert found.concern(web(labels=FLUX))
        assert not found.concern(web(labels={**FLUX, "kustomize.toolkit.fluxcd.io/name": "x"}))
        assert not found.concern(web())


@pytest.mark.parametrize(
    "entry",
    [
        {"paths": [""], "target": {"kind": "Deployment"}},
        {"paths": ["/spec/replicas"], "target": {"name": "(a|b)"}},
        {"paths": ["/spec/replicas"], "target": {"labelSelector": "a>3"}},
        {"paths": ["/spec/replicas"], "target": {"group": "(apps|batch)"}},
    ],
)
def test_what_flux_says_with_expressions_is_told(entry: Any) -> None:
    found = flux("Kustomization", {"ignore": [entry]})
    assert found.found.rules == ()
    assert len(found.found.not_understood) == 1


KNATIVE: Any = {**web(), "apiVersion": "serving.knative.dev/v1", "kind": "Service"}
CORE: Any = {**web(), "apiVersion": "v1", "kind": "Service"}


@pytest.mark.parametrize(
    ("group", "hides"),
    [
        (None, [False, True]),
        ("", [False, True]),
        ("serving.knative.dev", [True, False]),
        ("*.knative.dev", [True, False]),
        ("*", [True, True]),
    ],
)
def test_a_rule_of_argo_cd_for_one_groups_kind_hides_nothing_of_anothers(
    group: str | None, hides: list[bool]
) -> None:
    entry = {"kind": "Service", "jsonPointers": ["/spec/x"]}
    found = argo(entry if group is None else {**entry, "group": group})
    assert [bool(hidden(found, "spec", "x", item=each)) for each in (KNATIVE, CORE)] == hides


@pytest.mark.parametrize(
    ("target", "hides"),
    [
        ({}, [True, True]),
        ({"kind": "Service"}, [True, True]),
        ({"group": "serving.knative.dev"}, [True, False]),
        ({"group": "serving.*"}, [True, False]),
        ({"version": "v1"}, [True, True]),
        ({"version": "v2"}, [False, False]),
    ],
)
def test_a_rule_of_flux_keeps_to_its_group_and_version(
    target: dict[str, str], hides: list[bool]
) -> None:
    found = flux("Kustomization", {"ignore": [{"paths": ["/spec/x"], "target": target}]})
    assert [bool(hidden(found, "spec", "x", item=each)) for each in (KNATIVE, CORE)] == hides


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("tier=web", True),
        ("tier==web", True),
        ("tier=db", False),
        ("tier!=db", True),
        ("tier", True),
        ("!tier", False),
        ("!other", True),
        ("other", False),
        ("tier in (db, web)", True),
        ("tier notin (db,web)", False),
        ("other notin (x)", True),
        ("tier=web,team=ml", True),
        ("tier=web,team=x", False),
        ("empty=", True),
    ],
)
@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_rule_of_flux_is_for_what_its_selectors_choose(
    part: str, selector: str, chosen: bool
) -> None:
    target = {f"{part[:-1]}Selector": selector}
    found = flux("Kustomization", {"ignore": [{"paths": ["/spec/x"], "target": target}]})
    assert found.found.not_understood == ()
    declared = web(**{part: {"tier": "web", "team": "ml", "empty": ""}})
    assert bool(found.rules_for(declared)) is chosen
    assert bool(found.rules_for(web())) is (
        selector in ("!tier", "!other", "tier!=db") or "notin" in selector
    )


def test_objects_without_rules_have_none() -> None:
    assert read_external_rules(web()) is None
    assert flux("Kustomization", {}).found.rules == ()
    assert flux("Kustomization", {"ignore": 3}).found.rules == ()
    assert flux("HelmRelease", None).found.rules == ()


@pytest.mark.parametrize(
    ("expression", "pattern"),
    [
        (".spec.replicas", "/spec/replicas"),
        (".spec.containers[0].image", "/spec/containers/0/image"),
        ('.data["a/b.c"]', "/data/a~1b.c"),
        ('.data."a b"', "/data/a b"),
        (".spec.containers[].image", "spec.containers[*].image"),
        ('.spec.a[] | select(.name=="x") | .b', "spec.a[name=x].b"),
        ('.spec.a[] | select(.name == "x").b', "spec.a[name=x].b"),
        (".spec.a[0].b[]", None),
        ("spec.replicas", None),
        (".spec.a?", None),
        (".spec.a[] |", None),
        ('.spec["a*"]', None),
        ('.spec["a"', None),
        ("." + "a." * 400, None),
    ],
)
def test_plain_paths_of_jq_are_read_and_nothing_else(expression: str, pattern: str | None) -> None:
    assert pattern_of_jq(expression) == pattern
