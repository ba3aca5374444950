"""Opens what Applications name: their repositories, renderers and forges; the port `Sources`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.adapters.forge.providers import make_forge
from holdfast.adapters.git.address import GitScheme, RepositoryAddress, parse_address
from holdfast.adapters.git.repository import GitRepositories
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.outbound import look_up_host, proxy_for
from holdfast.adapters.render.renderer import FileRenderer, RenderCache
from holdfast.adapters.render.sops import SopsDecryptor
from holdfast.apps.gitops.credentials import ApplicationCredentials
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.core.address_reach import literal_address, source_problem
from holdfast.core.errors import ConfigurationError, HoldfastError, SourceUnavailable
from holdfast.core.gitops.application import Application, ApplicationId, PullRequestSpec
from holdfast.core.gitops.kustomize import LayerStack
from holdfast.core.gitops.source import RenderedSource, Renderer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import (
    Decryptor,
    Forge,
    GitCredential,
    Repository,
    SourceExport,
)
from holdfast.reconcile.ports import Clock

_MAX_RENDER_ROUNDS = 3
RESOLVE_TIMEOUT, RESOLVE_TTL = 10.0, 30.0
"""Seconds for the name service to answer, and that its answer is kept."""
_RESOLVER_THREADS = 4
Resolve = Callable[[str, int], Sequence[str]]
"""Host and port to every address of it; may take its time."""


class KindScopes:
    """Says which kinds have namespaces, by what the cluster serves."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._known: dict[tuple[str, str], bool] = {}
        self._asked: set[tuple[str, str]] = set()

    def scoped(self, ref: ObjectRef) -> bool | None:
        """Answer at once from what is known; what is not is asked for later."""
        kind = (ref.api_version, ref.kind)
        if kind not in self._known:
            self._asked.add(kind)
        return self._known.get(kind)

    async def learn(self) -> bool:
        """Ask the cluster for the kinds that were asked about; True when it knew one."""
        asked, self._asked = self._asked, set()
        learned = False
        for api_version, kind in sorted(asked):
            try:
                found = await self._api.resource_of(api_version, kind)
            except HoldfastError:
                continue  # not served or not answered: nobody knows, and the render said so
            self._known[api_version, kind] = found.namespaced
            learned = True
        return learned


class ClusterAwareRenderer:
    """A renderer that asks the cluster about kinds that it does not know."""

    def __init__(self, inner: FileRenderer, scoping: KindScopes) -> None:
        self._inner = inner
        self._scoping = scoping

    async def render(
        self, export: SourceExport, path: str, *, renderer: Renderer, namespace: str
    ) -> RenderedSource:
        """See the port."""
        for _ in range(_MAX_RENDER_ROUNDS):
            made = await self._inner.render(export, path, renderer=renderer, namespace=namespace)
            if not await self._scoping.learn():
                break
        return made

    def trail(self, export: SourceExport, path: str, *, renderer: Renderer) -> LayerStack | None:
        """See the port."""
        return self._inner.trail(export, path, renderer=renderer)


@dataclass(slots=True)
class _OpenSource:
    """What was made for one Application, and from what."""

    identities: Secret | None = None
    decryptor: Decryptor | None = None
    renders: ClusterAwareRenderer | None = None
    forge: Forge | None = None
    forge_from: tuple[str, GitCredential, PullRequestSpec | None] | None = None


class ApplicationSources:
    """The sources of every Application of one process. Close it when done."""

    def __init__(
        self,
        repositories: GitRepositories,
        credentials: ApplicationCredentials,
        scoping: KindScopes,
        settings: GitopsSettings,
        *,
        key: bytes,
        clock: Clock,
        wrap: Callable[[Forge], Forge] = lambda forge: forge,
        resolve: Resolve = look_up_host,
    ) -> None:
        self._repositories = repositories
        self._credentials = credentials
        self._scoping = scoping
        self._settings = settings
        self._key = key
        self._clock = clock
        self._wrap = wrap
        self._resolve = resolve
        # Of their own: a name service that hangs must not take the threads that others work in.
        self._resolvers = ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="resolve")
        self._resolved_at: dict[tuple[str, int], tuple[float, tuple[str, ...]]] = {}
        self._cache = RenderCache()
        self._opened: dict[ApplicationId, _OpenSource] = {}

    async def repository(self, application: Application) -> Repository:
        """See the port."""
        address = parse_address(application.spec.source.url, local=self._settings.local)
        credential = await self._credentials.credential_of(application)
        pinned = await self._check_addresses(address)
        return self._repositories.open(address, credential, pinned=pinned)

    async def renders(self, application: Application) -> ClusterAwareRenderer:
        """See the port."""
        opened = await self._open_with_identities(application)
        if opened.renders is None:
            renderer = FileRenderer(
                key=self._key,
                kustomize=self._settings.kustomize,
                decryptor=opened.decryptor,
                scoped=self._scoping.scoped,
                cache=self._cache,
                unconfined=self._settings.unconfined,
            )
            opened.renders = ClusterAwareRenderer(renderer, self._scoping)
        return opened.renders

    async def decryptor(self, application: Application) -> Decryptor | None:
        """See the port."""
        return (await self._open_with_identities(application)).decryptor

    async def forge(self, application: Application) -> Forge | None:
        """See the port."""
        source, spec = application.spec.source, application.spec.pull_requests
        address = parse_address(source.url, local=self._settings.local)
        if address.scheme is GitScheme.FILE:
            return None
        api = (spec.api if spec else None) or ""
        if api:
            await self._credentials.check_forge(application, api)
        made_from = (source.url, await self._credentials.credential_of(application), spec)
        opened = self._opened.setdefault(application.id, _OpenSource())
        if opened.forge is None or opened.forge_from != made_from:
            found = make_forge(
                source.url,
                credential=made_from[1],
                provider=spec.provider if spec else None,
                api=api,
                clock=self._clock,
                allow_loopback=self._settings.local,
            )
            if opened.forge is not None:
                await opened.forge.aclose()
            opened.forge, opened.forge_from = self._wrap(found), made_from
        return opened.forge

    async def forget(self, application: ApplicationId) -> None:
        """Let go of what was opened for an Application that is no more."""
        opened = self._opened.pop(application, None)
        self._credentials.forget(application)
        if opened is not None and opened.forge is not None:
            await opened.forge.aclose()

    async def aclose(self) -> None:
        """Let go of everything."""
        for application in list(self._opened):
            await self.forget(application)
        await self._repositories.aclose()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def _check_addresses(self, address: RepositoryAddress) -> tuple[str, ...]:
        """Return the addresses of a repository's host, each of which is one that may be asked.

        Where a proxy is asked, it resolves names; ours would say nothing.
        """
        if address.scheme is GitScheme.FILE:
            return ()
        own = literal_address(address.host)
        if not own and address.scheme is not GitScheme.SSH and proxy_for(address.url):
            return ()
        found = (own,) if own else await self._resolve_addresses(address)
        for each in found:
            problem = source_problem(each, allow_loopback=self._settings.local)
            if problem:
                raise ConfigurationError(
                    f"The repository {address} was not asked: {problem}.",
                    hint="Write the address of a Git host, or start the controller with "
                    "--allow-local if it is meant to use what runs on its own machine.",
                )
        return () if own else found

    async def _resolve_addresses(self, address: RepositoryAddress) -> tuple[str, ...]:
        place, now = (address.host, address.port), self._clock.monotonic()
        at, known = self._resolved_at.get(place, (now - RESOLVE_TTL, ()))
        if now - at < RESOLVE_TTL:
            return known
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT):
                found = await loop.run_in_executor(self._resolvers, self._resolve, *place)
        except (OSError, TimeoutError, UnicodeError):
            error = SourceUnavailable(
                f"Repository {address} could not be reached: the name of its host was not found.",
                hint="Check the name of the host, and the name service.",
            )
            error.unreachable = True
            raise error from None
        addresses = tuple(dict.fromkeys(found))
        self._resolved_at[place] = (now, addresses)
        return addresses

    async def _open_with_identities(self, application: Application) -> _OpenSource:
        """Return what was opened, with the keys that the Secret holds now."""
        identities = await self._credentials.identities(application)
        opened = self._opened.setdefault(application.id, _OpenSource())
        if opened.identities != identities:
            opened.identities, opened.renders = identities, None
            opened.decryptor = None
            if identities is not None:
                opened.decryptor = SopsDecryptor(
                    age_key=identities,
                    program=self._settings.sops,
                    unconfined=self._settings.unconfined,
                )
        return opened
