"""Whether a route can ever be taken, or an earlier one takes everything that it is for.

Two routes for the same drift are two minds about it, such as to heal it and to propose it: the
first would win in silence. So it is said when the application is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import MatchSpec, RouteSpec

_EVERYTHING = MatchSpec()


def shadowed(routes: Sequence[RouteSpec]) -> tuple[tuple[int, str], ...]:
    """Return the routes that can never be taken, by their place, with the name of what takes all.

    Where only several earlier ones together leave nothing, it is not seen.
    """
    found = []
    for place, route in enumerate(routes):
        for earlier in routes[:place]:
            if _covers(earlier.match or _EVERYTHING, route.match or _EVERYTHING):
                found.append((place, earlier.name))
                break
    return tuple(found)


def _covers(wide: MatchSpec, narrow: MatchSpec) -> bool:
    """True when whatever the narrow one matches, the wide one matches too."""
    return (
        _has_all(wide.drift, narrow.drift, DriftKind)
        and _has_all(wide.causes, narrow.causes, Cause)
        and _matches_all(wide.kinds, narrow.kinds)
        and _matches_all(wide.namespaces, narrow.namespaces)
        and _matches_all(wide.names, narrow.names)
        and _matches_all(wide.managers, narrow.managers)
        and (not wide.paths or bool(narrow.paths and set(narrow.paths) <= set(wide.paths)))
    )


def _has_all(
    wide: Sequence[StrEnum] | None, narrow: Sequence[StrEnum] | None, kind: type[StrEnum]
) -> bool:
    return not wide or set(narrow or kind) <= set(wide)


def _matches_all(wide: Sequence[str] | None, narrow: Sequence[str] | None) -> bool:
    # A star of the narrow one stands for any text, which a star of the wide one has to stand for
    # as well; as a text of its own it matches nothing else, so one comparison tells both.
    return not wide or all(
        any(fnmatchcase(each, pattern) for pattern in wide) for each in narrow or ("*",)
    )
