"""Looks at an application's objects under its rules, and keeps what was learned on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from holdfast.core.gitops.declare import LABEL
from holdfast.core.gitops.ignore import rules_of
from holdfast.core.gitops.inventory import Applied
from holdfast.core.gitops.route import let_be
from holdfast.core.gitops.source import Rendered
from holdfast.core.gitops.standing import Health, Seen, Standing
from holdfast.core.gitops.track import additions, was_found
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.objects import at
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.orphans import Orphans
from holdfast.reconcile.gitops.survey import Declarations, Surveyor
from holdfast.reconcile.ports import Clock


class Looking:
    """Makes looks, for passes and for who is about to write."""

    def __init__(self, surveyor: Surveyor, orphans: Orphans, clock: Clock) -> None:
        self._surveyor = surveyor
        self._orphans = orphans
        self._clock = clock

    def declared(self, following: Following, rendered: Rendered) -> Declarations:
        """Return what a rendering asks for: the same as before where it is the same commit."""
        known = following.wanted
        now = (rendered.commit, rendered.digest)
        if known is not None and (known.rendered.commit, known.rendered.digest) == now:
            return known
        return self._surveyor.declarations(rendered, following.application, known)

    async def at(
        self, following: Following, only: Collection[ObjectRef] | None
    ) -> tuple[Seen, ...]:
        """Look at everything, or `only` at some objects."""
        wanted, shelf = following.wanted, following.shelf
        assert wanted is not None  # noqa: S101  # there is nothing to compare with before
        survey = await self._surveyor.survey(
            wanted, shelf.inventory, ignore=self._rules(following),
            label=following.application.id.label, only=only,
        )  # fmt: skip
        for ref, images in survey.images.items():
            if (applied := shelf.inventory.get(ref)) is not None:
                shelf.put_applied(replace(applied, images=images))
        for ref, marks in survey.marks.items():
            if (applied := shelf.inventory.get(ref)) is not None:
                shelf.put_applied(replace(applied, marks=marks))
        for ref, data in survey.data.items():
            if (applied := shelf.inventory.get(ref)) is not None:
                shelf.put_applied(replace(applied, data=data))
        for ref, record in survey.values.items():
            if (applied := shelf.inventory.get(ref)) is not None:
                known = replace(applied, declaration=record.digest, values=record.values or "")
                shelf.put_applied(known)
        drift = following.application.spec.drift
        routes = (drift.routes if drift else None) or ()
        judged = tuple(self._recalled(following, let_be(each, routes)) for each in survey.seen)
        seen = (*judged, *await self._orphans.look(following, only))
        if only is None:
            following.glances.clear()
        else:
            seen = (*seen, *_gone({*only} - {each.ref for each in seen}))
        following.remember(seen)
        if only is None:
            following.compared = wanted.rendered
        for each in seen:
            _keep_inventory(following, each)
        return seen

    async def at_one(self, following: Following, ref: ObjectRef) -> Seen:
        """Look at one object again."""
        return next(each for each in await self.at(following, {ref}) if each.ref == ref)

    def _recalled(self, following: Following, seen: Seen) -> Seen:
        """Add what others had on an object when it was taken over, as far as it is still there.

        One that is ours by its marks alone, and in no inventory, is taken over now.
        """
        if seen.live is None or seen.verdict is None or not seen.applied:
            return seen
        applied, there = following.shelf.inventory.get(seen.ref), additions(seen)
        if applied is None:
            return replace(seen, found=there)
        found = tuple(each for each in applied.found if any(was_found(p, [each]) for p in there))
        if found != applied.found:
            following.shelf.put_applied(replace(applied, found=found))
        return replace(seen, found=found)

    def _rules(self, following: Following) -> tuple[IgnoreRule, ...]:
        spec = following.application.spec.drift
        now = self._clock.now()
        kept = (
            IgnoreRule(
                name=rule.name, owner=rule.owner, glob=rule.path, manager=rule.manager,
                kind=rule.kind, object_name=rule.object_name, namespace=rule.namespace,
                expires=rule.expires,
            )
            for rule in following.shelf.rules.values()
            if rule.expires > now
        )  # fmt: skip
        return (*rules_of((spec.ignore if spec else None) or ()), *kept)


def _gone(refs: Collection[ObjectRef]) -> Iterator[Seen]:
    """Objects that nobody declares and that are not there: all is well with them."""
    for ref in sorted(refs):
        yield Seen(ref=ref, standing=Standing.LEFT_OVER, health=Health.MISSING)


def _keep_inventory(following: Following, seen: Seen) -> None:
    """Forget what is known to be gone, and take up again what is ours by its marks."""
    shelf, live, wanted = following.shelf, seen.live, following.wanted
    if seen.standing is Standing.LEFT_OVER and (live is None or _anothers(following, seen)):
        shelf.drop_applied(seen.ref)
        following.glances.pop(seen.ref, None)
    elif live is not None and seen.applied and seen.ref not in shelf.inventory and wanted:
        shelf.put_applied(
            Applied(
                ref=seen.ref, uid=str(at(live, ("metadata", "uid"))),
                commit=wanted.rendered.commit, declaration=wanted.of(seen.ref).digest,
                found=seen.found,
            )
        )  # fmt: skip


def _anothers(following: Following, seen: Seen) -> bool:
    """True for what others made anew under a name that was ours, and is not declared any more."""
    applied, live = following.shelf.inventory.get(seen.ref), seen.live or {}
    replaced = applied is not None and applied.uid != at(live, ("metadata", "uid"))
    return replaced and at(live, ("metadata", "labels", LABEL)) != following.application.id.label
