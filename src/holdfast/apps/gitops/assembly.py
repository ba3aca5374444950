"""Makes every part of a controller and joins them. `main` runs and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.forge.choose import KNOWN
from holdfast.adapters.git.address import parse_address
from holdfast.adapters.git.repositories import Repositories
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.client import ClusterClient, LeadingClient
from holdfast.adapters.kubernetes.config import ClusterConfig
from holdfast.adapters.kubernetes.connection import Connection
from holdfast.adapters.kubernetes.events import Recorder
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.store.book import StoreBook
from holdfast.apps.gitops.applications import (
    Applications,
    FiledApplications,
    StoredApplications,
)
from holdfast.apps.gitops.channels import Channels
from holdfast.apps.gitops.controller import Controller
from holdfast.apps.gitops.counting import CountingBook
from holdfast.apps.gitops.credentials import Credentials, FolderVault, SecretVault, Vault
from holdfast.apps.gitops.key import key_of, own_key
from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.gitops.parts import assemble
from holdfast.apps.gitops.settings import Settings
from holdfast.apps.gitops.sources import ApplicationSources, Scoping
from holdfast.apps.gitops.statuses import Statuses
from holdfast.apps.gitops.surroundings import INDEXES
from holdfast.apps.gitops.telling import Telling
from holdfast.apps.gitops.watching import Watching
from holdfast.apps.gitops.webhooks import Webhooks
from holdfast.apps.server.services import Services
from holdfast.core.errors import ConfigurationError, requires_extra
from holdfast.core.gitops.application import AppId
from holdfast.reconcile.gitops.follow import Follower
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ledger import CONTROLLER
from holdfast.reconcile.gitops.ports import Book
from holdfast.version import __version__
from holdfast.wire.gitops_v1 import app_id

REPORTER = "holdfast.dev/gitops"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The parts that run."""

    config: ClusterConfig
    lease: KubeApi
    """A connection of its own, so that no load delays a renewal."""
    writer: LeadingClient
    applications: Applications
    watching: Watching
    channels: Channels
    recorder: Recorder
    controller: Controller
    book: Book
    metrics: Metrics


async def assembled(
    stack: contextlib.AsyncExitStack, services: Services, settings: Settings, identity: str
) -> Machine:
    """Make every part, and hand what people use into the services. Nothing runs yet."""
    clock = services.clock
    followed: dict[AppId, Following] = {}
    config = load_config(settings.context, clock=clock)
    agent = f"holdfast-gitops/{__version__}"
    apis = [
        KubeApi(Connection(config, clock=clock, user_agent=agent), manager=CONTROLLER)
        for _ in range(4)
    ]
    for api in apis:
        stack.push_async_callback(api.aclose)
    work, watches, lease, events = apis
    key = _key(settings)
    metrics = Metrics(services.metrics)
    book = CountingBook(await _book(stack, services, settings), metrics, _providers(followed))
    applications = _applications(watches, services, settings)
    credentials = Credentials(_vault(work, settings), local=settings.local)
    sources = ApplicationSources(
        Repositories(settings.cache or Path(f"{settings.db}.git")),
        credentials,
        Scoping(work),
        settings,
        key=key,
        clock=clock,
    )
    stack.push_async_callback(sources.aclose)
    channels = Channels(book, credentials, clock, metrics, key=key, private=settings.private)
    recorder = Recorder(
        events.create,
        clock=clock,
        reporter=REPORTER,
        instance=identity,
        count=lambda outcome: metrics.events.labels(outcome).inc(),
    )
    writer = LeadingClient(work)
    watching = Watching(
        watches,
        writer,
        clock,
        told=lambda old, new: controller.on_object(old, new),
        turned=lambda place: controller.on_turn(place),
        indexes=INDEXES,
    )
    stack.push_async_callback(watching.aclose)
    if isinstance(applications, StoredApplications):
        for informer in applications.informers:
            watching.client.add(informer)
            informer.add_handler(lambda old, new: controller.on_object(old, new))
    parts = assemble(
        watching,
        sources,
        followed,
        clock,
        metrics,
        key=key,
        cluster=settings.cluster,
        tell=channels.tell,
        wake=lambda id: controller.wake(id),
        still_allowed=services.still_deciding,
        annotation_holds=settings.annotation_holds,
    )
    rendering = asyncio.Semaphore(settings.workers)
    controller = Controller(
        applications=applications,
        followed=followed,
        book=book,
        reconciler=parts.reconciler,
        follower=lambda: Follower(sources, clock, random.random, rendering=rendering),
        retain=watching.retain,
        statuses=Statuses(watching.client),
        around=Telling(recorder, channels, sources),
        clock=clock,
        chance=random.random,
        metrics=metrics,
        settings=settings,
    )
    applications.listen(controller.on_application)
    metrics.watch(followed, repository_marks(key), watching.counts, controller.due)
    services.desk, services.book = parts.desk, book
    services.hook = Webhooks(
        followed, lambda: credentials.webhooks, controller.hint, clock, metrics
    )
    return Machine(
        config=config,
        lease=lease,
        writer=writer,
        applications=applications,
        watching=watching,
        channels=channels,
        recorder=recorder,
        controller=controller,
        book=book,
        metrics=metrics,
    )


def _key(settings: Settings) -> bytes:
    if settings.key_file is not None:
        return key_of(settings.key_file)
    if settings.ledger is not None:
        raise ConfigurationError(
            "Controllers that share a ledger have to share the key that marks Secrets.",
            todo="Give the same --key-file to all of them.",
        )
    return own_key(Path(f"{settings.db}.key"))


async def _book(stack: contextlib.AsyncExitStack, services: Services, settings: Settings) -> Book:
    if settings.ledger is None:
        return StoreBook(services.store)
    with requires_extra("postgres", "A ledger in PostgreSQL"):
        from holdfast.adapters.postgres import open_book

    book = await open_book(settings.ledger, clock=services.clock)
    stack.push_async_callback(book.aclose)
    return book


def _applications(api: KubeApi, services: Services, settings: Settings) -> Applications:
    if settings.files:
        return FiledApplications(settings.files, services.clock)
    return StoredApplications(api, settings.namespaces)


def _vault(api: KubeApi, settings: Settings) -> Vault:
    if settings.files:
        return FolderVault(settings.credentials)
    return SecretVault(ClusterClient(api), unbound=settings.unbound)


def repository_marks(key: bytes) -> Callable[[Following], str]:
    """Return what stands for a repository in figures, which anybody may read.

    Equal for applications of one address, and nothing that could be guessed and tried.
    """

    def mark(following: Following) -> str:
        try:
            address = str(parse_address(following.application.spec.source.url, local=True))
        except ConfigurationError:
            return "unreadable"
        return hmac.digest(key, f"repository {address}".encode(), "sha256").hex()[:10]

    return mark


def _providers(followed: dict[AppId, Following]) -> Callable[[str], str]:
    def provider(application: str) -> str:
        following = followed.get(app_id(application))
        if following is None:
            return "unknown"
        spec = following.application.spec.pull_requests
        if spec is not None and spec.provider is not None:
            return spec.provider.value
        try:
            host = parse_address(following.application.spec.source.url, local=True).host
        except ConfigurationError:
            return "unknown"
        return KNOWN[host].value if host in KNOWN else "none"

    return provider
