"""Says everything that is wrong with a declared workload, each with its reason and its fix.

Called when a `WorkloadSpec` is built, so no target ever meets an invalid one. What an
InferenceService is held to as well is in `rules.py`; what a target cannot do is for that target to
say (`single_machine.py`, `wire/service_mapping.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from holdfast.core import custom_resource, lora
from holdfast.core.backends import BACKENDS, Backend
from holdfast.core.cluster_parts import (
    DEVICE_CLAIM,
    FREE_PORT,
    DeviceClaimSpec,
    Scaler,
    ServiceSpec,
    service_problems,
)
from holdfast.core.command import (
    leading_variable,
    shell_syntax,
    split_command,
)
from holdfast.core.errors import Problem
from holdfast.core.model import DIGEST_PATTERN, REVISION_PATTERN
from holdfast.core.names import is_slug, slug_problems
from holdfast.core.quantity import parse_duration, parse_moment, parse_quantity
from holdfast.core.redact import quote_text
from holdfast.core.rules import (
    ANALYSIS_BOUND,
    DEVICE_NAME,
    SCALED_ONCE,
    SECRET_PLACE,
    VARIABLE_NAME,
    clear_secret_problems,
    declared_variables,
    placeholder_problems,
    shape_problem,
)
from holdfast.core.scan import MAX_TEXT, oversize_problem, safe_name, scan_values

if TYPE_CHECKING:
    from holdfast.core.workload import Autoscaling, Resources, WorkloadSpec

MAX_REPLICAS = 1_000
_REVISION = re.compile(f"(?=.{{1,200}}$){REVISION_PATTERN[1:-1]}")
_DIGEST = re.compile(DIGEST_PATTERN[1:-1])
_POLICIES = ("fixed", "scheduled", "autoscaling")
_PRESETS = frozenset(preset for each in BACKENDS.values() for preset, _ in each.scaling_presets)


def size_problem(spec: WorkloadSpec) -> Problem | None:
    """Say that a spec is too large to be checked any further."""
    return oversize_problem(_set_fields(spec))


def spec_problems(spec: WorkloadSpec) -> list[Problem]:
    """Return every problem of a spec, in the order of its fields."""
    return [
        *_identity_problems(spec),
        *scan_values(_set_fields(spec)),
        *_model_problems(spec),
        *_command_problems(spec),
        *_environment_problems(spec),
        *_amount_problems(spec),
        *_resource_problems(spec),
        *_canary_problems(spec),
        *_duration_problems(spec),
        *_suspend_problems(spec),
        *_adapter_problems(spec),
        *_service_problems(spec),
    ]


def _set_fields(spec: WorkloadSpec) -> Iterator[tuple[str, object]]:
    """The fields that are set; most are not, and this is on the way of every write."""
    for name in spec.__slots__:
        value = getattr(spec, name)
        if value is not None:
            yield name, value


def _identity_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    for name in ("name", "model", "backend"):
        value = getattr(spec, name)
        if not isinstance(value, str):
            yield Problem(field=name, reason="it is not text.", fix="Quote the value.")
        elif not value.strip():
            yield Problem(field=name, reason="it is empty.", fix=f"Give the workload a {name}.")
    if isinstance(spec.name, str) and len(spec.name) > 200:
        yield Problem(field="name", reason="it is over 200 characters.", fix="Shorten it.")
    if isinstance(spec.slug, str) and (spec.slug or (isinstance(spec.name, str) and spec.name)):
        yield from slug_problems(spec.slug or spec.name, field="slug", derive=not spec.slug)
    elif not isinstance(spec.slug, str):
        yield Problem(field="slug", reason="it is not text.", fix="Give a slug or leave it out.")
    if spec.project is not None and not (isinstance(spec.project, str) and is_slug(spec.project)):
        yield Problem(
            field="project",
            reason="it is not a project slug.",
            fix="Use lower-case letters, digits and dashes.",
        )
    if isinstance(spec.backend, str) and spec.backend and not is_slug(spec.backend):
        yield Problem(
            field="backend",
            reason=f"{quote_text(spec.backend)} is not a backend.",
            fix=f"Use {', '.join(Backend)}, or the slug of your own.",
        )
    task = spec.task_type
    if task is not None and not (isinstance(task, str) and type(task) is not str):
        yield Problem(
            field="task_type",
            reason=f"{quote_text(str(task))} is not a task type.",
            fix="Use text2text, embedding, reranker, or another name from the reference.",
        )


def _model_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    own = spec.canary.model_revision if spec.canary else None
    for path, value in (("model_revision", spec.model_revision), ("canary.model_revision", own)):
        if value is not None and not (isinstance(value, str) and _REVISION.fullmatch(value)):
            yield Problem(
                field=path,
                reason="it is not a branch, a tag or a commit.",
                fix="Give the 40 digits of a commit, or a name without spaces.",
            )
    digest = spec.canary.model_digest if spec.canary else None
    for path, value in (("model_digest", spec.model_digest), ("canary.model_digest", digest)):
        if value is not None and not (isinstance(value, str) and _DIGEST.fullmatch(value)):
            yield Problem(
                field=path,
                reason="it is not sha256: and 64 digits of 0-9a-f.",
                fix="Write what holdfast models digest says.",
            )
    if spec.cache is not None:
        size = spec.cache.size
        amount = parse_quantity(size) if isinstance(size, str | int | float) else None
        if amount is None or amount <= 0:
            yield Problem(
                field="cache.size",
                reason="it is not a quantity above 0.",
                fix="Write it like 50Gi.",
            )
        if spec.cache.access_mode not in (None, "ReadWriteOnce", "ReadWriteMany"):
            yield Problem(
                field="cache.access_mode",
                reason="it is neither ReadWriteOnce nor ReadWriteMany.",
                fix="Leave it out, or give one of them.",
            )


def _command_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    if spec.command is not None and (spec.image is not None or spec.args is not None):
        yield Problem(
            field="command",
            reason="image or args are given too.",
            fix="Give either command, or image with args.",
        )
    for path, text in (
        ("command", spec.command),
        ("canary.command", spec.canary.command if spec.canary else None),
    ):
        if text is not None:
            yield from _command_line_problems(
                path, text, declared_variables(spec.env, spec.secrets)
            )
    args = spec.args
    if args is not None:
        if isinstance(args, tuple) and all(isinstance(part, str) for part in args):
            if spec.image is None:  # the entry point of an image may fill in what it likes
                declared = declared_variables(spec.env, spec.secrets)
                yield from placeholder_problems("args", args, declared)
            yield from clear_secret_problems("args", args)
        else:
            yield Problem(
                field="args", reason="it is not a list of texts.", fix="Quote each argument."
            )


def _command_line_problems(path: str, text: object, declared: frozenset[str]) -> Iterator[Problem]:
    if not isinstance(text, str):
        yield Problem(field=path, reason="it is not text.", fix="Write it as one line.")
        return
    if len(text) > MAX_TEXT:
        return  # reported with the other texts that are too long
    try:
        arguments = split_command(text)
    except ValueError:
        yield Problem(field=path, reason="a quote is not closed.", fix="Close the quote.")
        return
    if not arguments:
        yield Problem(field=path, reason="it is empty.", fix="Leave it out instead.")
    shell = shell_syntax(arguments)
    if shell:
        yield Problem(
            field=path,
            reason=f"{quote_text(shell, 20)} needs a shell, and none is used.",
            fix="Start one program with its arguments, or a script of yours.",
        )
    variable = leading_variable(arguments)
    if variable:
        yield Problem(
            field=path,
            reason=f"it begins with {safe_name(variable)}=, which only a shell would set, and "
            "none is used.",
            fix=f"Begin with the program, and move {safe_name(variable)} to env.",
        )
    yield from placeholder_problems(path, arguments, declared)
    yield from clear_secret_problems(path, arguments)


def _environment_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    for group in ("env", "config", "execution_policy_config", "pod_template"):
        value = getattr(spec, group)
        if value is not None and not isinstance(value, Mapping):
            yield shape_problem(group, value)
    env = spec.env if isinstance(spec.env, Mapping) else {}
    secrets = spec.secrets if isinstance(spec.secrets, Mapping) else {}
    for name, value in env.items():
        if not isinstance(value, str):
            yield Problem(
                field=f"env.{safe_name(name)}", reason="it is not text.", fix="Quote the value."
            )
        if name in secrets:
            yield Problem(
                field=f"env.{safe_name(name)}",
                reason="it is also listed under secrets.",
                fix="Keep one.",
            )
    for name in ("command", "vllm_version"):
        if isinstance(spec.config, Mapping) and name in spec.config:
            yield Problem(
                field=f"config.{name}",
                reason="it is a field of the workload itself.",
                fix=f"Move it to {name}.",
            )
    for group, names in (("env", env), ("secrets", secrets)):
        yield from VARIABLE_NAME.key_problems(group, names)
    for name, ref in secrets.items():
        if ref is not None:  # else its shape was a problem already
            yield from SECRET_PLACE.problems(f"secrets.{safe_name(name)}", ref)


def _amount_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    yield from _count_problems("replicas", spec.replicas, low=0)
    yield from _count_problems("nodes", spec.nodes, low=1)
    policy, config = spec.execution_policy, spec.execution_policy_config
    if policy is not None and policy not in _POLICIES:
        yield Problem(
            field="execution_policy",
            reason=f"{quote_text(str(policy))} is not a policy.",
            fix="Use fixed, scheduled or autoscaling.",
        )
    if config is not None and policy is None:
        yield Problem(
            field="execution_policy_config",
            reason="execution_policy is not given.",
            fix="Name the policy that it configures.",
        )
    given = [
        name
        for name in ("replicas", "autoscaling", "execution_policy")
        if getattr(spec, name) is not None
    ]
    if len(given) > 1:
        yield Problem(
            field=given[0],
            reason=f"{' and '.join(given)} each say how many run.",
            fix="Keep one of them.",
        )
    if isinstance(config, Mapping):
        yield from _policy_config_problems(str(policy), config)
    scale = spec.autoscaling
    if scale is not None:
        yield from _count_problems("autoscaling.min", scale.min, low=0)
        yield from _count_problems("autoscaling.max", scale.max, low=1)
        if _is_int(scale.min) and _is_int(scale.max) and scale.min > scale.max:
            yield Problem(
                field="autoscaling.min", reason="it is above max.", fix="Lower min or raise max."
            )
        yield from _scaling_metric_problems(scale)


def _scaling_metric_problems(scale: Autoscaling) -> Iterator[Problem]:
    metrics = scale.metrics
    if metrics is not None and (not isinstance(metrics, tuple | list) or not metrics):
        yield Problem(
            field="autoscaling.metrics",
            reason="it is not a list of at least one.",
            fix="Give a metric and a target each, or leave it out.",
        )
    yield from SCALED_ONCE.problems("autoscaling", scale)
    if scale.preset is not None and scale.preset not in _PRESETS:
        yield Problem(
            field="autoscaling.preset",
            reason=f"{quote_text(str(scale.preset))} is not a preset.",
            fix=f"Use {' or '.join(sorted(_PRESETS))}, or name a metric.",
        )
    if scale.scaler is not None and scale.scaler not in tuple(Scaler):
        yield Problem(
            field="autoscaling.scaler",
            reason=f"{quote_text(str(scale.scaler))} is not a scaler.",
            fix=f"Use {' or '.join(Scaler)}.",
        )
    if scale.behavior is not None and not isinstance(scale.behavior, Mapping):
        yield shape_problem("autoscaling.behavior", scale.behavior)


def _policy_config_problems(policy: str, config: Mapping[str, object]) -> Iterator[Problem]:
    path = "execution_policy_config"
    if policy == "fixed":
        yield from _count_problems(f"{path}.replicas", config.get("replicas", 1), low=0)
    elif policy == "scheduled" and not (config.get("cron") or config.get("window")):
        yield Problem(field=path, reason="it has no schedule.", fix="Give cron or window.")
    elif policy == "autoscaling":
        low, high = config.get("min_workers", 0), config.get("max_workers", 1)
        yield from _count_problems(f"{path}.min_workers", low, low=0)
        yield from _count_problems(f"{path}.max_workers", high, low=1)
        if _is_int(low) and _is_int(high) and low > high:
            yield Problem(
                field=f"{path}.min_workers", reason="it is above max_workers.", fix="Lower it."
            )
        workers = config.get("workers")
        cost = config.get("max_hourly_cost_usd")
        cloud = isinstance(workers, Mapping) and workers.get("source") == "cloud"
        paid = isinstance(cost, int | float) and not isinstance(cost, bool) and cost > 0
        if cloud and not paid:
            yield Problem(
                field=f"{path}.max_hourly_cost_usd",
                reason="cloud workers need a cost limit above 0.",
                fix="Give the most you want to pay an hour.",
            )


def _adapter_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    if spec.adapters is None:
        return
    wrong = [
        replace(problem, field=f"adapters[{place}].{problem.field}")
        for place, each in enumerate(spec.adapters)
        for problem in custom_resource.format_problems(lora.LoraAdapter, each)
    ]
    yield from wrong
    if wrong or not isinstance(spec.backend, str):
        return
    canary = spec.canary.command if spec.canary else None
    args = spec.args if isinstance(spec.args, tuple) else ()
    lines = [[part for part in args if isinstance(part, str)]]
    for text in (spec.command, canary):
        with suppress(ValueError):
            lines.append(split_command(text) if isinstance(text, str) else [])
    yield from lora.adapter_problems(spec.backend, spec.adapters, lines)


def _resource_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    held = {"resources": spec.resources}
    if spec.canary is not None:
        held["canary.resources"] = spec.canary.resources
    for path, resources in held.items():
        if resources is not None:
            yield from _amounts_of_resources(path, resources)


def _amounts_of_resources(path: str, resources: Resources) -> Iterator[Problem]:
    for name in ("cpu", "memory", "gpu_memory"):
        value = getattr(resources, name)
        amount = parse_quantity(value) if isinstance(value, str | int | float) else None
        if value is not None and (amount is None or amount <= 0):
            yield Problem(
                field=f"{path}.{name}",
                reason="it is not a quantity above 0.",
                fix="Write it like 4, 500m or 16Gi.",
            )
    yield from _count_problems(f"{path}.gpu", resources.gpu, low=0)
    yield from _claim_problems(f"{path}.claims", resources.claims)
    devices: object = resources.accelerators
    if devices is not None and not isinstance(devices, Mapping):
        yield shape_problem(f"{path}.accelerators", devices)
        return
    yield from DEVICE_NAME.key_problems(f"{path}.accelerators", devices)
    for name, count in (devices or {}).items():
        yield from _count_problems(f"{path}.accelerators.{safe_name(name)}", count, low=1)


def _claim_problems(path: str, claims: object) -> Iterator[Problem]:
    if claims is None:
        return
    if not isinstance(claims, tuple | list):
        yield Problem(
            field=path, reason=f"a {type(claims).__name__} was given.", fix="Give a list."
        )
        return
    for place, claim in enumerate(claims):
        if not isinstance(claim, DeviceClaimSpec):
            yield shape_problem(f"{path}[{place}]", claim)
            continue
        wrong = custom_resource.format_problems(DeviceClaimSpec, claim, wire=False)
        yield from (replace(each, field=f"{path}[{place}].{each.field}") for each in wrong)
        yield from DEVICE_CLAIM.problems(path, claim)


def _service_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    service = spec.service
    if service is None:
        return
    wrong = custom_resource.format_problems(ServiceSpec, service, wire=False)
    yield from (replace(each, field=f"service.{each.field}") for each in wrong)
    if not wrong:
        yield from service_problems(service)
        for port in service.ports or ():
            yield from FREE_PORT.problems("service.ports", port)


def _canary_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    canary = spec.canary
    if canary is None:
        return
    if not _is_int(canary.weight) or not 0 <= canary.weight <= 100:
        yield Problem(
            field="canary.weight", reason="it is not from 0 to 100.", fix="Give a percentage."
        )
    yield from _count_problems("canary.replicas", canary.replicas, low=1)
    if canary.weight != 0 and canary.is_none:
        yield Problem(
            field="canary",
            reason="it is the same as the primary.",
            fix="Give it a model, revision, command, image, env or resources of its own, or weight "
            "0 for no canary.",
        )
    yield from _canary_variable_problems(canary.env, spec.secrets)
    if canary.analysis is not None:
        yield from ANALYSIS_BOUND.problems("canary.analysis", canary.analysis)
        yield from _count_problems("canary.analysis.rounds", canary.analysis.rounds, low=1)


def _canary_variable_problems(env: object, secrets: object) -> Iterator[Problem]:
    if env is None:
        return
    if not isinstance(env, Mapping):
        yield shape_problem("canary.env", env)
        return
    for name, value in env.items():
        field = f"canary.env.{safe_name(name)}"
        yield from VARIABLE_NAME.problems(field, name)
        if not isinstance(value, str):
            yield Problem(field=field, reason="it is not text.", fix="Quote the value.")
        if isinstance(secrets, Mapping) and name in secrets:
            yield Problem(field=field, reason="it is also listed under secrets.", fix="Keep one.")


def _duration_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    times: dict[str, object] = {}
    if spec.health:
        health = spec.health
        times |= {
            "health.interval": health.interval,
            "health.timeout": health.timeout,
            "health.startup": health.startup,
        }
        if health.path is not None and not (
            isinstance(health.path, str) and health.path.startswith("/")
        ):
            yield Problem(
                field="health.path",
                reason="it does not start with '/'.",
                fix="Write it like /health.",
            )
    if spec.rollout:
        times["rollout.drain_timeout"] = spec.rollout.drain_timeout
        yield from _count_problems("rollout.max_surge", spec.rollout.max_surge, low=1)
    if spec.autoscaling:
        times["autoscaling.idle_after"] = spec.autoscaling.idle_after
        if spec.autoscaling.idle_after is not None and spec.autoscaling.min != 0:
            yield Problem(
                field="autoscaling.idle_after",
                reason="it is for a workload that may have no replicas.",
                fix="Give min=0, or leave it out.",
            )
    if spec.canary and spec.canary.analysis:
        times["canary.analysis.interval"] = spec.canary.analysis.interval
    for field, value in times.items():
        if value is None:
            continue
        seconds = parse_duration(value) if isinstance(value, str | int | float) else None
        if seconds is None or not 0.001 <= seconds <= 86_400:
            yield Problem(
                field=field,
                reason="it is not a duration from 1ms to 24h.",
                fix="Write it like 10s, 1m30s or 500ms.",
            )


def _suspend_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    given = spec.suspend
    if given is None:
        return
    if not isinstance(given.reason, str) or not given.reason.strip():
        yield Problem(field="suspend.reason", reason="it is empty.", fix="Say why, for others.")
    if given.until is not None and parse_moment(given.until) is None:
        yield Problem(
            field="suspend.until",
            reason="it is not a time with its offset from UTC.",
            fix="Write it like 2026-11-20T18:00:00Z.",
        )


def _count_problems(field: str, value: object, *, low: int) -> Iterator[Problem]:
    if value is None:
        return
    if not _is_int(value) or not low <= value <= MAX_REPLICAS:
        yield Problem(
            field=field,
            reason=f"it is not a whole number from {low} to {MAX_REPLICAS}.",
            fix="Use a number in that range.",
        )


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
