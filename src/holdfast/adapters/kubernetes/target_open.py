"""Opens a cluster as a target, by what the kubeconfig says. Nothing is asked of it yet."""

from __future__ import annotations

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import Connection
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.kubernetes.target import KubernetesTarget
from holdfast.core.live import Writer
from holdfast.version import __version__


def open_target(
    context: str, namespace: str, *, writer: Writer, timeout: float, discreet: bool = False
) -> KubernetesTarget:
    """Return the target. Raises ConfigurationError when there is no such cluster to ask."""
    clock = SystemClock()
    config = load_config(context or None, clock=clock)
    agent = f"{writer.manager}/{__version__}"
    api = KubeApi(
        Connection(config, clock=clock, user_agent=agent), manager=writer.manager, timeout=timeout
    )
    return KubernetesTarget(api, writer=writer, clock=clock, namespace=namespace, discreet=discreet)
