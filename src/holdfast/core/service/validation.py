"""Says everything that is wrong with an InferenceService, each with its reason and its fix.

The rules that join several fields are said twice: as a predicate, which `validate()` asks, and in
CEL, which the API server asks before it stores anything. Both stand side by side and share their
message, so a user reads the same sentence wherever the mistake is found; a test puts every case to
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.core import lora
from holdfast.core.backends import (
    BACKENDS,
    BACKENDS_WITH_IMAGE,
    POD_PORT,
    RESERVED_VARIABLES,
    backend_profile,
)
from holdfast.core.cluster_parts import DEVICE_CLAIM, FREE_PORT, service_problems
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
from holdfast.core.quantity import parse_quantity
from holdfast.core.rules import (
    ANALYSIS_BOUND,
    DEVICE_NAME,
    SECRET_PLACE,
    VARIABLE_NAME,
    clear_secret_problems,
    declared_variables,
    placeholder_problems,
)
from holdfast.core.scan import safe_name
from holdfast.core.service.model_rules import MODEL_RULES
from holdfast.core.service.node_rules import NODE_RULES, node_flag_problems
from holdfast.core.service.pod_overlay import overlay_problems, overlay_variables
from holdfast.core.service.rule_terms import (
    CEL_BACKEND,
    LINE_PATHS,
    backend_of,
    cel_list,
    command_lines,
    texts_of,
)
from holdfast.core.service.scaling_rules import SCALING_RULES
from holdfast.core.service.spec import (
    MAX_NAME,
    CanarySpec,
    InferenceServiceSpec,
    ResourceSpec,
)
from holdfast.core.service.spec import InferenceServiceSpec as Spec


def _distinct(spec: Spec) -> bool:
    canary = spec.canary
    return canary is None or any(
        mine is not None and mine != theirs
        for mine, theirs in (
            (canary.model_ref, spec.model_ref),
            (canary.model_revision, spec.model_revision),
            (canary.model_digest, spec.model_digest),
            (canary.image, spec.image),
            (canary.command, spec.command),
            (canary.args, spec.args),
            (canary.env, spec.env),
            (canary.resources, None),
        )
    )


def _in_time(spec: Spec) -> bool:
    check = spec.health_check
    timeout, interval = (
        (seconds_of(check.timeout), seconds_of(check.interval)) if check else (None, None)
    )
    return timeout is None or interval is None or timeout <= interval


def _has_image(spec: Spec) -> bool:
    return spec.image is not None or backend_of(spec) in BACKENDS_WITH_IMAGE


def _versioned(spec: Spec) -> bool:
    backend = backend_of(spec)
    return spec.vllm_version is None or (backend in _VERSIONED and spec.image is None)


def _listens(spec: Spec) -> bool:
    return all(map(_keeps_port, command_lines(spec)))


def _keeps_port(line: Sequence[str]) -> bool:
    inline = [part for part in line if part.startswith("--port=")]
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


def _plain_variables(spec: Spec) -> set[str]:
    return _names(spec.env) | _names(spec.canary.env if spec.canary else None)


_PORTS = ("${PORT}", str(POD_PORT))


def _cel_keeps_port(path: str) -> str:
    line, ports = f"self.{path}", "['" + "', '".join(_PORTS) + "']"
    return (
        f"(!({cel_is_set(path)}) || ((!('--port' in {line}) || {ports}.exists(p, p in {line})) && "
        f"{line}.all(a, !a.startsWith('--port=') || {ports}.exists(p, a == '--port=' + p))))"
    )


_KNOWN = "[" + ", ".join(f"'{name}'" for name in BACKENDS_WITH_IMAGE) + "]"
_TAKEN = "[" + ", ".join(f"'{name}'" for name in RESERVED_VARIABLES) + "]"

_VERSIONED = tuple(name for name, backend in BACKENDS.items() if backend.version_field)
"""Backends whose image has its tag by a field of its own, `vllm_version`."""


def _titles(names: Sequence[str]) -> str:
    return " or ".join(backend_profile(name).title for name in names)


RULES: tuple[ValidationRule[Spec], ...] = (
    *MODEL_RULES,
    *SCALING_RULES,
    ValidationRule(
        field="canary",
        reason="it is the same as the primary.",
        fix="Give it a modelRef, modelRevision, image, command, args, env or resources of its own, "
        "or leave it out.",
        cel="!has(self.canary) || "
        "(has(self.canary.modelRef) && self.canary.modelRef != self.modelRef) || "
        + " || ".join(
            f"(has(self.canary.{name}) && (!has(self.{name}) || self.canary.{name} != self.{name}))"
            for name in ("modelRevision", "modelDigest", "image", "command", "args", "env")
        )
        + " || has(self.canary.resources)",  # of another type to the API server than the primary's
        holds=_distinct,
    ),
    ValidationRule(
        field="canary.analysis",
        reason=ANALYSIS_BOUND.reason,
        fix=ANALYSIS_BOUND.fix,
        cel="!has(self.canary) || !has(self.canary.analysis) || "
        "has(self.canary.analysis.max) || has(self.canary.analysis.min)",
        holds=lambda spec: (
            not (spec.canary and spec.canary.analysis) or ANALYSIS_BOUND.holds(spec.canary.analysis)
        ),
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
        field="resources.gpuMemory",
        reason="it asks for a GPU of NVIDIA beside the accelerators or claims.",
        fix="Give resources.gpu too, or leave gpuMemory out.",
        cel="!has(self.resources) || !has(self.resources.gpuMemory) || has(self.resources.gpu) || "
        "(!has(self.resources.accelerators) && !has(self.resources.claims))",
        holds=lambda spec: (
            not spec.resources
            or spec.resources.gpu_memory is None
            or spec.resources.gpu is not None
            or (spec.resources.accelerators is None and spec.resources.claims is None)
        ),
    ),
    ValidationRule(
        field="resources.accelerators",
        reason="nvidia.com/gpu stands under gpu too.",
        fix="Keep one of the two.",
        cel="!has(self.resources) || !has(self.resources.gpu) || "
        "!has(self.resources.accelerators) || "
        "!('nvidia.com/gpu' in self.resources.accelerators)",
        holds=lambda spec: (
            not spec.resources
            or spec.resources.gpu is None
            or "nvidia.com/gpu" not in (spec.resources.accelerators or {})
        ),
    ),
    ValidationRule(
        field="resources.claims",
        reason=DEVICE_CLAIM.reason,
        fix=DEVICE_CLAIM.fix,
        cel="!has(self.resources) || !has(self.resources.claims) || self.resources.claims.all(c, "
        "has(c.resourceClaimName) != has(c.resourceClaimTemplateName))",
        holds=lambda spec: all(
            map(DEVICE_CLAIM.holds, (spec.resources and spec.resources.claims) or ())
        ),
    ),
    ValidationRule(
        field="service.ports",
        reason=FREE_PORT.reason,
        fix=FREE_PORT.fix,
        cel="!has(self.service) || !has(self.service.ports) || self.service.ports.all(p, "
        f"p.name != 'http' && p.port != {POD_PORT})",
        holds=lambda spec: all(map(FREE_PORT.holds, (spec.service and spec.service.ports) or ())),
    ),
    ValidationRule(
        field="image",
        reason="Holdfast knows no image for this backend.",
        fix=f"Give one, or use {', '.join(BACKENDS_WITH_IMAGE)}.",
        cel=f"has(self.image) || {CEL_BACKEND} in {_KNOWN}",
        holds=_has_image,
    ),
    ValidationRule(
        field="args",
        reason=f"a port of its own is chosen, and the pod is asked on {POD_PORT}.",
        fix="Leave --port out, or write ${PORT} for its value.",
        cel=" && ".join(_cel_keeps_port(path) for path in LINE_PATHS),
        holds=_listens,
    ),
    ValidationRule(
        field="vllmVersion",
        reason=f"it chooses the tag of {_titles(_VERSIONED)}'s own image, which is not used here.",
        fix=f"Leave it out, or leave image out and use the backend {' or '.join(_VERSIONED)}.",
        cel="!has(self.vllmVersion) || ("
        + " || ".join(f"{CEL_BACKEND} == '{name}'" for name in _VERSIONED)
        + " && !has(self.image))",
        holds=_versioned,
    ),
    ValidationRule(
        field="env",
        reason="a variable stands under secrets too.",
        fix="Keep one of the two.",
        cel="!has(self.secrets) || ((!has(self.env) || !self.env.exists(n, n in self.secrets)) && "
        f"(!({cel_is_set('canary.env')}) || !self.canary.env.exists(n, n in self.secrets)))",
        holds=lambda spec: not _plain_variables(spec) & _names(spec.secrets),
    ),
    ValidationRule(
        field="env",
        reason="a variable is one that Holdfast sets itself.",
        fix=f"Leave out {', '.join(RESERVED_VARIABLES)}.",
        cel=f"(!has(self.env) || !{_TAKEN}.exists(n, n in self.env)) && "
        f"(!has(self.secrets) || !{_TAKEN}.exists(n, n in self.secrets)) && "
        f"(!({cel_is_set('canary.env')}) || !{_TAKEN}.exists(n, n in self.canary.env))",
        holds=lambda spec: (
            not (_plain_variables(spec) | _names(spec.secrets)) & set(RESERVED_VARIABLES)
        ),
    ),
    *NODE_RULES,
    ValidationRule(
        field="suspend.until",
        reason="it is not a day of the calendar.",
        fix="Write it like 2026-11-20T18:00:00Z.",
        # What is no time at all cannot be converted, which the API server refuses as well.
        cel="!has(self.suspend) || !has(self.suspend.until) || "
        "timestamp(self.suspend.until) == timestamp(self.suspend.until)",
        holds=lambda spec: (
            spec.suspend is None or spec.suspend.until is None or spec.suspend.ends is not None
        ),
    ),
    ValidationRule(
        field="modelVolume.path",
        reason="it is where the memory that processes share is mounted.",
        fix="Choose another path.",
        cel="!has(self.modelVolume) || self.modelVolume.path != '/dev/shm'",
        holds=lambda spec: spec.model_volume is None or spec.model_volume.path != "/dev/shm",  # noqa: S108
    ),
)


def _adapter_rule(problem: Problem, cel: str) -> ValidationRule[Spec]:
    """A rule of `core/lora.py`, which a workload is held to as well."""

    def holds(spec: Spec) -> bool:
        if spec.adapters is None:
            return True
        found = lora.adapter_problems(backend_of(spec), spec.adapters, command_lines(spec))
        return problem not in found

    return ValidationRule(
        field=problem.field, reason=problem.reason, fix=problem.fix, cel=cel, holds=holds
    )


_ADAPTERS = "!has(self.adapters)"
_SUPPORTED = f"{_ADAPTERS} || !({CEL_BACKEND} in {cel_list(lora.WITH_ADAPTERS)})"
RULES += (
    _adapter_rule(
        lora.UNSUPPORTED, f"{_ADAPTERS} || {CEL_BACKEND} in {cel_list(lora.WITH_ADAPTERS)}"
    ),
    _adapter_rule(
        lora.REPEATED,
        f"{_SUPPORTED} || self.adapters.all(a, self.adapters.exists_one(b, a.name == b.name))",
    ),
    _adapter_rule(
        lora.UNSCALED,
        f"{_SUPPORTED} || {CEL_BACKEND} in {cel_list(lora.WITH_SCALE)} || "
        "self.adapters.all(a, !has(a.scale) || a.scale == 1.0)",
    ),
    _adapter_rule(
        lora.NOT_LOCAL,
        f"{_SUPPORTED} || !({CEL_BACKEND} in {cel_list(lora.LOCAL_ONLY)}) || "
        "self.adapters.all(a, a.source.startsWith('/'))",
    ),
    _adapter_rule(
        lora.IN_ARGUMENTS,
        f"{_SUPPORTED} || "
        + " && ".join(
            f"(!({cel_is_set(path)}) || self.{path}.all(p, !({cel_list(lora.ADAPTER_FLAGS)}"
            ".exists(f, p == f || p.startsWith(f + '=')))))"
            for path in LINE_PATHS
        ),
    ),
    _adapter_rule(lora.IN_SCRIPT, ""),
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
IMMUTABLE_CACHE: ValidationRule[Spec] = ValidationRule(
    field="cache",
    reason="the class and the access mode of a claim cannot be changed.",
    fix="Take cache out, wait until the claim is gone, and give it anew.",
    cel="!has(self.cache) || !has(oldSelf.cache) || "
    + " && ".join(
        f"has(self.cache.{name}) == has(oldSelf.cache.{name}) && "
        f"(!has(self.cache.{name}) || self.cache.{name} == oldSelf.cache.{name})"
        for name in ("storageClass", "accessMode")
    ),
    holds=lambda spec: True,
)


NAME_PATTERN = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"


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
    wrong += _device_names(spec)
    if has_right_types(wrong):
        if not any(each.field.startswith("podTemplate") for each in wrong):
            wrong += overlay_problems(spec)
        wrong += service_problems(spec.service) if spec.service else ()
        wrong += node_flag_problems(spec)
        wrong += [rule.problem for rule in RULES if not rule.holds(spec)]
    return wrong


def _variables(spec: InferenceServiceSpec) -> Iterator[Problem]:
    groups = {"env": spec.env, "secrets": spec.secrets}
    if isinstance(spec.canary, CanarySpec):
        groups["canary.env"] = spec.canary.env
    for group, held in groups.items():
        yield from VARIABLE_NAME.key_problems(group, held)
    for name, ref in (spec.secrets or {}).items() if isinstance(spec.secrets, Mapping) else ():
        given = getattr(ref, "name", None), getattr(ref, "key", None)
        if all(isinstance(part, str) for part in given):
            yield from SECRET_PLACE.problems(f"secrets.{safe_name(name)}", ref)


def _device_names(spec: InferenceServiceSpec) -> Iterator[Problem]:
    groups = {"resources": spec.resources}
    if isinstance(spec.canary, CanarySpec):
        groups["canary.resources"] = spec.canary.resources
    for path, held in groups.items():
        if isinstance(held, ResourceSpec):
            yield from DEVICE_NAME.key_problems(f"{path}.accelerators", held.accelerators)


def _arguments(spec: InferenceServiceSpec) -> Iterator[Problem]:
    lines = {"command": spec.command, "args": spec.args}
    if spec.canary is not None and hasattr(spec.canary, "args"):
        lines |= {"canary.command": spec.canary.command, "canary.args": spec.canary.args}
    declared = declared_variables(spec.env, spec.secrets) | overlay_variables(spec)
    script = is_script(texts_of(spec.command))
    for path, line in lines.items():
        words = texts_of(line)
        secrets = list(clear_secret_problems(path, words))
        yield from secrets
        if not secrets and not script and spec.image is None:
            yield from placeholder_problems(path, words, declared)
