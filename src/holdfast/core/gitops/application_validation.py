"""What has to hold for an Application, and everything that is wrong with one.

Each rule stands here once as a predicate, which `validate()` asks, and once in CEL, which the API
server asks before it stores anything; both share their sentence. What CEL cannot express follows
below. Called by `validate()`, before a repository or a cluster is contacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.custom_resource import (
    DAY_SECONDS,
    Spec,
    ValidationRule,
    ValidationRules,
    broken_rules,
    content_problems,
    duration_rule,
    format_problems,
    is_well_typed,
    matches_pattern,
    without_reported,
)
from holdfast.core.drift import DriftKind
from holdfast.core.errors import Problem, requires_extra
from holdfast.core.gitops.address import (
    FORGE,
    PARENT_STEPS,
    REPOSITORY,
    SSH_USER,
    WITH_USER,
    has_credential,
    is_forge,
    is_repository,
)
from holdfast.core.gitops.application import (
    ApplicationId,
    ApplicationSpec,
    ChannelKind,
    ChannelSpec,
    DriftSpec,
    IgnoreSpec,
    OrphanPolicy,
    PullRequestSpec,
    Remediation,
    RouteSpec,
    SourceSpec,
    SyncSpec,
    WindowSpec,
)
from holdfast.core.gitops.ignore import ignore_problems
from holdfast.core.gitops.routes import shadowed_routes

NOT_A_BRANCH = r"[.][.]|@[{]|//|(/|[.]|[.]lock)$"
"""What Git itself takes in no name."""
_REMEDIATES = "(has(self.orphans) && self.orphans == 'remediate')"
_OWNED = "(has(self.namespaces) && size(self.namespaces) > 0)"


def _distinct_names(field: str, fix: str) -> ValidationRule[Spec]:
    """The items of a list are told apart by their names."""

    def holds(spec: Spec) -> bool:
        names = [each.name for each in getattr(spec, field) or ()]
        return len(set(names)) == len(names)

    return ValidationRule(
        field=field,
        reason="two of them have the same name.",
        fix=fix,
        cel=f"!has(self.{field}) || "
        f"self.{field}.all(a, self.{field}.exists_one(b, b.name == a.name))",
        holds=holds,
    )


def _is_revision(revision: str | None) -> bool:
    return revision is None or not matches_pattern(NOT_A_BRANCH, revision)


def _catch_all_is_last(routes: Sequence[RouteSpec] | None) -> bool:
    return all(route.match is not None for route in (routes or ())[:-1])


def _names_models(routes: Sequence[RouteSpec] | None) -> bool:
    kinds = ((route.match and route.match.drift) or () for route in routes or ())
    return any(DriftKind.MODEL in each for each in kinds)


def _remediates(spec: DriftSpec) -> bool:
    return spec.orphans is OrphanPolicy.REMEDIATE


SOURCE: tuple[ValidationRule[SourceSpec], ...] = (
    ValidationRule(
        field="url",
        reason="it holds a user or a credential, which is not repeated here.",
        fix="Keep it in a Secret and name that in source.credentials.",
        cel=f"!self.url.matches(r'{WITH_USER}') || self.url.matches(r'{SSH_USER}')",
        holds=lambda spec: not has_credential(spec.url),
    ),
    ValidationRule(
        field="url",
        reason="it is not the address of a repository.",
        fix="Write https://host/path, ssh://git@host/path or git@host:path.",
        cel=f"self.url.matches(r'{WITH_USER}') || "
        f"(self.url.matches(r'{REPOSITORY}') && !self.url.matches(r'{PARENT_STEPS}'))",
        holds=lambda spec: has_credential(spec.url) or is_repository(spec.url),
    ),
    ValidationRule(
        field="revision",
        reason="it is not the name of a branch, a tag or a commit.",
        fix="Write it like main, v1.2 or a whole commit id.",
        cel=f"!has(self.revision) || !self.revision.matches(r'{NOT_A_BRANCH}')",
        holds=lambda spec: _is_revision(spec.revision),
    ),
    ValidationRule(
        field="path",
        reason="it leads out of the repository.",
        fix="Write it from the root of the repository, without '..'.",
        cel=f"!has(self.path) || !self.path.matches(r'{PARENT_STEPS}')",
        holds=lambda spec: spec.path is None or not matches_pattern(PARENT_STEPS, spec.path),
    ),
    duration_rule("interval", least=10),
)
WINDOW: tuple[ValidationRule[WindowSpec], ...] = (
    duration_rule("duration", least=60, most=31 * DAY_SECONDS),
)
ROUTE: tuple[ValidationRule[RouteSpec], ...] = (
    ValidationRule(
        field="pull",
        reason="it is only for pull requests.",
        fix="Leave it out, or say remediation: pull-request.",
        cel="!has(self.pull) || self.remediation == 'pull-request'",
        holds=lambda spec: spec.pull is None or spec.remediation is Remediation.PULL_REQUEST,
    ),
    ValidationRule(
        field="match.drift",
        reason="runtime is what pods serve, which the operator finds and no Application does.",
        fix="Leave runtime out, and set onDrift of the InferenceService.",
        cel="!has(self.match) || !has(self.match.drift) || !('runtime' in self.match.drift)",
        holds=lambda spec: DriftKind.RUNTIME not in ((spec.match and spec.match.drift) or ()),
    ),
)
IGNORE: tuple[ValidationRule[IgnoreSpec], ...] = (
    ValidationRule(
        field="",
        reason="it has a pointer and a path.",
        fix="Keep one of the two.",
        cel="!(has(self.pointer) && has(self.path))",
        holds=lambda spec: spec.pointer is None or spec.path is None,
    ),
    ValidationRule(
        field="",
        reason="it would hide whole objects.",
        fix="Give a pointer, a path, or the name of a field manager.",
        cel="has(self.pointer) || has(self.path) || "
        "(has(self.manager) && !self.manager.matches('^[*]+$'))",
        holds=lambda spec: any((spec.pointer, spec.path, (spec.manager or "").strip("*"))),
    ),
    ValidationRule(
        field="sameAs",
        reason="it says how a field is compared, and not which field.",
        fix="Give a pointer or a path.",
        cel="!has(self.sameAs) || has(self.pointer) || has(self.path)",
        holds=lambda spec: spec.same_as is None or bool(spec.pointer or spec.path),
    ),
    ValidationRule(
        field="sameAs",
        reason="it hides no field, so lands has nothing to let through.",
        fix="Leave one of the two out.",
        cel="!has(self.sameAs) || !has(self.lands)",
        holds=lambda spec: spec.same_as is None or spec.lands is None,
    ),
)
DRIFT: tuple[ValidationRule[DriftSpec], ...] = (
    _distinct_names("routes", "Name each by what it is for."),
    ValidationRule(
        field="routes",
        reason="one without conditions stands before others, which can then never match.",
        fix="Put it last, or give it a match.",
        cel="!has(self.routes) || self.routes.all(r, has(r.match) || "
        "r.name == self.routes[size(self.routes) - 1].name)",
        holds=lambda spec: _catch_all_is_last(spec.routes),
    ),
    ValidationRule(
        field="routes",
        reason="one is for drift of kind model, which is looked for only with modelHeads.",
        fix="Say modelHeads: true, or leave model out.",
        cel="!has(self.routes) || (has(self.modelHeads) && self.modelHeads) || !self.routes.exists("
        "r, has(r.match) && has(r.match.drift) && ('model' in r.match.drift))",
        holds=lambda spec: bool(spec.model_heads) or not _names_models(spec.routes),
    ),
    _distinct_names("ignore", "Name each by what it hides."),
    ValidationRule(
        field="orphans",
        reason="no namespace is this application's alone.",
        fix="Name such namespaces in drift.namespaces, or say orphans: report.",
        cel=f"!{_REMEDIATES} || {_OWNED}",
        holds=lambda spec: not _remediates(spec) or bool(spec.namespaces),
    ),
    ValidationRule(
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
PULLS: tuple[ValidationRule[PullRequestSpec], ...] = (
    ValidationRule(
        field="api",
        reason="it is not the address of a forge, or it holds a user or a credential.",
        fix="Write it like https://git.example.com.",
        cel=f"!has(self.api) || self.api.matches(r'{FORGE}')",
        holds=lambda spec: spec.api is None or is_forge(spec.api),
    ),
    ValidationRule(
        field="base",
        reason="it is not the name of a branch.",
        fix="Write it like main.",
        cel=f"!has(self.base) || !self.base.matches(r'{NOT_A_BRANCH}')",
        holds=lambda spec: _is_revision(spec.base),
    ),
    duration_rule("deadline", least=60, most=90 * DAY_SECONDS),
)
CHANNEL: tuple[ValidationRule[ChannelSpec], ...] = (
    ValidationRule(
        field="url",
        reason="it is missing: there is nowhere to send to.",
        fix="Name a Secret and its key that hold the address.",
        cel="self.kind == 'log' || has(self.url)",
        holds=lambda spec: spec.kind is ChannelKind.LOG or spec.url is not None,
    ),
    ValidationRule(
        field="url",
        reason="a log has no address.",
        fix="Leave it out.",
        cel="self.kind != 'log' || !has(self.url)",
        holds=lambda spec: spec.kind is not ChannelKind.LOG or spec.url is None,
    ),
    ValidationRule(
        field="signing",
        reason="only a webhook's body is signed.",
        fix="Leave it out.",
        cel="self.kind == 'webhook' || !has(self.signing)",
        holds=lambda spec: spec.kind is ChannelKind.WEBHOOK or spec.signing is None,
    ),
)
APPLICATION: tuple[ValidationRule[ApplicationSpec], ...] = (
    _distinct_names("notify", "Name each by whom it reaches."),
)
RULES: ValidationRules = {
    ApplicationSpec: APPLICATION,
    SourceSpec: SOURCE,
    WindowSpec: WINDOW,
    RouteSpec: ROUTE,
    IgnoreSpec: IGNORE,
    DriftSpec: DRIFT,
    PullRequestSpec: PULLS,
    ChannelSpec: CHANNEL,
}


NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
MAX_NAME = 63
NAME_PROBLEM = Problem(
    field="metadata.name",
    reason=f"it is not 1 to {MAX_NAME} lower-case letters, digits and dashes.",
    fix="Choose a name like that: the objects of the application are labelled with it.",
)


def name_problems(application: ApplicationId) -> list[Problem]:
    """What is wrong with the object's name."""
    if len(application.name) > MAX_NAME or not matches_pattern(NAME, application.name):
        return [NAME_PROBLEM]
    if len(application.label) > MAX_NAME:
        return [
            Problem(
                field="metadata.name",
                reason=f"with the namespace it has more than {MAX_NAME - 1} characters.",
                fix="Shorten one of them: the objects of the application are labelled with both.",
            )
        ]
    return []


def spec_problems(spec: ApplicationSpec) -> list[Problem]:
    """Every problem of a spec: the values one by one, then what joins them."""
    wrong = format_problems(ApplicationSpec, spec)
    if is_well_typed(ApplicationSpec, spec):
        wrong += without_reported(broken_rules(spec, RULES), wrong)
        wrong += [found for found in _problems_beyond_cel(spec) if not _is_covered(found, wrong)]
    return wrong + without_reported(content_problems(ApplicationSpec, spec), wrong)


def _is_covered(found: Problem, told: Sequence[Problem]) -> bool:
    """True for a problem of a field, or of something inside one, that has a problem already."""
    return any(found.field.startswith(each.field) for each in told)


def _problems_beyond_cel(spec: ApplicationSpec) -> Iterator[Problem]:
    """What the API server has no words for."""
    yield from _sync_problems(spec.sync)
    yield from _drift_problems(spec.drift)


def _sync_problems(sync: SyncSpec | None) -> Iterator[Problem]:
    windows = (sync and sync.windows) or ()
    if not windows:
        return
    with requires_extra("gitops", "Checking the schedule of a sync window"):
        # It reads schedules by a package that the command line alone does not bring.
        from holdfast.core.gitops.window import schedule_problem, zone_problem
    for place, window in enumerate(windows):
        field = f"sync.windows[{place}]"
        reason = schedule_problem(window.schedule)
        if reason:
            fix = "Write it like 0 22 * * 1-5: minute, hour, day, month, day of the week."
            yield Problem(field=f"{field}.schedule", reason=reason, fix=fix)
        reason = zone_problem(window.time_zone or "UTC")
        if reason:
            fix = "Write it like Europe/Madrid, or leave it out for UTC."
            yield Problem(field=f"{field}.timeZone", reason=reason, fix=fix)


def _drift_problems(drift: DriftSpec | None) -> Iterator[Problem]:
    for place, taker in shadowed_routes(
        (drift and drift.routes) or (), models=bool(drift and drift.model_heads)
    ):
        yield Problem(
            field=f"drift.routes[{place}]",
            reason=f"it can never match: {taker} comes before it and takes all that it is for.",
            fix="Put it before, narrow the other one, or take it out.",
        )
    for place, rule in enumerate((drift and drift.ignore) or ()):
        yield from ignore_problems(rule, f"drift.ignore[{place}]")
