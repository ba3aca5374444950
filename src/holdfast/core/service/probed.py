"""Reads the probes of a container as the health check of a workload. Called by `imported`."""

from __future__ import annotations

from holdfast.core.service.engines import Engine
from holdfast.core.service.left_over import Lost, mapping_at
from holdfast.core.tree import Fields

_INTERVAL = 10
_TIMEOUT = 5
_MARGIN = 600
"""What our own Deployments give a rollout beyond the start of a pod."""


def health_of(
    container: Fields, engine: Engine, own: Fields | None, model: str, lost: list[Lost]
) -> Fields:
    """Say what differs from the engine's own check. `own` is the spec of a Deployment of ours."""
    probes = {
        name: found
        for name in ("readinessProbe", "livenessProbe", "startupProbe")
        if (found := mapping_at(container, name))
    }
    if not probes:
        return {}
    health: Fields = {}
    paths = {
        name: str(mapping_at(probe, "httpGet").get("path") or "/")
        for name, probe in probes.items()
        if "httpGet" in probe
    }
    ready = [part.replace("${MODEL}", model) for part in engine.ready]
    for name, probe in probes.items():
        if name not in paths and mapping_at(probe, "exec").get("command") != ready:
            how = next((kind for kind in ("exec", "tcpSocket", "grpc") if kind in probe), "it")
            lost.append(Lost(field=name, reason=f"{how} is not asked; an HTTP path is."))
    usual = {
        "readinessProbe": engine.path,
        "livenessProbe": engine.path,
        "startupProbe": engine.startup_path or engine.path,
    }
    if any(path != usual[name] for name, path in paths.items()):
        chosen = next(iter(paths.values()))
        health["path"] = chosen
        for name, path in paths.items():
            if path != chosen:
                lost.append(Lost(field=f"{name}.path", reason=f"{chosen} is asked, not {path}."))
    first = next(iter(probes.values()))
    interval, timeout = _whole(first, "periodSeconds", 10), _whole(first, "timeoutSeconds", 1)
    if interval != _INTERVAL:
        health["interval"] = f"{interval}s"
    if timeout > interval:
        reason = f"{timeout} s is longer than the interval; {interval} s is taken."
        lost.append(Lost(field="timeoutSeconds", reason=reason))
        timeout = interval
    if timeout != min(_TIMEOUT, interval):
        health["timeout"] = f"{timeout}s"
    startup = _startup(probes, own)
    if startup and startup != engine.startup:
        health["startup"] = f"{startup}s"
    if own is None:
        lost.append(Lost(field="probes", reason="their thresholds become Holdfast's own."))
    return health


def _startup(probes: dict[str, Fields], own: Fields | None) -> int:
    """The seconds that a pod may take to start."""
    if own is not None:
        return _whole(own, "progressDeadlineSeconds", _MARGIN) - _MARGIN
    probe = probes.get("startupProbe")
    if probe is None:
        probe = probes.get("livenessProbe", {})
        if not _whole(probe, "initialDelaySeconds", 0):
            return 0
    tries = _whole(probe, "failureThreshold", 3) * _whole(probe, "periodSeconds", 10)
    return _whole(probe, "initialDelaySeconds", 0) + tries


def _whole(fields: Fields, name: str, default: int) -> int:
    value = fields.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
