"""Turns the files of an export into objects: the port `Renders`, as the GitOps controller uses it.

read and check files → (Kustomize) → open what is encrypted → check objects → digest
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.render.cache import ReadFiles, Remembered, RenderCache
from holdfast.adapters.render.kustomize import Kustomize, find_kustomize, read_output
from holdfast.adapters.render.layers import Reading, kustomization_in, read_layers
from holdfast.adapters.render.limits import CONCURRENT_RENDERS, RENDER_SECONDS
from holdfast.adapters.render.objects import declare
from holdfast.adapters.render.paths import Files, Found, Parts, refused, resolve, text_of
from holdfast.adapters.render.pieces import Piece
from holdfast.adapters.render.plain import read_plain
from holdfast.adapters.render.program import Program
from holdfast.adapters.render.scopes import Scoped, Scopes
from holdfast.adapters.render.secrets import is_secret, opened
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.layers import Trail
from holdfast.core.gitops.source import Declared, Rendered, Renderer
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.gitops.ports import Decryptor, Export, SourceUnavailable
from holdfast.wire.yaml import write_document

_PATH = "the path of the Application"


class FileRenderer:
    """Renders plain YAML and Kustomize. What it returns is shared: nobody may change it."""

    def __init__(
        self,
        *,
        key: bytes,
        kustomize: str | None = None,
        decryptor: Decryptor | None = None,
        scoped: Scoped | None = None,
        cache: RenderCache | None = None,
        seconds: float = RENDER_SECONDS,
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
        self._turn = asyncio.Semaphore(CONCURRENT_RENDERS)

    async def render(
        self, export: Export, path: str, *, renderer: Renderer, namespace: str
    ) -> Rendered:
        """Return every object that a path declares; those without a namespace get the given one."""
        parts = _resolved(path)
        with _opened_root(export) as files:
            chosen = _chosen(files, parts, renderer)
            program = find_kustomize(self._given) if chosen is Renderer.KUSTOMIZE else None
            key = self._cache_key(export.commit, parts, chosen, namespace, program)
            async with self._turn:
                held = self._cache.get(key)
                if held is not None and self._still_so(held):
                    return held.rendered
                made = await self._make(files, export.commit, parts, namespace, program)
                self._cache.put(key, made)
                return made.rendered

    def trail(self, export: Export, path: str, *, renderer: Renderer) -> Trail | None:
        """Return the layers of a path; None where it is plain YAML."""
        parts = _resolved(path)
        with _opened_root(export) as files:
            if _chosen(files, parts, renderer) is not Renderer.KUSTOMIZE:
                return None
            return _layers(files, parts).trail

    def _cache_key(
        self,
        commit: str,
        parts: Parts,
        renderer: Renderer,
        namespace: str,
        program: Program | None,
    ) -> tuple[object, ...]:
        """Everything that an answer depends on, but for what the cluster is asked."""
        mark = hmac.new(self._key, b"cache", "sha256").digest()
        return (commit, parts, renderer, namespace, program, self._decryptor, self._scoped, mark)

    def _still_so(self, held: Remembered) -> bool:
        ask = self._scoped
        return ask is None or all(ask(ref) == answer for ref, answer in held.asked.items())

    async def _make(
        self, files: Files, commit: str, parts: Parts, namespace: str, program: Program | None
    ) -> Remembered:
        if program is None:
            pieces, sealed = await asyncio.to_thread(_plain, files, parts, self._cache.files)
            pieces = [await self._open_plain(piece, sealed) for piece in pieces]
        else:
            kustomize = Kustomize(
                program=program,
                seconds=self._seconds,
                scratch=self._scratch,
                unconfined=self._unconfined,
            )
            reading = await asyncio.to_thread(_layers, files, parts)
            output = await kustomize.build(reading)
            built = await asyncio.to_thread(read_output, output, reading)
            pieces = [await self._open_built(piece, reading) for piece in built]
        return await asyncio.to_thread(self._finish, pieces, commit, namespace)

    def _finish(self, pieces: Sequence[Piece], commit: str, namespace: str) -> Remembered:
        made: list[Scopes] = []

        def scopes(items: Sequence[Fields]) -> Scopes:
            made.append(Scopes(items, self._scoped))
            return made[0]

        objects = declare(pieces, namespace=namespace, scopes=scopes)
        size, mark = self._digest(objects)
        rendered = Rendered(commit=commit, objects=objects, digest=mark)
        return Remembered(rendered=rendered, asked=made[0].asked, size=size)

    async def _open_plain(self, piece: Piece, sealed: dict[str, bytes]) -> Piece:
        if not piece.encrypted:
            return piece
        clear = await self._key_holder(piece).decrypt(sealed[piece.file], source=piece.file)
        return _merged(piece, clear)

    async def _open_built(self, piece: Piece, reading: Reading) -> Piece:
        """Open a built document, whose seal is broken by building, and check its source's."""
        if not piece.encrypted:
            return piece
        holder = self._key_holder(piece)
        source = reading.contents.get(piece.file)
        if source is None:
            raise refused(
                piece.where(),
                "an encrypted object does not come from one file, so its seal cannot be checked.",
                "Declare it in a file of its own.",
            )
        await holder.decrypt(source, source=piece.file)
        text = write_document(piece.value).encode()
        rendered = f"{piece.file} (rendered)"
        return _merged(piece, await holder.decrypt(text, source=rendered, verify=False))

    def _key_holder(self, piece: Piece) -> Decryptor:
        if self._decryptor is None:
            raise refused(
                piece.where("/sops"),
                "it is encrypted with SOPS, and this Application has no key to open it.",
                "Give the Application a decryption key. Nothing of it is applied without.",
            )
        return self._decryptor

    def _digest(self, objects: Sequence[Declared]) -> tuple[int, str]:
        """Return the size and the digest of all objects. Secrets enter by a keyed mark."""
        size = 0
        rows: list[list[str]] = []
        for each in objects:
            text = json.dumps(each.item, sort_keys=True, separators=(",", ":")).encode()
            size += len(text)
            if each.encrypted or is_secret(each.item):
                mark = hmac.new(self._key, text, "sha256").hexdigest()
            else:
                mark = hashlib.sha256(text).hexdigest()
            ref = each.ref
            rows.append([ref.api_version, ref.kind, ref.namespace, ref.name, mark])
        return size, digest(sorted(rows))


def _resolved(path: str) -> Parts:
    if ".." in path.split("/"):
        raise refused(_PATH, f"{quoted(path)} goes upwards.", "Write it from the root.")
    return resolve(path, where=_PATH)


def _opened_root(export: Export) -> Files:
    try:
        return Files(export.root, export.left_out)
    except OSError as error:
        raise SourceUnavailable(
            f"The files of commit {export.commit[:12]} cannot be read: {error.strerror}."
        ) from None


def _chosen(files: Files, parts: Parts, renderer: Renderer) -> Renderer:
    """Settle what AUTO means here. Raises SourceUnavailable when nothing is at the path."""
    found = files.find(parts)
    if found is None:
        raise _nothing(parts)
    if renderer is not Renderer.AUTO:
        return renderer
    kustomized = found is Found.DIRECTORY and kustomization_in(files, parts) is not None
    return Renderer.KUSTOMIZE if kustomized else Renderer.YAML


def _plain(files: Files, parts: Parts, known: ReadFiles) -> tuple[list[Piece], dict[str, bytes]]:
    try:
        return read_plain(files, parts, known.pieces)
    except FileNotFoundError:
        raise _nothing(parts) from None


def _layers(files: Files, parts: Parts) -> Reading:
    try:
        return read_layers(files, parts)
    except FileNotFoundError:
        raise _nothing((*parts, "kustomization.yaml")) from None


def _nothing(parts: Parts) -> SourceUnavailable:
    return SourceUnavailable(
        f"There is no {quoted(text_of(parts) or '.', 200)} at this commit, so what it declares is "
        "unknown.",
        todo="Fix the path of the Application, or commit what it should hold.",
    )


def _merged(piece: Piece, clear: Fields) -> Piece:
    try:
        return replace(piece, value=opened(piece.value, clear))
    except KeyError:
        raise ValidationError(
            f"The encrypted document at {piece.where()} and what came out of it differ in more "
            "than their values.",
            todo="Encrypt it again with SOPS.",
        ) from None
