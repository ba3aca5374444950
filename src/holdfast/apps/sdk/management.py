"""The management client: declare workloads and keep them as declared."""

from __future__ import annotations

import builtins  # `list` is a method here
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NoReturn, Self

from holdfast.apps.sdk.api import ManagementApi, TargetCalls
from holdfast.apps.sdk.connect import ClientOptions, connect_target, default_project
from holdfast.apps.sdk.settings import ConnectionSettings, merge_aliases, resolve_connection
from holdfast.apps.sdk.watching import WorkloadChange
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Live, Progress
from holdfast.core.outcome import EndpointRef
from holdfast.core.plan import Plan
from holdfast.core.policy import OnAbsent, OnDrift
from holdfast.core.redact import Secret
from holdfast.core.workload import WorkloadSpec
from holdfast.reconcile.ports import ControlTarget
from holdfast.reconcile.sync_bridge import iterate_sync, run_sync

TIMEOUT = 30.0
RETRIES = 4


class BaseManagementClient:
    """Built from arguments and the environment; connects on first use where it can."""

    _blocking: ClassVar[bool]

    def __init__(
        self,
        url: str | None = None,
        *,
        project: str | None = None,
        token: str | Secret | None = None,
        timeout: float = TIMEOUT,
        max_retries: int = RETRIES,
        manager: str = "holdfast-sdk",
        allow_insecure: bool = False,
        target: ControlTarget | None = None,
        base_url: str | None = None,
        sdk_token: str | Secret | None = None,
    ) -> None:
        """Say where workloads are kept.

        `url` is `https://HOST`, `kubernetes://CONTEXT/NAMESPACE`, `sqlite:///FILE` or `memory://`;
        without it `HOLDFAST_URL`, then `INFERENCEKEY_BASE_URL`, then a file of this user.
        `timeout` bounds each call in total, retries included. `manager` is the tool that writes
        are attributed to. `target` is for tests that bring their own. `base_url` and `sdk_token`
        are the names that InferenceKey's client has for `url` and `token`.
        """
        url = merge_aliases(url=url, base_url=base_url)
        token = merge_aliases(token=token, sdk_token=sdk_token)
        if target is None:
            settings = resolve_connection(
                url, project=project, token=token, allow_insecure=allow_insecure
            )
            settings = replace(settings, project=default_project(settings))
        else:
            settings = ConnectionSettings(
                scheme="memory", url="memory://", project=project or "default"
            )
        options = ClientOptions(
            timeout=timeout, max_retries=max_retries, manager=manager, blocking=self._blocking
        )
        self._settings = settings
        self._calls = TargetCalls(
            target=target or connect_target(settings, options),
            project=settings.project,
            timeout=timeout,
            clock=options.clock,
        )

    @classmethod
    def from_env(
        cls,
        url: str | None = None,
        *,
        project: str | None = None,
        token: str | Secret | None = None,
        base_url: str | None = None,
        sdk_token: str | Secret | None = None,
        timeout: float = TIMEOUT,
        max_retries: int = RETRIES,
        manager: str = "holdfast-sdk",
        allow_insecure: bool = False,
    ) -> Self:
        """Build a client from arguments and the environment.

        `base_url` and `sdk_token` are the names that InferenceKey scripts use.
        """
        return cls(
            url,
            project=project,
            token=token,
            base_url=base_url,
            sdk_token=sdk_token,
            timeout=timeout,
            max_retries=max_retries,
            manager=manager,
            allow_insecure=allow_insecure,
        )

    @property
    def url(self) -> str:
        """Where the client connects; holds no credential."""
        return self._settings.url

    @property
    def project(self) -> str | None:
        """The project of calls that name none."""
        return self._settings.project

    @property
    def target(self) -> ControlTarget:
        """The target behind this client, for tests and for other apps."""
        return self._calls.target

    def __repr__(self) -> str:
        if not hasattr(self, "_settings"):  # shown by a traceback while it is being built
            return f"{type(self).__name__}(…)"
        return f"{type(self).__name__}({self.url!r}, project={self.project!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it holds connections")


class ManagementClient(BaseManagementClient):
    """Declares workloads and keeps them as declared.

    Safe to share between threads. Every method raises a `HoldfastError` and nothing else.
    """

    _blocking = True

    @cached_property
    def _api(self) -> ManagementApi:
        return ManagementApi(self._calls)

    def ensure(
        self,
        spec: WorkloadSpec,
        *,
        on_drift: OnDrift | str = OnDrift.RECONCILE,
        on_absent: OnAbsent | str = OnAbsent.CREATE,
        project: str | None = None,
        timeout: float | None = None,
    ) -> EndpointRef:
        """Make the live workload match the spec, as far as the policy allows.

        Absent, it is created; in sync, nothing happens; drifted, `on_drift` decides:
        `reconcile` updates it, `fail` raises DriftError with the plan, `dry_run` returns the
        plan on the ref, `warn` warns, `ignore` keeps quiet. `on_absent` governs the absent
        case: `create`, `plan`, or `fail`, which raises NotFound.
        """
        return run_sync(
            self._api.ensure(
                spec,
                on_drift=on_drift,
                on_absent=on_absent,
                project=project,
                timeout=timeout,
            )
        )

    def ensure_all(
        self,
        specs: Iterable[WorkloadSpec],
        *,
        on_drift: OnDrift | str = OnDrift.RECONCILE,
        on_absent: OnAbsent | str = OnAbsent.CREATE,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[EndpointRef]:
        """Ensure several workloads, in the order given.

        All are checked and observed before the first write, so a policy that stops at one
        stops before any is touched. When one fails later, the error says what was written.
        """
        return run_sync(
            self._api.ensure_all(
                specs,
                on_drift=on_drift,
                on_absent=on_absent,
                project=project,
                timeout=timeout,
            )
        )

    def plan(
        self,
        specs: WorkloadSpec | Iterable[WorkloadSpec],
        *,
        project: str | None = None,
        timeout: float | None = None,
    ) -> Plan:
        """Say what `ensure` would do. Changes nothing in any situation."""
        return run_sync(self._api.plan(specs, project=project, timeout=timeout))

    def apply(self, plan: Plan, *, timeout: float | None = None) -> builtins.list[Live | None]:
        """Carry out exactly this plan, or raise StalePlan before the first write.

        Returns the live side after each step, None where the workload is gone.
        """
        return run_sync(self._api.apply(plan, timeout=timeout))

    def get(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> Live:
        """Return one live workload. Raises NotFound when there is none."""
        return run_sync(self._api.get(workload_slug, project=project, timeout=timeout))

    def list(
        self, *, project: str | None = None, timeout: float | None = None
    ) -> builtins.list[Live]:
        """Return every live workload of the project, ordered by slug."""
        return run_sync(self._api.list(project=project, timeout=timeout))

    def delete(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> bool:
        """Delete a workload. True when it was there, False when it was already gone."""
        return run_sync(self._api.delete(workload_slug, project=project, timeout=timeout))

    def watch(
        self, *, slug: str | None = None, project: str | None = None, timeout: float | None = None
    ) -> Iterator[WorkloadChange]:
        """Yield what is there, then each change, until `timeout` seconds are over or for ever."""
        return iterate_sync(self._api.watch(project=project, slug=slug, timeout=timeout))

    def wait_until_ready(
        self,
        workload_slug: str,
        *,
        project: str | None = None,
        timeout: float = 600.0,
        on_progress: Callable[[Progress], None] | None = None,
        silent: bool = False,
    ) -> Progress:
        """Wait until the workload serves, showing its progress on stderr.

        Give `on_progress` to show it in your own way, or `silent` for not at all. Raises
        WorkloadFailed when it cannot serve, WaitTimeout when the time is up.
        """
        return run_sync(
            self._api.wait_until_ready(
                workload_slug,
                project=project,
                timeout=timeout,
                on_progress=on_progress,
                silent=silent,
            )
        )

    def drifts(
        self,
        *,
        slug: str | None = None,
        include_resolved: bool = False,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[DriftRecord]:
        """Return the drifts in the ledger, newest first; only open ones unless told."""
        return run_sync(
            self._api.drifts(
                slug=slug, include_resolved=include_resolved, project=project, timeout=timeout
            )
        )

    def history(
        self,
        *,
        slug: str | None = None,
        limit: int = 100,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[HistoryEntry]:
        """Return who did what and when, newest first."""
        return run_sync(self._api.history(slug=slug, limit=limit, project=project, timeout=timeout))

    def logs(
        self,
        workload_slug: str,
        *,
        tail: int = 100,
        follow: bool = False,
        project: str | None = None,
    ) -> Iterator[str]:
        """Yield the workload's last log lines; with `follow`, go on as they come."""
        return iterate_sync(
            self._api.logs(workload_slug, tail=tail, follow=follow, project=project)
        )

    def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""
        run_sync(self._api.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# the transport keeps the total deadline, the same in both colours


class AsyncManagementClient(BaseManagementClient, ManagementApi):
    """`ManagementClient` for an event loop: the same names, the same outcomes."""

    _blocking = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
