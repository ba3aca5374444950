"""The rules of an Application that join several fields, each said twice.

Once as a predicate, which `validate()` asks, and once in CEL, which the API server asks before it
stores anything; both share their sentence. They are relative to the type they stand under. What
CEL cannot say stands in `application_check`.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.gitops.address import (
    FORGE,
    REPOSITORY,
    SSH_USER,
    STEPS_UP,
    WITH_USER,
    has_credential,
    is_forge,
    is_repository,
)
from holdfast.core.gitops.application import (
    ApplicationSpec,
    ChannelKind,
    ChannelSpec,
    DriftSpec,
    IgnoreSpec,
    OrphanPolicy,
    PullsSpec,
    Remediation,
    RouteSpec,
    SourceSpec,
    WindowSpec,
)
from holdfast.core.rule import DAY, Rule, Rules, Spec, lasts
from holdfast.core.shape_check import matches

NO_BRANCH = r"[.][.]|@[{]|//|(/|[.]|[.]lock)$"
"""What Git itself takes in no name."""
_REMEDIATES = "(has(self.orphans) && self.orphans == 'remediate')"
_OWNED = "(has(self.namespaces) && size(self.namespaces) > 0)"


def _distinct(field: str, fix: str) -> Rule[Spec]:
    """The items of a list are told apart by their names."""

    def holds(spec: Spec) -> bool:
        names = [each.name for each in getattr(spec, field) or ()]
        return len(set(names)) == len(names)

    return Rule(
        field=field,
        reason="two of them have the same name.",
        fix=fix,
        cel=f"!has(self.{field}) || "
        f"self.{field}.all(a, self.{field}.exists_one(b, b.name == a.name))",
        holds=holds,
    )


def _is_name(revision: str | None) -> bool:
    return revision is None or not matches(NO_BRANCH, revision)


def _last(routes: Sequence[RouteSpec] | None) -> bool:
    return all(route.match is not None for route in (routes or ())[:-1])


def _remediates(spec: DriftSpec) -> bool:
    return spec.orphans is OrphanPolicy.REMEDIATE


SOURCE: tuple[Rule[SourceSpec], ...] = (
    Rule(
        field="url",
        reason="it holds a user or a credential, which is not repeated here.",
        fix="Keep it in a Secret and name that in source.credentials.",
        cel=f"!self.url.matches(r'{WITH_USER}') || self.url.matches(r'{SSH_USER}')",
        holds=lambda spec: not has_credential(spec.url),
    ),
    Rule(
        field="url",
        reason="it is not the address of a repository.",
        fix="Write https://host/path, ssh://git@host/path or git@host:path.",
        cel=f"self.url.matches(r'{WITH_USER}') || "
        f"(self.url.matches(r'{REPOSITORY}') && !self.url.matches(r'{STEPS_UP}'))",
        holds=lambda spec: has_credential(spec.url) or is_repository(spec.url),
    ),
    Rule(
        field="revision",
        reason="it is not the name of a branch, a tag or a commit.",
        fix="Write it like main, v1.2 or a whole commit id.",
        cel=f"!has(self.revision) || !self.revision.matches(r'{NO_BRANCH}')",
        holds=lambda spec: _is_name(spec.revision),
    ),
    Rule(
        field="path",
        reason="it leads out of the repository.",
        fix="Write it from the root of the repository, without '..'.",
        cel=f"!has(self.path) || !self.path.matches(r'{STEPS_UP}')",
        holds=lambda spec: spec.path is None or not matches(STEPS_UP, spec.path),
    ),
    lasts("interval", least=10),
)
WINDOW: tuple[Rule[WindowSpec], ...] = (lasts("duration", least=60, most=31 * DAY),)
ROUTE: tuple[Rule[RouteSpec], ...] = (
    Rule(
        field="pull",
        reason="it is only for pull requests.",
        fix="Leave it out, or say remediation: pull-request.",
        cel="!has(self.pull) || self.remediation == 'pull-request'",
        holds=lambda spec: spec.pull is None or spec.remediation is Remediation.PULL_REQUEST,
    ),
)
IGNORE: tuple[Rule[IgnoreSpec], ...] = (
    Rule(
        field="",
        reason="it has a pointer and a path.",
        fix="Keep one of the two.",
        cel="!(has(self.pointer) && has(self.path))",
        holds=lambda spec: spec.pointer is None or spec.path is None,
    ),
    Rule(
        field="",
        reason="it would hide whole objects.",
        fix="Give a pointer, a path, or the name of a field manager.",
        cel="has(self.pointer) || has(self.path) || "
        "(has(self.manager) && !self.manager.matches('^[*]+$'))",
        holds=lambda spec: any((spec.pointer, spec.path, (spec.manager or "").strip("*"))),
    ),
    Rule(
        field="sameAs",
        reason="it says how a field is compared, and not which field.",
        fix="Give a pointer or a path.",
        cel="!has(self.sameAs) || has(self.pointer) || has(self.path)",
        holds=lambda spec: spec.same_as is None or bool(spec.pointer or spec.path),
    ),
    Rule(
        field="sameAs",
        reason="it hides no field, so lands has nothing to let through.",
        fix="Leave one of the two out.",
        cel="!has(self.sameAs) || !has(self.lands)",
        holds=lambda spec: spec.same_as is None or spec.lands is None,
    ),
)
DRIFT: tuple[Rule[DriftSpec], ...] = (
    _distinct("routes", "Name each by what it is for."),
    Rule(
        field="routes",
        reason="one without conditions stands before others, which can then never match.",
        fix="Put it last, or give it a match.",
        cel="!has(self.routes) || self.routes.all(r, has(r.match) || "
        "r.name == self.routes[size(self.routes) - 1].name)",
        holds=lambda spec: _last(spec.routes),
    ),
    _distinct("ignore", "Name each by what it hides."),
    Rule(
        field="orphans",
        reason="no namespace is this application's alone.",
        fix="Name such namespaces in drift.namespaces, or say orphans: report.",
        cel=f"!{_REMEDIATES} || {_OWNED}",
        holds=lambda spec: not _remediates(spec) or bool(spec.namespaces),
    ),
    Rule(
        field="namespaces",
        reason="one is the cluster's own, and its objects would be taken for orphans.",
        fix="Leave out those that begin with kube-, or say orphans: report.",
        cel=f"!{_REMEDIATES} || !{_OWNED} || !self.namespaces.exists(n, n.startsWith('kube-'))",
        holds=lambda spec: (
            not _remediates(spec)
            or not any(name.startswith("kube-") for name in spec.namespaces or ())
        ),
    ),
)
PULLS: tuple[Rule[PullsSpec], ...] = (
    Rule(
        field="api",
        reason="it is not the address of a forge, or it holds a user or a credential.",
        fix="Write it like https://git.example.com.",
        cel=f"!has(self.api) || self.api.matches(r'{FORGE}')",
        holds=lambda spec: spec.api is None or is_forge(spec.api),
    ),
    Rule(
        field="base",
        reason="it is not the name of a branch.",
        fix="Write it like main.",
        cel=f"!has(self.base) || !self.base.matches(r'{NO_BRANCH}')",
        holds=lambda spec: _is_name(spec.base),
    ),
    lasts("deadline", least=60, most=90 * DAY),
)
CHANNEL: tuple[Rule[ChannelSpec], ...] = (
    Rule(
        field="url",
        reason="it is missing: there is nowhere to send to.",
        fix="Name a Secret and its key that hold the address.",
        cel="self.kind == 'log' || has(self.url)",
        holds=lambda spec: spec.kind is ChannelKind.LOG or spec.url is not None,
    ),
    Rule(
        field="url",
        reason="a log has no address.",
        fix="Leave it out.",
        cel="self.kind != 'log' || !has(self.url)",
        holds=lambda spec: spec.kind is not ChannelKind.LOG or spec.url is None,
    ),
    Rule(
        field="signing",
        reason="only a webhook's body is signed.",
        fix="Leave it out.",
        cel="self.kind == 'webhook' || !has(self.signing)",
        holds=lambda spec: spec.kind is ChannelKind.WEBHOOK or spec.signing is None,
    ),
)
APPLICATION: tuple[Rule[ApplicationSpec], ...] = (
    _distinct("notify", "Name each by whom it reaches."),
)
RULES: Rules = {
    ApplicationSpec: APPLICATION,
    SourceSpec: SOURCE,
    WindowSpec: WINDOW,
    RouteSpec: ROUTE,
    IgnoreSpec: IGNORE,
    DriftSpec: DRIFT,
    PullsSpec: PULLS,
    ChannelSpec: CHANNEL,
}
