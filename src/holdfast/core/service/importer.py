"""Reads a Deployment that somebody else made as the fields of a workload.

The inverse of the rendering, as far as there is one. What a workload cannot say is named, field by
field, so that nothing gets lost unseen. Values of secrets are never taken over. Pure; called by
`holdfast import`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.backends import (
    POD_HOST,
    POD_PORT,
    RESERVED_VARIABLES,
    BackendProfile,
    backend_profile,
)
from holdfast.core.command import fill_placeholders
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import credential_in, is_reference, names_a_secret
from holdfast.core.scan import safe_name, scan_values
from holdfast.core.service.backend_detection import (
    ServerCommand,
    custom_port,
    detect_backend,
    flag_values,
    without_flag,
)
from holdfast.core.service.children import RENDERER_ANNOTATION, WORKLOAD_LABEL
from holdfast.core.service.pod import (
    DEFAULT_DRAIN_SECONDS,
    GPU_MEMORY_ANNOTATION,
    GPU_MEMORY_LABEL,
    GPU_RESOURCE,
    MODEL_ANNOTATION,
    PRE_STOP_SECONDS,
    drain_hook,
)
from holdfast.core.service.pod_overlay import CONTAINER
from holdfast.core.tree import Fields, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedField:
    """A field that was not taken over, and why."""

    field: str
    reason: str


class UnsupportedFields(list[UnsupportedField]):
    """What was not taken over so far."""

    def add(self, field: str, reason: str) -> None:
        """Note one field, and why."""
        self.append(UnsupportedField(field=field, reason=reason))


_RESTRICTED: Fields = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_POD_DEFAULTS: dict[str, tuple[Tree, ...]] = {
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
_CONTAINER_DEFAULTS: dict[str, tuple[Tree, ...]] = {
    "securityContext": ({}, _RESTRICTED),
    "terminationMessagePath": ("/dev/termination-log",),
    "terminationMessagePolicy": ("File",),
}
_CONTAINER_READ = (
    "name", "image", "command", "args", "env", "envFrom", "ports", "resources", "startupProbe",
    "readinessProbe", "livenessProbe", "lifecycle", "volumeMounts", "imagePullPolicy",
)  # fmt: skip
_SPEC_DEFAULTS: dict[str, tuple[Tree, ...]] = {"revisionHistoryLimit": (10,), "paused": (False,)}
_SPEC_READ = ("replicas", "selector", "template", "strategy", "progressDeadlineSeconds")
_REASONS = {
    "serviceAccountName": "give it in serviceAccountName of the InferenceService.",
    "imagePullSecrets": "give it in imagePullSecrets of the InferenceService.",
    "securityContext": "pods run under Holdfast's own; give more in pod_template.",
}
_BY_HAND = "it is not taken over; give it in pod_template if it is needed."
_OWN_LABELS = ("app.kubernetes.io/", "holdfast.dev/", "pod-template-hash")
_OWN_ANNOTATIONS = (
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


def collect_unsupported(
    deployment: Fields,
    container: Fields,
    profile: BackendProfile,
    sized: bool,
    unsupported: UnsupportedFields,
) -> Fields:
    """Add what nobody read to the list, and return what only a custom resource can say.

    `sized` says that the workload asks for GPU memory, which the rendering adds to the affinity.
    """
    spec = mapping_at(deployment, "spec")
    template = mapping_at(spec, "template")
    pod = mapping_at(template, "spec")
    _unread(spec, _SPEC_READ, _SPEC_DEFAULTS, "", unsupported)
    _unread(pod, (*_POD_READ, *_SCHEDULING), _POD_DEFAULTS, "", unsupported)
    _unread(container, _CONTAINER_READ, _CONTAINER_DEFAULTS, "container ", unsupported)
    for other in list_at(pod, "containers"):
        if other is not container and other.get("name") != container.get("name"):
            unsupported.add(f"containers[name={other.get('name')}]", _BY_HAND)
    _volumes(pod, container, unsupported)
    drain = drain_hook(profile, _drain(pod, ours=True))
    _hooks(container, profile, drain, unsupported)
    _pull_policy(container, unsupported)
    for holder in (mapping_at(deployment, "metadata"), mapping_at(template, "metadata")):
        _foreign_metadata(holder, unsupported)
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
    unsupported: UnsupportedFields,
) -> None:
    for name, value in fields.items():
        if name not in read and value not in usual.get(name, ()) and value not in (None, [], {}):
            if name == "serviceAccount" and "serviceAccountName" in fields:
                continue  # the old spelling of the same
            unsupported.add(f"{where}{name}", _REASONS.get(name, _BY_HAND))


def _volumes(pod: Fields, container: Fields, unsupported: UnsupportedFields) -> None:
    shared = {
        mount.get("name")
        for mount in list_at(container, "volumeMounts")
        if mount.get("mountPath") == "/dev/shm"  # noqa: S108  # where the servers look
    }
    for volume in list_at(pod, "volumes"):
        name = volume.get("name")
        memory = mapping_at(volume, "emptyDir").get("medium") == "Memory"
        if not (name in shared and memory):
            kind = next((key for key in volume if key != "name"), "volume")
            reason = f"it is not taken over ({kind}); give it in pod_template, or as modelVolume."
            unsupported.add(f"volumes[name={name}]", reason)


def _hooks(
    container: Fields, profile: BackendProfile, drain: Fields, unsupported: UnsupportedFields
) -> None:
    hooks = mapping_at(container, "lifecycle")
    started = mapping_at(hooks, "postStart", "exec").get("command")
    if "postStart" in hooks and started != list(profile.post_start):
        unsupported.add("lifecycle.postStart", _BY_HAND)
    stopping = mapping_at(hooks, "preStop")
    if stopping and "sleep" not in stopping and stopping != drain:
        reason = "Holdfast waits until no request comes any more instead."
        unsupported.add("lifecycle.preStop", reason)


def _pull_policy(container: Fields, unsupported: UnsupportedFields) -> None:
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    moving = "@" not in image and tag in ("", "latest")
    usual = "Always" if moving else "IfNotPresent"
    if container.get("imagePullPolicy", usual) != usual:
        unsupported.add("imagePullPolicy", f"it becomes {usual}.")


def _foreign_metadata(metadata: Fields, unsupported: UnsupportedFields) -> None:
    for what, own in (("labels", _OWN_LABELS), ("annotations", _OWN_ANNOTATIONS)):
        foreign = [name for name in mapping_at(metadata, what) if not name.startswith(own)]
        note = UnsupportedField(field=what, reason=f"not taken over: {', '.join(sorted(foreign))}.")
        if foreign and note not in unsupported:
            unsupported.append(note)


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


_INTERVAL = 10
_TIMEOUT = 5
_MARGIN = 600
"""What our own Deployments give a rollout beyond the start of a pod."""


def health_check_of(
    container: Fields,
    profile: BackendProfile,
    own: Fields | None,
    model: str,
    unsupported: UnsupportedFields,
) -> Fields:
    """Say what differs from the backend's own check. `own` is the spec of a Deployment of ours."""
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
    ready = [part.replace("${MODEL}", model) for part in profile.ready]
    for name, probe in probes.items():
        if name not in paths and mapping_at(probe, "exec").get("command") != ready:
            how = next((kind for kind in ("exec", "tcpSocket", "grpc") if kind in probe), "it")
            unsupported.add(name, f"{how} is not asked; an HTTP path is.")
    path = profile.health_path or "/health"
    usual = {
        "readinessProbe": path,
        "livenessProbe": path,
        "startupProbe": profile.startup_path or path,
    }
    if any(asked != usual[name] for name, asked in paths.items()):
        chosen = next(iter(paths.values()))
        health["path"] = chosen
        for name, asked in paths.items():
            if asked != chosen:
                reason = f"{chosen} is asked, not {asked}."
                unsupported.add(f"{name}.path", reason)
    first = next(iter(probes.values()))
    interval, timeout = _whole(first, "periodSeconds", 10), _whole(first, "timeoutSeconds", 1)
    if interval != _INTERVAL:
        health["interval"] = f"{interval}s"
    if timeout > interval:
        reason = f"{timeout} s is longer than the interval; {interval} s is taken."
        unsupported.add("timeoutSeconds", reason)
        timeout = interval
    if timeout != min(_TIMEOUT, interval):
        health["timeout"] = f"{timeout}s"
    startup = _startup(probes, own)
    if startup and startup != profile.pod_startup:
        health["startup"] = f"{startup}s"
    if own is None:
        unsupported.add("probes", "their thresholds become Holdfast's own.")
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


DEFAULT_GRACE_SECONDS = 30
"""What Kubernetes gives a pod that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDeployment:
    """The fields of a workload, and what they leave out.

    `scheduling` is for the custom resource alone: a workload elsewhere has no nodes to choose.
    """

    slug: str
    namespace: str | None
    fields: Fields
    scheduling: Fields
    unsupported: tuple[UnsupportedField, ...]


def import_deployment(
    deployment: Fields,
    *,
    autoscaler: Fields | None = None,
    model: str | None = None,
    backend: str | None = None,
) -> ImportedDeployment:
    """Read a Deployment, and the autoscaler that scales it. Raises ValidationError without model.

    `model` and `backend` are for those that cannot be told from it.
    """
    metadata, spec = mapping_at(deployment, "metadata"), mapping_at(deployment, "spec")
    template = mapping_at(spec, "template")
    pod = mapping_at(template, "spec")
    container = pick_container(pod)
    ours = RENDERER_ANNOTATION in mapping_at(metadata, "annotations")
    notes = mapping_at(template, "metadata", "annotations") if ours else {}
    labels = mapping_at(metadata, "labels") if ours else {}
    slug = str(labels.get(WORKLOAD_LABEL) or metadata.get("name") or "")
    unsupported = UnsupportedFields()
    env, secrets = _environment(container, unsupported)
    line = detect_backend(
        _texts(container.get("command")),
        _texts(container.get("args")),
        image=str(container.get("image") or ""),
        env={name: value for name, value in env.items() if isinstance(value, str)},
        backend=backend or _text(labels.get("app.kubernetes.io/name")),
        model=model or _text(notes.get(MODEL_ANNOTATION)),
        ours=ours,
    )
    if line.model is None:
        raise _no_model(slug)
    profile = backend_profile(line.backend)
    resources = _resources(container, unsupported)
    if GPU_MEMORY_ANNOTATION in notes:
        resources["gpu_memory"] = notes[GPU_MEMORY_ANNOTATION]
    drain = _drain(pod, ours)
    fields: Fields = {"name": slug, "model": line.model, "backend": line.backend}
    fields |= _image(container, profile, line)
    if line.command is not None:
        fields["config"] = {"entrypoint": list[Tree](line.command)}
    args = _arguments(line, profile, slug, resources, drain, fields, unsupported)
    if args:
        fields["args"] = list[Tree](args)
    own = _own_variables(profile, line.model)
    fields |= {"env": kept} if (kept := _foreign_variables(env, own, unsupported)) else {}
    fields |= {"secrets": secrets} if secrets else {}
    fields |= _replicas(spec, autoscaler, unsupported)
    fields |= {"resources": resources} if resources else {}
    devices = bool(resources.get("gpu") or resources.get("accelerators"))
    fields |= _rollout(spec, drain, devices, unsupported)
    health = health_check_of(container, profile, spec if ours else None, line.model, unsupported)
    fields |= {"health": health} if health else {}
    scheduling = collect_unsupported(
        deployment, container, profile, "gpu_memory" in resources, unsupported
    )
    return ImportedDeployment(
        slug=slug,
        namespace=_text(metadata.get("namespace")),
        fields=fields,
        scheduling=scheduling,
        unsupported=tuple(unsupported),
    )


def _environment(container: Fields, unsupported: UnsupportedFields) -> tuple[Fields, Fields]:
    """Plain variables, and those that come from a Secret."""
    plain: Fields = {}
    secrets: Fields = {}
    for entry in list_at(container, "env"):
        name = str(entry.get("name") or "")
        source = mapping_at(entry, "valueFrom")
        ref = mapping_at(source, "secretKeyRef")
        if ref:
            secrets[name] = {"name": ref.get("name"), "key": ref.get("key")}
        elif source:
            kind = ", ".join(source)
            unsupported.add(f"env.{name}", f"its value comes from a {kind}.")
        elif any(scan_values([("env", {name: str(entry.get("value") or "")})])):
            reason = "it looks like a credential. Keep it in a Secret, and name it under secrets."
            unsupported.add(f"env.{safe_name(name)}", reason)
        else:
            plain[name] = str(entry.get("value") or "")
    for entry in list_at(container, "envFrom"):
        for kind, prefix in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if ref := mapping_at(entry, kind):
                reason = f"all keys of {prefix} {ref.get('name')} become variables; name each."
                unsupported.add("envFrom", reason)
    return plain, secrets


def _own_variables(profile: BackendProfile, model: str) -> dict[str, str]:
    known = {"HOST": POD_HOST, "PORT": str(POD_PORT)}
    values = {**known, "MODEL": model}
    own = (*profile.env, *profile.pod_env)
    return known | {name: fill_placeholders(value, values) for name, value in own}


def _foreign_variables(
    env: Mapping[str, Tree], own: dict[str, str], unsupported: UnsupportedFields
) -> Fields:
    kept: Fields = {}
    for name, value in env.items():
        if name not in RESERVED_VARIABLES:
            kept[name] = value
        elif own.get(name, value) != value:
            reason = f"Holdfast sets it itself, to {own[name]}."
            unsupported.add(f"env.{name}", reason)
    return kept


def _image(container: Fields, profile: BackendProfile, line: ServerCommand) -> Fields:
    image = str(container.get("image") or "")
    flag = profile.drain_flag
    field, ours = profile.version_field, image == profile.image
    if line.own and field and flag and ours and flag_values(line.args, flag) is None:
        # With the image itself declared, a flag for draining would be added.
        return {field: image.rpartition(":")[2].removeprefix("v")}
    return {"image": image} if image else {}


def _arguments(
    line: ServerCommand,
    profile: BackendProfile,
    slug: str,
    resources: Fields,
    drain: int,
    fields: Fields,
    unsupported: UnsupportedFields,
) -> list[str]:
    """The user's own arguments: without those that the rendering adds by itself."""
    args = _without_secrets(list(line.args), unsupported)
    if line.implied:
        does = " ".join(profile.command)
        unsupported.add("image", f"its entry point gives way to: {does}")
    port = custom_port([*(line.command or ()), *args])
    if port:
        unsupported.add("args", f"pods listen on port {POD_PORT}, not {port}.")
    if profile.address_flags:
        args = without_flag(without_flag(args, "--host", values=1), "--port", values=1)
    elif port:
        args = ["${PORT}" if part == port else part for part in args]
        args = [f"--port={POD_PORT}" if part == f"--port={port}" else part for part in args]
    if not line.own:
        return args
    names = list(dict.fromkeys((slug, line.model or "")))
    if profile.names_flag and flag_values(args, profile.names_flag) == names:
        args = without_flag(args, profile.names_flag, values=len(names))
    added = {}
    if profile.parallel_flag and resources.get("gpu", 1) != 1:
        added[profile.parallel_flag] = str(resources["gpu"])
    if profile.drain_flag and fields.get("image") == profile.image:
        added[profile.drain_flag] = str(drain)
    for flag, value in added.items():
        if flag_values(args, flag) == [value]:
            args = without_flag(args, flag, values=1)
    return args


def _without_secrets(args: list[str], unsupported: UnsupportedFields) -> list[str]:
    kept: list[str] = []
    for place, part in enumerate(args):
        flag, equals, value = part.partition("=")
        before = args[place - 1] if place else ""
        named = names_a_secret(flag) and equals and not is_reference(value)
        follows = before.startswith("-") and names_a_secret(before) and not part.startswith("-")
        if credential_in(part) or named or (follows and not is_reference(part)):
            shown = safe_name(before if follows else flag)
            reason = f"{shown} has a credential in clear. Keep it in a Secret, under secrets."
            unsupported.add("args", reason)
            if follows and kept and kept[-1] == before:
                kept.pop()
        else:
            kept.append(part)
    return kept


def _resources(container: Fields, unsupported: UnsupportedFields) -> Fields:
    requests = mapping_at(container, "resources", "requests")
    limits = mapping_at(container, "resources", "limits")
    found: Fields = {}
    cpu = requests.get("cpu", limits.get("cpu"))
    memory = limits.get("memory", requests.get("memory"))
    if cpu is not None:
        found["cpu"] = str(cpu)
    if memory is not None:
        found["memory"] = str(memory)
    gpus = limits.get(GPU_RESOURCE, requests.get(GPU_RESOURCE))
    if gpus is not None and str(gpus).isdigit() and int(str(gpus)):
        found["gpu"] = int(str(gpus))
    if "cpu" in limits:
        unsupported.add("resources.limits.cpu", "pods get no CPU limit.")
    if "memory" in requests and requests["memory"] != limits.get("memory"):
        reason = f"request and limit become one: {memory}."
        unsupported.add("resources.memory", reason)
    devices: Fields = {}
    for name in dict.fromkeys((*requests, *limits)):
        count = str(limits.get(name, requests.get(name)))
        if "/" in name and name != GPU_RESOURCE and count.isdigit() and int(count):
            devices[name] = int(count)
        elif name not in ("cpu", "memory", GPU_RESOURCE):
            unsupported.add(f"resources.{name}", _BY_HAND)
    if devices:
        found["accelerators"] = devices
    return found


def _replicas(spec: Fields, autoscaler: Fields | None, unsupported: UnsupportedFields) -> Fields:
    if autoscaler is None:
        count = spec.get("replicas", 1)
        if count == 0:
            unsupported.add("replicas", "0 cannot be declared; it is left open.")
        return {"replicas": count} if isinstance(count, int) and count else {}
    bounds = mapping_at(autoscaler, "spec")
    scale: Fields = {"min": bounds.get("minReplicas", 1), "max": bounds.get("maxReplicas")}
    metrics = list_at(bounds, "metrics")
    for each in metrics[1:]:
        unsupported.add("autoscaler.metrics", f"one counts, not {each.get('type')}.")
    if "behavior" in bounds:
        unsupported.add("autoscaler.behavior", "a workload cannot say it.")
    for each in metrics[:1]:
        resource, pods = mapping_at(each, "resource"), mapping_at(each, "pods")
        if resource and "averageUtilization" in mapping_at(resource, "target"):
            percent = mapping_at(resource, "target")["averageUtilization"]
            scale |= {"metric": resource.get("name"), "target": percent}
        elif pods:
            average = _number(mapping_at(pods, "target").get("averageValue"))
            scale |= {"metric": mapping_at(pods, "metric").get("name"), "target": average}
        else:
            unsupported.add("autoscaler.metrics", f"{each.get('type')} is unknown.")
    return {"autoscaling": scale}


def _drain(pod: Fields, ours: bool) -> int:
    grace = pod.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    grace = grace if isinstance(grace, int) else DEFAULT_GRACE_SECONDS
    return grace - PRE_STOP_SECONDS - 5 if ours else grace


def _rollout(spec: Fields, drain: int, gpus: bool, unsupported: UnsupportedFields) -> Fields:
    rollout: Fields = {}
    rolling = mapping_at(spec, "strategy", "rollingUpdate")
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    if (surge, unavailable) == ((0, 1) if gpus else (1, 0)):
        pass
    elif isinstance(surge, int) and surge > 0 and unavailable == 0:
        rollout["max_surge"] = surge
    elif spec.get("strategy"):
        kind = mapping_at(spec, "strategy").get("type")
        how = f"{kind} with surge {surge}, unavailable {unavailable}" if rolling else f"{kind}"
        ends = "surge 0, unavailable 1" if gpus else "surge 1, unavailable 0"
        unsupported.add("strategy", f"{how} becomes {ends}.")
    if drain != DEFAULT_DRAIN_SECONDS and drain > 0:
        rollout["drain_timeout"] = f"{drain}s"
    return {"rollout": rollout} if rollout else {}


def _no_model(slug: str) -> ValidationError:
    problem = Problem(
        field="model",
        reason="neither the command line nor the environment names one.",
        fix="Give --model, and --backend if that cannot be told either.",
    )
    return ValidationError(f"The model of Deployment {slug} cannot be told.", problems=[problem])


def _texts(value: Tree) -> list[str]:
    return [str(part) for part in value] if isinstance(value, list) else []


def _text(value: Tree) -> str | None:
    return str(value) if value else None


def _number(value: Tree) -> float | None:
    text = str(value)
    number = float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    return int(number) if number == int(number) else number
