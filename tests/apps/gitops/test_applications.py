"""Applications from files and from a cluster, and what is written to their status."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.adapters.kubernetes.harness import HastyClock, eventually
from tests.support.applications import document

from holdfast.adapters.memory.kube import MemoryKind, MemoryKube, OwnershipSchema
from holdfast.apps.gitops.applications import (
    ApplicationStatusWriter,
    FileApplications,
    ObservedApplication,
)
from holdfast.core.custom_resource import API_VERSION
from holdfast.core.errors import InvalidSpec, Problem, ValidationError
from holdfast.core.gitops.application import KIND, ApplicationId, ApplicationStatus
from holdfast.core.object_ref import ObjectRef

SHOP = ApplicationId(namespace="gitops", name="shop")
REF = ObjectRef(api_version=API_VERSION, kind=KIND, namespace="gitops", name="shop")
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


async def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    file = tmp_path / "apps" / "shop.json"
    file.parent.mkdir()
    file.write_text(json.dumps(document()))
    held = FileApplications([tmp_path / "apps"], HastyClock())
    await held.ready(5)
    heard: list[ApplicationId] = []
    held.listen(heard.append)
    assert heard == [SHOP]
    task = asyncio.ensure_future(held.run())
    try:
        (file.parent / "other.json").write_text(json.dumps(document(name="other")))
        await eventually(lambda: len(held.ids()) == 2, "the other one")
        # What cannot be read leaves everything as it was.
        (file.parent / "other.json").write_text("{")
        file.unlink()
        await asyncio.sleep(0.1)
        assert len(held.ids()) == 2
        (file.parent / "other.json").unlink()
        await eventually(lambda: held.ids() == [], "their end")
        assert held.get(SHOP) is None
        assert heard[-1] == SHOP
    finally:
        task.cancel()


async def test_files_that_cannot_be_read_keep_it_from_starting(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: Application\n")
    with pytest.raises(ValidationError):
        await FileApplications([tmp_path], HastyClock()).ready(5)


class Cluster:
    """A cluster with one Application in it."""

    def __init__(self) -> None:
        self.kube = MemoryKube()
        self.kube.serve(
            MemoryKind(api_version=API_VERSION, kind=KIND, schema=OwnershipSchema(), custom=True)
        )
        made = self.kube.create(document())
        self.uid = str(made["metadata"]["uid"])  # type: ignore[index,call-overload]
        self.statuses = ApplicationStatusWriter(self.kube)

    async def found(self) -> ObservedApplication:
        live = await self.kube.get(REF)
        assert live is not None
        status = live.get("status") or {}
        assert isinstance(status, dict)
        return ObservedApplication(
            id=SHOP, uid=self.uid, generation=1, application=None, status=status
        )


async def test_a_status_is_written_when_it_says_something_new() -> None:
    cluster = Cluster()
    status = ApplicationStatus(sync="synced", fetched_at="2026-11-16T12:00:00Z", objects=3)
    assert await cluster.statuses.report(await cluster.found(), status)
    assert not await cluster.statuses.report(await cluster.found(), status)
    later = replace(status, fetched_at="2026-11-16T12:01:00Z")
    assert not await cluster.statuses.report(await cluster.found(), later)
    assert await cluster.statuses.report(await cluster.found(), replace(later, drifted=1))
    stored = (await cluster.found()).status or {}
    assert (stored["fetchedAt"], stored["drifted"]) == ("2026-11-16T12:01:00Z", 1)


async def test_a_wrong_spec_is_told_once_with_its_reasons() -> None:
    cluster = Cluster()
    wrong = InvalidSpec(problems=[Problem(field="source.url", reason="it is none.", fix="Mend.")])
    found = replace(await cluster.found(), error=wrong)
    notes = await cluster.statuses.refuse(found, NOW)
    assert [note.reason for note in notes] == ["InvalidSpec"]
    stored = await cluster.found()
    condition = stored.status["conditions"][0]  # type: ignore[index,call-overload]
    assert "source.url" in condition["message"]  # type: ignore[index,call-overload,operator]
    assert await cluster.statuses.refuse(replace(stored, error=wrong), NOW) == ()
