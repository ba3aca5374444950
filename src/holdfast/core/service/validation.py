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
    DEFAULT_BACKEND,
    MULTI_NODE_BACKENDS,
    POD_PORT,
    RESERVED_VARIABLES,
    backend_profile,
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
from holdfast.core.model import (
    GGUF_PATTERN,
    HUB_PATTERN,
    OCI,
    OCI_PATTERN,
    ModelSource,
    image_reference,
    model_source,
)
from holdfast.core.names import is_slug
from holdfast.core.quantity import parse_quantity
from holdfast.core.scan import safe_name, secret_argument
from holdfast.core.service.autoscaling import RESOURCE_METRICS
from holdfast.core.service.model_cache import MODELS
from holdfast.core.service.pod_overlay import overlay_problems, overlay_variables
from holdfast.core.service.spec import (
    MAX_NAME,
    AutoscalingSpec,
    CanarySpec,
    InferenceServiceSpec,
    PortProtocol,
    ResourceSpec,
    Scaler,
)
from holdfast.core.service.spec import InferenceServiceSpec as Spec


def _bounds(spec: Spec) -> tuple[int, int]:
    return _number(spec.min_replicas), _number(spec.max_replicas)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _within(spec: Spec) -> bool:
    low, high = _bounds(spec)
    return not (high and spec.replicas) or low <= _number(spec.replicas) <= high


def _requested(spec: Spec) -> bool:
    if not spec.scales_by_load:
        return True
    scale = spec.autoscaling or AutoscalingSpec()
    named = {each.metric for each in scale.metrics or ()}
    if scale.preset is None and scale.metrics is None:
        named.add(scale.metric or "cpu")
    return all(
        name not in named or bool(spec.resources and getattr(spec.resources, name) is not None)
        for name in RESOURCE_METRICS
    )


def _targeted(spec: Spec) -> bool:
    scale = spec.autoscaling
    if scale is None or (scale.preset is not None and scale.target is None):
        return True
    if scale.target is None:
        return scale.metrics is not None or scale.metric in (None, *RESOURCE_METRICS)
    return isinstance(scale.target, int | float) and scale.target > 0


def _all_targeted(spec: Spec) -> bool:
    return all(
        each.metric in RESOURCE_METRICS if each.target is None else each.target > 0
        for each in (spec.autoscaling and spec.autoscaling.metrics) or ()
    )


def _said_once(spec: Spec) -> bool:
    scale = spec.autoscaling
    if scale is None:
        return True
    if scale.metric is not None and (scale.metrics is not None or scale.preset is not None):
        return False
    return scale.target is None or scale.metrics is None or scale.preset is not None


def _has_preset(spec: Spec) -> bool:
    preset = spec.autoscaling.preset if spec.autoscaling else None
    backend = spec.backend or DEFAULT_BACKEND
    return preset is None or f"{backend}/{preset}" in _PRESETS


def _reports_metrics(spec: Spec) -> bool:
    profile = backend_profile(spec.backend or DEFAULT_BACKEND)
    flag = profile.metrics_flag
    if flag is None or spec.autoscaling is None or spec.autoscaling.preset is None:
        return True
    return flag in (*(spec.command or profile.command), *(spec.args or ()))


def _asks_prometheus(spec: Spec) -> bool:
    scale = spec.autoscaling
    if scale is None or scale.scaler is not Scaler.KEDA:
        return True
    names = [each.metric for each in scale.metrics or ()]
    names += [scale.metric] if scale.metric is not None else []
    return all(matches_pattern(_PROMETHEUS_NAME, name) for name in names)


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


def _models(spec: Spec) -> Iterator[tuple[str, str | None]]:
    """The models of both variants, each with the revision that is declared for it."""
    yield spec.model_ref, spec.model_revision
    if spec.canary is not None:
        yield spec.canary.model_ref or spec.model_ref, spec.canary.model_revision


def _sources(spec: Spec) -> Iterator[tuple[ModelSource, str, str | None]]:
    backend = spec.backend or DEFAULT_BACKEND
    for model, revision in _models(spec):
        yield model_source(model, backend), model, revision


def _well_formed(spec: Spec) -> bool:
    return all(
        matches_pattern(OCI_PATTERN, model)
        for source, model, _ in _sources(spec)
        if source is ModelSource.IMAGE
    )


def _loads_images(spec: Spec) -> bool:
    from_image = any(source is ModelSource.IMAGE for source, _, _ in _sources(spec))
    return not from_image or spec.backend not in _WITHOUT_PATHS


def _names_file(spec: Spec) -> bool:
    return (spec.backend or DEFAULT_BACKEND) not in _OF_ONE_FILE or all(
        image_reference(model).path
        for source, model, _ in _sources(spec)
        if source is ModelSource.IMAGE
    )


def _has_revisions(spec: Spec) -> bool:
    return all(
        revision is None or source is ModelSource.HUB for source, _, revision in _sources(spec)
    )


def _declares_revision(spec: Spec) -> bool:
    return any(revision is not None for _, revision in _models(spec))


def _passes_revision(spec: Spec) -> bool:
    own_command = spec.command or (spec.canary and spec.canary.command)
    return not _declares_revision(spec) or not own_command or spec.cache is not None


def _takes_revision(spec: Spec) -> bool:
    backend = spec.backend or DEFAULT_BACKEND
    return not _declares_revision(spec) or backend in _WITH_REVISION or spec.cache is not None


def _can_cache(spec: Spec) -> bool:
    if spec.cache is None:
        return True
    pattern = GGUF_PATTERN if spec.backend in _OF_ONE_FILE else HUB_PATTERN
    return spec.backend not in _WITHOUT_PATHS and all(
        matches_pattern(pattern, model) for model, _ in _models(spec)
    )


def _checks_digest(spec: Spec) -> bool:
    own = spec.canary.model_digest if spec.canary else None
    checked = spec.cache is not None or spec.backend in _WITH_DIGEST
    return checked or (spec.model_digest is None and own is None)


def _has_room(spec: Spec) -> bool:
    brought = spec.cache is not None or any(
        source is ModelSource.IMAGE for source, _, _ in _sources(spec)
    )
    return not brought or spec.model_volume is None or spec.model_volume.path != MODELS


def _says_revision_once(spec: Spec) -> bool:
    lines = [spec.args, spec.canary.args if spec.canary else None]
    return not _declares_revision(spec) or not any(
        str(part).partition("=")[0] == "--revision" for line in lines for part in line or ()
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
    return spec.vllm_version is None or (backend in _VERSIONED and spec.image is None)


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


def _plain_variables(spec: Spec) -> set[str]:
    return _names(spec.env) | _names(spec.canary.env if spec.canary else None)


_PORTS = ("${PORT}", str(POD_PORT))


def _cel_keeps_port(path: str) -> str:
    line, ports = f"self.{path}", "['" + "', '".join(_PORTS) + "']"
    return (
        f"(!({cel_is_set(path)}) || ((!('--port' in {line}) || {ports}.exists(p, p in {line})) && "
        f"{line}.all(a, !a.startsWith('--port=') || {ports}.exists(p, a == '--port=' + p))))"
    )


_NODE_FLAGS = ("--nnodes", "--node-rank")


def _joins_nothing(spec: Spec) -> bool:
    canary = spec.canary
    lines = [spec.command, spec.args]
    lines += [canary.command, canary.args] if canary else []
    return not any(
        str(part).partition("=")[0] in _NODE_FLAGS
        for line in lines
        if isinstance(line, tuple | list)
        for part in line
    )


def _cel_joins_nothing(path: str) -> str:
    flags = " || ".join(f"a == '{flag}' || a.startsWith('{flag}=')" for flag in _NODE_FLAGS)
    return f"(!({cel_is_set(path)}) || !self.{path}.exists(a, {flags}))"


_NODES = "(has(self.nodes) ? self.nodes : 1)"
_MULTI_NODE = "[" + ", ".join(f"'{name}'" for name in MULTI_NODE_BACKENDS) + "]"
_MIN = "(has(self.minReplicas) ? self.minReplicas : 0)"
_MAX = "(has(self.maxReplicas) ? self.maxReplicas : 0)"
_SCALE = "self.autoscaling"
_USES_CPU = (
    f"(!has({_SCALE}) || (has({_SCALE}.metric) ? {_SCALE}.metric == 'cpu' : "
    f"!has({_SCALE}.metrics) && !has({_SCALE}.preset)) || "
    f"(has({_SCALE}.metrics) && {_SCALE}.metrics.exists(m, m.metric == 'cpu')))"
)
_USES_MEMORY = (
    f"(has({_SCALE}) && ((has({_SCALE}.metric) && {_SCALE}.metric == 'memory') || "
    f"(has({_SCALE}.metrics) && {_SCALE}.metrics.exists(m, m.metric == 'memory'))))"
)
_PROMETHEUS_NAME = r"^[A-Za-z_:][A-Za-z0-9_:]*$"
_PRESETS = tuple(
    f"{name}/{preset}" for name, each in BACKENDS.items() for preset, _ in each.scaling_presets
)
_METERED = tuple(
    (name, each.metrics_flag, each.metrics_flag in each.command)
    for name, each in BACKENDS.items()
    if each.metrics_flag
)
_BACKEND = f"(has(self.backend) ? self.backend : '{DEFAULT_BACKEND}')"
_KNOWN = "[" + ", ".join(f"'{name}'" for name in BACKENDS_WITH_IMAGE) + "]"
_TAKEN = "[" + ", ".join(f"'{name}'" for name in RESERVED_VARIABLES) + "]"

_WITHOUT_PATHS = tuple(name for name, backend in BACKENDS.items() if backend.own_registry)
"""Backends that load nothing from a path."""
_OF_ONE_FILE = tuple(name for name, backend in BACKENDS.items() if backend.single_file)
"""Backends that load a file, not a directory."""
_VERSIONED = tuple(name for name, backend in BACKENDS.items() if backend.version_field)
"""Backends whose image has its tag by a field of its own, `vllm_version`."""
_WITH_DIGEST = tuple(name for name, backend in BACKENDS.items() if backend.tells_digest)
_WITH_REVISION = tuple(name for name, backend in BACKENDS.items() if backend.revision_flag)
_CANARY_MODEL = (
    "(has(self.canary) && has(self.canary.modelRef) ? self.canary.modelRef : self.modelRef)"
)
_BOTH_MODELS = f"[self.modelRef, {_CANARY_MODEL}]"
_DECLARES_REVISION = (
    "(has(self.modelRevision) || has(self.canary) && has(self.canary.modelRevision))"
)


def _cel_names(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _titles(names: Sequence[str]) -> str:
    return " or ".join(backend_profile(name).title for name in names)


_OF_A_HUB = " && ".join(f"{_BACKEND} != '{name}'" for name in _WITHOUT_PATHS)


def _cel_in_hub(model: str) -> str:
    return f"!['{OCI}', '/', './', '../', '~'].exists(p, {model}.startsWith(p))"


RULES: tuple[ValidationRule[Spec], ...] = (
    ValidationRule(
        field="modelRef",
        reason="it is no reference of an image.",
        fix="Write it like oci://registry.example/team/model@sha256:… with the 64 digits, and "
        "#path for a file in the image.",
        cel=f"{_BOTH_MODELS}.all(m, !m.startsWith('{OCI}') || m.matches('{OCI_PATTERN}'))",
        holds=_well_formed,
    ),
    ValidationRule(
        field="modelRef",
        reason="this backend loads no model from an image.",
        fix="Use another backend, or a model of its own registry.",
        cel=f"!({_BACKEND} in {_cel_names(_WITHOUT_PATHS)}) || "
        f"{_BOTH_MODELS}.all(m, !m.startsWith('{OCI}'))",
        holds=_loads_images,
    ),
    ValidationRule(
        field="modelRef",
        reason="this backend loads a file, and the reference names a whole image.",
        fix="Add # and the path of the file in the image, as in …#chat.gguf.",
        cel=f"!({_BACKEND} in {_cel_names(_OF_ONE_FILE)}) || "
        f"{_BOTH_MODELS}.all(m, !m.startsWith('{OCI}') || m.contains('#'))",
        holds=_names_file,
    ),
    ValidationRule(
        field="modelRevision",
        reason="only a repository of a hub has revisions.",
        fix="Leave it out; an image is pinned by the digest in its reference.",
        cel=f"(!has(self.modelRevision) || {_OF_A_HUB} && "
        f"{_cel_in_hub('self.modelRef')}) && "
        "(!has(self.canary) || !has(self.canary.modelRevision) || "
        f"{_OF_A_HUB} && {_cel_in_hub(_CANARY_MODEL)})",
        holds=_has_revisions,
    ),
    ValidationRule(
        field="modelRevision",
        reason="the command is your own, and nothing would hand the revision to it.",
        fix="Write it into the command, leave the command out, or give cache.",
        cel=f"!{_DECLARES_REVISION} || has(self.cache) || "
        "!(has(self.command) || has(self.canary) && has(self.canary.command))",
        holds=_passes_revision,
    ),
    ValidationRule(
        field="modelRevision",
        reason="this backend takes no revision when it downloads a model by itself.",
        fix=f"Leave it out, use {', '.join(_WITH_REVISION)}, or give cache.",
        cel=f"!{_DECLARES_REVISION} || has(self.cache) || "
        f"{_BACKEND} in {_cel_names(_WITH_REVISION)}",
        holds=_takes_revision,
    ),
    ValidationRule(
        field="cache",
        reason="only a repository of the Hub is downloaded into it, and a modelRef is none.",
        fix=f"Leave it out, or write modelRef like org/name, for {_titles(_OF_ONE_FILE)} like "
        "org/name:Q4_K_M.",
        cel=f"!has(self.cache) || !({_BACKEND} in {_cel_names(_WITHOUT_PATHS)}) && "
        f"{_BOTH_MODELS}.all(m, {_BACKEND} in {_cel_names(_OF_ONE_FILE)} ? "
        f"m.matches('{GGUF_PATTERN}') : m.matches('{HUB_PATTERN}'))",
        holds=_can_cache,
    ),
    ValidationRule(
        field="modelDigest",
        reason="nothing would check it: a backend that downloads by itself does not.",
        fix="Give cache, or leave it out; an image has its digest in its reference.",
        cel=f"has(self.cache) || {_BACKEND} in {_cel_names(_WITH_DIGEST)} || "
        "!(has(self.modelDigest) || has(self.canary) && has(self.canary.modelDigest))",
        holds=_checks_digest,
    ),
    ValidationRule(
        field="modelVolume.path",
        reason=f"it is where the model is mounted: {MODELS}.",
        fix="Choose another path.",
        cel=f"!has(self.modelVolume) || self.modelVolume.path != '{MODELS}' || "
        f"!has(self.cache) && {_BOTH_MODELS}.all(m, !m.startsWith('{OCI}'))",
        holds=_has_room,
    ),
    ValidationRule(
        field="args",
        reason="they have --revision, and modelRevision is given too.",
        fix="Keep modelRevision.",
        cel=f"!{_DECLARES_REVISION} || "
        + " && ".join(
            f"(!({cel_is_set(path)}) || "
            f"self.{path}.all(a, a != '--revision' && !a.startsWith('--revision=')))"
            for path in ("args", "canary.args")
        ),
        holds=_says_revision_once,
    ),
    ValidationRule(
        field="minReplicas",
        reason="only one of minReplicas and maxReplicas is given.",
        fix="Give both, or neither for a fixed number.",
        cel=f"{_MAX} > 0 ? has(self.minReplicas) : {_MIN} == 0",
        holds=lambda spec: (
            spec.min_replicas is not None if _bounds(spec)[1] > 0 else _bounds(spec)[0] == 0
        ),
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
        cel=f"!has(self.replicas) || {_MAX} == 0 || "
        f"({_MIN} <= self.replicas && self.replicas <= {_MAX})",
        holds=_within,
    ),
    ValidationRule(
        field="autoscaling",
        reason="there are no bounds to scale within.",
        fix="Give minReplicas and maxReplicas.",
        cel=f"!has(self.autoscaling) || (has(self.minReplicas) && {_MAX} > 0)",
        holds=lambda spec: spec.autoscaling is None or spec.autoscaled,
    ),
    ValidationRule(
        field="minReplicas",
        reason="a service of several nodes is not scaled to zero.",
        fix="Give at least 1, or leave nodes out.",
        cel=f"{_NODES} <= 1 || {_MAX} == 0 || {_MIN} > 0",
        holds=lambda spec: (
            _number(spec.nodes) <= 1 or _bounds(spec)[1] == 0 or _bounds(spec)[0] > 0
        ),
    ),
    ValidationRule(
        field="autoscaling.idleAfter",
        reason="it is for a service that may have no replicas.",
        fix="Give minReplicas: 0, or leave it out.",
        cel=f"!has(self.autoscaling) || !has(self.autoscaling.idleAfter) || {_MIN} == 0",
        holds=lambda spec: (
            spec.autoscaling is None or spec.autoscaling.idle_after is None or _bounds(spec)[0] == 0
        ),
    ),
    ValidationRule(
        field="autoscaling.metric",
        reason="cpu and memory are scaled by their share of what is requested, and nothing is.",
        fix="Give resources.cpu (or resources.memory), or scale by a metric of the backend.",
        cel=f"{_MAX} == 0 || ({_MIN} == 0 && {_MAX} == 1) || "
        f"((!{_USES_CPU} || (has(self.resources) && has(self.resources.cpu))) && "
        f"(!{_USES_MEMORY} || (has(self.resources) && has(self.resources.memory))))",
        holds=_requested,
    ),
    ValidationRule(
        field="autoscaling.target",
        reason="it is not above 0, or it is missing and the metric has no usual one.",
        fix="Give the value per pod at which another pod should start.",
        cel=f"!has({_SCALE}) || (has({_SCALE}.target) ? {_SCALE}.target > 0.0 : "
        f"has({_SCALE}.preset) || has({_SCALE}.metrics) || !has({_SCALE}.metric) || "
        f"{_SCALE}.metric in ['cpu', 'memory'])",
        holds=_targeted,
    ),
    ValidationRule(
        field="autoscaling.metrics",
        reason="a target is not above 0, or it is missing and the metric has no usual one.",
        fix="Give each the value per pod at which another pod should start.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.metrics) || {_SCALE}.metrics.all(m, "
        "has(m.target) ? m.target > 0.0 : m.metric in ['cpu', 'memory'])",
        holds=_all_targeted,
    ),
    ValidationRule(
        field="autoscaling",
        reason="what to scale by is said twice.",
        fix="Give metric and target alone, or list all under metrics; a preset takes metrics "
        "beside it, and target for its own.",
        cel=f"!has({_SCALE}) || ((!has({_SCALE}.metric) || "
        f"(!has({_SCALE}.metrics) && !has({_SCALE}.preset))) && "
        f"(!has({_SCALE}.target) || !has({_SCALE}.metrics) || has({_SCALE}.preset)))",
        holds=_said_once,
    ),
    ValidationRule(
        field="autoscaling.preset",
        reason="the backend reports no such figure.",
        fix=f"What there is: {', '.join(_PRESETS)}. Or name a metric of your own.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.preset) || "
        f"({_BACKEND} + '/' + {_SCALE}.preset) in {[*_PRESETS]}",
        holds=_has_preset,
    ),
    ValidationRule(
        field="autoscaling.preset",
        reason="the backend reports no metrics as it is started.",
        fix="Add to args: " + ", ".join(f"{flag} for {name}" for name, flag, _ in _METERED) + ".",
        cel=f"!has({_SCALE}) || !has({_SCALE}.preset) || ("
        + " && ".join(
            f"({_BACKEND} != '{name}' || (has(self.args) && '{flag}' in self.args) || "
            f"(has(self.command) ? '{flag}' in self.command : {str(usual).lower()}))"
            for name, flag, usual in _METERED
        )
        + ")",
        holds=_reports_metrics,
    ),
    ValidationRule(
        field="autoscaling.scaler",
        reason="KEDA asks Prometheus, which has no metric of that name.",
        fix="Use letters, digits, underscores and colons, or scale by hpa.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.scaler) || {_SCALE}.scaler != 'keda' || "
        f"((!has({_SCALE}.metric) || {_SCALE}.metric.matches('{_PROMETHEUS_NAME}')) && "
        f"(!has({_SCALE}.metrics) || {_SCALE}.metrics.all(m, "
        f"m.metric.matches('{_PROMETHEUS_NAME}'))))",
        holds=_asks_prometheus,
    ),
    ValidationRule(
        field="autoscaling.scaler",
        reason="no pod is left to measure at zero, so that KEDA would start none again.",
        fix="Give a minReplicas of at least 1, or scale by hpa.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.scaler) || {_SCALE}.scaler != 'keda' || {_MIN} > 0",
        holds=lambda spec: (
            spec.autoscaling is None
            or spec.autoscaling.scaler is not Scaler.KEDA
            or _bounds(spec)[0] > 0
        ),
    ),
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
        reason="one names no claim, or both a claim and a template.",
        fix="Give resourceClaimName or resourceClaimTemplateName.",
        cel="!has(self.resources) || !has(self.resources.claims) || self.resources.claims.all(c, "
        "has(c.resourceClaimName) != has(c.resourceClaimTemplateName))",
        holds=lambda spec: all(
            (each.resource_claim_name is None) != (each.resource_claim_template_name is None)
            for each in (spec.resources and spec.resources.claims) or ()
        ),
    ),
    ValidationRule(
        field="service.ports",
        reason=f"one has the name http or the port {POD_PORT}, which is served already.",
        fix="Choose another, or leave it out.",
        cel="!has(self.service) || !has(self.service.ports) || self.service.ports.all(p, "
        f"p.name != 'http' && p.port != {POD_PORT})",
        holds=lambda spec: all(
            each.name != "http" and each.port != POD_PORT
            for each in (spec.service and spec.service.ports) or ()
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
        reason=f"it chooses the tag of {_titles(_VERSIONED)}'s own image, which is not used here.",
        fix=f"Leave it out, or leave image out and use the backend {' or '.join(_VERSIONED)}.",
        cel="!has(self.vllmVersion) || ("
        + " || ".join(f"{_BACKEND} == '{name}'" for name in _VERSIONED)
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
    ValidationRule(
        field="nodes",
        reason="Holdfast does not know how to start this backend on several nodes.",
        fix=f"Use {' or '.join(MULTI_NODE_BACKENDS)}, or leave nodes out.",
        cel=f"{_NODES} == 1 || {_BACKEND} in {_MULTI_NODE}",
        holds=lambda spec: (
            not spec.multi_node or (spec.backend or DEFAULT_BACKEND) in MULTI_NODE_BACKENDS
        ),
    ),
    ValidationRule(
        field="command",
        reason="with several nodes each pod is started by a command of its own.",
        fix="Leave it out and give args; Holdfast adds what joins the nodes.",
        cel=f"{_NODES} == 1 || !has(self.command)",
        holds=lambda spec: not spec.multi_node or spec.command is None,
    ),
    ValidationRule(
        field="cache",
        reason="it is one volume, which may belong to one node, and several nodes are declared.",
        fix="Leave it out, or mount a volume for many readers with modelVolume.",
        cel=f"{_NODES} == 1 || !has(self.cache)",
        holds=lambda spec: not spec.multi_node or spec.cache is None,
    ),
    ValidationRule(
        field="canary",
        reason="a service of several nodes cannot have one.",
        fix="Leave it out, or declare another service with the variant.",
        cel=f"{_NODES} == 1 || !has(self.canary)",
        holds=lambda spec: not spec.multi_node or spec.canary is None,
    ),
    ValidationRule(
        field="args",
        reason="--nnodes or --node-rank is given, and Holdfast joins the nodes itself.",
        fix="Leave them out, and declare nodes.",
        cel=" && ".join(
            _cel_joins_nothing(path)
            for path in ("command", "args", "canary.command", "canary.args")
        ),
        holds=_joins_nothing,
    ),
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
        canary = spec.canary
        lines = [spec.command, spec.args]
        lines += [canary.command, canary.args] if canary else []
        texts = [_texts(line) for line in lines]
        found = lora.adapter_problems(spec.backend or DEFAULT_BACKEND, spec.adapters, texts)
        return problem not in found

    return ValidationRule(
        field=problem.field, reason=problem.reason, fix=problem.fix, cel=cel, holds=holds
    )


def _cel_list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


_ADAPTERS = "!has(self.adapters)"
_SUPPORTED = f"{_ADAPTERS} || !({_BACKEND} in {_cel_list(lora.WITH_ADAPTERS)})"
RULES += (
    _adapter_rule(
        lora.UNSUPPORTED, f"{_ADAPTERS} || {_BACKEND} in {_cel_list(lora.WITH_ADAPTERS)}"
    ),
    _adapter_rule(
        lora.REPEATED,
        f"{_SUPPORTED} || self.adapters.all(a, self.adapters.exists_one(b, a.name == b.name))",
    ),
    _adapter_rule(
        lora.UNSCALED,
        f"{_SUPPORTED} || {_BACKEND} in {_cel_list(lora.WITH_SCALE)} || "
        "self.adapters.all(a, !has(a.scale) || a.scale == 1.0)",
    ),
    _adapter_rule(
        lora.NOT_LOCAL,
        f"{_SUPPORTED} || !({_BACKEND} in {_cel_list(lora.LOCAL_ONLY)}) || "
        "self.adapters.all(a, a.source.startsWith('/'))",
    ),
    _adapter_rule(
        lora.IN_ARGUMENTS,
        f"{_SUPPORTED} || "
        + " && ".join(
            f"(!({cel_is_set(path)}) || self.{path}.all(p, !({_cel_list(lora.ADAPTER_FLAGS)}"
            ".exists(f, p == f || p.startsWith(f + '=')))))"
            for path in ("command", "args", "canary.command", "canary.args")
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
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
DEVICE_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
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
    wrong += _device_names(spec)
    if has_right_types(wrong):
        if not any(each.field.startswith("podTemplate") for each in wrong):
            wrong += overlay_problems(spec)
        wrong += _service_problems(spec)
        wrong += _node_problems(spec)
        wrong += [rule.problem for rule in RULES if not rule.holds(spec)]
    return wrong


def _variables(spec: InferenceServiceSpec) -> Iterator[Problem]:
    groups = {"env": spec.env, "secrets": spec.secrets}
    if isinstance(spec.canary, CanarySpec):
        groups["canary.env"] = spec.canary.env
    for group, held in groups.items():
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


def _service_problems(spec: InferenceServiceSpec) -> Iterator[Problem]:
    """What the API server is not asked: comparing all ports with each other costs it too much."""
    declared = spec.service
    if declared is None:
        return
    ports = declared.ports or ()
    names = {each.name for each in ports}
    numbers = {(each.port, each.protocol or PortProtocol.TCP) for each in ports}
    if not len(names) == len(numbers) == len(ports):
        yield Problem(
            field="service.ports",
            reason="two have the same name, or the same port and protocol.",
            fix="Keep one of them.",
        )
    for name in declared.annotations or {}:
        if name.startswith("holdfast.dev/"):
            yield Problem(
                field=f"service.annotations.{safe_name(name)}",
                reason="it is one that Holdfast sets itself.",
                fix="Leave it out.",
            )


_OLD_NODE_FLAGS = ("--nccl-init-addr",)
"""Other names under which engines still take a flag that joins nodes."""


def _node_problems(spec: InferenceServiceSpec) -> Iterator[Problem]:
    """Flags of several nodes that would take the place of ours: of two, engines take the last.

    With one node they may be given, but for those that a rule refuses.
    """
    if not spec.multi_node:
        return
    profile = backend_profile(spec.backend or DEFAULT_BACKEND)
    ours = {*profile.nodes_flags, *profile.worker_flags, *_OLD_NODE_FLAGS}
    for part in spec.args or ():
        given = part.partition("=")[0]
        flag = given.replace("_", "-")
        if flag.startswith("--") and flag in ours and given not in _NODE_FLAGS:
            yield Problem(
                field="args",
                reason=f"{given} is given, and Holdfast joins the nodes itself.",
                fix="Leave it out.",
            )


def _device_names(spec: InferenceServiceSpec) -> Iterator[Problem]:
    groups = {"resources": spec.resources}
    if isinstance(spec.canary, CanarySpec):
        groups["canary.resources"] = spec.canary.resources
    for path, held in groups.items():
        given = held.accelerators if isinstance(held, ResourceSpec) else None
        for name in given if isinstance(given, Mapping) else ():
            if not isinstance(name, str) or not matches_pattern(DEVICE_PATTERN, name):
                yield Problem(
                    field=f"{path}.accelerators.{safe_name(name)}",
                    reason="it is not the name of an extended resource.",
                    fix="Write it with its domain, like amd.com/gpu.",
                )


def _arguments(spec: InferenceServiceSpec) -> Iterator[Problem]:
    lines = {"command": spec.command, "args": spec.args}
    if spec.canary is not None and hasattr(spec.canary, "args"):
        lines |= {"canary.command": spec.canary.command, "canary.args": spec.canary.args}
    declared = declared_variables(spec.env, spec.secrets) | overlay_variables(spec)
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
