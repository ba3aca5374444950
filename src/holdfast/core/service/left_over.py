"""Finds what a Deployment says and a workload cannot. Called by `imported`."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.service.engines import Engine
from holdfast.core.service.pod import CONTAINER, GPU_MEMORY_LABEL
from holdfast.core.tree import Fields, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A field that was not taken over, and why."""

    field: str
    reason: str


_RESTRICTED: Fields = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_POD_USUAL: dict[str, tuple[Tree, ...]] = {
    "restartPolicy": ("Always",),
    "dnsPolicy": ("ClusterFirst",),
    "schedulerName": ("default-scheduler",),
    "securityContext": ({}, {"seccompProfile": {"type": "RuntimeDefault"}}),
    "automountServiceAccountToken": (False, True),
    "enableServiceLinks": (False, True),
    "serviceAccount": ("default",),
    "serviceAccountName": ("default",),
}
"""What the API server fills in, or our own rendering writes: nothing is lost with it."""
_POD_READ = ("containers", "volumes", "terminationGracePeriodSeconds")
_SCHEDULING = ("nodeSelector", "tolerations", "affinity")
_CONTAINER_USUAL: dict[str, tuple[Tree, ...]] = {
    "securityContext": ({}, _RESTRICTED),
    "terminationMessagePath": ("/dev/termination-log",),
    "terminationMessagePolicy": ("File",),
}
_CONTAINER_READ = (
    "name", "image", "command", "args", "env", "envFrom", "ports", "resources", "startupProbe",
    "readinessProbe", "livenessProbe", "lifecycle", "volumeMounts", "imagePullPolicy",
)  # fmt: skip
_SPEC_USUAL: dict[str, tuple[Tree, ...]] = {"revisionHistoryLimit": (10,), "paused": (False,)}
_SPEC_READ = ("replicas", "selector", "template", "strategy", "progressDeadlineSeconds")
_REASONS = {
    "serviceAccountName": "pods run without an account of their own.",
    "imagePullSecrets": "give the pull secret to the namespace's default service account.",
    "initContainers": "a workload is one container. Put a model into the image, or on the hub.",
    "securityContext": "pods run under Holdfast's own, without privileges.",
}
_NO_FIELD = "a workload has no field for it."
_OWN_LABELS = ("app.kubernetes.io/", "holdfast.dev/", "pod-template-hash")
_OWN_NOTES = (
    "deployment.kubernetes.io/", "kubectl.kubernetes.io/", "holdfast.dev/",
)  # fmt: skip


def pick_container(pod: Fields) -> Fields:
    """The container that serves: ours by name, else the first. Raises ValidationError."""
    found = list_at(pod, "containers")
    if not found:
        problem = Problem(
            field="spec.template.spec.containers", reason="there is none.", fix="Check the file."
        )
        raise ValidationError("This Deployment has no container.", problems=[problem])
    return next((each for each in found if each.get("name") == CONTAINER), found[0])


def left_over(
    deployment: Fields, container: Fields, engine: Engine, sized: bool, lost: list[Lost]
) -> Fields:
    """Add what nobody read to the list, and return what only a custom resource can say.

    `sized` says that the workload asks for GPU memory, which the rendering adds to the affinity.
    """
    spec = mapping_at(deployment, "spec")
    template = mapping_at(spec, "template")
    pod = mapping_at(template, "spec")
    _unread(spec, _SPEC_READ, _SPEC_USUAL, "", lost)
    _unread(pod, (*_POD_READ, *_SCHEDULING), _POD_USUAL, "", lost)
    _unread(container, _CONTAINER_READ, _CONTAINER_USUAL, "container ", lost)
    for other in list_at(pod, "containers"):
        if other is not container and other.get("name") != container.get("name"):
            reason = "a workload is one container."
            lost.append(Lost(field=f"containers[name={other.get('name')}]", reason=reason))
    _volumes(pod, container, lost)
    _hooks(container, engine, lost)
    _pull_policy(container, lost)
    for holder in (mapping_at(deployment, "metadata"), mapping_at(template, "metadata")):
        _names(holder, lost)
    scheduling = {name: pod[name] for name in _SCHEDULING if pod.get(name)}
    if sized and "affinity" in scheduling:
        affinity = _without_gpu_memory(scheduling.pop("affinity"))
        scheduling |= {"affinity": affinity} if affinity else {}
    return scheduling


def mapping_at(fields: Fields, *path: str) -> Fields:
    """The mapping at a path; an empty one where there is none."""
    found: Tree = fields
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def list_at(fields: Fields, name: str) -> list[Fields]:
    """The mappings in a list; none where there is no list."""
    found = fields.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _unread(
    fields: Fields,
    read: tuple[str, ...],
    usual: dict[str, tuple[Tree, ...]],
    where: str,
    lost: list[Lost],
) -> None:
    for name, value in fields.items():
        if name not in read and value not in usual.get(name, ()) and value not in (None, [], {}):
            if name == "serviceAccount" and "serviceAccountName" in fields:
                continue  # the old spelling of the same
            lost.append(Lost(field=f"{where}{name}", reason=_REASONS.get(name, _NO_FIELD)))


def _volumes(pod: Fields, container: Fields, lost: list[Lost]) -> None:
    shared = {
        mount.get("name")
        for mount in list_at(container, "volumeMounts")
        if mount.get("mountPath") == "/dev/shm"  # noqa: S108  # where the engines look
    }
    for volume in list_at(pod, "volumes"):
        name = volume.get("name")
        memory = mapping_at(volume, "emptyDir").get("medium") == "Memory"
        if not (name in shared and memory):
            kind = next((key for key in volume if key != "name"), "volume")
            reason = f"a workload has no volumes ({kind}); a model on it is fetched again."
            lost.append(Lost(field=f"volumes[name={name}]", reason=reason))


def _hooks(container: Fields, engine: Engine, lost: list[Lost]) -> None:
    hooks = mapping_at(container, "lifecycle")
    started = mapping_at(hooks, "postStart", "exec").get("command")
    if "postStart" in hooks and started != list(engine.post_start):
        lost.append(Lost(field="lifecycle.postStart", reason=_NO_FIELD))
    if "preStop" in hooks and "sleep" not in mapping_at(hooks, "preStop"):
        reason = "Holdfast waits until no request comes any more instead."
        lost.append(Lost(field="lifecycle.preStop", reason=reason))


def _pull_policy(container: Fields, lost: list[Lost]) -> None:
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    moving = "@" not in image and tag in ("", "latest")
    usual = "Always" if moving else "IfNotPresent"
    if container.get("imagePullPolicy", usual) != usual:
        lost.append(Lost(field="imagePullPolicy", reason=f"it becomes {usual}."))


def _names(metadata: Fields, lost: list[Lost]) -> None:
    for what, own in (("labels", _OWN_LABELS), ("annotations", _OWN_NOTES)):
        foreign = [name for name in mapping_at(metadata, what) if not name.startswith(own)]
        note = Lost(field=what, reason=f"not taken over: {', '.join(sorted(foreign))}.")
        if foreign and note not in lost:
            lost.append(note)


def _without_gpu_memory(affinity: Tree) -> Tree:
    """The affinity as it was before the rendering asked for large enough GPUs."""
    if isinstance(affinity, dict):
        kept = {name: _without_gpu_memory(value) for name, value in affinity.items()}
        return {name: value for name, value in kept.items() if value not in ({}, [])}
    if isinstance(affinity, list):
        mine = [_without_gpu_memory(each) for each in affinity if not _asks_for_memory(each)]
        return [each for each in mine if each not in ({}, [])]
    return affinity


def _asks_for_memory(value: Tree) -> bool:
    return isinstance(value, dict) and value.get("key") == GPU_MEMORY_LABEL
