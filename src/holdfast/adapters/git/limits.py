"""How long, how much and how many: what a repository may cost us before it is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for each repository. What goes beyond fails with an error that names the bound."""

    ask: float = 20.0
    """Seconds for the remote to say what its branches are at."""
    fetch: float = 60.0
    """Seconds for one fetch, and for one push."""
    work: float = 60.0
    """Seconds for anything that needs no remote."""
    copy_bytes: int = 2 << 30
    """Size of one local copy, with its whole history."""
    files: int = 50_000
    """Files in one commit."""
    file_bytes: int = 32 << 20
    """Size of one file."""
    total_bytes: int = 1 << 30
    """Size of all files of one commit together."""
    idle_exports: int = 3
    """Exports of one repository that are kept though nobody holds them."""


LIMITS = Limits()
