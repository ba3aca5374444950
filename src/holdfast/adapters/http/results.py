"""What inference gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class TextResult:
    """A completed chat."""

    text: str
    model: str
    finish_reason: str | None = None
    raw: Mapping[str, Tree] = field(default_factory=dict, repr=False)
    """The whole response, for what is not lifted out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """A chunk of a streamed chat; joined, the texts are the reply."""

    text: str
    finish_reason: str | None = None
    """Set on the last chunk only."""
    raw: Mapping[str, Tree] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """One vector per input, in the order of the inputs."""

    embeddings: list[list[float]]
    model: str
    raw: Mapping[str, Tree] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankItem:
    """One scored document; `index` is its place in the documents that were given."""

    index: int
    relevance_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankResult:
    """Scored documents, best first."""

    results: list[RerankItem]
    model: str
    raw: Mapping[str, Tree] = field(default_factory=dict, repr=False)
