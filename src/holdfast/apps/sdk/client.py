"""What the sync and the async management client share: how they are built and shown."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from typing import ClassVar, NoReturn, Self

from holdfast.apps.sdk.connect import Options, connect, default_project
from holdfast.apps.sdk.engine import Engine
from holdfast.apps.sdk.settings import Settings, one_of, resolve
from holdfast.core.errors import DriftWarning
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Control

TIMEOUT = 30.0
RETRIES = 4
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class BaseClient:
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
        target: Control | None = None,
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
        url = one_of(url=url, base_url=base_url)
        token = one_of(token=token, sdk_token=sdk_token)
        if target is None:
            settings = resolve(url, project=project, token=token, allow_insecure=allow_insecure)
            settings = replace(settings, project=default_project(settings))
        else:
            settings = Settings(scheme="memory", url="memory://", project=project or "default")
        options = Options(
            timeout=timeout, max_retries=max_retries, manager=manager, blocking=self._blocking
        )
        self._settings = settings
        self._engine = Engine(
            target or connect(settings, options),
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
    def target(self) -> Control:
        """The target behind this client, for tests and for other apps."""
        return self._engine.target

    def __repr__(self) -> str:
        if not hasattr(self, "_settings"):  # shown by a traceback while it is being built
            return f"{type(self).__name__}(…)"
        return f"{type(self).__name__}({self.url!r}, project={self.project!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: it holds connections")


def warn_of_drift(text: str) -> None:
    """Warn at the caller's own line, however deep in the SDK the drift was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DriftWarning, stacklevel=level)
