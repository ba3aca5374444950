"""What an inference engine says that it serves, beside what was declared for it.

Pure: a command line and the bytes of a few answers in, a comparison of each field out. What an
engine does not tell, or tells in a way that cannot be read, is unknown and never in sync. Which
engine is asked what, and how its answers are read, is in `core/backends.py`. Used by the operator
for pods and by the runner for processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.core.backends import BackendProfile
from holdfast.core.command import fill_placeholders, is_script
from holdfast.core.engine_answer import (
    MAX_ANSWER_TEXT,
    EngineReport,
    EngineResponse,
    LoadedAdapter,
    StoredModel,
    UnreadableAnswer,
    Unreported,
    parse_answer,
)
from holdfast.core.lora import LoraAdapter
from holdfast.core.model import is_path
from holdfast.core.redact import redact
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Tree

_FLAG = re.compile(r"-{1,2}[A-Za-z]")
_LENGTH = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([kKmMgG]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""As engines read a length: `32k` is 32000, and `32K` is 32768."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRuntime:
    """What one process should serve. None is not declared, or not to be read off its start."""

    model: str | None = None
    names: tuple[str, ...] | None = None
    length: int | None = None
    adapters: tuple[LoraAdapter, ...] | None = None
    digest: str | None = None
    """Of the weights, for an engine that tells it."""
    from_hub: bool = False
    """The model is a name on a hub, and the engine tells the path of a file."""
    unreadable: str = ""
    """Why nothing can be said of the model."""


class RuntimeMatch(StrEnum):
    """How one field that is served stands to what was declared."""

    IN_SYNC = "in-sync"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldComparison:
    """One field. Values are text; None is "not there"."""

    field: str
    match: RuntimeMatch
    declared: str | None = None
    served: str | None = None
    reason: str = ""
    """Why it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDifference:
    """One field that a replica serves otherwise than it was declared."""

    pod: str
    """The pod, or the replica of a local runner."""
    field: str
    declared: str | None = None
    served: str | None = None

    def __str__(self) -> str:
        served, declared = self.served or "nothing", self.declared or "nothing"
        return f"{self.pod} serves {self.field} {served}, and {declared} is declared"


def differences_of(
    pod: str, comparisons: Sequence[FieldComparison]
) -> tuple[RuntimeDifference, ...]:
    """What one replica serves otherwise than declared."""
    return tuple(
        RuntimeDifference(pod=pod, field=each.field, declared=each.declared, served=each.served)
        for each in comparisons
        if each.match is RuntimeMatch.DIFFERS
    )


def differing_fields(comparisons: Sequence[FieldComparison]) -> set[str]:
    """The declared fields that differences lie in."""
    return {root_field(each.field) for each in comparisons if each.match is RuntimeMatch.DIFFERS}


def root_field(field: str) -> str:
    """The declared field that a difference lies in."""
    return field.partition(".")[0]


# What was declared.


def read_declaration(
    line: Sequence[str],
    backend: BackendProfile,
    *,
    model: str,
    variables: Mapping[str, str] | None = None,
    adapters: Sequence[LoraAdapter] | None = None,
    digest: str | None = None,
) -> DeclaredRuntime:
    """Read off a command line what its process is to serve.

    The line and not the spec, since that is what the process was told: a cache may have put a path
    in the place of a name. `model` counts for an engine whose line names none.
    """
    kept = None if adapters is None else tuple(adapters)
    if is_script(line):
        why = "A shell script starts it, whose text is not read."
        return DeclaredRuntime(adapters=kept, digest=digest, unreadable=why)
    filled = [fill_placeholders(part, variables or {}) for part in line]
    flags, positionals = _read_flags(filled, backend)
    named, from_hub = _declared_model(flags, positionals, backend, model)
    length = flags.get(backend.length_flag or "", [""])[-1]
    names = flags.get(backend.names_flag or backend.alias_flag or "")
    if names and backend.names_flag is None:
        names = names[-1].split(",")
    return DeclaredRuntime(
        model=named,
        names=tuple(names) if names else None,
        length=_parse_length(length),
        adapters=kept,
        digest=digest,
        from_hub=from_hub,
        unreadable="" if named else "Its command line names no model that could be read.",
    )


def _read_flags(
    line: Sequence[str], backend: BackendProfile
) -> tuple[dict[str, list[str]], list[str]]:
    """Give each flag all values that follow it, and what stands before the first flag."""
    flags: dict[str, list[str]] = {}
    positionals: list[str] = []
    values = positionals
    for part in line:
        if not _FLAG.match(part):
            values.append(part)
            continue
        name, equals, value = part.partition("=")
        if backend.ignores_underscores and name.startswith("--"):
            name = name.replace("_", "-")
        name = backend.flag_aliases.get(name, name)
        values = flags[name] = [value] if equals else []
    return flags, positionals


def _declared_model(
    flags: Mapping[str, list[str]],
    positionals: Sequence[str],
    backend: BackendProfile,
    model: str,
) -> tuple[str | None, bool]:
    if not backend.model_flags:
        return model, False
    remote = backend.local_model_flag[0] if backend.local_model_flag else ""
    names = dict.fromkeys(backend.flag_aliases.get(flag, flag) for flag in backend.model_flags)
    for flag in sorted(names, key=lambda each: each == remote):  # a file outranks a name
        if values := flags.get(flag):
            return (values[-1] if "$" not in values[-1] else None), flag == remote
    if any(positionals[-2:-1] == [word] for word in backend.model_words):
        return (positionals[-1] if "$" not in positionals[-1] else None), False
    return None, False


def _parse_length(text: str) -> int | None:
    found = _LENGTH.fullmatch(text)
    return (int(float(found[1]) * _UNITS[found[2]]) or None) if found else None


# What the engine tells.


def read_report(backend: BackendProfile, responses: Mapping[str, EngineResponse]) -> EngineReport:
    """Read the answers of an engine, each by the first path of its query.

    Never raises, whatever they are.
    """
    silent = Unreported(reason="The engine does not tell it.")
    report = EngineReport(model=silent, names=silent, length=silent, adapters=silent)
    for query in backend.queries:
        asked = f"GET {query.paths[0]}"
        found = responses.get(query.paths[0], Unreported(reason=f"{asked} was not asked."))
        problem = found.reason if isinstance(found, Unreported) else ""
        if isinstance(found, bytes):
            try:
                report = query.read(parse_answer(found), report)
            except UnreadableAnswer as unreadable:
                problem = f"The answer to {asked} could not be read: {unreadable}."
        if problem:
            unknown = dict.fromkeys(query.tells, Unreported(reason=problem))
            report = replace(report, **unknown)  # type: ignore[arg-type]  # each may be Unreported
    return report


# The two side by side.


def compare_runtime(declared: DeclaredRuntime, report: EngineReport) -> tuple[FieldComparison, ...]:
    """Say of each declared field how it is served. What was not declared is not compared."""
    found = [_compare_model(declared, report), *_compare_digest(declared, report)]
    if declared.names is not None:
        found.append(_compare_names(declared.names, report.names))
    if declared.length is not None:
        found.append(_compare_length(declared.length, report))
    if declared.adapters is not None:
        found += _compare_adapters(declared.adapters, report.adapters)
    return tuple(map(_bounded, found))


def _compare_model(declared: DeclaredRuntime, report: EngineReport) -> FieldComparison:
    told = report.model
    if declared.model is None:
        served = told if isinstance(told, str) else None
        return _unknown("model", declared.unreadable, served=served)
    if isinstance(told, Unreported):
        return _unknown("model", told.reason, declared=declared.model)
    if report.stored is not None:
        name = _tagged(declared.model, report)
        there = any(name == each.name for each in report.stored)
        return _compared("model", declared.model, declared.model if there else told, same=there)
    if declared.from_hub:
        return _compare_downloaded(declared.model, told)
    same = declared.model.rstrip("/") == told.rstrip("/")
    return _compared("model", declared.model, told, same=same)


def _compare_downloaded(declared: str, path: str) -> FieldComparison:
    """A file that an engine downloaded has the repository in its path, but need not for ever."""
    repository = declared.partition(":")[0]
    marks = (repository.replace("/", "_") + "_", "models--" + repository.replace("/", "--") + "/")
    if "/" in repository and any(f"/{mark}" in path for mark in marks):
        return _compared("model", declared, declared, same=True)
    why = f"The engine tells a path, {path}, which does not say what repository it is from."
    return _unknown("model", why, declared=declared)


def _compare_digest(declared: DeclaredRuntime, report: EngineReport) -> Iterator[FieldComparison]:
    """Compare what is served with the declared digest; without one, what is loaded with what is
    stored: weights that were pulled anew are served once they are loaded anew."""
    wanted, loaded = declared.digest, report.loaded
    if wanted is None:
        if isinstance(loaded, tuple) and _find_digest(declared, report, loaded) is None:
            return
        wanted = _find_digest(declared, report, report.stored or ())
    served = served_digest(declared, report)
    if wanted is not None and served is not None:
        yield _compared("digest", wanted, served, same=served == wanted)
    elif wanted is not None:
        silent = [each for each in (report.model, loaded) if isinstance(each, Unreported)]
        why = silent[0].reason if silent else "The engine has no such model."
        yield _unknown("digest", why, declared=wanted)


def served_digest(declared: DeclaredRuntime, report: EngineReport) -> str | None:
    """Return the digest of the weights that are loaded, or else of those that would be.

    None where it was not told.
    """
    if isinstance(report.loaded, Unreported):
        return None
    loaded = _find_digest(declared, report, report.loaded)
    return loaded or _find_digest(declared, report, report.stored or ())


def _find_digest(
    declared: DeclaredRuntime, report: EngineReport, models: Sequence[StoredModel]
) -> str | None:
    name = _tagged(declared.model or "", report)
    return next((each.digest for each in models if each.name == name), None)


def _tagged(model: str, report: EngineReport) -> str:
    """The name that a model is listed under, by an engine that lists each with its tag."""
    return model if ":" in model.rpartition("/")[2] else f"{model}:{report.default_tag}"


def _compare_names(
    declared: tuple[str, ...], told: tuple[str, ...] | Unreported
) -> FieldComparison:
    names = ", ".join(sorted(declared))
    if isinstance(told, Unreported):
        return _unknown("names", told.reason, declared=names)
    return _compared("names", names, ", ".join(sorted(told)), same=set(told) == set(declared))


def _compare_length(declared: int, report: EngineReport) -> FieldComparison:
    told, step, slots = report.length, report.length_step, report.slots
    if isinstance(told, Unreported):
        return _unknown("maxLength", told.reason, declared=str(declared))
    # llama.cpp shares its context out among slots, or lets each have all of it.
    shared = declared <= told * slots < declared + step * slots
    whole = declared <= told < declared + step
    served = declared if shared or whole else told * slots
    return _compared("maxLength", str(declared), str(served), same=shared or whole)


def _compare_adapters(
    declared: tuple[LoraAdapter, ...], told: tuple[LoadedAdapter, ...] | Unreported
) -> Iterator[FieldComparison]:
    if isinstance(told, Unreported):
        names = ", ".join(each.name for each in declared) or "none"
        yield _unknown("adapters", told.reason, declared=names)
        return
    open_ones = list(_adapter_differences(declared, told))
    yield from open_ones
    if not open_ones:
        names = ", ".join(each.name for each in declared) or "none"
        yield _compared("adapters", names, names, same=True)


def _adapter_differences(
    declared: tuple[LoraAdapter, ...], told: tuple[LoadedAdapter, ...]
) -> Iterator[FieldComparison]:
    """What is loaded otherwise than declared, and what is not known of it."""
    left = list(told)
    for each in declared:
        loaded = _find_loaded(each, left)
        field = f"adapters.{each.name}"
        if loaded is None:
            yield _compared(field, each.source, None, same=False)
            continue
        left.remove(loaded)
        match = _match_source(each, loaded)
        if match is RuntimeMatch.DIFFERS:
            yield _compared(field, each.source, loaded.source, same=False)
        elif match is RuntimeMatch.UNKNOWN:
            yield _unknown(field, _unknown_source(loaded), declared=each.source)
        if loaded.scale is not None and abs(loaded.scale - each.strength) > 1e-4:
            scale = f"{loaded.scale:g}"
            yield _compared(f"{field}.scale", f"{each.strength:g}", scale, same=False)
    for loaded in left:
        name = loaded.name or loaded.source.rpartition("/")[2]
        yield _compared(f"adapters.{name}", None, loaded.source or loaded.name, same=False)


def is_adapter(loaded: LoadedAdapter, declared: LoraAdapter) -> bool:
    """True when it is that adapter: by its name, or by its file where the engine has no names."""
    return loaded.name == declared.name if loaded.name else loaded.source == declared.source


def _compared(
    field: str, declared: str | None, served: str | None, *, same: bool
) -> FieldComparison:
    match = RuntimeMatch.IN_SYNC if same else RuntimeMatch.DIFFERS
    return FieldComparison(field=field, match=match, declared=declared, served=served)


def _unknown(
    field: str, reason: str, *, declared: str | None = None, served: str | None = None
) -> FieldComparison:
    return FieldComparison(
        field=field,
        match=RuntimeMatch.UNKNOWN,
        declared=declared,
        served=served,
        reason=reason,
    )


def _bounded(comparison: FieldComparison) -> FieldComparison:
    """Make values that are safe to show: an engine may say anything."""
    return replace(
        comparison,
        field=_shown(comparison.field),
        declared=None if comparison.declared is None else _shown(comparison.declared),
        served=None if comparison.served is None else _shown(comparison.served),
        reason=_shown(comparison.reason),
    )


def _shown(text: str) -> str:
    clean = escape_unprintable(redact(" ".join(text.split())))
    return clean if len(clean) <= MAX_ANSWER_TEXT else f"{clean[: MAX_ANSWER_TEXT - 1]}…"


# Adapters, put back while the engine runs.


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRequest:
    """One POST to an engine."""

    path: str
    body: Tree


def adapter_requests(
    backend: BackendProfile,
    declared: Sequence[LoraAdapter],
    loaded: Sequence[LoadedAdapter],
) -> tuple[AdapterRequest, ...] | None:
    """Say what to send so that the adapters are as declared; None where only a restart does it."""
    loading = backend.adapter_loading
    if loading is None:
        return None
    pairs = [(each, _find_loaded(each, loaded)) for each in declared]
    extra = [each for each in loaded if not any(is_adapter(each, one) for one in declared)]
    if loading.scale_path:
        if extra or any(found is None for _, found in pairs):
            return None
        scales: list[Tree] = [
            {"id": found.id, "scale": each.strength} for each, found in pairs if found is not None
        ]
        return (AdapterRequest(path=loading.scale_path, body=scales),)
    if not loading.load_path:
        return None
    wrong = [
        (each, found)
        for each, found in pairs
        if found is None or _match_source(each, found) is RuntimeMatch.DIFFERS
    ]
    gone = [*extra, *(found for _, found in wrong if found is not None)]
    unload = (
        AdapterRequest(path=loading.unload_path, body={"lora_name": each.name}) for each in gone
    )
    load = (
        AdapterRequest(
            path=loading.load_path, body={"lora_name": each.name, "lora_path": each.source}
        )
        for each, _ in wrong
    )
    return (*unload, *load)


def _find_loaded(declared: LoraAdapter, loaded: Sequence[LoadedAdapter]) -> LoadedAdapter | None:
    return next((each for each in loaded if is_adapter(each, declared)), None)


def _match_source(declared: LoraAdapter, loaded: LoadedAdapter) -> RuntimeMatch:
    """Compare where an adapter is from.

    The path of a download does not tell its name on a hub, nor a relative path where it begins.
    """
    told = loaded.source
    if declared.source.rstrip("/") == told.rstrip("/"):
        return RuntimeMatch.IN_SYNC
    absolute = declared.source.startswith("/") and told.startswith("/")
    if not told or (is_path(told) and not absolute):
        return RuntimeMatch.UNKNOWN
    return RuntimeMatch.DIFFERS


def _unknown_source(loaded: LoadedAdapter) -> str:
    if not loaded.source:
        return "The engine does not tell where it is from."
    return f"The engine tells a path, {loaded.source}, which does not say whether it is that."
