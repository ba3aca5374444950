"""Makes a repository declare what is live: edits the file that declares a value, and no other byte.

The opposite of healing. Called for drift that is to become a pull request, and at the end of an
emergency change. Nothing here writes to a repository: the edited files are the answer.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import posixpath
import re
from collections.abc import Iterator, Sequence

from holdfast.core.drift import DriftKind
from holdfast.core.errors import HoldfastError, Problem, ValidationError
from holdfast.core.gitops.codify import (
    CannotCodify,
    CodifyResult,
    FieldEdit,
    SecretInClear,
    field_edits,
    manifest_of,
    refuse_credentials,
    touched_lines,
)
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.kustomize import LayerStack
from holdfast.core.gitops.model_pins import unknown_digest
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.gitops.source import DeclaredObject, RenderedSource, Renderer
from holdfast.core.normalize import Rules
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.ownership.canonical import rules_for
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields, show_path
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.codify_edits import (
    CodifyWorkspace,
    EditAttempt,
    FileEdits,
    LayerEdits,
    at_steps,
    changed_objects,
    edit_own_file,
    object_steps,
    unexpected_change,
    with_edit,
    with_old_name,
)
from holdfast.reconcile.gitops.ports import Decryptor
from holdfast.reconcile.gitops.pull_requests import Codify
from holdfast.reconcile.gitops.source_poller import Sources
from holdfast.wire.yaml import read_documents, write_document
from holdfast.wire.yaml_edit import REMOVED, Edit, apply_edits, remove_document

_BY_HAND_HINT = "Make the change in the repository by hand, or put the declared value back."


async def codify(
    work: CodifyWorkspace,
    *,
    rendered: RenderedSource,
    declared: DeclaredObject | None,
    live: Fields | None,
    field_drifts: Sequence[FieldDrift],
    decryptor: Decryptor | None,
) -> CodifyResult:
    """Return the edits after which the path declares the live values of one object's findings.

    Without `live` the object was deleted and is declared no more; without `declared` it was
    created without Git and is declared from now on.
    Rendering the edited files gave exactly that, and nothing else. Raises CannotCodify with what
    was tried, and SecretInClear where the file would hold a secret.
    """
    codifier = _Codifier(work, rendered, decryptor)
    if declared is None:
        if live is None:
            raise CannotCodify("There is neither a declared nor a live object.")
        return await codifier.adopt(live)
    _refuse_plain_secret(declared.ref, encrypted=declared.encrypted)
    if live is None:
        return await codifier.drop(declared)
    return await codifier.fields(declared, live, field_drifts)


class _Codifier:
    def __init__(
        self, work: CodifyWorkspace, rendered: RenderedSource, decryptor: Decryptor | None
    ) -> None:
        self._work = work
        self._before = rendered
        self._decryptor = decryptor
        self._repointed: tuple[ObjectRef, ...] = ()

    async def fields(
        self, declared: DeclaredObject, live: Fields, field_drifts: Sequence[FieldDrift]
    ) -> CodifyResult:
        rules = _list_rules(live)
        edits = field_edits(
            field_drifts, declared=declared.item, live=live, rules=rules, sealed=declared.encrypted
        )
        if any(not finding.change.path for finding in field_drifts):
            raise CannotCodify(
                f"{declared.ref} was deleted and made anew, and a file declares the one as well as "
                "the other.",
                hint="Have it put back, which takes the new one over.",
            )
        if not edits:
            raise CannotCodify(f"Nothing about {declared.ref} differs that a file could declare.")
        if declared.encrypted:
            return await self._edit_encrypted(declared, edits, rules)
        if self._work.trail is None:
            if not declared.origin.file:
                raise CannotCodify(f"No file is known that declares {declared.ref}.")
            item = await asyncio.to_thread(_with_edits, declared.item, edits, rules)
            attempt = edit_own_file(self._work, {}, declared, edits, rules)
            files, note = await self._first_that_fits({}, [attempt], declared.ref, item, rules)
            return await asyncio.to_thread(self._result_of, files, [note])
        return await self._edit_layers(declared, edits, rules, self._work.trail)

    async def drop(self, declared: DeclaredObject) -> CodifyResult:
        attempts, rules = [*self._drop_attempts(declared)], _list_rules(declared.item)
        if self._work.trail is not None:
            layers = LayerEdits(
                work=self._work,
                trail=self._work.trail,
                declared=declared,
                item=declared.item,
                rules=rules,
                files={},
            )
            attempts.extend(layers.drops())
        files, note = await self._first_that_fits({}, attempts, declared.ref, None, rules)
        return await asyncio.to_thread(self._result_of, files, [note])

    async def adopt(self, live: Fields) -> CodifyResult:
        item = manifest_of(live)
        ref = ref_of(item)
        _refuse_plain_secret(ref, encrypted=False)
        metadata = live.get("metadata")
        if isinstance(metadata, dict) and metadata.get("ownerReferences"):
            raise CannotCodify(
                f"{ref} belongs to another object, which creates it again.",
                hint="Declare its owner instead.",
            )
        refuse_credentials(item, str(ref))
        attempts = [*self._adopt_attempts(item, ref)]
        files, note = await self._first_that_fits({}, attempts, ref, item, _list_rules(live))
        return await asyncio.to_thread(self._result_of, files, [note])

    async def _edit_layers(
        self, declared: DeclaredObject, edits: Sequence[FieldEdit], rules: Rules, trail: LayerStack
    ) -> CodifyResult:
        """Fulfil one wish after the other: each may come from another layer."""
        files: FileEdits = {}
        item = declared.item
        notes = []
        for edit in edits:
            layers = LayerEdits(
                work=self._work, trail=trail, declared=declared, item=item, rules=rules, files=files
            )
            item = _as_fields(with_edit(item, edit, rules))
            attempts = layers.attempts(edit)
            files, note = await self._first_that_fits(
                files, attempts, declared.ref, item, rules, edit
            )
            notes.append(note)
        return await asyncio.to_thread(self._result_of, files, notes)

    async def _edit_encrypted(
        self, declared: DeclaredObject, edits: Sequence[FieldEdit], rules: Rules
    ) -> CodifyResult:
        """Replace values of an encrypted file, which its own recipients alone can read."""
        file = declared.origin.file
        if self._decryptor is None or not file or not self._work.own(file):
            raise CannotCodify(
                f"{declared.ref} is encrypted, and there is no key for it here or no file of its "
                "own.",
                hint="Change it with sops where the key is.",
            )
        text = self._work.text({}, file)
        document = read_documents(text, source=file)[declared.origin.document].value
        item = declared.item
        for edit in edits:
            place = _encrypted_path(document, edit)
            if place is None:
                raise CannotCodify(
                    f"{file} is encrypted, and {show_path(edit.path)} is not one of its values.",
                    hint="Change it with sops where the key is.",
                )
            value = _encrypted_value(place[0], edit)
            text = await self._decryptor.set_value(text, place, Secret(value))
            item = _as_fields(with_edit(item, edit, rules))
        attempt = EditAttempt(where=file, make=lambda: {file: text})
        files, note = await self._first_that_fits({}, [attempt], declared.ref, item, rules)
        return await asyncio.to_thread(
            self._result_of, files, [note, f"The values in {file} stay encrypted."]
        )

    async def _first_that_fits(
        self,
        files: FileEdits,
        attempts: Iterator[EditAttempt] | Sequence[EditAttempt],
        ref: ObjectRef,
        desired: Fields | None,
        rules: Rules,
        edit: FieldEdit | None = None,
    ) -> tuple[FileEdits, str]:
        """Return the files of the first attempt that gives exactly what is wished for."""
        problems = []
        trying = iter(attempts)
        # Files may be large, and reading and comparing them must not hold up the loop.
        while (attempt := await asyncio.to_thread(next, trying, None)) is not None:
            try:
                made = {**files, **await asyncio.to_thread(attempt.make)}
                after = await self._work.render(made)
            except HoldfastError as error:
                reason = error.happened
                if isinstance(error, ValidationError) and error.problems:
                    reason = f"{reason} {error.problems[0].reason}"
            else:
                plain, renamed = await asyncio.to_thread(
                    _unexpected_changes, self._before, after, ref, desired, rules
                )
                if not plain:
                    self._repointed = ()
                    return made, attempt.note
                if not renamed:
                    self._repointed = await asyncio.to_thread(changed_objects, self._before, after)
                    note = f"The name of {ref} has a hash of its content, so it gets a new name."
                    return made, " ".join(filter(None, (attempt.note, note)))
                reason = f"{plain}."
            problems.append(Problem(field=attempt.where, reason=reason, fix=""))
        what = f"{show_path(edit.path)} of {ref}" if edit else str(ref)
        raise CannotCodify(
            f"No edit was found that changes {what} and nothing else.",
            problems=problems,
            hint=_BY_HAND_HINT,
        )

    def _drop_attempts(self, declared: DeclaredObject) -> Iterator[EditAttempt]:
        """Take the object out of its file, or the file out of the application."""
        origin = declared.origin
        if not origin.file or not self._work.own(origin.file):
            return
        trail = self._work.trail
        entries = [
            (layer, each)
            for layer in (trail.layers if trail else ())
            for each in layer.resources
            if each.path == origin.file
        ]
        if trail is not None and not entries:
            return

        def make() -> FileEdits:
            text = self._work.text({}, origin.file)
            within = object_steps(text, origin.document, declared.ref, origin.file)
            documents = read_documents(text, source=origin.file)
            items = at_steps(documents[origin.document].value, within[:-1])
            if within and isinstance(items, list) and len(items) > 1:
                gone = Edit(path=within, value=REMOVED)
                edited = apply_edits(text, [gone], document=origin.document, source=origin.file)
                return {origin.file: edited}
            if len(documents) > 1:
                return {
                    origin.file: remove_document(text, document=origin.document, source=origin.file)
                }
            made: dict[str, bytes | None] = {origin.file: None}
            for layer, entry in entries:
                kustomization = self._work.text(made, layer.file)
                key, index = entry.location.pointer.strip("/").split("/")
                made[layer.file] = apply_edits(
                    kustomization,
                    [Edit(path=(key, int(index)), value=REMOVED)],
                    document=0,
                    source=layer.file,
                )
            return made

        yield EditAttempt(where=origin.file, make=make)

    def _adopt_attempts(self, item: Fields, ref: ObjectRef) -> Iterator[EditAttempt]:
        """Put the object into a file beside the others."""
        path = posixpath.normpath(self._work.path)
        trail = self._work.trail
        if trail is None and (self._work.export.root / path).is_file():
            text = self._work.text({}, path)
            lead = b"" if text.endswith(b"\n") or not text else b"\n"
            added = text + lead + b"---\n" + write_document(item).encode()
            yield EditAttempt(where=path, make=lambda: {path: added})
            return
        directory = posixpath.dirname(trail.entry.file) if trail else path
        file = self._free_name(directory, ref)
        for named in _candidate_names(item, ref, trail):
            yield self._new_file(file, named, trail)

    def _new_file(self, file: str, item: Fields, trail: LayerStack | None) -> EditAttempt:
        text = write_document(item).encode()

        def make() -> FileEdits:
            if trail is None:
                return {file: text}
            entry = trail.entry
            known = entry.body.get("resources")
            at = len(known) if isinstance(known, list) else 0
            added = Edit(path=("resources", at), value=posixpath.basename(file))
            kustomization = self._work.text({}, entry.file)
            edited = apply_edits(kustomization, [added], document=0, source=entry.file)
            return {file: text, entry.file: edited}

        return EditAttempt(where=file, make=make)

    def _free_name(self, directory: str, ref: ObjectRef) -> str:
        stem = re.sub(r"[^a-z0-9.-]+", "-", f"{ref.kind}-{ref.name}".lower()).strip("-.")
        count = 1
        while True:
            name = f"{stem}.yaml" if count == 1 else f"{stem}-{count}.yaml"
            file = posixpath.normpath(posixpath.join(directory, name))
            if not self._work.exists({}, file):
                return file
            count += 1

    def _result_of(self, files: FileEdits, notes: Sequence[str]) -> CodifyResult:
        root = self._work.export.root
        changed: dict[str, bytes | None] = {}
        before: dict[str, bytes | None] = {}
        lines = []
        for file, text in sorted(files.items()):
            known = (root / file).read_bytes() if (root / file).is_file() else None
            if text != known:
                changed[file], before[file] = text, known
                lines.append(touched_lines(file, known, text))
        if not changed:
            raise CannotCodify("The files declare it already.", hint="Wait for the next look.")
        return CodifyResult(
            files=changed,
            before=before,
            lines=tuple(lines),
            layer=", ".join(changed),
            notes=tuple(dict.fromkeys(note for note in notes if note)),
            repointed=self._repointed,
        )


def _unexpected_changes(
    before: RenderedSource,
    after: RenderedSource,
    ref: ObjectRef,
    desired: Fields | None,
    rules: Rules,
) -> tuple[str, str]:
    """Say what was not wished for, and what is left of that when a hash in a name is no matter."""
    plain = unexpected_change(before, after, ref, desired, rules)
    if not plain:
        return "", ""
    return plain, unexpected_change(before, with_old_name(before, after, ref), ref, desired, rules)


def _with_edits(item: Fields, edits: Sequence[FieldEdit], rules: Rules) -> Fields:
    for edit in edits:
        item = _as_fields(with_edit(item, edit, rules))
    return item


def _refuse_plain_secret(ref: ObjectRef, *, encrypted: bool) -> None:
    if ref.kind == "Secret" and ref.api_version == "v1" and not encrypted:
        raise SecretInClear(
            f"{ref} would stand in Git in clear, so it is not written there.",
            hint="Encrypt its file with SOPS, or let an external store provide it; until then "
            "put the declared value back, or ignore the drift by a rule.",
        )


def _list_rules(item: Fields) -> Rules:
    metadata = item.get("metadata")
    managed = metadata.get("managedFields") if isinstance(metadata, dict) else None
    return rules_for(str(item.get("kind")), str(item.get("apiVersion")), read_ownership(managed))


def _encrypted_path(document: object, edit: FieldEdit) -> tuple[str, str] | None:
    if edit.removed or len(edit.path) != 2 or edit.path[0] != "data":
        return None
    for part in ("stringData", "data"):
        values = document.get(part) if isinstance(document, dict) else None
        if isinstance(values, dict) and edit.path[1] in values:
            return part, edit.path[1]
    return None


def _encrypted_value(part: str, edit: FieldEdit) -> str:
    if part == "data":
        return str(edit.value)
    try:
        return base64.b64decode(str(edit.value), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise CannotCodify(
            f"The live value of {show_path(edit.path)} is not text, and the file holds text.",
            hint="Move the key from stringData to data with sops.",
        ) from None


def _candidate_names(item: Fields, ref: ObjectRef, trail: LayerStack | None) -> Iterator[Fields]:
    """Yield an object under its name, and under the one from which the layer makes it."""
    yield item
    if trail is None:
        return
    prefix, suffix = trail.entry.name_prefix, trail.entry.name_suffix
    name = ref.name.removeprefix(prefix.value if prefix else "")
    name = name.removesuffix(suffix.value if suffix else "")
    metadata = item["metadata"]
    if name != ref.name and isinstance(metadata, dict):
        yield {**item, "metadata": {**metadata, "name": name}}


def _as_fields(tree: object) -> Fields:
    assert isinstance(tree, dict)  # noqa: S101  # an object stays a mapping
    return tree


def make_codifier(sources: Sources) -> Codify:
    """Return what edits the files of an application's own repository."""

    async def codify_drift(
        context: ApplicationContext, drift: ObjectDrift, observed: ObservedObject
    ) -> CodifyResult:
        desired, application = context.desired, context.application
        assert desired is not None  # noqa: S101  # the drift was found by comparing with it
        source = application.spec.source
        path, renderer = source.path or ".", source.renderer or Renderer.AUTO
        repository = await sources.repository(application)
        renders = await sources.renders(application)
        paths = {entry.path for entry in drift.entries}
        findings = [
            found
            for found in observed.drifted
            if show_path(found.change.path) in paths
            and (found.signal is not Signal.RUNNING) is drift.healable
        ]
        if observed.declared is not None and observed.live is not None:
            reason, hint = unknown_digest(observed.declared.item, observed.live)
            if reason and DriftKind.MODEL in drift.kinds:
                raise CannotCodify(reason, hint=hint)
        async with repository.export(desired.rendered.commit) as export:
            work = CodifyWorkspace(
                export=export,
                path=path,
                renderer=renderer,
                namespace=application.namespace,
                renders=renders,
                trail=renders.trail(export, path, renderer=renderer),
            )
            return await codify(
                work,
                rendered=desired.rendered,
                declared=None if observed.sync_status is SyncStatus.ORPHAN else observed.declared,
                live=observed.live,
                field_drifts=findings,
                decryptor=await sources.decryptor(application),
            )

    return codify_drift
