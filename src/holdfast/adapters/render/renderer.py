"""Turns the files of an export into objects: the port `SourceRenderer`.

read and check files → (Kustomize) → decrypt → check objects → digest

What was read and rendered is cached, in memory alone, for decrypted Secrets are among it: files by
their content, so that a commit costs what it changes, and whole renderings by all they depend on.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.adapters.render.files import (
    MIB,
    PathKind,
    PathParts,
    RepositoryFiles,
    path_text,
    refusal,
    resolve_path,
)
from holdfast.adapters.render.kustomize import Kustomize, find_kustomize
from holdfast.adapters.render.layers import LoadedLayers, find_kustomization, load_layers
from holdfast.adapters.render.manifests import (
    Manifest,
    is_secret,
    merge_decrypted,
    parse_manifests,
    read_manifests,
)
from holdfast.adapters.render.objects import NamespacedLookup, ScopeResolver, make_desired_objects
from holdfast.adapters.render.origins import parse_output
from holdfast.adapters.render.program import Program
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.kustomize import LayerStack
from holdfast.core.gitops.source import DeclaredObject, RenderedSource, Renderer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.gitops.ports import Decryptor, SourceExport, SourceUnavailable
from holdfast.wire.yaml import write_document

RENDER_TIMEOUT = 60.0
MAX_CONCURRENT_RENDERS = 2
MAX_CACHED_RENDERS = 500
MAX_CACHED_BYTES = 128 * MIB
"""Written as JSON; in memory it is some five times that."""
MAX_CACHED_TEXT = 32 * MIB
"""Of the files that were read last."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRender:
    """One rendering, with what else it depended on."""

    rendered: RenderedSource
    asked: Mapping[ObjectRef, bool | None]
    """What the cluster said about kinds. It may say something else later."""


class SizedCache(Generic[K, V]):
    """What was used last, up to a number of entries and to their size together."""

    def __init__(self, *, entries: float, size: int) -> None:
        self._most = entries
        self._size = size
        self._total = 0
        self._entries: OrderedDict[K, tuple[int, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return what is cached under a key."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][1]

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value, and forget the oldest ones over the limits."""
        self._total += size - self._entries.pop(key, (0,))[0]
        self._entries[key] = (size, value)
        while self._entries and (len(self._entries) > self._most or self._total > self._size):
            self._total -= self._entries.popitem(last=False)[1][0]

    def __len__(self) -> int:
        return len(self._entries)


class ManifestCache:
    """The files that were read last, as the objects in them. Safe to use from threads."""

    def __init__(self, *, size: int = MAX_CACHED_TEXT) -> None:
        self._files = SizedCache[tuple[str, bytes], tuple[Manifest, ...]](entries=inf, size=size)
        self._lock = threading.Lock()

    def parse(self, data: bytes, file: str) -> list[Manifest]:
        """Parse the objects of a file, each content once."""
        key = (file, hashlib.sha256(data).digest())
        with self._lock:
            known = self._files.get(key)
        if known is None:
            known = tuple(parse_manifests(data, file))
            with self._lock:
                self._files.put(key, known, len(data))
        return list(known)


class RenderCache(SizedCache[Hashable, CachedRender]):
    """The renderings that were asked for last. Several renderers may share one."""

    def __init__(self, *, renders: int = MAX_CACHED_RENDERS, size: int = MAX_CACHED_BYTES) -> None:
        super().__init__(entries=renders, size=size)
        self.files = ManifestCache()


_APPLICATION_PATH = "the path of the Application"


class FileRenderer:
    """Renders plain YAML and Kustomize. What it returns is shared: nobody may change it."""

    def __init__(
        self,
        *,
        key: bytes,
        kustomize: str | None = None,
        decryptor: Decryptor | None = None,
        scoped: NamespacedLookup | None = None,
        cache: RenderCache | None = None,
        seconds: float = RENDER_TIMEOUT,
        scratch: Path | None = None,
        unconfined: bool = False,
    ) -> None:
        """`key` marks Secrets in digests, so that they can be shown; keep it across restarts.

        `kustomize` is the path of kustomize or kubectl, `scoped` says of kinds that are not
        built in whether they have namespaces, `scratch` is where private copies are made, and
        `unconfined` lets Kustomize run where the network cannot be taken away from it.
        """
        self._key = key
        self._given = kustomize
        self._decryptor = decryptor
        self._scoped = scoped
        self._cache = RenderCache() if cache is None else cache
        self._seconds = seconds
        self._scratch = scratch
        self._unconfined = unconfined
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_RENDERS)

    async def render(
        self, export: SourceExport, path: str, *, renderer: Renderer, namespace: str
    ) -> RenderedSource:
        """Return every object that a path declares; those without a namespace get the given one."""
        parts = _resolve_application_path(path)
        with _open_root(export) as files:
            chosen = _choose_renderer(files, parts, renderer)
            program = find_kustomize(self._given) if chosen is Renderer.KUSTOMIZE else None
            key = self._cache_key(export.commit, parts, chosen, namespace, program)
            async with self._slots:
                cached = self._cache.get(key)
                ask = self._scoped
                if cached and (
                    ask is None or all(ask(ref) == said for ref, said in cached.asked.items())
                ):
                    return cached.rendered
                made, size = await self._make(files, export.commit, parts, namespace, program)
                self._cache.put(key, made, size)
                return made.rendered

    def trail(self, export: SourceExport, path: str, *, renderer: Renderer) -> LayerStack | None:
        """Return the layers of a path; None where it is plain YAML."""
        parts = _resolve_application_path(path)
        with _open_root(export) as files:
            if _choose_renderer(files, parts, renderer) is not Renderer.KUSTOMIZE:
                return None
            return _load_layers(files, parts).stack

    def _cache_key(
        self,
        commit: str,
        parts: PathParts,
        renderer: Renderer,
        namespace: str,
        program: Program | None,
    ) -> tuple[object, ...]:
        """Everything that an answer depends on, but for what the cluster is asked."""
        fingerprint = hmac.new(self._key, b"cache", "sha256").digest()
        return (
            commit,
            parts,
            renderer,
            namespace,
            program,
            self._decryptor,
            self._scoped,
            fingerprint,
        )

    async def _make(
        self,
        files: RepositoryFiles,
        commit: str,
        parts: PathParts,
        namespace: str,
        program: Program | None,
    ) -> tuple[CachedRender, int]:
        if program is None:
            manifests, sealed = await asyncio.to_thread(
                _read_plain, files, parts, self._cache.files
            )
            manifests = [await self._decrypt_plain(manifest, sealed) for manifest in manifests]
        else:
            kustomize = Kustomize(
                program=program,
                seconds=self._seconds,
                scratch=self._scratch,
                unconfined=self._unconfined,
            )
            loaded = await asyncio.to_thread(_load_layers, files, parts)
            output = await kustomize.build(loaded)
            built = await asyncio.to_thread(parse_output, output, loaded)
            manifests = [await self._decrypt_built(manifest, loaded) for manifest in built]
        return await asyncio.to_thread(self._finish, manifests, commit, namespace)

    def _finish(
        self, manifests: Sequence[Manifest], commit: str, namespace: str
    ) -> tuple[CachedRender, int]:
        """Return a rendering, and its size as JSON."""
        made: list[ScopeResolver] = []

        def scopes(items: Sequence[Fields]) -> ScopeResolver:
            made.append(ScopeResolver(items, self._scoped))
            return made[0]

        objects = make_desired_objects(manifests, namespace=namespace, scopes=scopes)
        size, fingerprint = self._digest(objects)
        rendered = RenderedSource(commit=commit, objects=objects, digest=fingerprint)
        return CachedRender(rendered=rendered, asked=made[0].asked), size

    async def _decrypt_plain(self, manifest: Manifest, sealed: dict[str, bytes]) -> Manifest:
        if not manifest.encrypted:
            return manifest
        clear = await self._require_decryptor(manifest).decrypt(
            sealed[manifest.file], source=manifest.file
        )
        return _merge_manifest(manifest, clear)

    async def _decrypt_built(self, manifest: Manifest, loaded: LoadedLayers) -> Manifest:
        """Open a built document, whose seal is broken by building, and check its source's."""
        if not manifest.encrypted:
            return manifest
        holder = self._require_decryptor(manifest)
        source = loaded.contents.get(manifest.file)
        if source is None:
            raise refusal(
                manifest.where(),
                "an encrypted object does not come from one file, so its seal cannot be checked.",
                "Declare it in a file of its own.",
            )
        await holder.decrypt(source, source=manifest.file)
        text = write_document(manifest.value).encode()
        rendered = f"{manifest.file} (rendered)"
        return _merge_manifest(manifest, await holder.decrypt(text, source=rendered, verify=False))

    def _require_decryptor(self, manifest: Manifest) -> Decryptor:
        if self._decryptor is None:
            raise refusal(
                manifest.where("/sops"),
                "it is encrypted with SOPS, and this Application has no key to open it.",
                "Give the Application a decryption key. Nothing of it is applied without.",
            )
        return self._decryptor

    def _digest(self, objects: Sequence[DeclaredObject]) -> tuple[int, str]:
        """Return the size and the digest of all objects. Secrets enter by a keyed fingerprint."""
        size = 0
        rows: list[list[str]] = []
        for each in objects:
            text = json.dumps(each.item, sort_keys=True, separators=(",", ":")).encode()
            size += len(text)
            if each.encrypted or is_secret(each.item):
                fingerprint = hmac.new(self._key, text, "sha256").hexdigest()
            else:
                fingerprint = hashlib.sha256(text).hexdigest()
            ref = each.ref
            rows.append([ref.api_version, ref.kind, ref.namespace, ref.name, fingerprint])
        return size, digest(sorted(rows))


def _resolve_application_path(path: str) -> PathParts:
    if ".." in path.split("/"):
        raise refusal(
            _APPLICATION_PATH, f"{quote_text(path)} goes upwards.", "Write it from the root."
        )
    return resolve_path(path, where=_APPLICATION_PATH)


def _open_root(export: SourceExport) -> RepositoryFiles:
    try:
        return RepositoryFiles(export.root, export.left_out)
    except OSError as error:
        raise SourceUnavailable(
            f"The files of commit {export.commit[:12]} cannot be read: {error.strerror}."
        ) from None


def _choose_renderer(files: RepositoryFiles, parts: PathParts, renderer: Renderer) -> Renderer:
    """Settle what AUTO means here. Raises SourceUnavailable when nothing is at the path."""
    found = files.find(parts)
    if found is None:
        raise _path_missing(parts)
    if renderer is not Renderer.AUTO:
        return renderer
    kustomized = found is PathKind.DIRECTORY and find_kustomization(files, parts) is not None
    return Renderer.KUSTOMIZE if kustomized else Renderer.YAML


def _read_plain(
    files: RepositoryFiles, parts: PathParts, known: ManifestCache
) -> tuple[list[Manifest], dict[str, bytes]]:
    try:
        return read_manifests(files, parts, known.parse)
    except FileNotFoundError:
        raise _path_missing(parts) from None


def _load_layers(files: RepositoryFiles, parts: PathParts) -> LoadedLayers:
    try:
        return load_layers(files, parts)
    except FileNotFoundError:
        raise _path_missing((*parts, "kustomization.yaml")) from None


def _path_missing(parts: PathParts) -> SourceUnavailable:
    return SourceUnavailable(
        f"There is no {quote_text(path_text(parts) or '.', 200)} at this commit, so what it "
        "declares is unknown.",
        hint="Fix the path of the Application, or commit what it should hold.",
    )


def _merge_manifest(manifest: Manifest, clear: Fields) -> Manifest:
    try:
        return replace(manifest, value=merge_decrypted(manifest.value, clear))
    except KeyError:
        raise ValidationError(
            f"The encrypted document at {manifest.where()} and what came out of it differ in more "
            "than their values.",
            hint="Encrypt it again with SOPS.",
        ) from None
