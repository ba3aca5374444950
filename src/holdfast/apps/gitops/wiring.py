"""Makes every part of a GitOps process and joins them. `main` runs and stops them."""

from __future__ import annotations

import contextlib
import hmac
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.forge.providers import KNOWN_HOSTS
from holdfast.adapters.git.address import parse_address
from holdfast.adapters.git.repository import GitRepositories
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.events import EventRecorder
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig, load_config
from holdfast.adapters.store.ledger_store import SqliteLedgerStore
from holdfast.apps.gitops.applications import (
    ApplicationCatalog,
    ApplicationStatusWriter,
    ClusterApplications,
    FileApplications,
)
from holdfast.apps.gitops.controller import GitopsController
from holdfast.apps.gitops.credentials import (
    ApplicationCredentials,
    CredentialStore,
    FolderCredentialStore,
    SecretCredentialStore,
    load_or_create_key,
    read_key_file,
)
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.gitops.reporting import ApplicationReporter, NotificationChannels
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.apps.gitops.sources import ApplicationSources, KindScopes
from holdfast.apps.gitops.watches import (
    WATCH_INDEXES,
    KindWatcher,
    make_autoscaler_lookup,
    make_pod_lookup,
)
from holdfast.apps.gitops.webhooks import WebhookReceiver
from holdfast.apps.server.gitops_events import ApplicationEvents
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.services import Services
from holdfast.core.errors import ConfigurationError, requires_extra
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.facts import CONTROLLER
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.codify import make_codifier
from holdfast.reconcile.gitops.ports import LedgerStore
from holdfast.reconcile.gitops.review import ReviewService
from holdfast.version import __version__

EVENT_REPORTER = "holdfast.dev/gitops"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitopsComponents:
    """The parts that run."""

    config: ClusterConfig
    lease: KubeApi
    """A connection of its own, so that no load delays a renewal."""
    work: KubeApi
    """Writes only while `may_write` says so."""
    applications: ApplicationCatalog
    watcher: KindWatcher
    channels: NotificationChannels
    recorder: EventRecorder
    controller: GitopsController
    ledger_store: LedgerStore
    metrics: GitopsMetrics


async def build_components(
    stack: contextlib.AsyncExitStack, services: Services, settings: GitopsSettings, identity: str
) -> GitopsComponents:
    """Make every part, and hand what people use into the services. Nothing runs yet."""
    clock = services.clock
    contexts: dict[ApplicationId, ApplicationContext] = {}
    config = load_config(settings.context, clock=clock)
    agent = f"holdfast-gitops/{__version__}"
    apis = [
        KubeApi(KubeConnection(config, clock=clock, user_agent=agent), manager=CONTROLLER)
        for _ in range(4)
    ]
    for api in apis:
        stack.push_async_callback(api.aclose)
    work, watches, lease, events = apis
    key = _load_key(settings)
    metrics = GitopsMetrics(services.metrics, _forge_provider_names(contexts))
    ledger_store = await _open_ledger(stack, services, settings)
    applications = _make_catalog(watches, services, settings)
    credentials = ApplicationCredentials(
        _make_credential_store(work, settings), local=settings.local
    )
    sources = ApplicationSources(
        GitRepositories(settings.cache or Path(f"{settings.db}.git")),
        credentials,
        KindScopes(work),
        settings,
        key=key,
        clock=clock,
    )
    stack.push_async_callback(sources.aclose)
    channels = NotificationChannels(
        ledger_store, credentials, clock, metrics, key=key, private=settings.private
    )
    recorder = EventRecorder(
        events.create,
        clock=clock,
        reporter=EVENT_REPORTER,
        instance=identity,
        count=lambda outcome: metrics.events.labels(outcome).inc(),
    )
    work.may_write = lambda: False
    services.application_events = live = ApplicationEvents(
        EventHub(base_url=services.config.base_url)
    )
    watcher = KindWatcher(watches, work, clock, indexes=WATCH_INDEXES)
    stack.push_async_callback(watcher.aclose)
    controller = GitopsController(
        client=watcher.client,
        applications=applications,
        sources=sources,
        contexts=contexts,
        ledger_store=ledger_store,
        key=key,
        send=channels.tell,
        retain=watcher.retain,
        statuses=ApplicationStatusWriter(watcher.client),
        listener=ApplicationReporter(recorder, channels, sources),
        clock=clock,
        chance=random.random,
        metrics=metrics,
        settings=settings,
        autoscalers=make_autoscaler_lookup(watcher),
        pods=make_pod_lookup(watcher),
        still_allowed=services.still_deciding,
        events=live,
        base_url=services.config.base_url,
    )
    watcher.listen(controller.on_object, controller.on_kind_availability)
    applications.listen(controller.on_application)
    if isinstance(applications, ClusterApplications):
        for informer in applications.informers:
            watcher.client.add(informer)
            informer.add_handler(controller.on_object)
    metrics.watch(
        contexts, repository_fingerprints(key), watcher.object_counts, controller.due_times
    )
    components = controller.reconciler.components
    services.review_service = ReviewService(
        contexts,
        components.observer,
        components.sync,
        clock,
        wake=controller.wake,
        send=channels.tell,
        codify=make_codifier(sources),
        base_url=services.config.base_url,
    )
    services.ledger_store = ledger_store
    services.webhook_handler = WebhookReceiver(
        contexts, lambda: credentials.webhooks, controller.hint, clock, metrics
    )
    return GitopsComponents(
        config=config,
        lease=lease,
        work=work,
        applications=applications,
        watcher=watcher,
        channels=channels,
        recorder=recorder,
        controller=controller,
        ledger_store=ledger_store,
        metrics=metrics,
    )


def _load_key(settings: GitopsSettings) -> bytes:
    if settings.key_file is not None:
        return read_key_file(settings.key_file)
    if settings.ledger is not None:
        raise ConfigurationError(
            "Controllers that share a ledger have to share the key that marks Secrets.",
            hint="Give the same --key-file to all of them.",
        )
    return load_or_create_key(Path(f"{settings.db}.key"))


async def _open_ledger(
    stack: contextlib.AsyncExitStack, services: Services, settings: GitopsSettings
) -> LedgerStore:
    if settings.ledger is None:
        return SqliteLedgerStore(services.store)
    with requires_extra("postgres", "A ledger in PostgreSQL"):
        from holdfast.adapters.postgres import open_ledger_store

    ledger_store = await open_ledger_store(settings.ledger, clock=services.clock)
    stack.push_async_callback(ledger_store.aclose)
    return ledger_store


def _make_catalog(api: KubeApi, services: Services, settings: GitopsSettings) -> ApplicationCatalog:
    if settings.files:
        return FileApplications(settings.files, services.clock)
    return ClusterApplications(api, settings.namespaces)


def _make_credential_store(api: KubeApi, settings: GitopsSettings) -> CredentialStore:
    if settings.files:
        return FolderCredentialStore(settings.credentials)
    return SecretCredentialStore(api, unbound=settings.unbound)


def repository_fingerprints(key: bytes) -> Callable[[ApplicationContext], str]:
    """Return what stands for a repository in figures, which anybody may read.

    Equal for applications of one address, and nothing that could be guessed and tried.
    """

    def mark(context: ApplicationContext) -> str:
        try:
            address = str(parse_address(context.application.spec.source.url, local=True))
        except ConfigurationError:
            return "unreadable"
        return hmac.digest(key, f"repository {address}".encode(), "sha256").hex()[:10]

    return mark


def _forge_provider_names(
    contexts: dict[ApplicationId, ApplicationContext],
) -> Callable[[ApplicationId], str]:
    def provider(id: ApplicationId) -> str:
        context = contexts.get(id)
        if context is None:
            return "unknown"
        spec = context.application.spec.pull_requests
        if spec is not None and spec.provider is not None:
            return spec.provider.value
        try:
            host = parse_address(context.application.spec.source.url, local=True).host
        except ConfigurationError:
            return "unknown"
        return KNOWN_HOSTS[host].value if host in KNOWN_HOSTS else "none"

    return provider
