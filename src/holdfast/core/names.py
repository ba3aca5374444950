"""Slugs and workload identity: the only place that knows what a good name is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import credential_in, quoted

MAX_SLUG = 63
"""A DNS label, so that every target can use the slug as it stands."""

RESERVED = frozenset({"api", "healthz", "readyz", "metrics", "endpoint", "openapi", "constructor"})
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WorkloadId:
    """What drift is matched on: one slug in one project."""

    project: str
    slug: str

    def __str__(self) -> str:
        return f"{self.project}/{self.slug}"


def canonical_slug(text: str) -> str:
    """Give the canonical form that client and control plane agree on.

    Every character that is not an ASCII letter or digit becomes a dash; runs collapse.
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()


def slug_problems(text: str, *, field: str) -> list[Problem]:
    """Say what is wrong with a slug; an empty list means it is usable once canonical.

    Letters outside ASCII are refused rather than folded: two names that look alike must
    not become one workload.
    """
    shown = quoted(text)
    if not text.isascii():
        return [
            Problem(
                field=field,
                reason=f"{shown} has characters outside ASCII.",
                fix="Use letters a-z, digits and dashes.",
            )
        ]
    if not text.isprintable():
        return [
            Problem(
                field=field, reason=f"{shown} has control characters.", fix="Type the slug anew."
            )
        ]
    slug = canonical_slug(text)
    if not slug:
        return [
            Problem(
                field=field,
                reason=f"{shown} has no letter or digit.",
                fix="Give a slug such as 'support-bot'.",
            )
        ]
    if slug in RESERVED or text.startswith("__"):
        return [Problem(field=field, reason=f"{shown} is reserved.", fix="Choose another slug.")]
    if len(slug) > MAX_SLUG:
        return [
            Problem(
                field=field,
                reason=f"it is {len(slug)} characters long; {MAX_SLUG} are allowed.",
                fix="Shorten it; Holdfast never cuts a name by itself.",
            )
        ]
    return []


def is_slug(text: str) -> bool:
    """True for a slug that is already canonical and allowed."""
    return len(text) <= MAX_SLUG and bool(_SLUG.fullmatch(text)) and text not in RESERVED


def checked_slug(text: str, *, field: str = "slug") -> str:
    """Return the canonical slug, or raise with the reason."""
    kind = credential_in(text)
    if kind:  # its canonical form would pass for a name, and be shown as one
        reason = f"it looks like {kind}."
        raise ValidationError(problems=[Problem(field=field, reason=reason, fix="Give a slug.")])
    problems = slug_problems(text, field=field)
    if problems:
        raise ValidationError(problems=problems)
    return canonical_slug(text)
