"""The custom resource `Application`: a part of a repository that a cluster is to follow.

The same document stands in a file where there is no cluster to keep it. How a value must look is
said in its type; the checks, the JSON form and the schema are read off it, as with the other
custom resource. What is left unset has the default that its docstring names, and the default is
always the one that writes least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from holdfast.core.cost import CostKind
from holdfast.core.custom_resource import (
    Condition,
    Count,
    Duration,
    Moment,
    ObjectName,
    Percent,
    Slug,
    Text,
    ValueFormat,
    raise_problems,
)
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.notification import Severity
from holdfast.core.gitops.source import Renderer
from holdfast.core.ownership.ignore import AmountKind
from holdfast.core.policy import Policy

GitUrl = Annotated[
    str, ValueFormat(description="the address of a repository", pattern=r"^\S+$", max_length=1000)
]
Revision = Annotated[
    str,
    ValueFormat(description="a branch, a tag or a commit", pattern=r"^[A-Za-z0-9][^\s~^:?*\[\\]*$"),
]
RepositoryPath = Annotated[
    str,
    ValueFormat(
        description="a path inside the repository", pattern=r"^[^/\s\\][^\s\\]*$", max_length=1000
    ),
]
Pattern = Annotated[
    str, ValueFormat(description="a name, with * for any text", pattern=r"^[^\s?\[\]]+$")
]
PathGlob = Annotated[
    str, ValueFormat(description="a path, with * and ** for any", max_length=500, pattern=r"\S")
]
Namespace = Annotated[
    str,
    ValueFormat(
        description="the name of a namespace",
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        max_length=63,
    ),
]
SecretKey = Annotated[
    str, ValueFormat(description="a key of a Secret", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
]
Pointer = Annotated[
    str,
    ValueFormat(
        description="a JSON pointer such as /spec/replicas", pattern=r"^/.*/.+", max_length=500
    ),
]
Cron = Annotated[
    str,
    ValueFormat(
        description="a schedule of five fields such as 0 22 * * 1-5",
        pattern=r"^[0-9A-Za-z*,/#-]+( [0-9A-Za-z*,/#-]+){4}$",
    ),
]
NOT_EMPTY = ValueFormat(description="a list of at least one", minimum=1)
"""An empty list would read as "nothing" to one and as "no matter" to another."""
Zone = Annotated[
    str,
    ValueFormat(
        description="a time zone such as Europe/Madrid", pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$"
    ),
]


KIND = "Application"
PLURAL = "applications"


class Remediation(StrEnum):
    """What is done about a drift."""

    REPORT = "report"
    SELF_HEAL = "self-heal"
    REVIEW = "review"
    """Tell, keep a plan, and apply exactly that plan once a reviewer approves its digest."""
    PULL_REQUEST = "pull-request"
    IGNORE = "ignore"

    @property
    def policy(self) -> Policy:
        """Its place on the one scale."""
        return _REMEDIATIONS[self].policy

    @property
    def ends_with_sync(self) -> bool:
        """True when who asks for a sync asks for the end of such drift too, without force."""
        return _REMEDIATIONS[self].ends_with_sync

    @property
    def awaits(self) -> str:
        """A sentence for whoever hears of the drift: what it waits for; empty for nothing."""
        return _REMEDIATIONS[self].awaits


@dataclass(frozen=True, slots=True)
class _RemediationTraits:
    """How one remediation differs from the others."""

    policy: Policy
    ends_with_sync: bool = False
    awaits: str = ""


_REMEDIATIONS = {
    Remediation.REPORT: _RemediationTraits(Policy.REPORT, ends_with_sync=True),
    Remediation.SELF_HEAL: _RemediationTraits(Policy.HEAL, ends_with_sync=True),
    Remediation.REVIEW: _RemediationTraits(Policy.REVIEW, awaits="It waits for a review."),
    Remediation.PULL_REQUEST: _RemediationTraits(Policy.PROPOSE),
    Remediation.IGNORE: _RemediationTraits(Policy.IGNORE),
}
"""What else is to be said of a remediation. `reconcile/gitops/build.py` names what carries it
out."""


class PullRequestKind(StrEnum):
    """What a pull request about a drift proposes."""

    CODIFY = "codify"
    """Declare the live value."""
    REVERT = "revert"
    """Put the declared value back; merging the decision is the approval."""


class OrphanPolicy(StrEnum):
    """What to make of objects in the application's own namespaces that Git does not declare."""

    IGNORE = "ignore"
    REPORT = "report"
    REMEDIATE = "remediate"
    """They follow the routes, as resource drift: self-heal deletes them."""


class HoldEnd(StrEnum):
    """What happens to an emergency change when its hold ends."""

    PULL_REQUEST = "pull-request"
    REVERT = "revert"


class AnnotationHolds(StrEnum):
    """Whether an annotation on an object itself may hold it. Who may edit an object may write one,
    so it is allowed for a while and not for ever."""

    LIMITED = "limited"
    NEVER = "never"


class WindowKind(StrEnum):
    """Whether writing is allowed during a window, or forbidden."""

    ALLOW = "allow"
    DENY = "deny"


class ForgeProvider(StrEnum):
    """A kind of forge. Forgejo speaks as Gitea does."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


class ChannelKind(StrEnum):
    """How somebody is told."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeyRef:
    """One value in a Secret of the Application's own namespace."""

    name: ObjectName
    key: SecretKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Which part of which repository."""

    url: GitUrl
    revision: Revision | None = None
    """`main` when unset."""
    path: RepositoryPath | None = None
    """The whole repository when unset."""
    renderer: Renderer | None = None
    interval: Duration | None = None
    """How often the repository is asked, with jitter: `1m` when unset. Webhooks only hasten it."""
    credentials: ObjectName | None = None
    """A Secret with `token` (and `username`), or `ssh-privatekey` and `known_hosts`; `ca.crt` for
    an own authority; `webhook` for the secret that signs webhooks."""
    decryption: ObjectName | None = None
    """A Secret whose values are age identities, for documents encrypted with SOPS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """A recurring time in which the cluster may be written, or must not be."""

    kind: WindowKind
    schedule: Cron
    duration: Duration
    time_zone: Zone | None = None
    """UTC when unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSpec:
    """How much may be done before a person is asked: the larger of the two.

    Counts what is deleted without asking within a day, an update as a quarter of a deletion, and
    what drift would be healed within a minute.
    """

    objects: Count | None = None
    """5 when unset, and for deletions no more than half of what was applied."""
    percent: Percent | None = None
    """20 of what was applied when unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSpec:
    """What is done when Git moves ahead."""

    automatic: bool | None = None
    """Apply new commits by themselves. Otherwise `holdfast sync` does."""
    prune: bool | None = None
    """Delete what was applied and is no longer declared."""
    allow_empty: bool | None = None
    """Lets a repository that declares nothing be meant, once a person approved it."""
    guard: GuardSpec | None = None
    windows: tuple[WindowSpec, ...] | None = None
    """For everything that the controller writes by itself. Without any, always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSpec:
    """Which drift a route is for. Every list that is given must have a match."""

    drift: Annotated[tuple[DriftKind, ...], NOT_EMPTY] | None = None
    kinds: Annotated[tuple[Pattern, ...], NOT_EMPTY] | None = None
    """Kinds of objects: `Deployment`, `*Route`."""
    namespaces: Annotated[tuple[Pattern, ...], NOT_EMPTY] | None = None
    names: Annotated[tuple[Pattern, ...], NOT_EMPTY] | None = None
    paths: Annotated[tuple[PathGlob, ...], NOT_EMPTY] | None = None
    """As in ignore rules: `spec.**.env[name=HTTP_*]`."""
    managers: Annotated[tuple[Pattern, ...], NOT_EMPTY] | None = None
    """Field managers: `kubectl*`."""
    causes: Annotated[tuple[Cause, ...], NOT_EMPTY] | None = None
    cost: Annotated[tuple[CostKind, ...], NOT_EMPTY] | None = None
    """What it costs to put it back. A cost that nobody can tell matches none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """One rule: the first whose conditions hold decides."""

    name: Slug
    match: MatchSpec | None = None
    """Everything when unset."""
    remediation: Remediation
    pull: PullRequestKind | None = None
    """For pull requests: codify when unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreSpec:
    """One ignore rule. The same rule hides in detection and holds back in apply."""

    name: Slug
    owner: Text
    pointer: Pointer | None = None
    path: PathGlob | None = None
    manager: Pattern | None = None
    kind: Pattern | None = None
    object_name: Pattern | None = None
    namespace: Pattern | None = None
    expires: Moment | None = None
    security: bool | None = None
    lands: bool | None = None
    """Lets a change of the field in Git through, while drift of it stays hidden."""
    same_as: AmountKind | None = None
    """Compares the field as a quantity or a duration, and hides nothing else of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSpec:
    """What is done when somebody changes the live side."""

    routes: tuple[RouteSpec, ...] | None = None
    """Report when unset, and for whatever no route matches."""
    ignore: tuple[IgnoreSpec, ...] | None = None
    orphans: OrphanPolicy | None = None
    """Report when namespaces are owned."""
    namespaces: tuple[Namespace, ...] | None = None
    """Namespaces that are this application's alone; only there are orphans looked for."""
    hold_end: HoldEnd | None = None
    """Pull request when unset."""
    annotation_holds: AnnotationHolds | None = None
    """As the controller was told when unset, and limited where that was told nothing."""
    four_eyes: bool | None = None
    """Who asked for a plan cannot approve it; where nobody knows who made a change, two have to."""
    comment: bool | None = None
    """An approval needs a comment."""
    model_heads: bool | None = None
    """A model whose branch moved on from the commit that Git pins counts as drift of its pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestSpec:
    """How pull requests are opened."""

    provider: ForgeProvider | None = None
    """Told from the address where it is a well-known host."""
    api: Text | None = None
    """The forge's own address, such as https://git.example.com."""
    base: Revision | None = None
    """The branch they are for; the source's revision when unset."""
    labels: tuple[Text, ...] | None = None
    """Beside `holdfast` and `drift/<kind>`."""
    draft: bool | None = None
    most_open: Count | None = None
    """5 when unset; what is over waits."""
    most_hourly: Count | None = None
    """3 when unset."""
    deadline: Duration | None = None
    """How long a drift is tolerated while its pull request is open: `72h` when unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """Where notices go."""

    name: Slug
    kind: ChannelKind
    url: SecretKeyRef | None = None
    """An address is a secret: it stands in one."""
    signing: SecretKeyRef | None = None
    """The secret that signs a webhook's body."""
    least: Severity | None = None
    """What is quieter is not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationSpec:
    """What to follow, where to put it, and what to do about differences."""

    project: Slug
    source: SourceSpec
    namespace: Namespace | None = None
    """For declared objects that name none; the Application's own when unset."""
    suspend: bool | None = None
    """Look at nothing and write nothing until it is unset."""
    sync: SyncSpec | None = None
    drift: DriftSpec | None = None
    pull_requests: PullRequestSpec | None = None
    notify: tuple[ChannelSpec, ...] | None = None

    def validate(self) -> None:
        """Raise InvalidSpec with everything that is wrong, unless nothing is."""
        from holdfast.core.gitops.application_validation import spec_problems  # it needs the types

        raise_problems(KIND, spec_problems(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSummary:
    """One object of the status: only those that are not simply in sync."""

    object: str
    standing: str
    health: str | None = None
    message: str | None = None
    drift: str | None = None
    """The id of its drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationStatus:
    """What the controller says."""

    sync: str = "unknown"
    """`synced`, `ahead`, `drifted` or `unknown`."""
    health: str = "unknown"
    revision: str | None = None
    """The commit that was applied last, whole."""
    short_revision: str | None = None
    """The same in eight characters, for `kubectl get`. Set by itself."""
    fetched: str | None = None
    """The newest commit that is known."""
    fetched_at: str | None = None
    message: str = ""
    objects: int = 0
    drifted: int = 0
    ahead: int = 0
    held: int = 0
    tolerated: int = 0
    orphans: int = 0
    plan: str | None = None
    """The digest of a plan that waits for a person."""
    not_in_sync: tuple[ObjectSummary, ...] | None = None
    """The first hundred."""
    observed_generation: int | None = None
    last_handled_reconcile_at: str | None = None
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "short_revision", self.revision and self.revision[:7])


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ApplicationId:
    """One Application by name. The namespace is empty for one from a file."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def label(self) -> str:
        """What its objects are labelled with: names are DNS labels, so a dot parts them."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    def is_called(self, name: str) -> bool:
        """True for its name alone, and for the name with its namespace in either spelling."""
        return name in (self.name, str(self), self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The whole object."""

    id: ApplicationId
    uid: str = ""
    generation: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    spec: ApplicationSpec
    status: ApplicationStatus | None = None

    @property
    def namespace(self) -> str:
        """Where objects go that name no namespace."""
        return self.spec.namespace or self.id.namespace or "default"

    def validate(self) -> None:
        """Raise InvalidSpec with everything that is wrong, the name included."""
        from holdfast.core.gitops.application_validation import name_problems, spec_problems

        raise_problems(KIND, [*name_problems(self.id), *spec_problems(self.spec)])
