"""A live object's own account of itself, with questions that any status can be asked.

Everything in a status is optional and may be of any type: what is not as expected counts as not
there. Used by `health`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.tree import Fields, Tree

_LONGEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """One condition. Without a status it is not there."""

    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def given(self) -> bool:
        return bool(self.status)

    @property
    def true(self) -> bool:
        return self.status == "True"

    @property
    def false(self) -> bool:
        return self.status == "False"

    def told(self, short: str) -> str:
        """A sentence: what it means, and what the controller said."""
        said = self.message or self.reason
        return f"{short}: {said[:_LONGEST].rstrip('.')}." if said else f"{short}."


class Reported:
    """The parts of an object that say how it does."""

    def __init__(self, item: Fields) -> None:
        self._item = item
        self.spec = self.inside("spec")
        self.status = self.inside("status")

    def inside(self, *path: str) -> Mapping[str, Tree]:
        """Return a mapping at a path; an empty one when there is none."""
        here: Tree = self._item
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here if isinstance(here, dict) else {}

    @property
    def deleting(self) -> bool:
        return self.inside("metadata").get("deletionTimestamp") is not None

    @property
    def behind(self) -> bool:
        """True when the status is about an older spec."""
        seen, now = self.status.get("observedGeneration"), self.inside("metadata").get("generation")
        return isinstance(seen, int) and isinstance(now, int) and seen < now

    @property
    def conditions(self) -> tuple[Mapping[str, Tree], ...]:
        found = self.status.get("conditions")
        return (
            tuple(each for each in found if isinstance(each, dict))
            if isinstance(found, list)
            else ()
        )

    def condition(self, name: str) -> Aspect:
        for each in self.conditions:
            if each.get("type") == name:
                return Aspect(
                    status=str(each.get("status") or ""),
                    reason=str(each.get("reason") or ""),
                    message=str(each.get("message") or ""),
                )
        return Aspect()

    @property
    def addresses(self) -> bool:
        """True when a load balancer has an address."""
        return bool(self.inside("status", "loadBalancer").get("ingress"))

    def number(self, name: str) -> int:
        """A number of the status; 0 when it is not there, as the API server leaves out zeros."""
        return _whole(self.status.get(name), 0)

    def wanted(self, name: str) -> int:
        """A number of the spec; 1 when it is not there."""
        return _whole(self.spec.get(name), 1)


def _whole(value: Tree, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
