"""Everything a handler may use, put together once when the server starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import aiohttp

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.store import Store, StoreTarget, Token, WorkloadRecord
from holdfast.apps.server.authorize import Authorizer, StoreCache
from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.errors import not_found_error
from holdfast.apps.server.identities import Identities
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.apps.server.sessions import SignInLinks
from holdfast.apps.server.supervisor import ServerSupervisor
from holdfast.core.live import Live, Status, Writer
from holdfast.core.people import parse_actor
from holdfast.core.single_machine import unsupported_fields
from holdfast.reconcile.ports import ControlTarget

if TYPE_CHECKING:
    from holdfast.apps.server.cluster_routes import ClusterWorkloads
    from holdfast.apps.server.gitops_events import ApplicationEvents
    from holdfast.apps.server.page import PageFiles
    from holdfast.reconcile.gitops.drift_facts import DriftFacts
    from holdfast.reconcile.gitops.ports import LedgerStore
    from holdfast.reconcile.gitops.review import ReviewService


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    """What became of a webhook's delivery. It says nothing about repositories."""

    status: int
    """202 taken, 200 about nothing here, 400 unreadable, 401 not genuine, 404 no webhooks are
    configured, 413 too large, 429 too many at once, or too many that were not genuine."""
    message: str


WebhookHandler = Callable[[str, Mapping[str, str], bytes], Awaitable[WebhookResponse]]
"""Takes a delivery: the provider's name, the headers and the raw body."""


@dataclass(kw_only=True)
class Services:
    """One server's parts. Handlers get it and nothing else beside the request."""

    config: ServerConfig
    clock: SystemClock
    store: Store
    cache: StoreCache
    authorizer: Authorizer
    metrics: ServerMetrics
    hub: EventHub
    """Which workloads change."""
    supervisor: ServerSupervisor
    session: aiohttp.ClientSession
    """To the workloads' own ports."""
    sign_in_links: SignInLinks
    identities: Identities
    """The people file: who may sign in elsewhere, and what they may do."""
    closing: asyncio.Event
    """Set once the server was told to stop."""
    page: PageFiles
    """What a browser is given."""
    cluster: ClusterWorkloads | None = None
    """Set where a cluster keeps the workloads, and the store only projects and tokens."""
    review_service: ReviewService | None = None
    """Set where the GitOps controller runs beside the server: what people may ask and decide."""
    ledger_store: LedgerStore | None = None
    """The controller's ledger; set when `review_service` is."""
    drift_facts: DriftFacts | None = None
    """What figures need of the ledger's drifts; made when they are asked for first."""
    application_events: ApplicationEvents | None = None
    """The live stream of applications; set when `review_service` is."""
    webhook_handler: WebhookHandler | None = None
    """Takes the webhooks of forges; set when `review_service` is."""
    url: str = ""
    ready: bool = False
    waiting: str = ""
    """Why requests are not welcome yet though the server has started; empty when they are."""

    def __post_init__(self) -> None:
        self._project_ids: dict[str, str] = {}
        self.listing = asyncio.Lock()
        """Held while a list is put together, so that many lists at once do not add up."""

    def project_id(self, slug: str) -> str:
        """Return a project's id. Neither changes once the project is there."""
        found = self._project_ids.get(slug)
        if found is None:
            project = self.store.project(slug)
            if project is None:
                raise not_found_error()
            found = self._project_ids[slug] = project.id
        return found

    @property
    def public_url(self) -> str:
        """Where clients reach this server: by its base URL, or where it listens."""
        return self.config.base_url or self.url

    def status(self, record: WorkloadRecord) -> Status:
        """Say how a workload is doing and where it answers."""
        endpoint = f"{self.public_url}/endpoint/{record.id.project}/{record.id.slug}/v1"
        status = self.supervisor.status(record.uid)
        message = status.message
        # The published wire lets these be declared; nobody shall think that they are honoured.
        if ignored := ", ".join(problem.field for problem in unsupported_fields(record.fields)):
            message = f"{message} Not honoured on this machine: {ignored}.".strip()
        return replace(status, message=message, endpoint=endpoint)

    def shown(self, live: Live) -> Live:
        """Say of a workload where it answers here, whatever its target calls it."""
        endpoint = f"{self.public_url}/endpoint/{live.id.project}/{live.id.slug}/v1"
        return replace(live, status=replace(live.status, endpoint=endpoint))

    def target(self, writer: Writer) -> ControlTarget:
        """Return where workloads are kept, writing as the given writer."""
        if self.cluster is not None:
            return self.cluster.target(writer)
        return self.store_target(writer)

    def store_target(self, writer: Writer) -> StoreTarget:
        """Return this server's own store, whose workloads its runner runs."""
        return StoreTarget(
            self.store,
            writer=writer,
            status=self.status,
            cost=self.supervisor.cost,
            try_again=self.supervisor.try_again,
            submit=True,
        )

    def still_good(self, token: Token) -> bool:
        """Ask again about the credential of an open stream."""
        return self.authorizer.still_good(token, self.clock.now())

    def still_deciding(self, actor: str) -> bool:
        """Ask again about the token in whose name something was decided a while ago."""
        decided = parse_actor(actor)
        if not decided.token_id:
            return True  # decided by a person, or by other means than a token, such as a merge
        token = self.store.token(decided.token_id)
        return token is not None and self.still_good(token)
