"""The people file: who may sign in, and what an issuer's word is good for. Read strictly.

```yaml
openid:
  - id: gitea
    name: Our Gitea
    issuer: https://git.example.com
    client_id: 6f0c…
    client_secret: {file: /etc/holdfast/openid-secret}
    scopes: [openid, profile, email, groups]
    rules:
      - {claim: groups, value: "acme:reviewers", project: acme, scopes: [approve]}
ci:
  - id: github
    issuer: https://token.actions.githubusercontent.com
    audience: https://holdfast.example.com
    rules:
      - claims: {repository: acme/models, ref: refs/heads/main}
        project: acme
        scopes: [write]
        minutes: 15
```
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.core.errors import ConfigurationError, ValidationError
from holdfast.core.names import is_slug
from holdfast.core.people import (
    CiIssuer,
    ClaimRule,
    OpenIdProvider,
    PeopleConfig,
    SecretReference,
)
from holdfast.core.redact import credential_in
from holdfast.wire.yaml import Document, read_documents

HINT = "See docs/how-to/sign-in.md. The server was not started."
DEFAULT_SCOPES = ("openid", "profile", "email")
CI_IDENTITY = frozenset("sub repository repository_id project_path project_id".split())
"""Claims of which a rule for CI needs one: without, every job of the issuer would do."""
_LOOPBACK_HOST = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1")

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
_Scope = Literal["read", "write", "approve", "admin"]


class SecretReferenceForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file or a variable that holds a secret."""

    file: str = ""
    env: str = ""


class PersonRuleForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who has this value in this claim may do this in a project."""

    claim: _Text
    value: _Text
    project: _Text
    scopes: Annotated[list[_Scope], msgspec.Meta(min_length=1)]


class OpenIdProviderForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An issuer at which people sign in."""

    id: _Text
    issuer: _Text
    client_id: _Text
    rules: Annotated[list[PersonRuleForm], msgspec.Meta(min_length=1)]
    name: str = ""
    client_secret: SecretReferenceForm | None = None
    scopes: list[_Text] = []


class CiRuleForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A job with all of these claims may do this in a project."""

    claims: Annotated[dict[str, _Text | list[_Text]], msgspec.Meta(min_length=1)]
    project: _Text
    scopes: Annotated[list[Literal["read", "write", "approve"]], msgspec.Meta(min_length=1)]
    minutes: Annotated[int, msgspec.Meta(ge=1, le=60)] = 15


class CiIssuerForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An issuer of tokens for CI jobs."""

    id: _Text
    issuer: _Text
    audience: _Text
    rules: Annotated[list[CiRuleForm], msgspec.Meta(min_length=1)]


class PeopleForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    openid: list[OpenIdProviderForm] = []
    ci: list[CiIssuerForm] = []


def read_people(data: bytes, *, source: str) -> PeopleConfig:
    """Read a people file. Raises ConfigurationError that says where it is wrong."""
    try:
        documents = read_documents(data, source=source)
    except ValidationError as error:
        raise ConfigurationError(str(error), hint=HINT) from error
    if len(documents) != 1:
        raise _refused(source, "it has to be one document")
    (document,) = documents
    try:
        form = msgspec.convert(document.value, PeopleForm)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        where = document.where(_pointer(path)) if path else source
        raise _refused(where, f"{reason}{f' at {path}' if path else ''}") from error
    _check(document, form)
    return PeopleConfig(
        openid=tuple(map(_provider, form.openid)), ci=tuple(map(_ci_issuer, form.ci))
    )


def is_loopback_issuer(issuer: str) -> bool:
    """True for an issuer on this machine, the only one that may do without TLS."""
    return _LOOPBACK_HOST.fullmatch(urlsplit(issuer).hostname or "") is not None


def _provider(form: OpenIdProviderForm) -> OpenIdProvider:
    secret = form.client_secret
    return OpenIdProvider(
        id=form.id,
        name=form.name or form.id,
        issuer=form.issuer,
        client_id=form.client_id,
        client_secret=SecretReference(file=secret.file, env=secret.env) if secret else None,
        scopes=tuple(dict.fromkeys(["openid", *(form.scopes or DEFAULT_SCOPES)])),
        rules=tuple(
            ClaimRule(
                claims={rule.claim: frozenset([rule.value])},
                project=rule.project,
                scopes=frozenset(rule.scopes),
            )
            for rule in form.rules
        ),
    )


def _ci_issuer(form: CiIssuerForm) -> CiIssuer:
    return CiIssuer(
        id=form.id,
        issuer=form.issuer,
        audience=form.audience,
        rules=tuple(
            ClaimRule(
                claims={
                    name: frozenset([value] if isinstance(value, str) else value)
                    for name, value in rule.claims.items()
                },
                project=rule.project,
                scopes=frozenset(rule.scopes),
                seconds=rule.minutes * 60,
            )
            for rule in form.rules
        ),
    )


def _check(document: Document, form: PeopleForm) -> None:
    """Raise for what has the right shape and cannot be meant."""
    parts: Sequence[tuple[str, Sequence[OpenIdProviderForm | CiIssuerForm]]] = (
        ("openid", form.openid),
        ("ci", form.ci),
    )
    for kind, entries in parts:
        for index, entry in enumerate(entries):
            at = document.where(f"/{kind}/{index}")
            _check_entry(at, entry)
        _check_unique(document.where(f"/{kind}"), "id", [each.id for each in entries])
    _check_unique(document.where("/ci"), "issuer", [each.issuer for each in form.ci])
    for index, provider in enumerate(form.openid):
        secret = provider.client_secret
        if secret is not None and bool(secret.file) == bool(secret.env):
            at = document.where(f"/openid/{index}/client_secret")
            raise _refused(at, "client_secret names a file or an env, one of them")
    clients = {(each.issuer, each.client_id) for each in form.openid}
    for index, issuer in enumerate(form.ci):
        if (issuer.issuer, issuer.audience) in clients:
            raise _refused(
                document.where(f"/ci/{index}"),
                f"the audience {issuer.audience} is also the client_id at which people sign in, "
                "so that a person's token would do for a job's; give jobs another",
            )
        for number, rule in enumerate(issuer.rules):
            at = document.where(f"/ci/{index}/rules/{number}")
            if CI_IDENTITY.isdisjoint(rule.claims):
                names = ", ".join(sorted(CI_IDENTITY))
                raise _refused(
                    at,
                    "any job of anybody at this issuer would meet this rule; name the repository "
                    f"by one of the claims {names}",
                )


def _check_entry(at: str, entry: OpenIdProviderForm | CiIssuerForm) -> None:
    if not is_slug(entry.id):
        raise _refused(at, "an id has lower-case letters, digits and dashes")
    parts = urlsplit(entry.issuer)
    plain = parts.scheme == "http" and is_loopback_issuer(entry.issuer)
    odd = parts.query or parts.fragment or parts.username or "|" in entry.issuer
    if (parts.scheme != "https" and not plain) or not parts.hostname or odd or " " in entry.issuer:
        raise _refused(at, "an issuer is an https:// address without user, query and fragment")
    for rule in entry.rules:
        if not is_slug(rule.project):
            raise _refused(at, f"{rule.project[:80]!a} is not the slug of a project")
        texts = [rule.value] if isinstance(rule, PersonRuleForm) else []
        if any(credential_in(text) for text in [*texts, entry.id, entry.issuer]):
            raise _refused(at, "a credential stands in it; name a file or a variable instead")


def _check_unique(at: str, what: str, values: Iterable[str]) -> None:
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise _refused(at, f"the {what} {twice[0]} is there twice")


def _pointer(path: str) -> str:
    """Turn `$.openid[0].rules` into a JSON pointer."""
    return re.sub(r"[.\[]", "/", path.strip("`").removeprefix("$")).replace("]", "")


def _refused(where: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"The people file cannot be used: {where}: {reason}.", hint=HINT)
