"""Rules by which a user says that a difference is none.

A rule hides fields, never an object, and always by name: the diff says which rule hid what.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeGuard, assert_never

from holdfast.core.diff import Change
from holdfast.core.errors import ConfigurationError
from holdfast.core.glob import compiled_glob
from holdfast.core.live import Writer
from holdfast.core.normalize import Rules
from holdfast.core.ownership.canonical import path_of_pointer
from holdfast.core.quantity import parse_duration, parse_quantity
from holdfast.core.tree import Fields, Path, Tree, parse_pointer, show_path

_SECURITY_FIELDS = frozenset({
    "securityContext", "privileged", "capabilities", "hostNetwork", "hostPID", "hostIPC",
    "hostPath", "hostUsers", "serviceAccountName", "serviceAccount", "roleRef", "subjects",
    "automountServiceAccountToken", "aggregationRule", "webhooks", "caBundle",
})  # fmt: skip
_SECURITY_KINDS = frozenset({
    "Secret", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "NetworkPolicy",
    "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy",
})  # fmt: skip
"""Kinds that are about security from end to end, save for their labels and annotations."""


class AmountKind(StrEnum):
    """What the values of a field are, where two spellings of one are the same."""

    QUANTITY = "quantity"
    """`1.25G`, `1250M`, `0.5`, `500m`."""
    DURATION = "duration"
    """`90s`, `1m30s`, `1500ms`."""

    def equal(self, one: Tree, other: Tree) -> bool:
        """True for two spellings of one amount."""
        match self:
            case AmountKind.QUANTITY:
                if not (_is_number(one) and _is_number(other)):
                    return False
                amount = parse_quantity(one)
                return amount is not None and amount == parse_quantity(other)
            case AmountKind.DURATION:
                if not (isinstance(one, str) and isinstance(other, str)):
                    return False  # a bare number may count anything
                seconds = parse_duration(one)
                return seconds is not None and seconds == parse_duration(other)
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRule:
    """One rule. Every condition that it states must hold."""

    name: str
    owner: str
    """Who answers for it."""
    pointer: str | None = None
    """A JSON pointer, as Argo CD and Flux write them: `/spec/replicas`."""
    glob: str | None = None
    """A path with `*` for one name and `**` for any: `spec.**.env[name=HTTP_*]`."""
    manager: str | None = None
    """A field manager, with `*` for any text."""
    group: str = "*"
    """Of the API; the core one has the empty name."""
    version: str = "*"
    kind: str = "*"
    object_name: str = "*"
    namespace: str = "*"
    expires: datetime | None = None
    security: bool = False
    """Allows hiding what concerns security: it must be said explicitly."""
    lands: bool = False
    """Lets a change of the field in the declaration through, while drift of it stays hidden.

    Without it the field keeps its live value whatever is declared.
    """

    same_as: AmountKind | None = None
    """Hides no more than another spelling of the same amount: that is no difference at all."""

    def __post_init__(self) -> None:
        top = self.pointer is not None and len(parse_pointer(self.pointer)) < 2
        wide = self.glob is not None and not re.search(r"\w[.\[]+.*\w", self.glob)
        if (self.pointer is None and self.glob is None and self.manager in (None, "*")) or (
            top or wide
        ):
            raise ConfigurationError(
                f"Ignore rule {self.name} would hide a whole object.",
                hint="Name a field below spec, data or metadata, or a field manager.",
            )

    def hides(
        self,
        path: Path,
        *,
        item: Fields,
        rules: Rules,
        writer: Writer | None,
        now: datetime,
    ) -> bool:
        """True when this rule hides that field of that live object, whatever its value."""
        return self.same_as is None and self._covers(
            path, item=item, rules=rules, writer=writer, now=now
        )

    def equates(
        self,
        change: Change,
        *,
        item: Fields,
        rules: Rules,
        writer: Writer | None,
        now: datetime,
    ) -> bool:
        """True when by this rule a live value is another spelling of the declared one."""
        return (
            self.same_as is not None
            and self.same_as.equal(change.desired, change.live)
            and self._covers(change.path, item=item, rules=rules, writer=writer, now=now)
        )

    def _covers(
        self,
        path: Path,
        *,
        item: Fields,
        rules: Rules,
        writer: Writer | None,
        now: datetime,
    ) -> bool:
        if self.expires is not None and now >= self.expires:
            return False
        if not self._concerns(item) or not path:
            return False
        if concerns_security(path, str(item.get("kind") or "")) and not self.security:
            return False
        if self.manager is not None and not (
            writer is not None and fnmatchcase(writer.manager, self.manager)
        ):
            return False
        if self.glob is not None and not path_matches(self.glob, path):
            return False
        if self.pointer is None:
            return True
        pointed = path_of_pointer(item, parse_pointer(self.pointer), rules)
        return path[: len(pointed)] == pointed

    def _concerns(self, item: Fields) -> bool:
        metadata = item.get("metadata")
        found = metadata if isinstance(metadata, dict) else {}
        group, _, version = str(item.get("apiVersion") or "").rpartition("/")
        return all(
            fnmatchcase(str(value or ""), wanted)
            for value, wanted in (
                (group, self.group),
                (version, self.version),
                (item.get("kind"), self.kind),
                (found.get("name"), self.object_name),
                (found.get("namespace"), self.namespace),
            )
        )


def _is_number(value: Tree) -> TypeGuard[str | int | float]:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def concerns_security(path: Path, kind: str) -> bool:
    """True for fields by which a workload gets more rights, and for credentials."""
    if not _SECURITY_FIELDS.isdisjoint(path):
        return True
    return kind in _SECURITY_KINDS and path[:1] != ("metadata",)


def path_matches(text: str, path: Path) -> bool:
    """True when a path, or one around it, is as a glob with `*` and `**` says."""
    return compiled_glob(text).matches(show_path(path))
