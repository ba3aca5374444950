"""How the operator runs. The command line fills it in; tests do too."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.apps.runtime.process import ControllerSettings
from holdfast.core.model import DEFAULT_HUB
from holdfast.core.service.children import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings(ControllerSettings):
    """Everything that may be chosen."""

    workers: int = 16
    lease_name: str = "holdfast-operator"
    gateway: Gateway | None = None
    prometheus: str | None = None
    downloader_image: str | None = None
    """The image that has `holdfast models`, for services with a cache: this one, usually."""
    model_heads: bool = True
    """Ask hubs whether the branches of pinned models moved on."""
    model_hubs: tuple[str, ...] = (DEFAULT_HUB,)
    """The hubs that may be asked for that."""
    page_url: str = ""
    """Where people reach the page of a control plane over this cluster; Events link to it. Empty
    when nobody said."""
    metrics_address: str = ":8080"
    """Host and port; empty opens none."""
    once: bool = False
    """Reconcile everything once, then end."""
