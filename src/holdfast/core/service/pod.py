"""Renders the pod of one variant of an InferenceService.

A change of what this returns restarts models all over the world, so the output is pinned by
golden files: an operator of another version must render the same bytes for the same object.
Called by `children`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

from holdfast.core.backends import (
    DEFAULT_BACKEND,
    POD_HOST,
    POD_PORT,
    BackendProfile,
    backend_profile,
)
from holdfast.core.command import is_script, to_kubelet_syntax
from holdfast.core.lora import adapter_flags
from holdfast.core.model import ModelSource, image_reference, model_source
from holdfast.core.quantity import parse_duration, parse_quantity
from holdfast.core.service.model_cache import (
    CACHE_ANNOTATION,
    MODELS,
    cached_model,
    check_container,
    volume_of_cache,
)
from holdfast.core.service.pod_overlay import (
    CONTAINER,
    HTTP_PORT_NAME,
    overlay_template,
    overlay_variables,
)
from holdfast.core.service.spec import HealthCheckSpec, InferenceService, ResourceSpec
from holdfast.core.tree import Fields, Tree, plain_tree

GPU_RESOURCE = "nvidia.com/gpu"
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
GPU_MEMORY_ANNOTATION = "holdfast.dev/gpu-memory"
MODEL_ANNOTATION = "holdfast.dev/model"
REVISION_ANNOTATION = "holdfast.dev/model-revision"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # where the servers look
PRE_STOP_SECONDS = 5
"""Seconds between leaving the endpoints and the stop signal: proxies learn of it with a delay."""
DEFAULT_DRAIN_SECONDS = 30
_INTERVAL = 10
_STARTUP_INTERVAL = 2
"""A small model is there after a second, and nobody should wait for the next probe."""
_TIMEOUT = 5
_REPORTED = Decimal("0.92")
"""Cards report less than their name says: 24 GB cards between 22.5 and 24 GiB."""


def pod_template(service: InferenceService, *, canary: bool, labels: Fields) -> Fields:
    """Render the template of the primary's or the canary's pods."""
    spec = service.spec
    resources = spec.resources or ResourceSpec()
    notes: Fields = {MODEL_ANNOTATION: model_of(service, canary=canary)}
    revision = revision_of(service, canary=canary)
    if revision is not None:
        notes[REVISION_ANNOTATION] = revision
    cached = cached_model(service, canary=canary)
    if cached is not None:
        notes[CACHE_ANNOTATION] = cached.directory
    if resources.gpu_memory is not None:
        notes[GPU_MEMORY_ANNOTATION] = str(resources.gpu_memory)
    profile = _profile(service)
    pod: Fields = {
        "automountServiceAccountToken": False,
        "containers": [_container(service, profile, canary=canary)],
        # Variables such as VLLM_PORT, made from a Service called vllm, confuse the servers.
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": PRE_STOP_SECONDS + drain_seconds(service) + 5,
        **scheduling_fields(service),
        **_account(service),
        **_resource_claims(service),
    }
    volumes = _volumes(service, profile, canary=canary)
    if volumes:
        pod["volumes"] = [volume for volume, _ in volumes]
    if cached is not None:
        image = _image(service, profile, canary=canary)
        pod["initContainers"] = [check_container(cached, image, volume_of_cache(service)[1])]
    template: Fields = {"metadata": {"labels": labels, "annotations": notes}, "spec": pod}
    return overlay_template(template, spec.pod_template)


_LEADER_ONLY = ("ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle")


def worker_template(service: InferenceService, *, labels: Fields) -> Fields:
    """Render the pods beside the first one of a replica: the same, but nobody asks them anything.

    They end with their leader, which drains for all of them.
    """
    template = pod_template(service, canary=False, labels=labels)
    pod = _mapping(template["spec"])
    containers = pod["containers"]
    assert isinstance(containers, list)  # noqa: S101  # just rendered
    workers: list[Tree] = []
    for each in containers:
        container = _mapping(each)
        if container["name"] == CONTAINER:
            container = {name: part for name, part in container.items() if name not in _LEADER_ONLY}
            args = container.get("args")
            kept = args if isinstance(args, list) else []
            container["args"] = [*kept, *_profile(service).worker_flags]
        workers.append(container)
    return {**template, "spec": {**pod, "containers": workers}}


def model_of(service: InferenceService, *, canary: bool) -> str:
    """The model that a variant serves."""
    own = service.spec.canary.model_ref if canary and service.spec.canary else None
    return own or service.spec.model_ref


def revision_of(service: InferenceService, *, canary: bool) -> str | None:
    """The revision of the model that a variant serves."""
    return service.spec.canary_revision if canary else service.spec.model_revision


def served_from(service: InferenceService, *, canary: bool) -> str:
    """What the backend is told to load: the model itself, or the path where it is mounted."""
    model = model_of(service, canary=canary)
    cached = cached_model(service, canary=canary)
    if cached is not None:
        return cached.path
    if model_source(model, _backend(service)) is not ModelSource.IMAGE:
        return model
    path = image_reference(model).path
    return f"{MODELS}/{path}" if path else MODELS


def startup_seconds(service: InferenceService) -> int:
    """How long a pod may take to load its model."""
    check = service.spec.health_check
    return _seconds(check.startup if check else None) or _profile(service).pod_startup


def drain_seconds(service: InferenceService) -> int:
    """How long requests may take to end."""
    rollout = service.spec.rollout
    return _seconds(rollout.drain_timeout if rollout else None) or DEFAULT_DRAIN_SECONDS


def _profile(service: InferenceService) -> BackendProfile:
    return backend_profile(_backend(service))


def _backend(service: InferenceService) -> str:
    return service.spec.backend or DEFAULT_BACKEND


def _container(service: InferenceService, profile: BackendProfile, *, canary: bool) -> Fields:
    spec = service.spec
    container: Fields = {
        "name": CONTAINER,
        "image": _image(service, profile, canary=canary),
        **_command(service, profile, canary=canary),
        "env": _environment(service, profile, canary=canary),
        "ports": _ports(service),
        **_probes(service, profile, canary=canary),
        "lifecycle": _lifecycle(service, profile),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    amounts = _resource_requirements(spec.resources or ResourceSpec())
    if amounts:
        container["resources"] = amounts
    volumes = _volumes(service, profile, canary=canary)
    if volumes:
        container["volumeMounts"] = [mount for _, mount in volumes]
    return container


def _ports(service: InferenceService) -> list[Tree]:
    """The port that is served, and those that callers reach by number beside it."""
    declared = service.spec.service
    ports: list[Tree] = [{"containerPort": POD_PORT, "name": HTTP_PORT_NAME, "protocol": "TCP"}]
    known = {(POD_PORT, "TCP")}
    for each in (declared and declared.ports) or ():
        target, protocol = each.target_port or str(each.port), str(each.protocol or "TCP")
        if target.isdigit() and (int(target), protocol) not in known:
            known.add((int(target), protocol))
            ports.append({"containerPort": int(target), "name": each.name, "protocol": protocol})
    return ports


def _volumes(
    service: InferenceService, profile: BackendProfile, *, canary: bool
) -> list[tuple[Fields, Fields]]:
    """Every volume with its mount."""
    found: list[tuple[Fields, Fields]] = []
    if profile.shared_memory:
        memory: Fields = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
        found.append((memory, {"mountPath": SHARED_MEMORY, "name": "shared-memory"}))
    own = service.spec.model_volume
    if own is not None:
        claim: Fields = {"claimName": own.claim}
        mount: Fields = {"mountPath": own.path, "name": "model"}
        if own.read_only:
            claim["readOnly"] = mount["readOnly"] = True
        found.append(({"name": "model", "persistentVolumeClaim": claim}, mount))
    if model_source(model_of(service, canary=canary), _backend(service)) is ModelSource.IMAGE:
        image = image_reference(model_of(service, canary=canary))
        source: Fields = {"reference": image.reference, "pullPolicy": "IfNotPresent"}
        mount = {"mountPath": MODELS, "name": "model-image", "readOnly": True}
        found.append(({"name": "model-image", "image": source}, mount))
    if service.spec.cache is not None:
        found.append(volume_of_cache(service))
    return found


def pull_secrets(service: InferenceService) -> Fields:
    """What images are pulled with."""
    names = service.spec.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def _account(service: InferenceService) -> Fields:
    spec = service.spec
    pod = pull_secrets(service)
    if spec.service_account_name:
        pod["serviceAccountName"] = spec.service_account_name
        # The server keeps a copy under the field's old name and fills the new one from it, so an
        # account that is no longer declared would come back if the copy were not ours too.
        pod["serviceAccount"] = spec.service_account_name
    return pod


def _image(service: InferenceService, profile: BackendProfile, *, canary: bool) -> str:
    spec = service.spec
    own = spec.canary.image if canary and spec.canary else None
    given = own or spec.image
    if given:
        return given
    image = profile.image or ""  # a backend without one is refused when the spec is checked
    if spec.vllm_version is not None:
        return f"{image.partition(':')[0]}:v{spec.vllm_version.removeprefix('v')}"
    return image


def _command(service: InferenceService, profile: BackendProfile, *, canary: bool) -> Fields:
    spec = service.spec
    own = spec.canary if canary else None
    command = (own.command if own else None) or spec.command
    given = own.args if own and own.args is not None else spec.args
    script = is_script(command or ())
    args = _kubelet_references(
        _fill_placeholders(given or (), service, canary=canary), service, script=script
    )
    adapters = adapter_flags(spec.adapters or (), profile)
    if command:
        line = _kubelet_references(
            _fill_placeholders(command, service, canary=canary), service, script=script
        )
        rest = _address(profile, line, [*adapters, *args])
        return {"command": list[Tree](line), **({"args": list[Tree](rest)} if rest else {})}
    if not profile.command:
        return {"args": list[Tree](args)} if args else {}
    line = _fill_placeholders(profile.command, service, canary=canary)
    if profile.local_model_flag and served_from(service, canary=canary).startswith("/"):
        remote, local = profile.local_model_flag
        line = [local if part == remote else part for part in line]
    own_flags = [
        *_served_names(service, profile, args, canary=canary),
        *_parallelism(service, profile, args),
        *adapters,
        *_node_flags(service, profile, args),
    ]
    revision = revision_of(service, canary=canary)
    if revision is not None and profile.revision_flag and spec.cache is None:
        own_flags += [profile.revision_flag, revision]
    if (
        profile.drain_flag
        and spec.vllm_version is None
        and _image(service, profile, canary=canary) == profile.image
        and not _has_flag(args, profile.drain_flag)
    ):
        own_flags += [profile.drain_flag, str(drain_seconds(service))]
    everything = [*own_flags, *args]
    return {"command": list[Tree](line), "args": list[Tree](_address(profile, line, everything))}


def _address(profile: BackendProfile, line: Sequence[str], args: Sequence[str]) -> list[str]:
    """The arguments, with the address in front unless the user gave one."""
    missing: list[str] = []
    if profile.address_flags:
        for flag, value in (("--host", POD_HOST), ("--port", str(POD_PORT))):
            missing += [] if _has_flag([*line, *args], flag) else [flag, value]
    return [*missing, *args]


def _served_names(
    service: InferenceService, profile: BackendProfile, args: Sequence[str], *, canary: bool
) -> list[str]:
    """Let both variants answer to the same names: callers do not know which one they reach."""
    model = model_of(service, canary=canary)
    single = profile.local_name_flag
    if single and served_from(service, canary=canary) != model and not _has_flag(args, single):
        return [single, service.spec.model_ref]  # or callers would have to know the path
    if profile.names_flag is None or _has_flag(args, profile.names_flag):
        return []
    models = (service.spec.model_ref, model)
    return [profile.names_flag, *dict.fromkeys((service.name, *models))]


def _parallelism(
    service: InferenceService, profile: BackendProfile, args: Sequence[str]
) -> list[str]:
    count = service.spec.resources.whole_gpus if service.spec.resources else 0
    if service.spec.multi_node and profile.stages_flag is None:
        count *= service.spec.nodes or 1
    if profile.parallel_flag is None or count < 2 or _has_flag(args, profile.parallel_flag):
        return []
    return [profile.parallel_flag, str(count)]


def _node_flags(
    service: InferenceService, profile: BackendProfile, args: Sequence[str]
) -> list[str]:
    """What makes one server of several pods. A spec of one node has none."""
    if not service.spec.multi_node:
        return []
    nodes = str(service.spec.nodes)
    flags = [part.replace("${NODES}", nodes) for part in profile.nodes_flags]
    if profile.stages_flag is not None and not _has_flag(args, profile.stages_flag):
        flags += [profile.stages_flag, nodes]
    return flags


def _has_flag(line: Sequence[str], flag: str) -> bool:
    return any(part == flag or part.startswith(f"{flag}=") for part in line)


def _fill_placeholders(
    line: Sequence[str], service: InferenceService, *, canary: bool
) -> list[str]:
    known = {
        "${MODEL}": served_from(service, canary=canary),
        "${HOST}": POD_HOST,
        "${PORT}": str(POD_PORT),
    }
    filled = []
    for part in line:
        for name, value in known.items():
            part = part.replace(name, value)
        filled.append(part)
    return filled


def _kubelet_references(
    line: Sequence[str], service: InferenceService, *, script: bool
) -> list[str]:
    """Let the kubelet fill in the variables that are declared; a script's own are its shell's."""
    spec = service.spec
    declared = {*(spec.env or {}), *(spec.secrets or {}), *overlay_variables(spec)}
    return [part if script else to_kubelet_syntax(part, declared) for part in line]


def _environment(service: InferenceService, profile: BackendProfile, *, canary: bool) -> list[Tree]:
    spec = service.spec
    plain_values = {"HOST": POD_HOST, "PORT": str(POD_PORT), **(spec.env or {})}
    for name, value in (*profile.env, *profile.pod_env):
        plain_values[name] = _fill_placeholders([value], service, canary=canary)[0]
    variables: list[Tree] = [
        {"name": name, "value": plain_values[name]} for name in sorted(plain_values)
    ]
    for name, ref in sorted((spec.secrets or {}).items()):
        source: Tree = {"secretKeyRef": {"key": ref.key, "name": ref.name}}
        variables.append({"name": name, "valueFrom": source})
    return variables


def _probes(service: InferenceService, profile: BackendProfile, *, canary: bool) -> Fields:
    check = service.spec.health_check or HealthCheckSpec()
    interval = _seconds(check.interval) or _INTERVAL
    timeout = _seconds(check.timeout) or min(_TIMEOUT, interval)
    timing: Fields = {"periodSeconds": interval, "timeoutSeconds": timeout}
    path = check.path or profile.health_path or "/health"
    asked: Fields = {"httpGet": _http_get(path)}
    started: Fields = {"httpGet": _http_get(check.path or profile.startup_path or path)}
    ready = asked
    if profile.ready and check.path is None:
        command = list[Tree](_fill_placeholders(profile.ready, service, canary=canary))
        ready = started = {"exec": {"command": command}}
    pace = min(interval, _STARTUP_INTERVAL)
    starting: Fields = {
        "periodSeconds": pace,
        "timeoutSeconds": timeout,
        "failureThreshold": math.ceil(startup_seconds(service) / pace),
    }
    return {
        "startupProbe": {**started, **starting},
        "readinessProbe": {**ready, **timing, "failureThreshold": 2},
        "livenessProbe": {**asked, **timing, "failureThreshold": 6},
    }


def _http_get(path: str) -> Fields:
    return {"path": path, "port": HTTP_PORT_NAME, "scheme": "HTTP"}


def _lifecycle(service: InferenceService, profile: BackendProfile) -> Fields:
    hooks: Fields = {"preStop": drain_hook(profile, drain_seconds(service))}
    if profile.post_start:
        hooks["postStart"] = {"exec": {"command": list[Tree](profile.post_start)}}
    return hooks


def drain_hook(profile: BackendProfile, seconds: int) -> Fields:
    """What a pod does before it is told to stop: wait until it has answered what it was asked."""
    busy = _busy_command(profile)
    if not busy:  # of a server of the user's own nothing is known, not even that it has a shell
        return {"sleep": {"seconds": PRE_STOP_SECONDS}}
    script = _DRAIN.format(pause=PRE_STOP_SECONDS, tries=seconds, busy=busy)
    return {"exec": {"command": ["/bin/sh", "-c", script]}}


_DRAIN = "sleep {pause}; for i in $(seq {tries}); do {busy} || exit 0; sleep 1; done"
"""Waits until nothing is being answered, or as long as the drain may take."""
_METRICS = (
    "(curl -fsS -m 2 http://127.0.0.1:{port}/metrics 2>/dev/null"
    " || wget -q -T 2 -O - http://127.0.0.1:{port}/metrics)"
)


def _busy_command(profile: BackendProfile) -> str:
    """A shell command that succeeds while requests are being answered."""
    if profile.busy_metrics:
        gauges = "|".join(profile.busy_metrics)
        value = r"(\{[^}]*\})? +[0-9.e+]*[1-9]"
        return f"{_METRICS.format(port=POD_PORT)} | grep -Eq '^({gauges}){value}'"
    if profile.drains_by_connections:
        established = rf"^ *[0-9]+: [0-9A-F]+:{POD_PORT:04X} [0-9A-F]+:[0-9A-F]+ 01 "
        return f"cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -Eq '{established}'"
    return ""


def _resource_requirements(resources: ResourceSpec) -> Fields:
    requests: Fields = {}
    limits: Fields = {}
    if resources.cpu is not None:
        requests["cpu"] = str(resources.cpu)  # no limit: throttling a tokenizer starves the GPU
    if resources.memory is not None:
        requests["memory"] = limits["memory"] = str(resources.memory)
    if resources.gpus:
        requests[GPU_RESOURCE] = limits[GPU_RESOURCE] = str(resources.gpus)
    for name, count in sorted((resources.accelerators or {}).items()):
        requests[name] = limits[name] = str(count)
    amounts: Fields = {"requests": requests} if requests else {}
    if limits:
        amounts["limits"] = limits
    if resources.claims:
        amounts["claims"] = [
            {"name": each.name, **({"request": each.request} if each.request else {})}
            for each in resources.claims
        ]
    return amounts


def _resource_claims(service: InferenceService) -> Fields:
    held = service.spec.resources
    found: list[Tree] = []
    for each in (held and held.claims) or ():
        claim: Fields = {"name": each.name}
        if each.resource_claim_name is not None:
            claim["resourceClaimName"] = each.resource_claim_name
        else:
            claim["resourceClaimTemplateName"] = each.resource_claim_template_name
        found.append(claim)
    return {"resourceClaims": found} if found else {}


def scheduling_fields(service: InferenceService) -> Fields:
    """Where the pods of a service may run."""
    given = service.spec.scheduling
    pod: Fields = {}
    if given and given.node_selector:
        pod["nodeSelector"] = plain_tree(given.node_selector)
    if given and given.tolerations:
        pod["tolerations"] = plain_tree(given.tolerations)
    affinity = plain_tree(given.affinity) if given and given.affinity else None
    resources = service.spec.resources
    if resources and resources.gpu_memory is not None:
        affinity = _with_gpu_memory(affinity, str(resources.gpu_memory))
    if affinity:
        pod["affinity"] = affinity
    return pod


def _with_gpu_memory(affinity: Tree, quantity: str) -> Tree:
    """Ask for nodes whose GPUs are large enough, on top of what the user asks for.

    The terms of a node selector are alternatives, so the requirement joins each of them.
    """
    amount = parse_quantity(quantity) or Decimal(0)
    mebibytes = (amount * _REPORTED / 2**20).to_integral_value(ROUND_FLOOR)
    large: Tree = {"key": GPU_MEMORY_LABEL, "operator": "Gt", "values": [str(mebibytes)]}
    whole = dict(affinity) if isinstance(affinity, dict) else {}
    node = _mapping(whole.get("nodeAffinity"))
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = _mapping(node.get(key)).get("nodeSelectorTerms")
    old = [_mapping(term) for term in terms] if isinstance(terms, list) else []
    new: list[Tree] = []
    for term in old or [{}]:
        matched = term.get("matchExpressions")
        kept = matched if isinstance(matched, list) else []
        new.append({**term, "matchExpressions": [*kept, large]})
    whole["nodeAffinity"] = {**node, key: {"nodeSelectorTerms": new}}
    return whole


def _mapping(value: Tree) -> Fields:
    return dict(value) if isinstance(value, dict) else {}


def _seconds(value: str | None) -> int:
    seconds = parse_duration(value) if value is not None else None
    return math.ceil(seconds) if seconds else 0
