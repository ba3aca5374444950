"""Says everything that is wrong with an Application, each with its reason and its fix.

Called by `validate()`, before a repository or a cluster is asked anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.errors import Problem, requires_extra
from holdfast.core.gitops.application import AppId, ApplicationSpec, DriftSpec, SyncSpec
from holdfast.core.gitops.application_rules import RULES
from holdfast.core.gitops.ignore import ignore_problems
from holdfast.core.gitops.shadow import shadowed
from holdfast.core.rule import broken
from holdfast.core.shape_check import form_problems, matches, scan_problems, typed, untold

NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
MAX_NAME = 63
NAME_PROBLEM = Problem(
    field="metadata.name",
    reason=f"it is not 1 to {MAX_NAME} lower-case letters, digits and dashes.",
    fix="Choose a name like that: the objects of the application are labelled with it.",
)


def name_problems(application: AppId) -> list[Problem]:
    """What is wrong with the object's name."""
    if len(application.name) > MAX_NAME or not matches(NAME, application.name):
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


def problems(spec: ApplicationSpec) -> list[Problem]:
    """Every problem of a spec: the values one by one, then what joins them."""
    wrong = form_problems(ApplicationSpec, spec)
    if typed(ApplicationSpec, spec):
        wrong += untold(broken(spec, RULES), wrong)
        wrong += [found for found in _beyond_rules(spec) if not _covered(found, wrong)]
    return wrong + untold(scan_problems(ApplicationSpec, spec), wrong)


def _covered(found: Problem, told: Sequence[Problem]) -> bool:
    """True for a problem of a field, or of something inside one, that has a problem already."""
    return any(found.field.startswith(each.field) for each in told)


def _beyond_rules(spec: ApplicationSpec) -> Iterator[Problem]:
    """What the API server has no words for."""
    yield from _sync(spec.sync)
    yield from _drift(spec.drift)


def _sync(sync: SyncSpec | None) -> Iterator[Problem]:
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


def _drift(drift: DriftSpec | None) -> Iterator[Problem]:
    for place, taker in shadowed((drift and drift.routes) or ()):
        yield Problem(
            field=f"drift.routes[{place}]",
            reason=f"it can never match: {taker} comes before it and takes all that it is for.",
            fix="Put it before, narrow the other one, or take it out.",
        )
    for place, rule in enumerate((drift and drift.ignore) or ()):
        yield from ignore_problems(rule, f"drift.ignore[{place}]")
