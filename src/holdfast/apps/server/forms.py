"""The bodies and answers that only the control plane knows; the shared ones are in `wire`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from holdfast.adapters.store import Token, TokenKind, TokenScope, WorkloadRecord
from holdfast.core.live import Live
from holdfast.core.names import WorkloadId
from holdfast.core.outcome import Outcome
from holdfast.core.page_links import workload_link
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
    url: str = ""
    """Where the page shows it, while it is there and the server's base URL is set."""


class TokenRequestForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token to be created: `sdk` with scopes, or `live` for one workload.

    A `live` one without a workload opens every workload of the project.
    """

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


class LoginProviderForm(msgspec.Struct, kw_only=True):
    """An OpenID Connect issuer to sign in at; `url` begins there."""

    id: str
    name: str
    url: str


class LoginForm(msgspec.Struct, kw_only=True):
    """What a login screen can offer."""

    openid: list[LoginProviderForm]
    token: bool
    version: str


class SignInForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token, or the code of a sign-in link: one of them."""

    token: str | None = None
    code: str | None = None
    confirmed: bool = False
    """Of a code: whoever signs in was asked, and knows whose link it is."""


class TokenExchangeForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The id token that a CI job got from its forge, for the audience of the people file."""

    id_token: Annotated[str, msgspec.Meta(min_length=1)]


class SignInLinkForm(msgspec.Struct, kw_only=True):
    """A link that signs in once."""

    url: str
    expires_at: datetime


class ProjectScopesForm(msgspec.Struct, kw_only=True):
    """What somebody may do in one project."""

    project: str
    scopes: list[TokenScope]


class OwnTokenForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The token that somebody acts by."""

    id: str
    name: str
    expires_at: datetime | None = None


class OwnSessionForm(msgspec.Struct, kw_only=True):
    """The session that somebody acts in."""

    id: str
    created_at: datetime
    expires_at: datetime


class ServerForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What this process is, and has: `workloads`, `applications`, `data-plane`."""

    version: str
    target: str
    features: list[str]
    base_url: str = ""


class MeForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Who asks, and what they may do. `kind` is `token` or `person`."""

    name: str
    kind: str
    projects: list[ProjectScopesForm]
    server: ServerForm
    issuer: str = ""
    subject: str = ""
    email: str = ""
    token: OwnTokenForm | None = None
    session: OwnSessionForm | None = None


class SessionForm(msgspec.Struct, kw_only=True):
    """One session: when it was begun and used last, by which program and address."""

    id: str
    created_at: datetime
    last_seen: datetime
    expires_at: datetime
    current: bool
    agent: str
    peer: str


class SessionListForm(msgspec.Struct, kw_only=True):
    """Sessions, oldest first."""

    sessions: list[SessionForm]


class HealthForm(msgspec.Struct, kw_only=True):
    """Whether the server lives, or is ready."""

    status: str


def change_event(
    workload: WorkloadId, now: WorkloadRecord | Live | None, base_url: str
) -> ChangeEventForm:
    """Write that a workload changed, and which version it has now."""
    page = workload_link(base_url, workload.project, workload.slug) if now else None
    return ChangeEventForm(
        project=workload.project,
        slug=workload.slug,
        version=now.version if now else None,
        generation=now.generation if now else 0,
        url=page or "",
    )


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
