"""Field-level changes between the declared and the live side, in a stable order."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.normalize import Rules
from holdfast.core.tree import Fields, Path, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field that differs.

    `desired` is None when the field should go; `live` is None when it is not there. Neither
    says whether the whole workload is absent: ask `Drift.situation`, never these fields.
    """

    path: Path
    desired: Tree
    live: Tree


def diff(*, desired: Fields, live: Fields, rules: Rules) -> tuple[Change, ...]:
    """Compare two canonical trees. Only what was declared counts.

    Ordered by path, so that equal inputs give equal plans.
    """
    changes: list[Change] = []
    _walk(desired, live, (), rules, changes, whole=False)
    return tuple(sorted(changes, key=lambda change: change.path))


def _walk(
    desired: Fields, live: Fields, path: Path, rules: Rules, out: list[Change], *, whole: bool
) -> None:
    """`whole` says that the mapping was declared whole, and so is everything in it."""
    for key, wanted in desired.items():
        seen = live.get(key)
        here = (*path, key)
        if isinstance(wanted, dict) and (seen is None or isinstance(seen, dict)):
            inner = whole or key in rules.exclusive or key in rules.commands
            _walk(wanted, seen or {}, here, rules, out, whole=inner)
        elif not same_value(wanted, seen):
            out.append(Change(path=here, desired=wanted, live=seen))
    if whole:
        out.extend(
            Change(path=(*path, extra), desired=None, live=live[extra])
            for extra in live
            if extra not in desired
        )


def same_value(left: Tree, right: Tree) -> bool:
    """Equal in value and in kind: `True` is not `1`, while `1` is `1.0`."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            same_value(left[key], right[key]) for key in left
        )
    return left == right
