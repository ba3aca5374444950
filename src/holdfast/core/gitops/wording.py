"""Says in sentences what happened to an application; for events, statuses and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.plan import ObjectStep
from holdfast.core.plan import Action
from holdfast.core.redact import redact
from holdfast.core.text_style import escape_unprintable

MAX_MESSAGE = 1024
_MAX_NAMES = 4
_VERBS = {Action.CREATE: "+ create", Action.UPDATE: "~ update", Action.DELETE: "- delete"}


def describe_drift(drift: ObjectDrift) -> str:
    """What drifted, and by whose hand."""
    kinds = " and ".join(kind.value for kind in drift.kinds)
    names = drift_writers(drift)
    by = f" by {' and '.join(names)}" if names else ""
    fields = list_names([entry.path or "the whole object" for entry in drift.entries])
    return shorten(f"{drift.object}: {kinds} drift of {fields}{by}.")


def drift_writers(drift: ObjectDrift) -> tuple[str, ...]:
    """The tools that wrote it, as far as the API server knows them."""
    return tuple(sorted({str(entry.writer) for entry in drift.entries if entry.writer}))


def describe_step(step: ObjectStep) -> str:
    """One step of a plan, as a reviewer reads it."""
    fields = list_names([entry.path for entry in step.entries])
    line = f"{_VERBS.get(step.action, str(step.action))} {step.ref}: {step.reason}"
    return shorten(f"{line} ({fields})" if fields else line)


def count_steps(steps: Iterable[ObjectStep], *, done: bool = False) -> str:
    """How much a plan does, or did."""
    actions = [step.action for step in steps]
    created, updated, deleted = map(actions.count, _VERBS)
    if done:
        return f"{created} created, {updated} updated, {deleted} deleted"
    return f"{created} to create, {updated} to update, {deleted} to delete"


def list_names(names: Sequence[str]) -> str:
    """Some names, and how many more."""
    shown = ", ".join(names[:_MAX_NAMES])
    return f"{shown} and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else shown


def shorten(text: str) -> str:
    """Make a text fit to be shown anywhere, on one line."""
    text = escape_unprintable(redact(" ".join(text.split())), ascii_only=False)
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
