"""Decision files: a merged one approves that a drift is put back.

It holds for exactly what was reviewed: when the live side has moved since, it approves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from holdfast.core.errors import ValidationError
from holdfast.core.gitops.application import PullKind, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.pull_text import decision, decision_file
from holdfast.reconcile.gitops.follow import Source, Sources
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ports import Export
from holdfast.reconcile.gitops.result import Voice
from holdfast.wire.yaml import read_documents, write_document

_HEADER = "# Merging this file approves it. It can be deleted once the drift is gone.\n"
_LARGEST = 16 * 1024


def files(drift: ObjectDrift, *, expires: datetime) -> Mapping[str, bytes | None]:
    """Return the file whose merge is the approval."""
    document = write_document(decision(drift, expires))
    return {decision_file(drift): (_HEADER + document).encode()}


async def take_up(
    following: Following, source: Source, sources: Sources, voice: Voice
) -> frozenset[str]:
    """Approve the drifts whose decision was merged. Returns those whose decision does not hold."""
    waiting = [
        drift
        for drift in following.shelf.drifts.values()
        if drift.remediation is Remediation.PULL_REQUEST
        and drift.pull is PullKind.REVERT
        and drift.state is DriftState.PULL_REQUEST
    ]
    if not waiting or source.commit is None or source.stale:
        return frozenset()
    void = set[str]()
    repository = await sources.repository(following.application)
    async with repository.export(source.commit.sha) as export:
        for drift in waiting:
            told = _read(export, drift, voice.now)
            if told is None:
                continue
            after = replace(drift, note=told)
            if not told:
                after = replace(
                    drift, state=DriftState.APPROVED, plan="", until=None,
                    note="Its decision was merged.",
                    decided_by=f"the merge of {drift.url or decision_file(drift)}",
                )  # fmt: skip
                following.shelf.note("approved", after.note, subject=drift.id)
                voice.event("DriftApproved", f"{drift.object}: {after.note}", object=drift.object)
            else:
                void.add(drift.id)
            following.shelf.put_drift(after)
    return frozenset(void)


def _read(export: Export, drift: ObjectDrift, now: datetime) -> str | None:
    """Why a merged decision does not hold; empty when it does, None when there is none."""
    path = export.root / decision_file(drift)
    if not path.is_file() or path.is_symlink():
        return None
    try:
        data = path.read_bytes()[:_LARGEST]
        found = read_documents(data, source=decision_file(drift))[0].value
    except (ValidationError, IndexError, OSError):
        return "Its decision file cannot be read."
    if not isinstance(found, dict) or found.get("decision") != "revert":
        return "Its decision file does not say what is decided."
    if found.get("digest") != drift.digest:
        return "The live side moved after its decision was reviewed, so it does not hold."
    try:
        expires = datetime.fromisoformat(str(found.get("expires")))
    except ValueError:
        return "Its decision file does not say when it expires."
    return "" if expires.tzinfo and now < expires else "Its decision has expired."
