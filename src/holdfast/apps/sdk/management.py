"""The management client: declare workloads and keep them as declared."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NoReturn, Self

from holdfast.apps.sdk.api import ManagementApi, TargetCalls
from holdfast.apps.sdk.connect import ClientOptions, connect_target, default_project
from holdfast.apps.sdk.settings import ConnectionSettings, merge_aliases, resolve_connection
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import ControlTarget
from holdfast.reconcile.sync_bridge import blocking, blocking_iterator

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
    def _async(self) -> ManagementApi:
        return ManagementApi(self._calls)

    ensure = blocking(ManagementApi.ensure)
    ensure_all = blocking(ManagementApi.ensure_all)
    plan = blocking(ManagementApi.plan)
    plan_delete = blocking(ManagementApi.plan_delete)
    apply = blocking(ManagementApi.apply)
    get = blocking(ManagementApi.get)
    list = blocking(ManagementApi.list)
    delete = blocking(ManagementApi.delete)
    watch = blocking_iterator(ManagementApi.watch)
    wait_until_ready = blocking(ManagementApi.wait_until_ready)
    drifts = blocking(ManagementApi.drifts)
    history = blocking(ManagementApi.history)
    logs = blocking_iterator(ManagementApi.logs)
    close = blocking(ManagementApi.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncManagementClient(BaseManagementClient, ManagementApi):
    """`ManagementClient` for an event loop: the same names, the same outcomes."""

    _blocking = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
