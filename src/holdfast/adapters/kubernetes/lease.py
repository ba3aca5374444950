"""Makes one of several controllers act, by a Lease that all of them can see.

A holder is taken for dead when its record has not changed for the whole lease on the observer's
own monotonic clock; nobody's time of day counts. The leader stops before that moment on its own
clock. This is no fencing: a leader that was frozen may wake and write once more, so every write
must carry its own guard, and long work should ask `leads` before it writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC

from holdfast.adapters.kubernetes.api import MERGE_PATCH, KubeApi, LeadershipLost
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig
from holdfast.adapters.kubernetes.objects import Object, Resource, uid_of, version_of
from holdfast.core.errors import (
    ConfigurationError,
    Conflict,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
)

LEASES = Resource(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True
)

INSTALL_NAMESPACE = "holdfast-system"
"""Where `holdfast install` puts a controller, and so its Lease."""
_FALLBACK_NAMESPACE = "default"
"""Where the Lease of a controller that somebody runs by hand is, on a cluster without that."""

log = logging.getLogger("holdfast")


class LeaseHeld(Conflict):
    """Another controller holds the lease and renews it, so this one does not start."""

    summary = "Another controller is at work"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Seconds. A leader stops `renew_within` after its last renewal, well inside `duration`."""

    duration: float = 15.0
    renew_within: float = 10.0
    every: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew_within > self.every * 1.2 > 0:
            raise ValueError("a lease needs duration > renew_within > 1.2 × every")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObservedLease:
    """A record as it was when it last changed."""

    version: str
    holder: str
    ours: bool
    duration: float
    since: float
    """On our monotonic clock."""
    renewed: bool = False
    """It was another one before, with the same holder: that one is alive."""


async def find_lease_namespace(
    api: KubeApi, config: ClusterConfig, *, name: str, chosen: str | None
) -> str:
    """Say where the Lease is: as chosen, where the pod is, or in a fixed one.

    The namespace of a kubeconfig is what its user works on now, so two controllers would never
    meet there. An installation elsewhere is searched for: raises ConfigurationError when somebody
    holds a Lease of that name in another namespace.
    """
    if chosen:
        return chosen
    if config.in_pod:
        return config.namespace
    namespace = await _default_namespace(api)
    try:
        await api.request("GET", LEASES.path(name, namespace=namespace))
    except NotFound:
        pass
    except PermissionDenied as error:
        raise ConfigurationError(
            f"The Lease {namespace}/{name}, by which controllers take turns, may not be read. "
            + error.happened,
            changed="Nothing was changed.",
            hint="Choose a namespace in which you may get, create and patch Leases by "
            "--lease-namespace; whoever looks after the same objects has to use the same.",
        ) from None
    named = {"fieldSelector": f"metadata.name={name}"}
    try:
        found = await api.request("GET", LEASES.path(), params=named)
    except PermissionDenied:
        log.warning("leases-not-listed", extra={"lease": name, "used": namespace})
        return namespace
    for lease in found.get("items") or ():
        elsewhere = lease["metadata"].get("namespace", "")
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder and elsewhere != namespace:
            raise ConfigurationError(
                f"{holder} holds the Lease {elsewhere}/{name}, and this controller would use "
                f"another, {namespace}/{name}.",
                changed="Nothing was changed.",
                hint=f"Take turns with it by --lease-namespace {elsewhere}; if the two look after "
                f"different namespaces, choose --lease-namespace {namespace}.",
            )
    return namespace


async def _default_namespace(api: KubeApi) -> str:
    try:
        await api.request("GET", f"/api/v1/namespaces/{INSTALL_NAMESPACE}")
    except NotFound:
        return _FALLBACK_NAMESPACE
    except PermissionDenied:
        pass
    return INSTALL_NAMESPACE


class LeaderElection:
    """One candidate. Give it a connection of its own, so that no load delays the renewal."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._path = LEASES.path(name, namespace=namespace)
        self.identity = identity
        """Nobody else's, ever: a pod's name and something random."""
        self._timing = timing or LeaseTiming()
        self._clock = api.connection.clock
        self._until = float("-inf")
        self._observed: _ObservedLease | None = None
        self._renew_times: tuple[str, str] = ("", "")
        """The renewal times of our last write and of the one before. A record that merely bears
        our name is not ours; one with such a time is, also when the response to the write was lost.
        """

    @property
    def leads(self) -> bool:
        """True while we may act. Ask before each write."""
        return self._clock.monotonic() < self._until

    async def run(self, work: Callable[[], Awaitable[None]], *, wait: bool = True) -> None:
        """Wait until elected, then run the work, and give the lease back at its end.

        With `wait` False, raises LeaseHeld as soon as another is seen to renew the lease. Raises
        LeadershipLost, after cancelling the work, when the lease is lost; the process should then
        end, as it cannot know what its work had begun.
        """
        while not await self._attempt(strict=not wait):
            if not wait:
                self._refuse_if_renewed()
            await self._clock.sleep(self._timing.every)
        log.info("leading", extra={"lease": self._name, "identity": self.identity})
        task = asyncio.ensure_future(work())
        try:
            await self._keep(task)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._release()
        task.result()

    async def run_without(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work without taking the lease, as long as nobody else is seen to hold it.

        Raises LeaseHeld before the work begins, and LeadershipLost after cancelling it. A lease
        that cannot be read while the work runs changes nothing: nobody was seen to take it.
        """
        while not await self._observe_free():
            self._refuse_if_renewed()
            await self._clock.sleep(self._timing.every)
        self._until = float("inf")
        task = asyncio.ensure_future(work())
        try:
            while not await self._wait_for(task, self._timing.every):
                if await self._observe_held():
                    assert self._observed is not None  # noqa: S101  # it was just observed
                    raise LeadershipLost(
                        f"{self._observed.holder} took the lease {self._namespace}/{self._name}, "
                        f"and {self.identity} works without one.",
                        changed="The work was cancelled; what it had begun may be half done.",
                        hint="Let the other one go on, or stop it first.",
                    )
        finally:
            self._until = float("-inf")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        task.result()

    async def _is_held(self) -> bool:
        """True while somebody holds the lease who has not been silent for its whole time."""
        found = await self._read()
        if found is not None:
            self._observe(found)
        return not self._is_free()

    async def _observe_free(self) -> bool:
        """True when nobody holds it. An API server that does not answer leaves that open."""
        try:
            return not await self._is_held()
        except TargetUnavailable as error:
            log.warning("lease-failed", extra={"lease": self._name, "code": error.code})
            return False

    async def _observe_held(self) -> bool:
        try:
            async with asyncio.timeout(self._timing.renew_within / 2):
                return await self._is_held()
        except (HoldfastError, TimeoutError):
            log.warning("lease-not-read", extra={"lease": self._name})
            return False

    def _refuse_if_renewed(self) -> None:
        lease = self._observed
        if lease is None or not lease.holder or lease.ours or not lease.renewed:
            return
        raise LeaseHeld(
            f"{lease.holder} holds the lease {self._namespace}/{self._name} and renews it: it "
            "looks after the same objects.",
            changed="Nothing was changed.",
            hint="Let it work, or stop it first (kubectl scale --replicas 0).",
        )

    async def _keep(self, task: asyncio.Future[None]) -> None:
        while not await self._wait_for(task, self._timing.every):
            renewed = False
            if self.leads:
                # Bounded by what is left, so that a hanging request cannot outlast the lease, and
                # by half of it all, so that one that hangs leaves time for another.
                left = self._until - self._clock.monotonic()
                longest = min(left, self._timing.renew_within / 2)
                try:
                    async with asyncio.timeout(max(longest, 0.001)):
                        renewed = await self._attempt()
                except TimeoutError:
                    renewed = False
            foreign = self._observed is not None and not self._observed.ours
            if not self.leads or (not renewed and foreign):
                self._until = float("-inf")
                raise LeadershipLost(
                    f"The lease {self._namespace}/{self._name} could not be renewed by "
                    f"{self.identity}.",
                    changed="The work was cancelled; what it had begun may be half done.",
                    hint="Restart this controller; it waits for its turn.",
                )

    async def _wait_for(self, task: asyncio.Future[None], seconds: float) -> bool:
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({task, pause}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            await asyncio.gather(pause, return_exceptions=True)
        return task.done()

    async def _attempt(self, *, strict: bool = False) -> bool:
        """Try once to take or renew the lease. False when it is another's, or on any failure.

        `strict` raises failures. A namespace that is not there always raises ConfigurationError.
        """
        # From before the write: whoever sees it starts to count later than we do.
        began = self._clock.monotonic()
        try:
            found = await self._read()
            if found is None and not self._is_free():
                return False  # deleted under a leader, who may act for as long as it said
            if found is None:
                lease = {
                    "apiVersion": LEASES.api_version,
                    "kind": LEASES.kind,
                    "metadata": {"name": self._name, "namespace": self._namespace},
                    "spec": self._spec(taken=True, transitions=0),
                }
                written = await self._create(lease)
            else:
                self._observe(found)
                if not self._is_free():
                    return False
                spec = found.get("spec", {})
                ours = self._is_ours(found)
                count = int(spec.get("leaseTransitions") or 0) + (0 if ours else 1)
                written = await self._write(found, self._spec(taken=not ours, transitions=count))
        except ConfigurationError:
            raise
        except HoldfastError as error:
            log.warning("lease-failed", extra={"lease": self._name, "code": error.code})
            if strict and not isinstance(error, Conflict):
                raise
            return False
        self._observe(written)
        self._until = began + self._timing.renew_within
        return True

    async def _create(self, lease: Object) -> Object:
        path = LEASES.path(namespace=self._namespace)
        try:
            return await self._api.request("POST", path, body=lease)
        except NotFound:
            raise ConfigurationError(
                f"The lease {self._name} belongs into the namespace {self._namespace}, and there "
                "is no such namespace.",
                changed="Nothing was changed.",
                hint=f"kubectl create namespace {self._namespace}, or choose another by "
                "--lease-namespace.",
            ) from None

    async def _read(self) -> Object | None:
        try:
            return await self._api.request("GET", self._path)
        except NotFound:
            return None

    def _observe(self, lease: Object) -> None:
        version = version_of(lease)
        if self._observed is not None and self._observed.version == version:
            return
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        self._observed = _ObservedLease(
            version=version,
            holder=holder,
            renewed=self._observed is not None and self._observed.holder == holder,
            ours=self._is_ours(lease),
            duration=float(spec.get("leaseDurationSeconds") or self._timing.duration),
            since=self._clock.monotonic(),
        )

    def _is_ours(self, lease: Object) -> bool:
        spec = lease.get("spec", {})
        return (
            spec.get("holderIdentity") == self.identity
            and spec.get("renewTime") in self._renew_times
        )

    def _is_free(self) -> bool:
        """True when the record as observed is ours, nobody's, or of someone who fell silent."""
        lease = self._observed
        if lease is None or not lease.holder or lease.ours:
            return True
        return self._clock.monotonic() >= lease.since + lease.duration

    async def _write(self, found: Object, spec: dict[str, object]) -> Object:
        guard = {"uid": uid_of(found), "resourceVersion": version_of(found)}
        change = {"metadata": guard, "spec": spec}
        by = {"fieldManager": self._api.manager, "fieldValidation": "Strict"}
        return await self._api.request(
            "PATCH", self._path, params=by, body=change, content_type=MERGE_PATCH
        )

    def _spec(self, *, taken: bool, transitions: int) -> dict[str, object]:
        now = self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._renew_times = (now, self._renew_times[0])
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._timing.duration)),
            "renewTime": now,
            "leaseTransitions": transitions,
            **({"acquireTime": now} if taken else {}),
        }

    async def _release(self) -> None:
        """Give the lease back if it is still ours, so that the next need not wait for its end."""
        if not self.leads:
            return
        self._until = float("-inf")
        try:
            async with asyncio.timeout(self._timing.every):
                found = await self._read()
                if found is not None and self._is_ours(found):
                    await self._write(found, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except (HoldfastError, TimeoutError):
            log.warning("lease-not-released", extra={"lease": self._name})
