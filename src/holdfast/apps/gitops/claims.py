"""Which application an object belongs to: one each, the first that declared or applied it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.apps.gitops.mapping import Name, name_of
from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.source import Rendered
from holdfast.core.objects import ObjectRef


class Claims:
    """Who has what. After a start the inventories count until declarations are known."""

    def __init__(self) -> None:
        self._owner: dict[Name, AppId] = {}
        self._held: dict[AppId, set[Name]] = {}
        self._changes = 0
        self._settled: dict[AppId, tuple[Rendered, int, int]] = {}
        """What was claimed last, with the application's inventory and all claims as they were."""

    def stands(self, application: AppId, rendered: Rendered, members: int) -> bool:
        """True when nothing moved since an application settled on what it declares."""
        known = self._settled.get(application)
        if known is None or known[0] is not rendered:
            return False
        return known[1:] == (members, self._changes)

    def settle(self, application: AppId, rendered: Rendered, members: int) -> None:
        """Remember that an application has all that it declares, with so many changes of what
        it applied."""
        self._settled[application] = (rendered, members, self._changes)

    def seed(self, application: AppId, applied: Iterable[ObjectRef]) -> None:
        """Take up what an application applied before."""
        self._changes += 1
        self._take(application, [name_of(ref) for ref in applied])

    def claim(
        self, application: AppId, declared: Collection[ObjectRef]
    ) -> tuple[ObjectRef, AppId] | None:
        """Give an application what it declares and nothing else.

        Where another has one of the objects, nothing changes, and the two are returned.
        """
        for ref in sorted(declared):
            owner = self._owner.get(name_of(ref), application)
            if owner != application:
                return ref, owner
        names = {name_of(ref) for ref in declared}
        if names == self._held.get(application):
            return None
        self._changes += 1
        for name in self._held.get(application, set()) - names:
            self._owner.pop(name, None)
        self._held[application] = set()
        self._take(application, names)
        return None

    def owner(self, ref: ObjectRef) -> AppId | None:
        """Return whose an object is."""
        return self._owner.get(name_of(ref))

    def release(self, application: AppId) -> None:
        """Give everything back that an application had."""
        self._changes += 1
        self._settled.pop(application, None)
        for name in self._held.pop(application, set()):
            self._owner.pop(name, None)

    def _take(self, application: AppId, names: Iterable[Name]) -> None:
        held = self._held.setdefault(application, set())
        for name in names:
            if self._owner.setdefault(name, application) == application:
                held.add(name)
