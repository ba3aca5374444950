"""Looks at the objects of one application, and says how each of them stands.

Reads only. What the cluster did not answer is unknown, and stays out of every decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.errors import AuthError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.application import Application
from holdfast.core.gitops.declare import LABEL, MANAGER, declaration, marked
from holdfast.core.gitops.generated import edited, made_secret
from holdfast.core.gitops.generated import learned as made_marks
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.ignore import Rules, annotated_rules
from holdfast.core.gitops.inventory import Applied
from holdfast.core.gitops.owner import Terms, owner_of, terms_of
from holdfast.core.gitops.pods import (
    WORKLOADS,
    baseline,
    data_history,
    image_findings,
    running_images,
    selector_of,
    settled,
    stale_readers,
)
from holdfast.core.gitops.source import Declared, Rendered
from holdfast.core.gitops.standing import Health, Owner, Seen, Standing
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.delegated import ALONE, Surroundings
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.owned import is_ours, read_ownership
from holdfast.core.ownership.signals import (
    APPLIED,
    AppliedRecord,
    Declaration,
    Finding,
    values_written,
)
from holdfast.core.ownership.verdict import State, Verdict
from holdfast.core.tree import Fields, digest, same
from holdfast.reconcile.gitops.theirs import Theirs
from holdfast.reconcile.keeper import Keeper
from holdfast.reconcile.kube import KindNotServed, KubeClient, KubeConflict, Scope

Around = Callable[[ObjectRef], Awaitable[Surroundings]]
"""Says what else touches an object: the autoscalers that target it."""
PodsOf = Callable[[ObjectRef, Fields], Awaitable[Sequence[Fields]]]
"""Gives the pods of a workload, or those that may read a Secret."""
_AT_ONCE = 50
"""Objects that are judged before others get a turn."""
_MARKS = frozenset({APPLIED, ("metadata", "labels", LABEL)})
"""What we put on objects beside what is declared: one of another tool is right without."""


class Declarations:
    """What one rendering asks for, in the form in which it is compared and applied."""

    def __init__(
        self,
        rendered: Rendered,
        application: Application,
        key: bytes,
        before: Declarations | None = None,
    ) -> None:
        """`before` are those of an earlier rendering for the same application."""
        self.rendered = rendered
        self.declared: Mapping[ObjectRef, Declared] = {each.ref: each for each in rendered.objects}
        self._application = application.id
        self._key = key
        self._made = dict(self._kept(before)) if before else {}

    def of(self, ref: ObjectRef) -> Declaration:
        """Return the declaration of an object; made once."""
        made = self._made.get(ref)
        if made is None:
            made = declaration(self.declared[ref], self._application, self._key)
            self._made[ref] = made
        return made

    def _kept(self, before: Declarations) -> Iterator[tuple[ObjectRef, Declaration]]:
        """What was made of objects that are declared as they were."""
        for ref, made in before._made.items():
            now = self.declared.get(ref)
            if now is not None and same(now.item, before.declared[ref].item):
                yield ref, made

    def defines(self, ref: ObjectRef) -> bool:
        """True when the kind of an object is defined by what is declared here."""
        return any(
            each.kind == "CustomResourceDefinition"
            and at(item.item, ("spec", "group")) == ref.group
            and at(item.item, ("spec", "names", "kind")) == ref.kind
            for each, item in self.declared.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was seen in one look."""

    seen: tuple[Seen, ...]
    images: Mapping[ObjectRef, Mapping[str, str]]
    """What images stood for, where that was newly learned."""
    marks: Mapping[ObjectRef, Mapping[str, str]]
    """Keyed marks of the Secrets that were made of objects, where newly learned."""
    data: Mapping[ObjectRef, Mapping[str, str]]
    """Since when the data of Secrets had which keyed mark, where newly learned."""
    values: Mapping[ObjectRef, AppliedRecord]
    """What objects that are as declared were found to have, where the inventory says otherwise:
    an older version wrote no values, or a write was not put on record before a crash."""


class Surveyor:
    """Looks at objects through a client whose reads are cheap."""

    def __init__(
        self,
        client: KubeClient,
        keeper: Keeper,
        *,
        around: Around,
        pods: PodsOf,
        theirs: Theirs,
        key: bytes,
    ) -> None:
        self._client = client
        self._keeper = keeper
        self._around = around
        self._pods = pods
        self._theirs = theirs
        self._key = key

    def declarations(
        self, rendered: Rendered, application: Application, before: Declarations | None
    ) -> Declarations:
        """Make what a rendering asks for comparable; `before` is what an earlier one asked for."""
        return Declarations(rendered, application, self._key, before=before)

    async def survey(
        self,
        wanted: Declarations,
        inventory: Mapping[ObjectRef, Applied],
        *,
        ignore: Sequence[IgnoreRule],
        label: str,
        only: Collection[ObjectRef] | None = None,
    ) -> Survey:
        """Look at what is declared and at what was applied; `only` some of it if given."""
        refs = {*wanted.declared, *inventory} if only is None else set(only)
        seen: list[Seen] = []
        images: dict[ObjectRef, Mapping[str, str]] = {}
        marks: dict[ObjectRef, Mapping[str, str]] = {}
        data: dict[ObjectRef, Mapping[str, str]] = {}
        values: dict[ObjectRef, AppliedRecord] = {}
        for count, ref in enumerate(sorted(refs)):
            if count % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if ref in wanted.declared:
                found = await self._declared(wanted, ref, inventory.get(ref), ignore, label)
                found, learned = await self._with_pods(found, inventory.get(ref))
                if learned is not None:
                    images[ref] = learned
                found, learned = await self._with_readers(found, inventory.get(ref))
                if learned is not None:
                    data[ref] = learned
                found, learned = await self._with_made(found, inventory.get(ref))
                if learned is not None:
                    marks[ref] = learned
                if (record := self._recorded(found, wanted.of, inventory.get(ref))) is not None:
                    values[ref] = record
                seen.append(found)
            elif ref in inventory:
                seen.append(await self._left_over(ref, inventory[ref]))
        return Survey(seen=tuple(seen), images=images, marks=marks, data=data, values=values)

    def _recorded(
        self, seen: Seen, of: Callable[[ObjectRef], Declaration], applied: Applied | None
    ) -> AppliedRecord | None:
        """Make the record of an object that is as declared, where the inventory has none of it."""
        live, verdict = seen.live, seen.verdict
        if applied is None or live is None or verdict is None or seen.owner is not None:
            return None
        if verdict.state is not State.IN_SYNC or at(live, ("metadata", "uid")) != applied.uid:
            return None
        declared = of(seen.ref)
        if applied.declaration == declared.digest and values_written(applied.values):
            return None
        return AppliedRecord(digest=declared.digest, values=self._keeper.values(declared, live))

    async def _declared(
        self,
        wanted: Declarations,
        ref: ObjectRef,
        applied: Applied | None,
        ignore: Sequence[IgnoreRule],
        label: str,
    ) -> Seen:
        declared = wanted.declared[ref]
        blank = Seen(
            ref=ref, standing=Standing.UNKNOWN, health=Health.UNKNOWN, declared=declared,
            applied=applied is not None,
        )  # fmt: skip
        terms = terms_of(declared.item)
        if terms.unmanaged:
            return _let_be(blank, terms)
        try:
            live = await self._client.get(ref)
        except KindNotServed:
            if wanted.defines(ref):
                return replace(blank, standing=Standing.AHEAD, health=Health.MISSING)
            told = f"The cluster serves no {ref.kind} of {ref.api_version}: is its CRD installed?"
            return replace(blank, message=told)
        except (TargetUnavailable, PermissionDenied, AuthError) as error:
            return replace(blank, message=error.happened)
        if live is None:
            self._forget(applied)
            standing = Standing.DRIFTED if applied else Standing.AHEAD
            verdict = await self._keeper.look(wanted.of(ref), None)
            return replace(blank, standing=standing, health=Health.MISSING, verdict=verdict)
        if terms.create_only:
            return replace(_let_be(blank, terms), live=live, health=health_of(live)[0])
        ours = applied is not None or _adopted(live, label)
        # What our inventory holds by its uid is ours; a mark counts where Git itself declares it.
        held = applied is not None and applied.uid == at(live, ("metadata", "uid"))
        owner, claimed = owner_of(declared.item if held else live), owner_of(live)
        claimed_by = claimed if owner is None else None
        theirs = await self._theirs.rules(live, declared.item) if owner else Rules()
        rules = (*ignore, *annotated_rules(declared.item).rules, *theirs.rules)
        declaring = wanted.of(ref)
        if not ours:
            declaring = replace(declaring, applied=False)
        elif applied is None:
            # Ours by its marks alone: what it had when we applied it last is not on record.
            declaring = replace(declaring, record=AppliedRecord(digest="", values=""))
        elif applied.uid != str(at(live, ("metadata", "uid"))):
            declaring = replace(declaring, uid=applied.uid)
        else:
            record = AppliedRecord(digest=applied.declaration, values=applied.values)
            declaring = replace(declaring, record=record)
        try:
            around = await self._around(ref)
            verdict = await self._keeper.look(declaring, live, around=around, ignore=rules)
        except (TargetUnavailable, AuthError, KubeConflict) as error:
            # One that changes while it is looked at is looked at again.
            return replace(blank, live=live, owner=owner, message=error.happened)
        if owner is not None:
            verdict = verdict.leaving(_MARKS)
        health, told = health_of(live)
        return replace(
            blank, live=live, verdict=verdict, owner=owner, applied=ours, health=health,
            claimed_by=claimed_by,
            message=told or "; ".join(theirs.not_understood) or _claim(claimed_by),
            standing=_standing(verdict, ours=ours, observed=owner is not None),
        )  # fmt: skip

    async def _left_over(self, ref: ObjectRef, applied: Applied) -> Seen:
        blank = Seen(ref=ref, standing=Standing.UNKNOWN, health=Health.UNKNOWN, applied=True)
        try:
            live = await self._client.get(ref)
        except (TargetUnavailable, PermissionDenied, AuthError) as error:
            return replace(blank, message=error.happened)
        if live is None:
            return replace(blank, standing=Standing.LEFT_OVER, health=Health.MISSING)
        health, told = health_of(live)
        held, marked = applied.uid == at(live, ("metadata", "uid")), owner_of(live)
        return replace(
            blank, standing=Standing.LEFT_OVER, live=live, owner=None if held else marked,
            claimed_by=marked if held else None, health=health,
            message=told or _claim(marked if held else None),
        )  # fmt: skip

    async def _with_pods(
        self, seen: Seen, applied: Applied | None
    ) -> tuple[Seen, Mapping[str, str] | None]:
        """Add what the pods of an object run, where it has pods and they could be read."""
        live = seen.live
        if live is None or applied is None or seen.verdict is None:
            return seen, None
        try:
            if seen.ref.kind in WORKLOADS and settled(live):
                return await self._with_images(seen, live, applied)
        except (TargetUnavailable, PermissionDenied, AuthError):
            pass  # what pods run is then unknown, and unknown is no drift
        return seen, None

    async def _with_readers(
        self, seen: Seen, applied: Applied | None
    ) -> tuple[Seen, Mapping[str, str] | None]:
        """Add which pods have another value of a Secret in their environment than it has now."""
        live = seen.live
        if seen.ref.kind != "Secret" or live is None or applied is None or seen.verdict is None:
            return seen, None
        since = _changed(live)
        if since is None and not applied.data:
            created = at(live, ("metadata", "creationTimestamp"))
            since = datetime.fromisoformat(str(created)) if created else None
        mark = digest(marked({**live, "kind": "Secret"}, self._key).get("data"))
        history = data_history(applied.data, mark, since) if since else applied.data
        try:
            if len(history) > 1 or _changed(live) is not None:
                pods = await self._pods(seen.ref, live)
                seen = _with(seen, stale_readers(seen.ref.name, history, pods))
        except (TargetUnavailable, PermissionDenied, AuthError):
            pass  # what pods have is then unknown, and unknown is no drift
        return seen, history if history != applied.data else None

    async def _with_images(
        self, seen: Seen, live: Fields, applied: Applied
    ) -> tuple[Seen, Mapping[str, str] | None]:
        running = running_images(await self._pods(seen.ref, live))
        known = baseline(live, running, applied.images)
        learned = known if known != dict(applied.images) else None
        return _with(seen, image_findings(live, running, known)), learned

    async def _with_made(
        self, seen: Seen, applied: Applied | None
    ) -> tuple[Seen, Mapping[str, str] | None]:
        """Add what was edited of the Secret that a controller made of an object."""
        ref = made_secret(seen.live, seen.ref) if seen.live else None
        if ref is None or applied is None or seen.live is None:
            return seen, None
        try:
            secret = await self._client.get(ref)
        except (TargetUnavailable, PermissionDenied, AuthError):
            return seen, None
        if secret is None:
            return seen, None
        known = made_marks(seen.live, secret, applied.marks, self._key)
        found = _with(seen, edited(secret, known, self._key))
        return found, known if known != dict(applied.marks) else None

    def _forget(self, applied: Applied | None) -> None:
        if applied is not None:
            self._keeper.forget(applied.uid)


async def nothing_around(ref: ObjectRef) -> Surroundings:
    """For who knows of no autoscalers: the last writer of a number then tells."""
    return ALONE


def pods_listed_by(client: KubeClient) -> PodsOf:
    """Ask the cluster for pods each time, for who follows none."""

    async def pods(ref: ObjectRef, live: Fields) -> Sequence[Fields]:
        selector = "" if ref.kind == "Secret" else selector_of(live)
        if ref.kind != "Secret" and not selector:
            return ()
        scope = Scope(api_version="v1", kind="Pod", namespace=ref.namespace, labels=selector)
        return (await client.list(scope)).items

    return pods


def _claim(by: Owner | None) -> str:
    if by is None:
        return ""
    return f"It carries a mark of {by}. It was applied from here, so it is kept all the same."


def _let_be(blank: Seen, terms: Terms) -> Seen:
    """An object that its own settings take out of the comparison."""
    return replace(blank, standing=Standing.IN_SYNC, message="; ".join(terms.because))


def _with(seen: Seen, findings: Iterator[Finding]) -> Seen:
    running = tuple(findings)
    if not running:
        return seen
    return replace(seen, running=running, standing=Standing.DRIFTED)


def _standing(verdict: Verdict, *, ours: bool, observed: bool) -> Standing:
    if verdict.state is State.WIPED:
        return Standing.DRIFTED
    if not verdict.differing:
        return Standing.IN_SYNC if ours or observed else Standing.AHEAD
    if verdict.drifted and (ours or observed):
        return Standing.DRIFTED
    return Standing.AHEAD


def _adopted(live: Fields, label: str) -> bool:
    """True for an object that we applied for this application, whatever the inventory says."""
    if at(live, ("metadata", "labels", LABEL)) != label:
        return False
    entries = read_ownership(at(live, ("metadata", "managedFields"))).entries
    return any(is_ours(entry, frozenset({MANAGER})) for entry in entries)


def _changed(secret: Fields) -> datetime | None:
    """When the data of a Secret was last written, after it was created."""
    entries = read_ownership(at(secret, ("metadata", "managedFields"))).entries
    times = [
        entry.at for entry in entries if entry.at and any(path[0] == "data" for path in entry.paths)
    ]
    created = at(secret, ("metadata", "creationTimestamp"))
    last = max(times, default=None)
    if last is None or created is None or last <= datetime.fromisoformat(str(created)):
        return None
    return last
