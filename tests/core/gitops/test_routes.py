"""Which route a drifted field takes, and which routes can never be taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.cost import Cost, CostKind
from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import MatchSpec, PullRequestKind, Remediation, RouteSpec
from holdfast.core.gitops.routes import NO_ROUTE, route_of, shadowed_routes, split_by_route
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import FieldDrift, Signal

CHAT = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="prod", name="chat")


def field(
    path: tuple[str, ...] = ("spec", "replicas"),
    kind: DriftKind = DriftKind.CONFIGURATION,
    cause: Cause = Cause.PERSON,
    manager: str = "kubectl-edit",
    cost: CostKind | None = CostKind.GAP,
) -> FieldDrift:
    return FieldDrift(
        change=Change(path=path, desired=1, live=2),
        kind=kind,
        signal=Signal.ADDED,
        field_class=FieldClass.OWNED,
        evidence="",
        writer=Writer(manager=manager) if manager else None,
        cause=cause,
        cost=Cost(kind=cost) if cost else None,
    )


def route(name: str, match: MatchSpec | None = None, **more: object) -> RouteSpec:
    fields = {"remediation": Remediation.SELF_HEAL, **more}
    return RouteSpec(name=name, match=match, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        (None, True),
        (MatchSpec(), True),
        (MatchSpec(kinds=("Deploy*",)), True),
        (MatchSpec(kinds=("Service", "ConfigMap")), False),
        (MatchSpec(namespaces=("prod",), names=("chat",)), True),
        (MatchSpec(namespaces=("prod",), names=("web",)), False),
        (MatchSpec(drift=(DriftKind.IMAGE,)), False),
        (MatchSpec(causes=(Cause.PERSON, Cause.UNKNOWN)), True),
        (MatchSpec(managers=("kubectl*",)), True),
        (MatchSpec(managers=("keda",)), False),
        (MatchSpec(paths=("spec.**",)), True),
        (MatchSpec(paths=("metadata.**",)), False),
        (MatchSpec(cost=(CostKind.GAP, CostKind.RECREATE)), True),
        (MatchSpec(cost=(CostKind.NONE,)), False),
    ],
)
def test_a_route_is_taken_when_every_condition_holds(
    match: MatchSpec | None, matches: bool
) -> None:
    chosen = route_of(field(), CHAT, [route("first", match)])
    assert chosen.route == ("first" if matches else "")


def test_a_cost_that_nobody_can_tell_matches_no_route_that_names_one() -> None:
    routes = [route("any cost", MatchSpec(cost=tuple(CostKind))), route("rest")]
    assert route_of(field(cost=None), CHAT, routes).route == "rest"
    assert shadowed_routes(routes) == ()


def test_the_first_route_that_matches_decides() -> None:
    routes = [
        route("images", MatchSpec(drift=(DriftKind.IMAGE,))),
        route("rest", remediation=Remediation.PULL_REQUEST, pull=PullRequestKind.REVERT),
    ]
    assert route_of(field(kind=DriftKind.IMAGE), CHAT, routes).route == "images"
    rest = route_of(field(), CHAT, routes)
    assert (rest.route, rest.remediation, rest.pull) == (
        "rest",
        Remediation.PULL_REQUEST,
        PullRequestKind.REVERT,
    )


def test_what_no_route_matches_is_reported() -> None:
    assert route_of(field(), CHAT, []) == NO_ROUTE
    assert NO_ROUTE.remediation is Remediation.REPORT


patterns = st.sampled_from(["Deployment", "Deploy*", "*", "Service"])
matches = st.builds(
    MatchSpec,
    drift=st.none() | st.lists(st.sampled_from(DriftKind), min_size=1).map(tuple),
    causes=st.none() | st.lists(st.sampled_from(Cause), min_size=1).map(tuple),
    kinds=st.none() | st.lists(patterns, min_size=1, max_size=2).map(tuple),
    managers=st.none() | st.just(("kubectl*",)),
    cost=st.none() | st.lists(st.sampled_from(CostKind), min_size=1).map(tuple),
)
route_lists = st.lists(st.none() | matches, max_size=5).map(
    lambda found: [route(f"r{number}", match) for number, match in enumerate(found)]
)
fields = st.lists(
    st.builds(
        field,
        path=st.sampled_from([("spec", "replicas"), ("spec", "image"), ("metadata", "labels")]),
        kind=st.sampled_from(DriftKind),
        cause=st.sampled_from(Cause),
        manager=st.sampled_from(["", "kubectl-edit", "keda"]),
        cost=st.none() | st.sampled_from(CostKind),
    )
)


@given(fields, route_lists)
def test_every_field_takes_exactly_one_route(
    found: list[FieldDrift], routes: list[RouteSpec]
) -> None:
    split = split_by_route(found, CHAT, routes)
    assert sorted(map(id, found)) == sorted(id(each) for some in split.values() for each in some)


@given(fields, route_lists)
def test_a_shadowed_route_is_never_taken(found: list[FieldDrift], routes: list[RouteSpec]) -> None:
    never = {routes[place].name for place, _ in shadowed_routes(routes, models=True)}
    assert never.isdisjoint(chosen.route for chosen in split_by_route(found, CHAT, routes))


@given(fields, route_lists)
def test_a_route_behind_the_one_that_is_taken_changes_nothing(
    found: list[FieldDrift], routes: list[RouteSpec]
) -> None:
    more = [*routes, route("catch-all"), route("too late")]
    for each in found:
        assert route_of(each, CHAT, more) == route_of(each, CHAT, more[:-1])
