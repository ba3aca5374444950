"""The bodies and answers that only the control plane knows; the shared ones are in `wire`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from holdfast.adapters.store import Token, TokenKind, TokenScope
from holdfast.core.outcome import Outcome
from holdfast.core.policy import OnAbsent, OnDrift
from holdfast.wire.plan_v1 import PlanForm
from holdfast.wire.workload_v1 import WorkloadForm


class WorkloadListForm(msgspec.Struct, kw_only=True):
    """Workloads by slug."""

    workloads: list[WorkloadForm]


class EnsureForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A declaration, and what to do when the live side differs or is not there."""

    spec: dict[str, object]
    on_drift: OnDrift = OnDrift.RECONCILE
    on_absent: OnAbsent = OnAbsent.CREATE


class EnsuredForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What happened, and the plan that said so."""

    outcome: Outcome
    plan: PlanForm
    workload: WorkloadForm | None = None


class PlanRequestForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Declarations to be compared; nothing is changed."""

    specs: list[dict[str, object]]


class ChangeEventForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One workload that changed. Without a version it is gone."""

    project: str
    slug: str
    version: str | None = None
    generation: int = 0


class TokenRequestForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token to be created: `sdk` with scopes, or `live` for one workload."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    kind: TokenKind = TokenKind.SDK
    scopes: list[TokenScope] = []
    workload: str | None = None
    expires_in: Annotated[int, msgspec.Meta(ge=1, le=10 * 365 * 86_400)] | None = None
    """Seconds from now; without it the token is good until it is revoked."""


class TokenForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token without its secret."""

    id: str
    kind: TokenKind
    project: str
    name: str
    scopes: list[TokenScope]
    created_at: datetime
    workload_id: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class NewTokenForm(TokenForm, kw_only=True, omit_defaults=True):
    """A new token. `token` is shown this once and cannot be asked for again."""

    token: str = ""


class TokenListForm(msgspec.Struct, kw_only=True):
    """Tokens, oldest first."""

    tokens: list[TokenForm]


class HealthForm(msgspec.Struct, kw_only=True):
    """Whether the server lives, or is ready."""

    status: str


def token_to_json(token: Token) -> TokenForm:
    """Write a token."""
    return TokenForm(
        id=token.id,
        kind=token.kind,
        project=token.project,
        name=token.name,
        scopes=sorted(token.scopes),
        created_at=token.created_at,
        workload_id=token.workload_uid,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
