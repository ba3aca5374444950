"""LoRA adapters as they are declared: their form, what each engine takes, and its flags.

The same for a workload and for an InferenceService. What is loaded in the end is compared in
`core/engine_report.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from holdfast.core.backends import BACKENDS, AdapterLoading, BackendProfile, backend_profile
from holdfast.core.command import is_script
from holdfast.core.custom_resource import ValueFormat
from holdfast.core.errors import Problem

AdapterName = Annotated[
    str,
    ValueFormat(
        description="a name of 1 to 63 letters, digits, dots, dashes and underscores",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=63,
    ),
]
AdapterSource = Annotated[
    str,
    ValueFormat(
        description="a path or a name on a hub, without spaces, commas, colons, braces and $",
        pattern=r"^[^\s,:{}$]+$",
        max_length=500,
    ),
]
AdapterScale = Annotated[
    float, ValueFormat(description="a number from -100 to 100", minimum=-100, maximum=100)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraAdapter:
    """A LoRA adapter: the name it is asked for by, where its weights are, and how strong."""

    name: AdapterName
    source: AdapterSource
    """A path where the model runs; for engines that download, also a name on a hub."""
    scale: AdapterScale | None = None
    """Left unset, it is 1. Only llama.cpp takes another."""

    @property
    def strength(self) -> float:
        """Its scale, or what that is when it is left unset."""
        return 1.0 if self.scale is None else float(self.scale)


def backends_with(holds: Callable[[AdapterLoading], bool]) -> tuple[str, ...]:
    """Name the backends whose way to load adapters is such."""
    return tuple(
        name
        for name, each in BACKENDS.items()
        if each.adapter_loading is not None and holds(each.adapter_loading)
    )


WITH_ADAPTERS = backends_with(lambda loading: True)
WITH_SCALE = backends_with(lambda loading: loading.scaled)
LOCAL_ONLY = backends_with(lambda loading: loading.local_only)
ADAPTER_FLAGS = tuple(
    dict.fromkeys(
        flag
        for each in BACKENDS.values()
        if each.adapter_loading is not None
        for flag in (each.adapter_loading.flags[-1], "--lora")
    )
)
"""Flags that load adapters beside those that are declared."""

UNSUPPORTED = Problem(
    field="adapters",
    reason="this backend cannot be given LoRA adapters by Holdfast.",
    fix=f"Leave it out, or use {', '.join(WITH_ADAPTERS)}.",
)
REPEATED = Problem(
    field="adapters", reason="two have the same name.", fix="Give each a name of its own."
)
UNSCALED = Problem(
    field="adapters",
    reason="one has a scale, and this backend takes none.",
    fix=f"Leave scale out, or use {', '.join(WITH_SCALE)}.",
)
NOT_LOCAL = Problem(
    field="adapters",
    reason="a source is no absolute path, and this backend loads adapters from files alone.",
    fix="Put the file into the image or a volume, and give its path.",
)
IN_ARGUMENTS = Problem(
    field="adapters",
    reason="command or args load adapters too.",
    fix=f"Declare all of them here, and take out {', '.join(ADAPTER_FLAGS)}.",
)
IN_SCRIPT = Problem(
    field="adapters",
    reason="a shell script is the command, and flags that are added to it reach no program.",
    fix="Start the engine itself, or load the adapters in the script and leave this out.",
)


def adapter_problems(
    backend: str, adapters: Sequence[LoraAdapter], lines: Sequence[Sequence[str]]
) -> Iterator[Problem]:
    """Say what is wrong with adapters of the right form, beside the command lines given."""
    loading = backend_profile(backend).adapter_loading
    if loading is None:
        yield UNSUPPORTED
        return
    if len({each.name for each in adapters}) < len(adapters):
        yield REPEATED
    if not loading.scaled and any(each.scale not in (None, 1) for each in adapters):
        yield UNSCALED
    if loading.local_only and not all(each.source.startswith("/") for each in adapters):
        yield NOT_LOCAL
    if any(part.partition("=")[0] in ADAPTER_FLAGS for line in lines for part in line):
        yield IN_ARGUMENTS
    if any(is_script(line) for line in lines):
        yield IN_SCRIPT


def adapter_flags(adapters: Sequence[LoraAdapter], backend: BackendProfile) -> list[str]:
    """The flags with which an engine loads adapters at its start."""
    loading = backend.adapter_loading
    if loading is None or not adapters:
        return []
    items = [
        loading.item.format(name=each.name, source=each.source, scale=f"{each.strength:g}")
        for each in adapters
    ]
    return [*loading.flags, *([loading.separator.join(items)] if loading.separator else items)]
