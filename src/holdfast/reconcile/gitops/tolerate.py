"""Lets drift be for a while: a rule that ends, and a hold for an emergency.

Both end by themselves. What is meant for good belongs in Git.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.core.errors import NotFound, PermissionDenied, ValidationError
from holdfast.core.gitops.application import DriftSpec, HoldEnd
from holdfast.core.gitops.hold import PAUSED_UNTIL, Hold
from holdfast.core.gitops.inventory import KeptRule
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.ignore import concerns_security
from holdfast.core.redact import redact
from holdfast.core.tree import digest
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.holds import LONGEST
from holdfast.reconcile.gitops.inquiry import Inquiry


class Tolerance(Inquiry):
    """What is let be, by whom and until when."""

    async def ignore(
        self, project: str, id: str, *, actor: str, until: datetime, reason: str,
        path: str = "", manager: str = "",
    ) -> tuple[KeptRule, ...]:  # fmt: skip
        """Hide a drift, or one field of it, for a while."""
        self._check_end(until)
        following, drift = self.drift(project, id)
        paths = [entry.path for entry in drift.entries if path in ("", entry.path)]
        if "" in paths:
            raise ValidationError(
                f"{id} is about {drift.object} as a whole, and a rule hides fields alone.",
                todo=f"holdfast snooze {id} --for 4h, or reject, leaves it as it is.",
            )
        if not paths:
            raise ValidationError(
                f"{id} has no field {path[:80]!a}.",
                todo=f"Name one that holdfast drift show {id} lists.",
            )
        for each in paths:
            if concerns_security(tuple(each.split(".")), drift.object.kind):
                raise PermissionDenied(
                    f"{each} concerns security, so no command hides it.",
                    todo="Declare the rule in the Application, with security: true.",
                )
        async with following.lock:
            await following.shelf.refresh()
            rules = tuple(
                KeptRule(
                    name=f"{id}-{place}", drift=id, path=each, manager=manager or None,
                    kind=drift.object.kind, object_name=drift.object.name,
                    namespace=drift.object.namespace or "*", owner=actor,
                    reason=one_line(reason), expires=until,
                )
                for place, each in enumerate(paths)
            )  # fmt: skip
            for rule in rules:
                following.shelf.put_rule(rule)
            told = f"{', '.join(paths)} of {drift.object} until {until:%Y-%m-%dT%H:%M:%SZ}."
            following.shelf.note("ignored", told, subject=id, actor=actor)
            await self._commit(following)
        self._wake(following.application.id)
        return rules

    async def pause(
        self,
        following: Following,
        *,
        actor: str,
        reason: str,
        until: datetime,
        object: ObjectRef | None = None,
        end: HoldEnd | None = None,
    ) -> Hold:
        """Hold an application, or one object: nothing is written to it until the hold ends.

        Counts at once, also in the middle of a sync.
        """
        self._check_end(until)
        now = self._clock.now()
        spec = following.application.spec.drift or DriftSpec()
        basis = [str(following.application.id), str(object), actor, now.isoformat()]
        hold = Hold(
            id="hold-" + digest(basis).removeprefix("sha256:")[:8],
            application=following.application.id, object=object, reason=one_line(reason), by=actor,
            since=now, until=until, end=end or spec.hold_end or HoldEnd.PULL_REQUEST,
        )  # fmt: skip
        following.shelf.holds[hold.id] = hold
        try:
            async with following.lock:
                await following.shelf.refresh()
                following.shelf.put_hold(hold)
                told = f"{object or following.application.id} until {until:%Y-%m-%dT%H:%M:%SZ}: "
                following.shelf.note("paused", told + hold.reason, subject=hold.id, actor=actor)
                await self._commit(following)
        except BaseException:
            following.shelf.take_back(hold)
            raise
        self._wake(following.application.id)
        return hold

    async def resume(
        self, following: Following, *, actor: str, object: ObjectRef | None = None
    ) -> tuple[Hold, ...]:
        """End the holds of an application, or of one object, before their time."""
        async with following.lock:
            await following.shelf.refresh()
            found = tuple(
                hold
                for hold in following.shelf.holds.values()
                if (object is None or hold.object == object) and not hold.from_annotation
            )
            if not found:
                raise _not_held(following, object)
            for hold in found:
                following.shelf.put_hold(hold, ended=True)
                told = f"{hold.object or following.application.id} is no longer on hold."
                following.shelf.note("resumed", told, subject=hold.id, actor=actor)
            await self._commit(following)
        self._wake(following.application.id)
        return found

    def _check_end(self, until: datetime) -> None:
        left = until - self._clock.now()
        if not timedelta(0) < left <= LONGEST:
            raise ValidationError(
                f"It would end {until:%Y-%m-%dT%H:%M:%SZ}, which is in the past or more "
                "than 30 days away.",
                todo="Give a time between a minute and 30 days.",
            )


def _not_held(following: Following, object: ObjectRef | None) -> NotFound:
    """Say why there is nothing to end by a command, and how what there is ends."""
    what = object or following.application.id
    noted = [
        hold.object
        for hold in following.shelf.holds.values()
        if hold.from_annotation and hold.object and object in (None, hold.object)
    ]
    if not noted:
        return NotFound(f"{what} is not on hold.", todo="holdfast status lists holds.")
    ref = noted[0]
    place = f"-n {ref.namespace} " if ref.namespace else ""
    return NotFound(
        f"{ref} is on hold by an annotation, which no command ends.",
        todo=f"kubectl annotate {place}{ref.kind.lower()}/{ref.name} {PAUSED_UNTIL}-",
    )


def one_line(text: str) -> str:
    """A text of a person as it is kept: on one line, not too long, and without credentials."""
    return redact(" ".join(text.split()))[:500]
