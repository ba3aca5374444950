"""The whole error tree.

Every app raises these and nothing else; adapters translate foreign exceptions into them.
A message is the constant summary, then full sentences: what happened, what was or was not
changed, what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
DISTRIBUTION = "holdfast-ml"
"""What to install. The import and the command are `holdfast`, a name that is another's on PyPI."""


def install_extra(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


@contextmanager
def requires_extra(extra: str, what: str, *, otherwise: str = "") -> Iterator[None]:
    """Name the extra to install where a module that `what` needs is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what} needs {error.name}, which is not installed.",
            hint=install_extra(extra) + otherwise,
        ) from error


class HoldfastError(Exception):
    """Root of the tree. `code` is stable and safe to match on; the text is not."""

    code: ClassVar[str] = "error"
    summary: ClassVar[str] = "Holdfast failed"
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, happened: str, *, changed: str = NOTHING_CHANGED, hint: str = "") -> None:
        self.happened = happened
        self.changed = changed
        self.hint = hint
        super().__init__(happened)

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.summary}.", self.detail) if part)

    @property
    def detail(self) -> str:
        """The message without its constant summary."""
        return " ".join(part for part in (self.happened, self.changed, self.hint) if part)

    @property
    def nothing_changed(self) -> bool:
        """True when it surely had no effect. An open question is no such thing."""
        return self.changed.startswith(NOTHING_CHANGED)

    def add_changes(self, made: str) -> None:
        """Say what was changed before this error, in the place of `NOTHING_CHANGED`.

        What the error itself says of its effect stays: an open question, or its problems.
        """
        own = self.changed.removeprefix(NOTHING_CHANGED)
        self.changed = made + own if own[:1] in ("", "\n") else f"{made} {own}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__), self.args)


def _rebuild(
    cls: type[HoldfastError], state: dict[str, object], args: tuple[object, ...]
) -> HoldfastError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    error.args = args
    return error


@contextmanager
def report_changes(made: str) -> Iterator[None]:
    """Let every error from inside say what was changed before; nothing, if `made` is empty.

    For whatever goes on after an effect: the error of the later part knows of itself alone.
    """
    try:
        yield
    except HoldfastError as error:
        if made:
            error.add_changes(made)
        raise


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


MAX_PROBLEMS = 100
"""So many problems of one input are listed; nobody reads more, and each costs work and memory."""


class ValidationError(HoldfastError):
    """The input was refused. `problems` lists what is wrong with it: all of it, up to a hundred."""

    code = "invalid"
    summary = "Input was refused"

    def __init__(
        self,
        happened: str = "",
        *,
        problems: Sequence[Problem] = (),
        changed: str = NOTHING_CHANGED,
        hint: str = "",
    ) -> None:
        count = len(problems)
        self.problems = tuple(problems[:MAX_PROBLEMS])
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        if count > MAX_PROBLEMS:
            lines += f"\n  and {count - MAX_PROBLEMS} more."
        text = happened or f"{count} {'problem' if count == 1 else 'problems'} found."
        super().__init__(text, changed=changed + lines, hint=hint)


class DriftError(ValidationError):
    """The policy was FAIL and the live workload had drifted; carries the plan to mend it."""

    code = "drift"
    summary = "Workload has drifted"

    def __init__(self, happened: str, *, plan: Plan, hint: str = "") -> None:
        super().__init__(happened, hint=hint)
        self.plan = plan


class InvalidSpec(ValidationError):
    """The spec of an InferenceService cannot be served as it stands."""

    code = "invalid-spec"
    summary = "Spec was refused"


class RefusedByPolicy(HoldfastError):
    """A rule stands against what was asked for: another tool's object, a hold, what none can do."""

    code = "refused"
    summary = "Not done"


class InvalidState(HoldfastError):
    """What was asked for is not possible as things stand, such as approving what is not waiting."""

    code = "invalid-state"
    summary = "Not possible as it stands"


class Ambiguous(HoldfastError):
    """A name stands for several things, and only the caller knows which one is meant."""

    code = "ambiguous"
    summary = "Name is ambiguous"


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
        hint: str = "",
    ) -> None:
        super().__init__(happened, changed=changed, hint=hint)
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
    """The time-out passed before the workload was ready."""

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
    failed: bool = False
    """True when it did answer, in its own words, that it failed at this very request. When that
    lasts while it answers others, what was asked about is at fault."""


class SourceUnavailable(TargetUnavailable):
    """A repository, branch or path could not be read, so what it declares is unknown.

    What was declared before still counts: stale, never empty.
    """

    code = "source-unavailable"
    summary = "Source could not be read"
    unreachable = False
    """True when the address gave no answer at all, so that nobody else would get one either."""


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

    def __init__(self, happened: str, *, hint: str, url: str | None = None) -> None:
        super().__init__(happened, hint=hint)
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
        hint: str = "",
    ) -> None:
        super().__init__(happened, changed=changed, hint=hint)
        self.status = status
        self.reason = reason


class BackendError(ApiError):
    """The workload's own server answered with an error. `status` and `message` are its own."""

    code = "backend"
    summary = "Backend answered with an error"

    def __init__(
        self, happened: str, *, message: str, status: int = 0, reason: str = "", hint: str = ""
    ) -> None:
        super().__init__(happened, status=status, reason=reason, changed="", hint=hint)
        self.message = message


class DriftWarning(UserWarning):
    """Shown when the policy is WARN and the live workload had drifted."""
