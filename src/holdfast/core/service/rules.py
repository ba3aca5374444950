"""The rules of an InferenceService that join several fields, each said twice.

Once as a predicate, which `validate()` asks, and once in CEL, which the API server asks before
it stores anything. Both stand side by side and share their message, so a user reads the same
sentence wherever the mistake is found; a test puts every case to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.quantity import parse_quantity
from holdfast.core.rule import Rule, cel_duration, given, lasts, seconds_of, value_at
from holdfast.core.service.engines import DEFAULT_BACKEND, OWN_VARIABLES, PORT, WITH_IMAGE
from holdfast.core.service.spec import InferenceServiceSpec as Spec


def _bounds(spec: Spec) -> tuple[int, int]:
    return _number(spec.min_replicas), _number(spec.max_replicas)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _within(spec: Spec) -> bool:
    low, high = _bounds(spec)
    return not (low and high and spec.replicas) or low <= _number(spec.replicas) <= high


def _requested(spec: Spec) -> bool:
    if not spec.autoscaled:
        return True
    metric = (spec.autoscaling and spec.autoscaling.metric) or "cpu"
    return metric not in ("cpu", "memory") or bool(
        spec.resources and getattr(spec.resources, metric) is not None
    )


def _targeted(spec: Spec) -> bool:
    scale = spec.autoscaling
    if scale is None:
        return True
    if scale.target is None:
        return scale.metric in (None, "cpu", "memory")
    return isinstance(scale.target, int | float) and scale.target > 0


def _distinct(spec: Spec) -> bool:
    canary = spec.canary
    return canary is None or any(
        mine is not None and mine != theirs
        for mine, theirs in (
            (canary.model_ref, spec.model_ref),
            (canary.image, spec.image),
            (canary.command, spec.command),
            (canary.args, spec.args),
        )
    )


def _bounded(spec: Spec) -> bool:
    judged = spec.canary and spec.canary.analysis
    return not judged or judged.max is not None or judged.min is not None


def _in_time(spec: Spec) -> bool:
    check = spec.health_check
    timeout, interval = (
        (seconds_of(check.timeout), seconds_of(check.interval)) if check else (None, None)
    )
    return timeout is None or interval is None or timeout <= interval


def _has_image(spec: Spec) -> bool:
    return spec.image is not None or (spec.backend or DEFAULT_BACKEND) in WITH_IMAGE


def _versioned(spec: Spec) -> bool:
    backend = spec.backend or DEFAULT_BACKEND
    return spec.vllm_version is None or (backend == "vllm" and spec.image is None)


def _listens(spec: Spec) -> bool:
    canary = spec.canary
    lines = [spec.command, spec.args]
    lines += [canary.command, canary.args] if canary else []
    return all(_keeps_port(line) for line in lines if isinstance(line, tuple | list))


def _keeps_port(line: Sequence[object]) -> bool:
    inline = [str(part) for part in line if str(part).startswith("--port=")]
    return ("--port" not in line or any(part in line for part in _PORTS)) and all(
        part.removeprefix("--port=") in _PORTS for part in inline
    )


def _positive(name: str) -> Rule[Spec]:
    """A quantity that is given is above zero."""
    path = f"resources.{name}"

    def holds(spec: Spec) -> bool:
        value = value_at(spec, path)
        amount = parse_quantity(value) if isinstance(value, str | int | float) else None
        return amount is None or amount > 0

    return Rule(
        field=path,
        reason="it is not above 0.",
        fix="Write it like 4, 500m or 16Gi, or leave it out.",
        cel=f"!({given(path)}) || quantity(string(self.{path})).isGreaterThan(quantity('0'))",
        holds=holds,
    )


def _names(value: object) -> set[str]:
    return {str(name) for name in value} if isinstance(value, Mapping) else set()


_PORTS = ("${PORT}", str(PORT))


def _cel_keeps_port(path: str) -> str:
    line, ports = f"self.{path}", "['" + "', '".join(_PORTS) + "']"
    return (
        f"(!({given(path)}) || ((!('--port' in {line}) || {ports}.exists(p, p in {line})) && "
        f"{line}.all(a, !a.startsWith('--port=') || {ports}.exists(p, a == '--port=' + p))))"
    )


_MIN = "(has(self.minReplicas) ? self.minReplicas : 0)"
_MAX = "(has(self.maxReplicas) ? self.maxReplicas : 0)"
_METRIC = (
    "(has(self.autoscaling) && has(self.autoscaling.metric) ? self.autoscaling.metric : 'cpu')"
)
_BACKEND = f"(has(self.backend) ? self.backend : '{DEFAULT_BACKEND}')"
_KNOWN = "[" + ", ".join(f"'{name}'" for name in WITH_IMAGE) + "]"
_TAKEN = "[" + ", ".join(f"'{name}'" for name in OWN_VARIABLES) + "]"

RULES: tuple[Rule[Spec], ...] = (
    Rule(
        field="minReplicas",
        reason="only one of minReplicas and maxReplicas is given.",
        fix="Give both, or neither for a fixed number.",
        cel=f"({_MIN} > 0) == ({_MAX} > 0)",
        holds=lambda spec: bool(_bounds(spec)[0] > 0) == bool(_bounds(spec)[1] > 0),
    ),
    Rule(
        field="minReplicas",
        reason="it is above maxReplicas.",
        fix="Lower it, or raise maxReplicas.",
        cel=f"{_MAX} == 0 || {_MIN} <= {_MAX}",
        holds=lambda spec: _bounds(spec)[1] == 0 or _bounds(spec)[0] <= _bounds(spec)[1],
    ),
    Rule(
        field="replicas",
        reason="it is outside minReplicas and maxReplicas.",
        fix="Choose a number within the bounds, or leave it out.",
        cel=f"!has(self.replicas) || {_MIN} == 0 || {_MAX} == 0 || "
        f"({_MIN} <= self.replicas && self.replicas <= {_MAX})",
        holds=_within,
    ),
    Rule(
        field="autoscaling",
        reason="there are no bounds to scale within.",
        fix="Give minReplicas and maxReplicas.",
        cel=f"!has(self.autoscaling) || ({_MIN} > 0 && {_MAX} > 0)",
        holds=lambda spec: spec.autoscaling is None or spec.autoscaled,
    ),
    Rule(
        field="autoscaling.metric",
        reason="cpu and memory are scaled by their share of what is requested, and nothing is.",
        fix="Give resources.cpu (or resources.memory), or scale by a metric of the backend.",
        cel=f"{_MIN} == 0 || {_MAX} == 0 || !({_METRIC} in ['cpu', 'memory']) || "
        f"(has(self.resources) && ({_METRIC} == 'cpu' ? has(self.resources.cpu) : "
        "has(self.resources.memory)))",
        holds=_requested,
    ),
    Rule(
        field="autoscaling.target",
        reason="it is not above 0, or it is missing and the metric has no usual one.",
        fix="Give the value per pod at which another pod should start.",
        cel="!has(self.autoscaling) || (has(self.autoscaling.target) ? "
        f"self.autoscaling.target > 0.0 : {_METRIC} in ['cpu', 'memory'])",
        holds=_targeted,
    ),
    Rule(
        field="canary",
        reason="it is the same as the primary.",
        fix="Give it a modelRef, an image, a command or args of its own, or leave it out.",
        cel="!has(self.canary) || "
        "(has(self.canary.modelRef) && self.canary.modelRef != self.modelRef) || "
        + " || ".join(
            f"(has(self.canary.{name}) && (!has(self.{name}) || self.canary.{name} != self.{name}))"
            for name in ("image", "command", "args")
        ),
        holds=_distinct,
    ),
    Rule(
        field="canary.analysis",
        reason="it has no bound.",
        fix="Give max, min or both.",
        cel="!has(self.canary) || !has(self.canary.analysis) || "
        "has(self.canary.analysis.max) || has(self.canary.analysis.min)",
        holds=_bounded,
    ),
    lasts("canary.analysis.interval", least=1),
    lasts("healthCheck.interval", least=1, numeric=True),
    lasts("healthCheck.timeout", least=1, numeric=True),
    lasts("healthCheck.startup", least=1, numeric=True),
    lasts("rollout.drainTimeout", least=0.001),
    Rule(
        field="healthCheck.timeout",
        reason="it is longer than the interval.",
        fix="Shorten it, or ask less often.",
        cel=f"!({given('healthCheck.timeout')}) || !({given('healthCheck.interval')}) || "
        f"{cel_duration('healthCheck.timeout')} <= "
        f"{cel_duration('healthCheck.interval')}",
        holds=_in_time,
    ),
    _positive("cpu"),
    _positive("memory"),
    _positive("gpuMemory"),
    Rule(
        field="resources.gpuMemory",
        reason="no GPU is asked for.",
        fix="Raise resources.gpu, or leave gpuMemory out.",
        cel="!has(self.resources) || !has(self.resources.gpuMemory) || "
        "!has(self.resources.gpu) || self.resources.gpu > 0",
        holds=lambda spec: (
            not spec.resources or spec.resources.gpu_memory is None or spec.resources.gpu != 0
        ),
    ),
    Rule(
        field="image",
        reason="Holdfast knows no image for this backend.",
        fix=f"Give one, or use {', '.join(WITH_IMAGE)}.",
        cel=f"has(self.image) || {_BACKEND} in {_KNOWN}",
        holds=_has_image,
    ),
    Rule(
        field="args",
        reason=f"a port of its own is chosen, and the pod is asked on {PORT}.",
        fix="Leave --port out, or write ${PORT} for its value.",
        cel=" && ".join(
            _cel_keeps_port(path) for path in ("command", "args", "canary.command", "canary.args")
        ),
        holds=_listens,
    ),
    Rule(
        field="vllmVersion",
        reason="it chooses the tag of vLLM's own image, which is not used here.",
        fix="Leave it out, or leave image out and use the backend vllm.",
        cel=f"!has(self.vllmVersion) || ({_BACKEND} == 'vllm' && !has(self.image))",
        holds=_versioned,
    ),
    Rule(
        field="env",
        reason="a variable stands under secrets too.",
        fix="Keep one of the two.",
        cel="!has(self.env) || !has(self.secrets) || !self.env.exists(n, n in self.secrets)",
        holds=lambda spec: not _names(spec.env) & _names(spec.secrets),
    ),
    Rule(
        field="env",
        reason="a variable is one that Holdfast sets itself.",
        fix=f"Leave out {', '.join(OWN_VARIABLES)}.",
        cel=f"(!has(self.env) || !{_TAKEN}.exists(n, n in self.env)) && "
        f"(!has(self.secrets) || !{_TAKEN}.exists(n, n in self.secrets))",
        holds=lambda spec: not (_names(spec.env) | _names(spec.secrets)) & set(OWN_VARIABLES),
    ),
    Rule(
        field="modelVolume.path",
        reason="it is where the memory that processes share is mounted.",
        fix="Choose another path.",
        cel="!has(self.modelVolume) || self.modelVolume.path != '/dev/shm'",
        holds=lambda spec: spec.model_volume is None or spec.model_volume.path != "/dev/shm",  # noqa: S108
    ),
)

IMMUTABLE: Rule[Spec] = Rule(
    field="taskType",
    reason="it cannot be changed: clients would get another kind of answer.",
    fix="Delete the service and create it anew.",
    # On the parent, since a rule of the field itself is not asked when the field is removed.
    cel="has(self.taskType) == has(oldSelf.taskType) && "
    "(!has(self.taskType) || self.taskType == oldSelf.taskType)",
    holds=lambda spec: True,
)
"""Asked by the API server alone, which has the old object beside the new one."""
