"""Rules about the model of an InferenceService: where it comes from, what pins it, its cache."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.backends import BACKENDS, backend_profile
from holdfast.core.custom_resource import ValidationRule, cel_is_set, matches_pattern
from holdfast.core.model import (
    GGUF_PATTERN,
    HUB_PATTERN,
    NOT_HANDED_ON,
    OCI,
    OCI_PATTERN,
    ModelSource,
    image_reference,
    model_source,
)
from holdfast.core.service.model_cache import MODELS
from holdfast.core.service.rule_terms import CEL_BACKEND, backend_of, cel_list
from holdfast.core.service.spec import InferenceServiceSpec as Spec

_WITHOUT_PATHS = tuple(name for name, backend in BACKENDS.items() if backend.own_registry)
"""Backends that load nothing from a path."""
_OF_ONE_FILE = tuple(name for name, backend in BACKENDS.items() if backend.single_file)
"""Backends that load a file, not a directory."""
_FILE_LOADERS = " or ".join(backend_profile(name).title for name in _OF_ONE_FILE)
_WITH_DIGEST = tuple(name for name, backend in BACKENDS.items() if backend.tells_digest)
_WITH_REVISION = tuple(name for name, backend in BACKENDS.items() if backend.revision_flag)
_CANARY_MODEL = (
    "(has(self.canary) && has(self.canary.modelRef) ? self.canary.modelRef : self.modelRef)"
)
_BOTH_MODELS = f"[self.modelRef, {_CANARY_MODEL}]"
_DECLARES_REVISION = (
    "(has(self.modelRevision) || has(self.canary) && has(self.canary.modelRevision))"
)
_OF_A_HUB = " && ".join(f"{CEL_BACKEND} != '{name}'" for name in _WITHOUT_PATHS)


def _cel_in_hub(model: str) -> str:
    return f"!['{OCI}', '/', './', '../', '~'].exists(p, {model}.startsWith(p))"


def _models(spec: Spec) -> Iterator[tuple[str, str | None]]:
    """The models of both variants, each with the revision that is declared for it."""
    yield spec.model_ref, spec.model_revision
    if spec.canary is not None:
        yield spec.canary.model_ref or spec.model_ref, spec.canary.model_revision


def _sources(spec: Spec) -> Iterator[tuple[ModelSource, str, str | None]]:
    backend = backend_of(spec)
    for model, revision in _models(spec):
        yield model_source(model, backend), model, revision


def _well_formed(spec: Spec) -> bool:
    return all(
        matches_pattern(OCI_PATTERN, model)
        for source, model, _ in _sources(spec)
        if source is ModelSource.IMAGE
    )


def _loads_images(spec: Spec) -> bool:
    from_image = any(source is ModelSource.IMAGE for source, _, _ in _sources(spec))
    return not from_image or spec.backend not in _WITHOUT_PATHS


def _names_file(spec: Spec) -> bool:
    return backend_of(spec) not in _OF_ONE_FILE or all(
        image_reference(model).path
        for source, model, _ in _sources(spec)
        if source is ModelSource.IMAGE
    )


def _has_revisions(spec: Spec) -> bool:
    return all(
        revision is None or source is ModelSource.HUB for source, _, revision in _sources(spec)
    )


def _declares_revision(spec: Spec) -> bool:
    return any(revision is not None for _, revision in _models(spec))


def _passes_revision(spec: Spec) -> bool:
    own_command = spec.command or (spec.canary and spec.canary.command)
    return not _declares_revision(spec) or not own_command or spec.cache is not None


def _takes_revision(spec: Spec) -> bool:
    backend = backend_of(spec)
    return not _declares_revision(spec) or backend in _WITH_REVISION or spec.cache is not None


def _can_cache(spec: Spec) -> bool:
    if spec.cache is None:
        return True
    pattern = GGUF_PATTERN if spec.backend in _OF_ONE_FILE else HUB_PATTERN
    return spec.backend not in _WITHOUT_PATHS and all(
        matches_pattern(pattern, model) for model, _ in _models(spec)
    )


def _checks_digest(spec: Spec) -> bool:
    own = spec.canary.model_digest if spec.canary else None
    checked = spec.cache is not None or spec.backend in _WITH_DIGEST
    return checked or (spec.model_digest is None and own is None)


def _has_room(spec: Spec) -> bool:
    brought = spec.cache is not None or any(
        source is ModelSource.IMAGE for source, _, _ in _sources(spec)
    )
    return not brought or spec.model_volume is None or spec.model_volume.path != MODELS


def _says_revision_once(spec: Spec) -> bool:
    lines = [spec.args, spec.canary.args if spec.canary else None]
    return not _declares_revision(spec) or not any(
        str(part).partition("=")[0] == "--revision" for line in lines for part in line or ()
    )


MODEL_RULES: tuple[ValidationRule[Spec], ...] = (
    ValidationRule(
        field="modelRef",
        reason="it is no reference of an image.",
        fix="Write it like oci://registry.example/team/model@sha256:… with the 64 digits, and "
        "#path for a file in the image.",
        cel=f"{_BOTH_MODELS}.all(m, !m.startsWith('{OCI}') || m.matches('{OCI_PATTERN}'))",
        holds=_well_formed,
    ),
    ValidationRule(
        field="modelRef",
        reason="this backend loads no model from an image.",
        fix="Use another backend, or a model of its own registry.",
        cel=f"!({CEL_BACKEND} in {cel_list(_WITHOUT_PATHS)}) || "
        f"{_BOTH_MODELS}.all(m, !m.startsWith('{OCI}'))",
        holds=_loads_images,
    ),
    ValidationRule(
        field="modelRef",
        reason="this backend loads a file, and the reference names a whole image.",
        fix="Add # and the path of the file in the image, as in …#chat.gguf.",
        cel=f"!({CEL_BACKEND} in {cel_list(_OF_ONE_FILE)}) || "
        f"{_BOTH_MODELS}.all(m, !m.startsWith('{OCI}') || m.contains('#'))",
        holds=_names_file,
    ),
    ValidationRule(
        field="modelRevision",
        reason="only a repository of a hub has revisions.",
        fix="Leave it out; an image is pinned by the digest in its reference.",
        cel=f"(!has(self.modelRevision) || {_OF_A_HUB} && "
        f"{_cel_in_hub('self.modelRef')}) && "
        "(!has(self.canary) || !has(self.canary.modelRevision) || "
        f"{_OF_A_HUB} && {_cel_in_hub(_CANARY_MODEL)})",
        holds=_has_revisions,
    ),
    ValidationRule(
        field="modelRevision",
        reason=NOT_HANDED_ON,
        fix="Write it into the command, leave the command out, or give cache.",
        cel=f"!{_DECLARES_REVISION} || has(self.cache) || "
        "!(has(self.command) || has(self.canary) && has(self.canary.command))",
        holds=_passes_revision,
    ),
    ValidationRule(
        field="modelRevision",
        reason="this backend takes no revision when it downloads a model by itself.",
        fix=f"Leave it out, use {', '.join(_WITH_REVISION)}, or give cache.",
        cel=f"!{_DECLARES_REVISION} || has(self.cache) || "
        f"{CEL_BACKEND} in {cel_list(_WITH_REVISION)}",
        holds=_takes_revision,
    ),
    ValidationRule(
        field="cache",
        reason="only a repository of the Hub is downloaded into it, and a modelRef is none.",
        fix=f"Leave it out, or write modelRef like org/name, for {_FILE_LOADERS} like "
        "org/name:Q4_K_M.",
        cel=f"!has(self.cache) || !({CEL_BACKEND} in {cel_list(_WITHOUT_PATHS)}) && "
        f"{_BOTH_MODELS}.all(m, {CEL_BACKEND} in {cel_list(_OF_ONE_FILE)} ? "
        f"m.matches('{GGUF_PATTERN}') : m.matches('{HUB_PATTERN}'))",
        holds=_can_cache,
    ),
    ValidationRule(
        field="modelDigest",
        reason="nothing would check it: a backend that downloads by itself does not.",
        fix="Give cache, or leave it out; an image has its digest in its reference.",
        cel=f"has(self.cache) || {CEL_BACKEND} in {cel_list(_WITH_DIGEST)} || "
        "!(has(self.modelDigest) || has(self.canary) && has(self.canary.modelDigest))",
        holds=_checks_digest,
    ),
    ValidationRule(
        field="modelVolume.path",
        reason=f"it is where the model is mounted: {MODELS}.",
        fix="Choose another path.",
        cel=f"!has(self.modelVolume) || self.modelVolume.path != '{MODELS}' || "
        f"!has(self.cache) && {_BOTH_MODELS}.all(m, !m.startsWith('{OCI}'))",
        holds=_has_room,
    ),
    ValidationRule(
        field="args",
        reason="they have --revision, and modelRevision is given too.",
        fix="Keep modelRevision.",
        cel=f"!{_DECLARES_REVISION} || "
        + " && ".join(
            f"(!({cel_is_set(path)}) || "
            f"self.{path}.all(a, a != '--revision' && !a.startsWith('--revision=')))"
            for path in ("args", "canary.args")
        ),
        holds=_says_revision_once,
    ),
)
