"""A row in the tables of wrong specs, which every validator is put to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RefusedSpec:
    """A change that makes a right spec wrong, and the field that is blamed."""

    why: str
    field: str
    change: Mapping[str, Any]  # Any: JSON as it comes over the wire
    server: bool = True
    """False for what the API server cannot tell."""


def refused(why: str, field: str, change: Mapping[str, Any], *, server: bool = True) -> RefusedSpec:
    return RefusedSpec(why=why, field=field, change=change, server=server)
