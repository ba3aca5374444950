"""Failures that a test has asked for."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.errors import HoldfastError


@dataclass(slots=True, kw_only=True)
class _Fault:
    verb: str
    kind: str
    after: int
    error: HoldfastError
    done: bool


class Faults:
    """What is to fail, each once."""

    def __init__(self) -> None:
        self._waiting: list[_Fault] = []

    def add(self, verb: str, error: HoldfastError, *, after: int, kind: str, done: bool) -> None:
        """Let a later call fail."""
        self._waiting.append(_Fault(verb=verb, kind=kind, after=after, error=error, done=done))

    def meet(self, verb: str, kind: str) -> HoldfastError | None:
        """Raise what this call is to fail with; returned is what it is to fail with when done."""
        for fault in self._waiting:
            if fault.verb == verb and fault.kind in ("", kind):
                if fault.after:
                    fault.after -= 1
                    continue
                self._waiting.remove(fault)
                if fault.done:
                    return fault.error
                raise fault.error
        return None
