"""What a write leaves behind: the fields as they then are, and what of them is declared.

For targets that keep the declaration beside the live fields, so that a change made past Holdfast
can be distinguished from one made through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.diff import same_value
from holdfast.core.normalize import WORKLOAD_RULES
from holdfast.core.plan import AMOUNT_FIELDS
from holdfast.core.tree import Fields, Tree

_AMOUNT_GROUPS = (("replicas",), ("autoscaling",), ("execution_policy", "execution_policy_config"))
"""Three ways to say how many run; writing one clears the others."""


def fields_after_write(fields: Mapping[str, Tree], write: Mapping[str, Tree]) -> Fields:
    """Give the fields after a write of whole top-level fields; None removes one."""
    after = {**fields, **write}
    for group in _AMOUNT_GROUPS:
        if any(write.get(name) is not None for name in group):
            for other in AMOUNT_FIELDS:
                if other not in group and other not in write:
                    after.pop(other, None)
    return {name: value for name, value in after.items() if value is not None}


def declared_after_write(
    names: Iterable[str], *, declared: Mapping[str, Tree], before: Fields, after: Fields
) -> Fields:
    """Merge the fields that were just written into the declaration."""
    merged = dict(declared)
    for name in names:
        if name not in after:
            merged.pop(name, None)
        elif name in WORKLOAD_RULES.exclusive:
            merged[name] = after[name]
        else:
            merged[name] = _without_carried_along(after[name], merged.get(name), before.get(name))
    return merged


def _without_carried_along(wrote: Tree, declared: Tree, live: Tree) -> Tree:
    """Leave out what a writer only carried along: a key as it was, and never declared."""
    if not isinstance(wrote, dict) or not isinstance(live, dict):
        return wrote
    known = declared if isinstance(declared, dict) else {}
    return {
        key: _without_carried_along(value, known.get(key), live.get(key))
        for key, value in wrote.items()
        if key in known or not same_value(value, live.get(key))
    }
