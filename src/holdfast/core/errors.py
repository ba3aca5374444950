"""The whole error tree.

Every door raises these and nothing else; adapters translate foreign exceptions into them.
A message is the constant summary, then full sentences: what happened, what was or was not
changed, what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from holdfast.core.plan import Plan


class Retry(StrEnum):
    """Would trying again help?"""

    NEVER = "never"
    """Not until the caller changes something."""
    LATER = "later"
    """Yes, the same call may succeed later."""
    AFTER_READING = "after-reading"
    """Yes, once the live side has been observed anew."""


NOTHING_CHANGED = "Nothing was changed."
OUTCOME_UNKNOWN = "The request was sent, so whether it took effect is unknown."


class HoldfastError(Exception):
    """Root of the tree. `code` is stable and safe to match on; the text is not."""

    code: ClassVar[str] = "error"
    summary: ClassVar[str] = "Holdfast failed"
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, happened: str, *, changed: str = NOTHING_CHANGED, todo: str = "") -> None:
        self.happened = happened
        self.changed = changed
        self.todo = todo
        super().__init__(happened)

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.summary}.", self.detail) if part)

    @property
    def detail(self) -> str:
        """The message without its constant summary."""
        return " ".join(part for part in (self.happened, self.changed, self.todo) if part)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__), self.args)


def _rebuild(
    cls: type[HoldfastError], state: dict[str, object], args: tuple[object, ...]
) -> HoldfastError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    error.args = args
    return error


class ConfigurationError(HoldfastError):
    """The caller's set-up cannot work: a missing project, a bad address, an unreadable file."""

    code = "configuration"
    summary = "Holdfast is not set up for this"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where, why, and how to mend it."""

    field: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason} {self.fix}"


class ValidationError(HoldfastError):
    """The input was refused. `problems` lists everything wrong with it, not only the first."""

    code = "invalid"
    summary = "Input was refused"

    def __init__(
        self,
        happened: str = "",
        *,
        problems: Sequence[Problem] = (),
        changed: str = NOTHING_CHANGED,
        todo: str = "",
    ) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        count = len(self.problems)
        text = happened or f"{count} {'problem' if count == 1 else 'problems'} found."
        super().__init__(text, changed=changed + lines, todo=todo)


class DriftError(ValidationError):
    """The policy was FAIL and the live workload had drifted; carries the plan to mend it."""

    code = "drift"
    summary = "Workload has drifted"

    def __init__(self, happened: str, *, plan: Plan, todo: str = "") -> None:
        super().__init__(happened, todo=todo)
        self.plan = plan


class InvalidSpec(ValidationError):
    """The spec of an InferenceService cannot be served as it stands."""

    code = "invalid-spec"
    summary = "Spec was refused"


class AuthError(HoldfastError):
    """The credential is missing, malformed, unknown, expired or revoked."""

    code = "unauthenticated"
    summary = "Not authenticated"


class PermissionDenied(HoldfastError):
    """The credential is good, but not for this. `reason` is the server's own code."""

    code = "permission-denied"
    summary = "Not permitted"

    def __init__(
        self,
        happened: str,
        *,
        reason: str = "scope_insufficient",
        changed: str = NOTHING_CHANGED,
        todo: str = "",
    ) -> None:
        super().__init__(happened, changed=changed, todo=todo)
        self.reason = reason


class NotFound(HoldfastError):
    """There is no such thing, or the caller may not know of it."""

    code = "not-found"
    summary = "Not found"


class Conflict(HoldfastError):
    """Another writer was there first."""

    code = "conflict"
    summary = "Another writer was first"
    retry = Retry.AFTER_READING


class AlreadyExists(Conflict):
    """An object of that name is there already, and it is not the one that was meant."""

    code = "already-exists"
    summary = "Already exists"


class StalePlan(Conflict):
    """The world moved after the plan was made, so the plan was not applied."""

    code = "stale-plan"
    summary = "Plan is stale"


class WaitTimeout(HoldfastError):
    """The caller's patience ended before the workload was ready."""

    code = "wait-timeout"
    summary = "Not ready in time"
    retry = Retry.LATER


class TargetUnavailable(HoldfastError):
    """The target did not answer, so its live side is unknown."""

    code = "target-unavailable"
    summary = "Target did not answer"
    retry = Retry.LATER
    retry_after: float | None = None
    """Seconds that the target asked us to wait, where it did."""


class SourceUnavailable(TargetUnavailable):
    """A repository, branch or path could not be read, so what it declares is unknown.

    What was declared before still counts: stale, never empty.
    """

    code = "source-unavailable"
    summary = "Source could not be read"


class StoreUnavailable(TargetUnavailable):
    """The embedded store cannot be used: held, corrupt, rolled back, too new, or out of space."""

    code = "store-unavailable"
    summary = "Store cannot be used"
    retry = Retry.NEVER


class StoreFull(StoreUnavailable):
    """The disk is full. Reading goes on, and writing works again once there is space."""

    code = "store-full"
    retry = Retry.LATER


class StoreBusy(StoreUnavailable):
    """More writes wait than can be held, or another process holds the file for too long."""

    code = "store-busy"
    retry = Retry.LATER


class StoreHeld(StoreUnavailable):
    """A server holds the file. `url` is where it answers, once it has said so."""

    code = "store-held"

    def __init__(self, happened: str, *, todo: str, url: str | None = None) -> None:
        super().__init__(happened, todo=todo)
        self.url = url


class WorkloadFailed(HoldfastError):
    """The workload's own process cannot serve: it exited, or never answered its health check."""

    code = "workload-failed"
    summary = "Workload failed"


class ApiError(HoldfastError):
    """The control plane answered with something that is none of the above."""

    code = "api"
    summary = "Control plane answered with an error"

    def __init__(
        self,
        happened: str,
        *,
        status: int = 0,
        reason: str = "",
        changed: str = NOTHING_CHANGED,
        todo: str = "",
    ) -> None:
        super().__init__(happened, changed=changed, todo=todo)
        self.status = status
        self.reason = reason


class DriftWarning(UserWarning):
    """Shown when the policy is WARN and the live workload had drifted."""
