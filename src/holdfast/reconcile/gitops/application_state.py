"""Everything that must be remembered of one application, and how a pass changes it.

A state is read once, changed in memory, and committed with the journal lines that say why: all
of it or nothing. Whoever else wrote in between wins, and the pass starts anew. What could not be
committed for sure is taken back in memory too, and the ledger is read again before it is used: no
reader is shown a decision that may not have been kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeAlias, TypeVar

from holdfast.core import fight
from holdfast.core.fight import Heal, heal_of
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.facts import ApplicationFact, ApplicationRetired, DriftAbandoned
from holdfast.core.gitops.guard import UnapprovedChanges, recent_changes
from holdfast.core.gitops.hold import Hold, HoldTime, recent_times
from holdfast.core.gitops.records import (
    AppliedObject,
    AppliedRevision,
    PendingPlan,
    PullRequestRecord,
    TemporaryIgnoreRule,
)
from holdfast.core.gitops.wording import journal_detail, message_of
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import (
    JournalEntry,
    LedgerRecord,
    LedgerStore,
    LedgerWrite,
    RecordKind,
)
from holdfast.reconcile.ports import Clock
from holdfast.wire import gitops_v1

OPEN, CLOSED = "open", "closed"
_REVISION_KEY = "followed"
PROJECTS_KEY = "projects"
"""The key of the record that says whose an application was."""
_EPOCH_KEY = "epoch"
"""A record that every commit writes anew: of two controllers, one learns of the other by it."""
_UNAPPROVED = "unasked"
"""A record of what was done without asking, for the guards. Closed, as it outlives nothing."""
_MAX_RECENT = 500
"""Closed drifts that are looked through for recent heals."""
K = TypeVar("K")
T = TypeVar("T")
Versions: TypeAlias = dict[tuple[RecordKind, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCommit:
    """What one commit wrote, for whoever makes something of it: figures, the live stream."""

    application: ApplicationId
    project: str
    writes: tuple[LedgerWrite, ...]
    entries: tuple[JournalEntry, ...]
    facts: tuple[ApplicationFact, ...]
    """Of which the entries are the lines."""
    at: datetime


OnCommit: TypeAlias = Callable[[StateCommit], None]
"""Hears of what was written, once it is committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnapprovedRecord:
    batches: list[UnapprovedChanges]


def inventory_key(ref: ObjectRef) -> str:
    """Name an object in the ledger: its version may change while it stays the same object."""
    return "|".join((ref.group, ref.kind, ref.namespace, ref.name))


def journal_entry(
    fact: ApplicationFact, application: ApplicationId, project: str, at: datetime
) -> JournalEntry | None:
    """Make the line of a fact for the journal; None for those that have none."""
    if (action := fact.journal_action) is None:
        return None
    whose: Fields = {"project": project} if project else {}
    return JournalEntry(
        application=str(application),
        subject=fact.subject,
        action=action.value,
        actor=fact.actor,
        summary=message_of(fact),
        detail={**whose, **journal_detail(fact)},
        at=at,
    )


class ApplicationState:
    """What is known of one application. Read by `open_state`."""

    def __init__(
        self,
        ledger_store: LedgerStore,
        application: ApplicationId,
        clock: Clock,
        on_commit: OnCommit | None = None,
    ) -> None:
        self._ledger_store = ledger_store
        self._clock = clock
        self._on_commit = on_commit
        self.application = application
        self.project = ""
        """Whose it is; lines of the journal say so, and are read by that project alone."""
        self.projects: tuple[str, ...] = ()
        """Whose it was, and is: the last one last."""
        self.inventory: dict[ObjectRef, AppliedObject] = {}
        self.members = 0
        """Counts how often an object came into the inventory or left it."""
        self.drifts: dict[str, ObjectDrift] = {}
        """Those that are open."""
        self.changes = 0
        """Counts how often `drifts` may have changed: who made something of them looks here."""
        self.holds: dict[str, Hold] = {}
        self.plans: dict[str, PendingPlan] = {}
        self.pulls: dict[str, PullRequestRecord] = {}
        """By branch."""
        self.ended: dict[str, PullRequestRecord] = {}
        """The last pull request of a branch that is over."""
        self.rules: dict[str, TemporaryIgnoreRule] = {}
        self.revision: AppliedRevision | None = None
        self.unapproved: tuple[UnapprovedChanges, ...] = ()
        """What syncs did within a day without anybody having agreed to it."""
        self.healed: dict[ObjectRef, tuple[Heal, ...]] = {}
        """What was healed lately, the last one last."""
        self.expired: dict[str, datetime] = {}
        """Holds whose time was over when they ended, and their time: no clock revives them."""
        self.hold_times: dict[ObjectRef, tuple[HoldTime, ...]] = {}
        """When annotations held an object lately: they share one budget."""
        self.holds_refused: dict[ObjectRef, datetime] = {}
        """When a hold by annotation was refused last, so that it is not told each time."""
        self.stale = True
        """True while this may not be what the ledger has: read it before anything is decided."""
        self._versions: Versions = {}
        self._puts: dict[tuple[RecordKind, str], LedgerWrite] = {}
        self._entries: list[JournalEntry] = []
        self._facts: list[ApplicationFact] = []
        self._undo: list[Callable[[], object]] = []
        """How to take back in memory what was changed since the last commit, the last one last."""

    def put_applied(self, applied: AppliedObject) -> None:
        """Take an object into the inventory."""
        if self.inventory.get(applied.ref) == applied:
            return
        self.members += applied.ref not in self.inventory
        self._set(self.inventory, applied.ref, applied)
        form = gitops_v1.encode_record(applied)
        self._put(RecordKind.INVENTORY, inventory_key(applied.ref), form)

    def drop_applied(self, ref: ObjectRef) -> None:
        """Take an object out of the inventory, once it is known to be gone."""
        if ref in self.inventory:
            self._pop(self.inventory, ref)
            self.members += 1
            self._put(RecordKind.INVENTORY, inventory_key(ref), None)

    def put_drift(self, drift: ObjectDrift) -> None:
        """Keep a drift as it is now. A resolved one leaves the state and stays in the ledger."""
        self.changes += 1
        if self.drifts.get(drift.id) == drift:
            self.drifts[drift.id] = drift  # with what it costs now
            return
        resolved = drift.state is DriftState.RESOLVED
        if resolved:
            self._pop(self.drifts, drift.id)
        else:
            self._set(self.drifts, drift.id, drift)
        form = gitops_v1.encode_record(gitops_v1.drift_to_json(drift))
        self._put(RecordKind.DRIFT, drift.id, form, state=CLOSED if resolved else OPEN)

    def count_heal(self, drift: ObjectDrift) -> ObjectDrift:
        """Note that a drift was healed just now."""
        now = self._clock.now()
        self._keep_heal(drift.object, heal_of(drift.entries, now))
        return replace(drift, rounds=(*fight.recent_rounds(drift.rounds, now), now))

    def _keep_heal(self, ref: ObjectRef, heal: Heal) -> None:
        known = {
            each for each in self.healed.get(ref, ()) if fight.recent_rounds([each.at], heal.at)
        }
        self.healed[ref] = tuple(sorted({*known, heal}, key=lambda each: each.at))

    def put_hold(self, hold: Hold, *, ended: bool = False) -> None:
        """Keep a hold, or end it."""
        if ended:
            hold = hold.ended(self._clock.now())
            self._note_times(hold)
            if hold.until <= self._clock.now():
                self._set(self.expired, hold.id, hold.asked or hold.until)
        self._keep(RecordKind.HOLD, self.holds, hold.id, hold, ended=ended)

    def _note_times(self, hold: Hold) -> None:
        if hold.object is None or not hold.from_annotation:
            return
        if hold.refused:
            before = self.holds_refused.get(hold.object, hold.since)
            self.holds_refused[hold.object] = max(before, hold.since)
        known = self.hold_times.get(hold.object, ())
        self.hold_times[hold.object] = tuple(recent_times((*known, *hold.used), self._clock.now()))

    def take_back(self, hold: Hold) -> None:
        """Let go of a hold that could not be committed, unless the ledger has it all the same."""
        if (RecordKind.HOLD, hold.id) not in self._versions:
            self.holds.pop(hold.id, None)

    def put_plan(self, plan: PendingPlan, *, done: bool = False) -> None:
        """Keep a plan that waits, or put it away."""
        self._keep(RecordKind.PLAN, self.plans, plan.id, plan, ended=done)

    def put_pull(self, pull: PullRequestRecord, *, done: bool = False) -> None:
        """Keep a pull request, or put it away."""
        self._keep(RecordKind.PULL, self.pulls, pull.branch, pull, ended=done)
        if done:
            self._set(self.ended, pull.branch, pull)

    def put_rule(self, rule: TemporaryIgnoreRule, *, ended: bool = False) -> None:
        """Keep an ignore rule, or end it."""
        self._keep(RecordKind.RULE, self.rules, rule.name, rule, ended=ended)

    def put_revision(self, followed: AppliedRevision) -> None:
        """Keep how far the source was followed."""
        known = self.revision
        if known is not None and replace(known, at=followed.at) == followed:
            return
        self._undo.append(partial(setattr, self, "revision", known))
        self.revision = followed
        self._put(RecordKind.REVISION, _REVISION_KEY, gitops_v1.encode_record(followed))

    def drop_revision(self) -> None:
        """Forget how far the source was followed."""
        if self.revision is not None:
            self._undo.append(partial(setattr, self, "revision", self.revision))
            self.revision = None
            self._put(RecordKind.REVISION, _REVISION_KEY, None)

    def put_projects(self, projects: tuple[str, ...], *, left: bool = False) -> None:
        """Keep whose it was and is, so that each of them finds its lines of the journal."""
        self._undo.append(partial(setattr, self, "projects", self.projects))
        self.projects = projects
        state = CLOSED if left else OPEN
        self._put(RecordKind.REVISION, PROJECTS_KEY, {"projects": [*projects]}, state=state)

    def count_unapproved(self, done: UnapprovedChanges) -> None:
        """Note what is about to be done that nobody agreed to."""
        self._undo.append(partial(setattr, self, "unapproved", self.unapproved))
        self.unapproved = (*recent_changes(self.unapproved, done.at), done)
        batches = [gitops_v1.encode_record(each) for each in self.unapproved]
        self._put(RecordKind.REVISION, _UNAPPROVED, {"batches": [*batches]}, state=CLOSED)

    def record(self, fact: ApplicationFact) -> None:
        """Add the line of a fact to the journal."""
        entry = journal_entry(fact, self.application, self.project, self._clock.now())
        if entry is not None:
            self._facts.append(fact)
            self._entries.append(entry)

    @property
    def changed(self) -> bool:
        """True while something waits to be committed."""
        return bool(self._puts or self._entries)

    async def commit(self) -> None:
        """Write what changed. Raises Conflict when others wrote: read the state anew."""
        if not self.changed:
            return
        # Closed, so that it goes with the history once nobody writes it any more.
        self._put(RecordKind.REVISION, _EPOCH_KEY, {}, state=CLOSED)
        puts, entries = tuple(self._puts.values()), tuple(self._entries)
        self.stale = True  # until there is an answer
        try:
            await self._ledger_store.write(puts, entries)
        except BaseException:
            self.discard()
            raise
        self.stale = False
        for put in puts:
            key = (put.kind, put.key)
            self._versions[key] = 0 if put.body is None else put.seen + 1
        if self._on_commit is not None:
            self._on_commit(
                StateCommit(
                    application=self.application,
                    project=self.project,
                    writes=puts,
                    entries=entries,
                    facts=tuple(self._facts),
                    at=self._clock.now(),
                )
            )
        self._clear()

    def discard(self) -> None:
        """Take back what was not committed, and read the ledger before anything is decided."""
        self.stale = True
        self.changes += 1
        for undo in reversed(self._undo):
            undo()
        self._clear()

    def _clear(self) -> None:
        self._puts.clear()
        self._entries.clear()
        self._facts.clear()
        self._undo.clear()

    async def read(self) -> None:
        """Read everything anew; what was not committed is forgotten.

        All of it or nothing: what was known before stays where the ledger does not answer.
        """
        self.discard()
        versions: Versions = {}
        # The epoch is read first: whoever writes while the rest is read is noticed by it.
        revisions = {each.key: each for each in await self._records(RecordKind.REVISION, versions)}
        holds = await self._records(RecordKind.HOLD, versions)
        applied = await self._read(RecordKind.INVENTORY, AppliedObject, versions)
        drifts = await self._read(RecordKind.DRIFT, gitops_v1.ApplicationDriftForm, versions)
        plans = await self._read(RecordKind.PLAN, PendingPlan, versions)
        pulls = await self._records(RecordKind.PULL, versions)
        rules = await self._read(RecordKind.RULE, TemporaryIgnoreRule, versions)
        closed = await self._ledger_store.records(
            RecordKind.DRIFT, application=str(self.application), state=CLOSED, limit=_MAX_RECENT
        )
        self._take_revisions(revisions)
        self._take_holds(holds)
        self._versions = versions
        self.inventory = {each.ref: each for each in applied.values()}
        self.members += 1
        self.drifts = {key: gitops_v1.drift_from_json(form) for key, form in drifts.items()}
        self.changes += 1
        self.plans = plans
        self._take_pulls(pulls)
        self.rules = rules
        self._take_heals(closed)
        self.stale = False

    def _take_revisions(self, records: dict[str, LedgerRecord]) -> None:
        known, owners = records.get(_REVISION_KEY), records.get(PROJECTS_KEY)
        counted = records.get(_UNAPPROVED)
        self.revision = gitops_v1.decode_record(AppliedRevision, known.body) if known else None
        self.projects = projects_in(owners) if owners and owners.state != CLOSED else ()
        self.unapproved = (
            tuple(gitops_v1.decode_record(_UnapprovedRecord, counted.body).batches)
            if counted
            else ()
        )

    def _take_holds(self, records: Sequence[LedgerRecord]) -> None:
        # Those that no version is known of are about to be committed, and count already.
        found = {
            id: hold
            for id, hold in self.holds.items()
            if (RecordKind.HOLD, id) not in self._versions
        }
        for record in records:
            hold = gitops_v1.decode_record(Hold, record.body)
            if record.state != CLOSED:
                found[record.key] = hold
                continue
            self._note_times(hold)
            if record.changed_at >= hold.until:
                self.expired[record.key] = hold.asked or hold.until
        self.holds = found

    def _take_pulls(self, records: Sequence[LedgerRecord]) -> None:
        self.pulls, self.ended = {}, {}
        for record in records:
            pull = gitops_v1.decode_record(PullRequestRecord, record.body)
            (self.ended if record.state == CLOSED else self.pulls)[pull.branch] = pull

    async def refresh(self) -> None:
        """Read everything anew if others wrote, or if it is not known what was written."""
        if not self.stale:
            found = await self._ledger_store.records(
                RecordKind.REVISION, application=str(self.application), key=_EPOCH_KEY
            )
            known = self._versions.get((RecordKind.REVISION, _EPOCH_KEY), 0)
            self.stale = known != (found[0].version if found else 0)
        if self.stale:
            await self.read()

    def _take_heals(self, closed: Sequence[LedgerRecord]) -> None:
        """Take up the heals of the recent past, so that a restart forgets no fight."""
        ended = (
            gitops_v1.drift_from_json(
                gitops_v1.decode_record(gitops_v1.ApplicationDriftForm, record.body)
            )
            for record in closed
        )
        healed = [drift for drift in (*ended, *self.drifts.values()) if drift.rounds]
        for drift in sorted(healed, key=lambda each: each.rounds[-1]):
            if fight.recent_rounds(drift.rounds[-1:], self._clock.now()):
                self._keep_heal(drift.object, heal_of(drift.entries, drift.rounds[-1]))

    async def _read(self, kind: RecordKind, form: type[T], versions: Versions) -> dict[str, T]:
        records = await self._records(kind, versions)
        return {
            record.key: gitops_v1.decode_record(form, record.body)
            for record in records
            if record.state != CLOSED
        }

    async def _records(self, kind: RecordKind, versions: Versions) -> Sequence[LedgerRecord]:
        """Read records and note their versions, so that they can be written.

        Also those that are closed: the same branch, plan or object may come up again. A drift
        never does, and there may be many.
        """
        state = OPEN if kind is RecordKind.DRIFT else ""
        records = await self._ledger_store.records(
            kind, application=str(self.application), state=state
        )
        for record in records:
            versions[kind, record.key] = record.version
        return records

    def _keep(
        self, kind: RecordKind, known: dict[str, T], key: str, value: T, *, ended: bool
    ) -> None:
        """Keep something with its record, or end it: then the record alone stays, closed."""
        if ended:
            self._pop(known, key)
        else:
            self._set(known, key, value)
        body = gitops_v1.encode_record(value)
        self._put(kind, key, body, state=CLOSED if ended else OPEN)

    def _set(self, known: dict[K, T], key: K, value: T) -> None:
        """Change one thing in memory, so that it can be taken back."""
        if key in known:
            self._undo.append(partial(known.__setitem__, key, known[key]))
        else:
            self._undo.append(partial(known.pop, key, None))
        known[key] = value

    def _pop(self, known: dict[K, T], key: K) -> None:
        if key in known:
            self._undo.append(partial(known.__setitem__, key, known.pop(key)))

    def _put(self, kind: RecordKind, key: str, body: Fields | None, *, state: str = OPEN) -> None:
        self._puts[kind, key] = LedgerWrite(
            kind=kind,
            application=str(self.application),
            key=key,
            state=state,
            seen=self._versions.get((kind, key), 0),
            body=body,
        )


def projects_in(record: LedgerRecord) -> tuple[str, ...]:
    """Read whose an application was, and is."""
    found = record.body.get("projects")
    return tuple(map(str, found)) if isinstance(found, list) else ()


async def open_state(
    ledger_store: LedgerStore,
    application: ApplicationId,
    clock: Clock,
    on_commit: OnCommit | None = None,
) -> ApplicationState:
    """Read what is known of an application. `on_commit` hears of every commit."""
    state = ApplicationState(ledger_store, application, clock, on_commit)
    await state.read()
    return state


async def retire_application(state: ApplicationState, now: datetime) -> None:
    """Close everything that is open, in one commit. Raises Conflict when others wrote."""
    if not state.project:  # it was not followed when it went
        drifts = [drift.project for drift in state.drifts.values()]
        state.project = next(iter((*state.projects[-1:], *drifts)), "")
    for drift in list(state.drifts.values()):
        abandoned = replace(
            drift,
            state=DriftState.RESOLVED,
            resolution=Resolution.GONE,
            resolved_at=now,
            note="Its application no longer exists.",
        )
        state.put_drift(abandoned)
        state.record(DriftAbandoned(drift=abandoned))
    for hold in list(state.holds.values()):
        state.put_hold(hold, ended=True)
    for plan in list(state.plans.values()):
        state.put_plan(plan, done=True)
    for pull in list(state.pulls.values()):
        state.put_pull(pull, done=True)
    for rule in list(state.rules.values()):
        state.put_rule(rule, ended=True)
    count = len(state.inventory)
    for ref in list(state.inventory):
        state.drop_applied(ref)
    if state.projects:
        state.put_projects(state.projects, left=True)
    known = state.revision is not None
    state.drop_revision()
    if count or known or state.changed:
        state.record(ApplicationRetired(objects=count))
    await state.commit()
