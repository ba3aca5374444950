"""One canonical form for both sides, so that a default or a spelling is never drift.

Lists whose items have a key become mappings by that key, quantities and command lines get
one spelling, nulls vanish. The result is what `diff` compares; it is never written anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.command import canonical_command
from holdfast.core.quantity import canonical_quantity, parse_duration
from holdfast.core.tree import Fields, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a kind of object needs to be compared rightly. Names are those of fields."""

    keyed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """List fields whose items are matched by a key, and the keys to try. A key of several
    fields is written `containerPort,protocol=TCP`, with what a missing field stands for."""
    quantities: frozenset[str] = frozenset()
    """Fields that are quantities, or whose children are."""
    durations: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    """Mappings declared as a whole: a key that only the live side has is a change."""
    opaque: frozenset[str] = frozenset()
    """Mappings whose keys are the user's own, so that no rule holds inside: a variable that
    happens to be called `timeout` is text."""


_OPAQUE = Rules()
WORKLOAD_RULES = Rules(
    quantities=frozenset({"cpu", "memory", "gpu_memory", "size"}),
    durations=frozenset({"interval", "timeout", "startup", "drain_timeout", "idle_after"}),
    commands=frozenset({"command"}),
    exclusive=frozenset({"env", "secrets", "config", "canary", "suspend", "pod_template"}),
    opaque=frozenset({"env", "secrets", "config", "pod_template", "annotations"}),
)


def normalize_workload(fields: Mapping[str, Tree]) -> Fields:
    """Give a workload's fields their canonical form.

    A fixed execution policy is another spelling of `replicas`, so it becomes that.
    """
    tree = dict(fields)
    if tree.get("execution_policy") == "fixed":
        del tree["execution_policy"]
        config = tree.pop("execution_policy_config", None)
        tree["replicas"] = config.get("replicas", 1) if isinstance(config, dict) else 1
    result = normalize(tree, WORKLOAD_RULES)
    assert isinstance(result, dict)  # noqa: S101  # a mapping stays a mapping
    return result


def normalize(value: Tree, rules: Rules, *, name: str = "", parent: str = "") -> Tree:
    """Return the canonical form. Doing it twice gives the same as doing it once."""
    if isinstance(value, dict):
        return {
            key: normalize(item, _OPAQUE if key in rules.opaque else rules, name=key, parent=name)
            for key, item in sorted(value.items())
            if item is not None
        }
    if isinstance(value, list):
        keyed = _keyed_items(value, rules.keyed.get(name, ()), rules)
        if keyed is not None:
            return keyed
        return [normalize(item, rules, parent=name) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if name in rules.quantities or parent in rules.quantities:
        return canonical_quantity(value)
    if name in rules.durations:
        seconds = parse_duration(value)
        if seconds is not None:
            return int(seconds) if seconds.is_integer() else seconds
    if name in rules.commands and isinstance(value, str):
        return canonical_command(value)
    return value


def item_segment(item: Tree, key: str) -> str | None:
    """Name a list item by its key, as in `[name=main]`; None when it has no such key."""
    if not isinstance(item, dict):
        return None
    parts: list[str] = []
    for part in key.split(","):
        name, _, default = part.partition("=")
        value = item.get(name)
        value = default or None if value is None else value
        if not isinstance(value, str | int):
            return None
        parts.append(f"{name}={value}")
    return f"[{','.join(parts)}]"


def _keyed_items(items: list[Tree], keys: tuple[str, ...], rules: Rules) -> Fields | None:
    """Turn a list of mappings into one mapping by key, if every item has that key once."""
    for key in keys:
        result: Fields = {}
        for item in items:
            segment = item_segment(item, key)
            if segment is None:
                break
            result[segment] = normalize(item, rules)
        else:
            if len(result) == len(items):
                return result
    return None
