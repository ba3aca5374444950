"""What the API server makes of a declared value when it stores it.

It fills in what was declared empty, rounds amounts, rewraps bytes, and its own admission adds to
a Pod. None of that is drift as long as we own the field: whoever changes it later takes it from
us, and that shows. The signals ask about values that differ, and about ones that were added.
"""

from __future__ import annotations

import base64
import binascii
from decimal import ROUND_CEILING, Decimal

from holdfast.core.diff import Change, same
from holdfast.core.normalize import Rules
from holdfast.core.ownership.objects import at, is_custom, is_default
from holdfast.core.quantity import parse_quantity
from holdfast.core.tree import Fields, Path, Tree

_UNSET_BY_ZERO = frozenset({
    "periodSeconds", "timeoutSeconds", "failureThreshold", "successThreshold",
})  # fmt: skip
"""Numbers that are not optional in the built-in kinds, so that zero means the default."""
_BYTES = ("binaryData", "caBundle")
_SMALLEST = Decimal("0.001")
"""What amounts of resources are rounded up to."""


def stored_alike(change: Change, api_version: str, kind: str, rules: Rules) -> bool:
    """True when the server stores the declared value in this other form."""
    path, desired, live = change.path, change.desired, change.live
    if kind == "Pod" and path[:2] == ("spec", "nodeSelector") and desired is None:
        return True  # by its runtime class; whoever adds to it later takes all of it from us
    if desired is None or live is None:
        return False
    if path == ("metadata", "finalizers") or (kind == "Pod" and path == ("spec", "tolerations")):
        return _within(desired, live)
    if is_custom(api_version):
        return False
    if isinstance(desired, bool) or not isinstance(desired, str | int):
        return False
    if desired == "":
        return is_default(path, live)
    if desired == 0:
        by_zero = path[-1] in _UNSET_BY_ZERO and is_default(path, live)
        return by_zero or (kind == "Service" and path[-1] == "targetPort" and _is_port(path, live))
    if not rules.quantities.isdisjoint(path[-2:]):
        return _rounded(desired) == _rounded(live)
    return not set(_BYTES).isdisjoint(path[-2:]) and _bytes(desired) == _bytes(live)


def derived(path: Path, value: Tree, live: Fields) -> bool:
    """True for a value that the server itself takes from what stands beside it.

    Whoever creates an object by other means than an apply owns these, and did not write them.
    """
    match path[-1]:
        case "serviceAccount":
            return same(at(live, (*path[:-1], "serviceAccountName")), value)
        case "targetPort":
            return _is_port(path, value)
        case "policyTypes":
            both = at(live, ("spec", "egress")) is not None
            return value == (["Ingress", "Egress"] if both else ["Ingress"])
        case "selector" if live.get("kind") == "ReplicationController":
            return same(at(live, ("spec", "template", "metadata", "labels")), value)
    return False


def _within(desired: Tree, live: Tree) -> bool:
    """True when something was only added to a list, as admission does to every Pod and claim."""
    if not isinstance(desired, list) or not isinstance(live, list):
        return False
    rest = iter(live)
    return all(any(same(wanted, seen) for seen in rest) for wanted in desired)


def _is_port(path: Path, live: Tree) -> bool:
    """True for the port's own number, which its item is named by."""
    return path[-2].startswith(f"[port={live},")


def _rounded(value: Tree) -> Decimal | None:
    amount = parse_quantity(value) if isinstance(value, str) else None
    return amount.quantize(_SMALLEST, ROUND_CEILING) if amount is not None else None


def _bytes(value: Tree) -> bytes | None:
    try:
        return base64.b64decode("".join(str(value).split()), validate=True)
    except binascii.Error:
        return None
