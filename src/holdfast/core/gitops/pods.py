"""What pods really run, where that can differ from what their object says.

A tag may point to another image today than when it was applied, and a Secret that was changed
does not reach a process that read it when it started. Neither shows in the object itself, so
the survey asks here as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.tree import Fields, Path, Tree

WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_MAX_HISTORY = 8
"""Values of a Secret that are told apart, by their keyed marks."""
_TEMPLATE: Path = ("spec", "template", "spec")


def selector_of(workload: Fields) -> str:
    """Return the selector of a workload's pods; empty when it has none that can be asked."""
    wanted = value_at(workload, ("spec", "selector"))
    if not isinstance(wanted, dict) or set(wanted) != {"matchLabels"}:
        return ""
    labels = wanted["matchLabels"]
    if not isinstance(labels, dict):
        return ""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def is_rolled_out(workload: Fields) -> bool:
    """True when no rollout is under way, so that all pods are of the newest template."""
    status = value_at(workload, ("status",))
    if not isinstance(status, dict):
        return False
    if status.get("observedGeneration") != value_at(workload, ("metadata", "generation")):
        return False
    if workload.get("kind") == "DaemonSet":
        wanted = status.get("desiredNumberScheduled")
        return status.get("updatedNumberScheduled", 0) == wanted
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
    return counts[0] == counts[1] == counts[2]


def running_images(pods: Iterable[Fields]) -> dict[str, dict[str, list[str]]]:
    """Return, for each container, which digests run, and in which pods."""
    found: dict[str, dict[str, list[str]]] = {}
    for pod in pods:
        if value_at(pod, ("metadata", "deletionTimestamp")) is not None:
            continue
        for status in _items(value_at(pod, ("status", "containerStatuses"))):
            digest = _image_digest(str(status.get("imageID") or ""))
            if digest:
                named = found.setdefault(str(status.get("name")), {})
                named.setdefault(digest, []).append(str(value_at(pod, ("metadata", "name"))))
    return found


def image_baseline(
    workload: Fields, running: Mapping[str, Mapping[str, Sequence[str]]], known: Mapping[str, str]
) -> dict[str, str]:
    """Return what each image stood for when it was first seen to run.

    A reference that names its digest stands for that one. Containers that run several at once
    tell nothing yet.
    """
    found: dict[str, str] = {}
    for container in _containers(workload):
        name, image = str(container.get("name")), str(container.get("image") or "")
        key = f"{name} {image}"
        pinned = image.partition("@")[2]
        digests = running.get(name, {})
        if pinned:
            found[key] = pinned
        elif key in known:
            found[key] = known[key]
        elif len(digests) == 1:
            found[key] = next(iter(digests))
    return found


def image_findings(
    workload: Fields, running: Mapping[str, Mapping[str, Sequence[str]]], known: Mapping[str, str]
) -> Iterator[FieldDrift]:
    """Tell of pods that run another image than the one that was applied."""
    for container in _containers(workload):
        name, image = str(container.get("name")), str(container.get("image") or "")
        wanted = known.get(f"{name} {image}")
        if wanted is None:
            continue
        for digest, pods in sorted(running.get(name, {}).items()):
            if digest == wanted:
                continue
            total = sum(map(len, running[name].values()))
            reference = image.partition("@")[0]
            yield _running_drift(
                _image_path(name),
                desired=image,
                live=f"{reference}@{digest}",
                kind=DriftKind.IMAGE,
                evidence=f"{len(pods)} of {total} pods run it, {pods[0]} for one; "
                + (
                    "another digest is declared"
                    if "@" in image
                    else f"the image stood for {wanted} when it was applied"
                ),
            )


def declared_images(workload: Fields) -> dict[Path, str]:
    """Return the image of each container, by the path that a finding about it has."""
    return {
        _image_path(str(container.get("name"))): str(container.get("image") or "")
        for container in _containers(workload)
    }


def data_history(known: Mapping[str, str], mark: str, since: datetime) -> Mapping[str, str]:
    """Add what a Secret's data is now to what is known of it, by keyed marks."""
    times = sorted(known.items())
    if times and times[-1][1] == mark:
        return known
    return dict([*times, (since.astimezone(UTC).isoformat(), mark)][-_MAX_HISTORY:])


def stale_readers(
    secret: str, history: Mapping[str, str], pods: Iterable[Fields]
) -> Iterator[FieldDrift]:
    """Tell of pods that took another value from a Secret than it has now.

    One that was edited and put back has its value again, so only pods that started in between
    have another. What it had before the `history` begins is another value.
    """
    times = [(datetime.fromisoformat(since), mark) for since, mark in sorted(history.items())]
    if not times:
        return
    changed, now = times[-1]

    def is_late(pod: Fields) -> bool:
        begun = _started_at(pod)
        read = [mark for since, mark in times if begun is not None and since <= begun]
        return begun is not None and (not read or read[-1] != now)

    late = sorted(
        str(value_at(pod, ("metadata", "name")))
        for pod in pods
        if _reads_secret(pod, secret) and is_late(pod)
    )
    if late:
        shown = ", ".join(late[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")
        yield _running_drift(
            ("data",),
            desired=None,
            live=None,
            kind=DriftKind.SECRET,
            evidence=f"changed at {changed:%Y-%m-%dT%H:%M:%SZ}, after {shown} started: "
            "they still have the old value",
        )


def _running_drift(
    path: Path, *, desired: Tree, live: Tree, kind: DriftKind, evidence: str
) -> FieldDrift:
    return FieldDrift(
        change=Change(path=path, desired=desired, live=live),
        kind=kind,
        signal=Signal.RUNNING,
        field_class=FieldClass.OWNED,
        evidence=evidence,
        cause=Cause.UNKNOWN,
    )


def _image_path(container: str) -> Path:
    return (*_TEMPLATE, "containers", f"[name={container}]", "image")


def _reads_secret(pod: Fields, secret: str) -> bool:
    for part in ("containers", "initContainers"):
        for container in _items(value_at(pod, ("spec", part))):
            for source in _items(container.get("envFrom")):
                if value_at(source, ("secretRef", "name")) == secret:
                    return True
            for variable in _items(container.get("env")):
                if value_at(variable, ("valueFrom", "secretKeyRef", "name")) == secret:
                    return True
    return False


def _started_at(pod: Fields) -> datetime | None:
    """When the first of its containers started: one that was restarted read everything anew."""
    begun = [
        datetime.fromisoformat(str(started))
        for status in _items(value_at(pod, ("status", "containerStatuses")))
        if (started := value_at(status, ("state", "running", "startedAt")))
    ]
    return min(begun, default=None)


def _containers(workload: Fields) -> Iterator[Fields]:
    yield from _items(value_at(workload, (*_TEMPLATE, "containers")))


def _items(value: Tree) -> Iterator[Fields]:
    yield from (
        item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict)
    )


def _image_digest(image_id: str) -> str:
    found = image_id.rpartition("@")[2] if "@" in image_id else image_id
    return found if found.startswith("sha256:") else ""
