"""People, and the text that says who decided: one form, made and read here alone.

A person is whom an OpenID Connect issuer vouches for: the issuer and the subject together, never
the name, which people choose and change. A token stands for a person only where it is on record
whose it is.

The text is `NAME (ID)`. The id is what a token or a person is known by, or both with a space
between: `ci (1a2b3c4d)`, `Alice (https://git.example.com|7)`,
`laptop (1a2b3c4d https://git.example.com|7)`. A CI job has `job:` before the issuer. It is always
the last pair of parentheses, so that a name can say nothing about it. Called by the server, which
writes it, and by the review, which compares persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

MAX_NAME = 100
_JOB = "job:"
"""No issuer begins like this: each is an http address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody an issuer vouches for. Compare `id`, and nothing else."""

    issuer: str
    subject: str
    name: str
    email: str = ""
    job: bool = False
    """True for a CI job: nobody, where people are asked for."""

    @property
    def id(self) -> str:
        """`issuer|subject`, without what would end it in a text."""
        kind = _JOB if self.job else ""
        return f"{kind}{self.issuer}|{quote(self.subject, safe=':/|@=,+~')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who decided, as read from the text on record."""

    name: str
    token_id: str = ""
    person_id: str = ""

    @property
    def job(self) -> bool:
        """True for what a CI job did."""
        return self.person_id.startswith(_JOB)


def actor_text(name: str, *, token_id: str = "", person: Person | None = None) -> str:
    """Write who decides."""
    known = [part for part in (token_id, person.id if person else "") if part]
    return f"{name} ({' '.join(known)})"


def parse_actor(text: str) -> Actor:
    """Read who decided. A text of another form is a name and nothing else."""
    name, _, rest = text.rpartition(" (")
    if not name or not rest.endswith(")"):
        return Actor(name=text)
    first, _, second = rest[:-1].partition(" ")
    if "|" in first:
        return Actor(name=name, person_id=first)
    return Actor(name=name, token_id=first, person_id=second)


def same_person(one: str, other: str) -> bool:
    """True when two texts name one person, as far as anybody knows.

    Where both are known to an issuer, that decides. Where one is not, equal names are taken as one
    person: tokens of one person bear one name, and a doubt must not let anybody approve what they
    did themselves.
    """
    first, second = parse_actor(one), parse_actor(other)
    if first.person_id and second.person_id:
        return first.person_id == second.person_id
    return first.name == second.name


def shown_name(*candidates: object) -> str:
    """Take the first candidate that can be shown as a name: on one line, printable, not long."""
    for candidate in candidates:
        if isinstance(candidate, str):
            name = " ".join(candidate.split())[:MAX_NAME].strip()
            if name and name.isprintable():
                return name
    return "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """Where a secret is: a file, or a variable of the environment. One of them is set."""

    file: str = ""
    env: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRule:
    """What those may do of whom an issuer says all of these things."""

    claims: Mapping[str, frozenset[str]]
    """By name of the claim, the values of which it must have one."""
    project: str
    scopes: frozenset[str]
    seconds: int = 0
    """Of a CI job: how long its token lives."""

    def allows(self, claims: Mapping[str, tuple[str, ...]]) -> bool:
        """True when every claim has one of the values that the rule names."""
        return all(
            not wanted.isdisjoint(claims.get(name, ())) for name, wanted in self.claims.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdProvider:
    """An issuer at which people sign in, and what its people may do here."""

    id: str
    name: str
    issuer: str
    client_id: str
    client_secret: SecretReference | None
    """None for a client that has none; then PKCE alone stands for it."""
    scopes: tuple[str, ...]
    """What is asked of the issuer; not what somebody may do here."""
    rules: tuple[ClaimRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CiIssuer:
    """An issuer of tokens for CI jobs, and what its jobs may do here."""

    id: str
    issuer: str
    audience: str
    rules: tuple[ClaimRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleConfig:
    """Everybody who may be let in without a token of ours."""

    openid: tuple[OpenIdProvider, ...] = ()
    ci: tuple[CiIssuer, ...] = ()

    def grants(
        self, provider: str, issuer: str, claims: Mapping[str, tuple[str, ...]]
    ) -> dict[str, frozenset[str]]:
        """Say what a person may do, by project. An issuer's people get by its own rules alone."""
        found: dict[str, frozenset[str]] = {}
        for each in self.openid:
            if (each.id, each.issuer) == (provider, issuer):
                for rule in each.rules:
                    if rule.allows(claims):
                        found[rule.project] = found.get(rule.project, frozenset()) | rule.scopes
        return found


def claim_values(claims: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return the values of a claim as texts; none for what is no text, number or list of them.

    A dot leads into an object, as in `realm_access.roles`, unless a claim has that name itself. An
    e-mail address counts once the issuer says that it was verified: until then its owner may be
    anybody.
    """
    if name == "email" and claims.get("email_verified") is not True:
        return ()
    value: object = claims.get(name)
    if name not in claims and "." in name:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    items = value if isinstance(value, list) else [value]
    return tuple(text for text in map(_claim_text, items) if text)


def _claim_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else ""
