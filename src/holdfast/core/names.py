"""Slugs and workload identity: the only place that knows what a good name is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import credential_in, quote_text, redact

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


def slug_problems(text: str, *, field: str, derive: bool = False) -> list[Problem]:
    """Say what is wrong with a slug; an empty list means that it is usable.

    A slug that somebody gave must be canonical as it stands, because a rewritten one names
    another workload than they think. With `derive`, one is made from the text, which may then be
    any name. Letters outside ASCII are refused rather than folded: two names that look alike
    must not become one workload.
    """
    shown = quote_text(text)
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
                field=field, reason=f"{shown} has control characters.", fix="Type the slug again."
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
    if slug != text and not derive:
        return [
            Problem(
                field=field,
                reason=f"{shown} is not a slug: only a-z, 0-9 and single dashes between them are.",
                fix="Give a slug such as 'support-bot'."
                if redact(text) != text  # what is hidden above must not be shown here
                else f"Did you mean {slug}?",
            )
        ]
    return []


def is_slug(text: str) -> bool:
    """True for a slug that is already canonical and allowed."""
    return len(text) <= MAX_SLUG and bool(_SLUG.fullmatch(text)) and text not in RESERVED


def require_slug(text: str, *, field: str = "slug") -> str:
    """Return a slug that somebody gave, or raise with the reason and the slug they may mean."""
    return _valid_slug(text, field=field, derive=False)


def slug_from_name(text: str, *, field: str = "slug") -> str:
    """Make a slug from a name, or raise with the reason.

    Also what the InferenceKey wire does with a slug: its client and its control plane both make
    it canonical, so the one must not refuse what the other would have sent.
    """
    return _valid_slug(text, field=field, derive=True)


def _valid_slug(text: str, *, field: str, derive: bool) -> str:
    kind = credential_in(text)
    if kind:  # its canonical form would pass for a name, and be shown as one
        reason = f"it looks like {kind}."
        raise ValidationError(problems=[Problem(field=field, reason=reason, fix="Give a slug.")])
    problems = slug_problems(text, field=field, derive=derive)
    if problems:
        raise ValidationError(problems=problems)
    return canonical_slug(text)
