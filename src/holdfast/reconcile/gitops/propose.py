"""Edits the files of an application so that they declare what is live, for a pull request."""

from __future__ import annotations

from holdfast.core.gitops.codify import Codified
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.source import Renderer
from holdfast.core.gitops.standing import Seen, Standing
from holdfast.core.ownership.signals import Signal
from holdfast.core.tree import show_path
from holdfast.reconcile.gitops.codify import codify
from holdfast.reconcile.gitops.follow import Sources
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.opening import Codifies


def codifier(sources: Sources) -> Codifies:
    """Return what edits the files of an application's own repository."""

    async def codified(following: Following, drift: ObjectDrift, seen: Seen) -> Codified:
        wanted, application = following.wanted, following.application
        assert wanted is not None  # noqa: S101  # the drift was found by comparing with it
        source = application.spec.source
        path, renderer = source.path or ".", source.renderer or Renderer.AUTO
        repository = await sources.repository(application)
        renders = await sources.renders(application)
        paths = {entry.path for entry in drift.entries}
        findings = [
            found
            for found in seen.drifted
            if show_path(found.change.path) in paths
            and (found.signal is not Signal.RUNNING) is drift.healable
        ]
        async with repository.export(wanted.rendered.commit) as export:
            return await codify(
                rendered=wanted.rendered,
                declared=None if seen.standing is Standing.ORPHAN else seen.declared,
                live=seen.live,
                findings=findings,
                export=export,
                path=path,
                renders=renders,
                renderer=renderer,
                namespace=application.namespace,
                trail=renders.trail(export, path, renderer=renderer),
                decryptor=await sources.decryptor(application),
            )

    return codified
