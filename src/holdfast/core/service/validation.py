"""Says everything that is wrong with an InferenceService, each with its reason and its fix.

The rules that join several fields are said twice: as a predicate, which `validate()` asks, and in
CEL, which the API server asks before it stores anything. Both stand side by side and share their
message, so a user reads the same sentence wherever the mistake is found; a test puts every case to
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.core.backends import (
    BACKENDS_WITH_IMAGE,
    DEFAULT_BACKEND,
    POD_PORT,
    RESERVED_VARIABLES,
)
from holdfast.core.check import declared_variables, placeholder_problems
from holdfast.core.command import is_script
from holdfast.core.custom_resource import (
    ValidationRule,
    cel_duration,
    cel_is_set,
    content_problems,
    duration_rule,
    field_value,
    format_problems,
    has_right_types,
    matches_pattern,
    seconds_of,
    without_reported,
)
from holdfast.core.errors import Problem
from holdfast.core.names import is_slug
from holdfast.core.quantity import parse_quantity
from holdfast.core.scan import safe_name, secret_argument
from holdfast.core.service.spec import MAX_NAME, InferenceServiceSpec
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
    return spec.image is not None or (spec.backend or DEFAULT_BACKEND) in BACKENDS_WITH_IMAGE


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


def _positive(name: str) -> ValidationRule[Spec]:
    """A quantity that is given is above zero."""
    path = f"resources.{name}"

    def holds(spec: Spec) -> bool:
        value = field_value(spec, path)
        amount = parse_quantity(value) if isinstance(value, str | int | float) else None
        return amount is None or amount > 0

    return ValidationRule(
        field=path,
        reason="it is not above 0.",
        fix="Write it like 4, 500m or 16Gi, or leave it out.",
        cel=f"!({cel_is_set(path)}) || quantity(string(self.{path})).isGreaterThan(quantity('0'))",
        holds=holds,
    )


def _names(value: object) -> set[str]:
    return {str(name) for name in value} if isinstance(value, Mapping) else set()


_PORTS = ("${PORT}", str(POD_PORT))


def _cel_keeps_port(path: str) -> str:
    line, ports = f"self.{path}", "['" + "', '".join(_PORTS) + "']"
    return (
        f"(!({cel_is_set(path)}) || ((!('--port' in {line}) || {ports}.exists(p, p in {line})) && "
        f"{line}.all(a, !a.startsWith('--port=') || {ports}.exists(p, a == '--port=' + p))))"
    )


_MIN = "(has(self.minReplicas) ? self.minReplicas : 0)"
_MAX = "(has(self.maxReplicas) ? self.maxReplicas : 0)"
_METRIC = (
    "(has(self.autoscaling) && has(self.autoscaling.metric) ? self.autoscaling.metric : 'cpu')"
)
_BACKEND = f"(has(self.backend) ? self.backend : '{DEFAULT_BACKEND}')"
_KNOWN = "[" + ", ".join(f"'{name}'" for name in BACKENDS_WITH_IMAGE) + "]"
_TAKEN = "[" + ", ".join(f"'{name}'" for name in RESERVED_VARIABLES) + "]"

RULES: tuple[ValidationRule[Spec], ...] = (
    ValidationRule(
        field="minReplicas",
        reason="only one of minReplicas and maxReplicas is given.",
        fix="Give both, or neither for a fixed number.",
        cel=f"({_MIN} > 0) == ({_MAX} > 0)",
        holds=lambda spec: bool(_bounds(spec)[0] > 0) == bool(_bounds(spec)[1] > 0),
    ),
    ValidationRule(
        field="minReplicas",
        reason="it is above maxReplicas.",
        fix="Lower it, or raise maxReplicas.",
        cel=f"{_MAX} == 0 || {_MIN} <= {_MAX}",
        holds=lambda spec: _bounds(spec)[1] == 0 or _bounds(spec)[0] <= _bounds(spec)[1],
    ),
    ValidationRule(
        field="replicas",
        reason="it is outside minReplicas and maxReplicas.",
        fix="Choose a number within the bounds, or leave it out.",
        cel=f"!has(self.replicas) || {_MIN} == 0 || {_MAX} == 0 || "
        f"({_MIN} <= self.replicas && self.replicas <= {_MAX})",
        holds=_within,
    ),
    ValidationRule(
        field="autoscaling",
        reason="there are no bounds to scale within.",
        fix="Give minReplicas and maxReplicas.",
        cel=f"!has(self.autoscaling) || ({_MIN} > 0 && {_MAX} > 0)",
        holds=lambda spec: spec.autoscaling is None or spec.autoscaled,
    ),
    ValidationRule(
        field="autoscaling.metric",
        reason="cpu and memory are scaled by their share of what is requested, and nothing is.",
        fix="Give resources.cpu (or resources.memory), or scale by a metric of the backend.",
        cel=f"{_MIN} == 0 || {_MAX} == 0 || !({_METRIC} in ['cpu', 'memory']) || "
        f"(has(self.resources) && ({_METRIC} == 'cpu' ? has(self.resources.cpu) : "
        "has(self.resources.memory)))",
        holds=_requested,
    ),
    ValidationRule(
        field="autoscaling.target",
        reason="it is not above 0, or it is missing and the metric has no usual one.",
        fix="Give the value per pod at which another pod should start.",
        cel="!has(self.autoscaling) || (has(self.autoscaling.target) ? "
        f"self.autoscaling.target > 0.0 : {_METRIC} in ['cpu', 'memory'])",
        holds=_targeted,
    ),
    ValidationRule(
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
    ValidationRule(
        field="canary.analysis",
        reason="it has no bound.",
        fix="Give max, min or both.",
        cel="!has(self.canary) || !has(self.canary.analysis) || "
        "has(self.canary.analysis.max) || has(self.canary.analysis.min)",
        holds=_bounded,
    ),
    duration_rule("canary.analysis.interval", least=1),
    duration_rule("healthCheck.interval", least=1, numeric=True),
    duration_rule("healthCheck.timeout", least=1, numeric=True),
    duration_rule("healthCheck.startup", least=1, numeric=True),
    duration_rule("rollout.drainTimeout", least=0.001),
    ValidationRule(
        field="healthCheck.timeout",
        reason="it is longer than the interval.",
        fix="Shorten it, or ask less often.",
        cel=f"!({cel_is_set('healthCheck.timeout')}) || !({cel_is_set('healthCheck.interval')}) || "
        f"{cel_duration('healthCheck.timeout')} <= "
        f"{cel_duration('healthCheck.interval')}",
        holds=_in_time,
    ),
    _positive("cpu"),
    _positive("memory"),
    _positive("gpuMemory"),
    ValidationRule(
        field="resources.gpuMemory",
        reason="no GPU is asked for.",
        fix="Raise resources.gpu, or leave gpuMemory out.",
        cel="!has(self.resources) || !has(self.resources.gpuMemory) || "
        "!has(self.resources.gpu) || self.resources.gpu > 0",
        holds=lambda spec: (
            not spec.resources or spec.resources.gpu_memory is None or spec.resources.gpu != 0
        ),
    ),
    ValidationRule(
        field="image",
        reason="Holdfast knows no image for this backend.",
        fix=f"Give one, or use {', '.join(BACKENDS_WITH_IMAGE)}.",
        cel=f"has(self.image) || {_BACKEND} in {_KNOWN}",
        holds=_has_image,
    ),
    ValidationRule(
        field="args",
        reason=f"a port of its own is chosen, and the pod is asked on {POD_PORT}.",
        fix="Leave --port out, or write ${PORT} for its value.",
        cel=" && ".join(
            _cel_keeps_port(path) for path in ("command", "args", "canary.command", "canary.args")
        ),
        holds=_listens,
    ),
    ValidationRule(
        field="vllmVersion",
        reason="it chooses the tag of vLLM's own image, which is not used here.",
        fix="Leave it out, or leave image out and use the backend vllm.",
        cel=f"!has(self.vllmVersion) || ({_BACKEND} == 'vllm' && !has(self.image))",
        holds=_versioned,
    ),
    ValidationRule(
        field="env",
        reason="a variable stands under secrets too.",
        fix="Keep one of the two.",
        cel="!has(self.env) || !has(self.secrets) || !self.env.exists(n, n in self.secrets)",
        holds=lambda spec: not _names(spec.env) & _names(spec.secrets),
    ),
    ValidationRule(
        field="env",
        reason="a variable is one that Holdfast sets itself.",
        fix=f"Leave out {', '.join(RESERVED_VARIABLES)}.",
        cel=f"(!has(self.env) || !{_TAKEN}.exists(n, n in self.env)) && "
        f"(!has(self.secrets) || !{_TAKEN}.exists(n, n in self.secrets))",
        holds=lambda spec: not (_names(spec.env) | _names(spec.secrets)) & set(RESERVED_VARIABLES),
    ),
    ValidationRule(
        field="modelVolume.path",
        reason="it is where the memory that processes share is mounted.",
        fix="Choose another path.",
        cel="!has(self.modelVolume) || self.modelVolume.path != '/dev/shm'",
        holds=lambda spec: spec.model_volume is None or spec.model_volume.path != "/dev/shm",  # noqa: S108
    ),
)

IMMUTABLE_TASK_TYPE: ValidationRule[Spec] = ValidationRule(
    field="taskType",
    reason="it cannot be changed: clients would get another kind of answer.",
    fix="Delete the service and create it anew.",
    # On the parent, since a rule of the field itself is not asked when the field is removed.
    cel="has(self.taskType) == has(oldSelf.taskType) && "
    "(!has(self.taskType) || self.taskType == oldSelf.taskType)",
    holds=lambda spec: True,
)
"""Asked by the API server alone, which has the old object beside the new one."""


NAME_PATTERN = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRET_KEY_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"


def name_problems(name: str) -> list[Problem]:
    """What is wrong with the object's name."""
    if len(name) > MAX_NAME or not matches_pattern(NAME_PATTERN, name):
        return [NAME_PROBLEM]
    return []


NAME_PROBLEM = Problem(
    field="metadata.name",
    reason=f"it is not 1 to {MAX_NAME} lower-case letters, digits and dashes, a letter first.",
    fix="Shorten it: the names of pods are made from it, and those end at 63.",
)


def spec_problems(spec: InferenceServiceSpec) -> list[Problem]:
    """Every problem of a spec: the values one by one, then the rules that join them."""
    wrong = format_problems(InferenceServiceSpec, spec)
    wrong += without_reported(content_problems(InferenceServiceSpec, spec), wrong)
    wrong += _variables(spec)
    wrong += _arguments(spec)
    if has_right_types(wrong):
        wrong += [rule.problem for rule in RULES if not rule.holds(spec)]
    return wrong


def _variables(spec: InferenceServiceSpec) -> Iterator[Problem]:
    for group in ("env", "secrets"):
        held = getattr(spec, group)
        for name in held if isinstance(held, Mapping) else ():
            if not isinstance(name, str) or not matches_pattern(VARIABLE_PATTERN, name):
                yield Problem(
                    field=f"{group}.{safe_name(name)}",
                    reason="it is not a variable name.",
                    fix="Use letters, digits and underscores, not a digit first.",
                )
    for name, ref in (spec.secrets or {}).items() if isinstance(spec.secrets, Mapping) else ():
        given = getattr(ref, "name", None), getattr(ref, "key", None)
        if not all(isinstance(part, str) for part in given):
            continue
        if not is_slug(str(given[0])) or not matches_pattern(SECRET_KEY_PATTERN, str(given[1])):
            yield Problem(
                field=f"secrets.{safe_name(name)}",
                reason="its name or key is not usable.",
                fix="Use a slug as the name, and letters, digits, dot, dash as the key.",
            )


def _arguments(spec: InferenceServiceSpec) -> Iterator[Problem]:
    lines = {"command": spec.command, "args": spec.args}
    if spec.canary is not None and hasattr(spec.canary, "args"):
        lines |= {"canary.command": spec.canary.command, "canary.args": spec.canary.args}
    declared = declared_variables(spec.env, spec.secrets)
    script = is_script(_texts(spec.command))
    for path, line in lines.items():
        words = _texts(line)
        name = secret_argument(words)
        if name is not None:
            yield Problem(
                field=path,
                reason=f"{safe_name(name) or 'it'} has a secret in clear.",
                fix="Declare a variable for it under secrets, and write $(VARIABLE) here.",
            )
        elif not script and spec.image is None:
            yield from placeholder_problems(path, words, declared)


def _texts(line: object) -> list[str]:
    return [str(part) for part in line] if isinstance(line, tuple | list) else []
