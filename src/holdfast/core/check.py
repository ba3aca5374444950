"""Says everything that is wrong with a declared workload, each with its reason and its fix.

Called when a `WorkloadSpec` is built, so no target ever meets an invalid one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, TypeGuard

from holdfast.core.backends import Backend
from holdfast.core.command import (
    PLACEHOLDERS,
    leading_variable,
    shell_syntax,
    split_command,
    unknown_placeholder,
)
from holdfast.core.errors import Problem
from holdfast.core.names import is_slug, slug_problems
from holdfast.core.quantity import parse_duration, parse_quantity
from holdfast.core.redact import quote_text
from holdfast.core.scan import MAX_TEXT, oversize_problem, safe_name, scan_values, secret_argument

if TYPE_CHECKING:
    from holdfast.core.workload import WorkloadSpec

MAX_REPLICAS = 1_000
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_POLICIES = ("fixed", "scheduled", "autoscaling")


def size_problem(spec: WorkloadSpec) -> Problem | None:
    """Say that a spec is too large to be checked any further."""
    return oversize_problem(_set_fields(spec))


def spec_problems(spec: WorkloadSpec) -> list[Problem]:
    """Return every problem of a spec, in the order of its fields."""
    return [
        *_identity_problems(spec),
        *scan_values(_set_fields(spec)),
        *_command_problems(spec),
        *_environment_problems(spec),
        *_amount_problems(spec),
        *_resource_problems(spec),
        *_canary_problems(spec),
        *_duration_problems(spec),
    ]


def _set_fields(spec: WorkloadSpec) -> Iterator[tuple[str, object]]:
    """The fields that are set; most are not, and this is on the way of every write."""
    for name in spec.__slots__:
        value = getattr(spec, name)
        if value is not None:
            yield name, value


def shape_problem(field: str, value: object) -> Problem:
    """A nested field got something that is neither its type nor a mapping."""
    return Problem(
        field=field,
        reason=f"a {type(value).__name__} was given.",
        fix="Give a mapping of its fields.",
    )


def unknown_problem(field: str, known: list[str]) -> Problem:
    """A mapping has a key that means nothing."""
    like = nearest_name(field.rpartition(".")[2], known)
    return Problem(
        field=safe_name(field),
        reason="there is no such field.",
        fix=f"Did you mean {like}?" if like else f"Known fields: {', '.join(known)}.",
    )


def nearest_name(text: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that a misspelt text most likely stands for."""
    from difflib import get_close_matches  # only a mistake needs it

    spelt = {name.lower().replace("-", "_"): name for name in known}
    found = get_close_matches(text[:100].lower().replace("-", "_"), spelt, n=1, cutoff=0.7)
    return spelt[found[0]] if found else None


def missing_problem(field: str, kind: type, given: set[str]) -> Problem:
    """A mapping lacks a key that it cannot do without."""
    needed = [
        part.name
        for part in fields(kind)
        if part.default is MISSING and part.default_factory is MISSING and part.name not in given
    ]
    return Problem(
        field=field,
        reason=f"{' and '.join(needed)} must be given.",
        fix=f"Add {', '.join(f'{field}.{name}' for name in needed)}.",
    )


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
            yield from _argument_problems("args", args)
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
    yield from _argument_problems(path, arguments)


def declared_variables(*groups: object) -> frozenset[str]:
    """The names of what an environment will have, from `env` and `secrets` of any shape."""
    return frozenset(str(name) for held in groups if isinstance(held, Mapping) for name in held)


def placeholder_problems(
    path: str, arguments: Sequence[str], declared: frozenset[str]
) -> Iterator[Problem]:
    """Say that a variable in a line would stay as it is written."""
    unknown = unknown_placeholder(arguments, declared)
    if unknown:
        name = unknown.strip("${}()")
        like = nearest_name(name, (*PLACEHOLDERS, *declared))
        written = f"Write ${{{name}}}." if name in declared else ""
        yield Problem(
            field=path,
            reason=f"nothing fills in {quote_text(unknown)}.",
            fix=written
            or (f"Did you mean ${{{like}}}?" if like else "")
            or "Declare it under env or secrets; of others only ${PORT}, ${HOST} and ${MODEL} are "
            "filled in.",
        )


def _argument_problems(path: str, arguments: Sequence[str]) -> Iterator[Problem]:
    name = secret_argument(arguments)
    if name is not None:
        yield Problem(
            field=path,
            reason=f"{safe_name(name) or 'it'} has a secret in clear.",
            fix="Most backends read it from an environment variable: name it under secrets.",
        )


def _environment_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    for group in ("env", "config", "execution_policy_config"):
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
        for name in names:
            if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
                yield Problem(
                    field=f"{group}.{safe_name(name)}",
                    reason="it is not a variable name.",
                    fix="Use letters, digits and underscores, not a digit first.",
                )
    for name, ref in secrets.items():
        if ref is not None and not (  # None: its shape was a problem already
            isinstance(ref.name, str)
            and isinstance(ref.key, str)
            and is_slug(ref.name)
            and _KEY.fullmatch(ref.key)
            and not ref.key.startswith(".")
        ):
            yield Problem(
                field=f"secrets.{safe_name(name)}",
                reason="its name or key is not usable.",
                fix="Use a slug as the name, and letters, digits, dot, dash as the key.",
            )


def _amount_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    yield from _count_problems("replicas", spec.replicas, low=0)
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


def _resource_problems(spec: WorkloadSpec) -> Iterator[Problem]:
    resources = spec.resources
    if resources is None:
        return
    for name in ("cpu", "memory", "gpu_memory"):
        value = getattr(resources, name)
        amount = parse_quantity(value) if isinstance(value, str | int | float) else None
        if value is not None and (amount is None or amount <= 0):
            yield Problem(
                field=f"resources.{name}",
                reason="it is not a quantity above 0.",
                fix="Write it like 4, 500m or 16Gi.",
            )
    yield from _count_problems("resources.gpu", resources.gpu, low=0)


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
            fix="Give it a model, a command or an image of its own, or weight 0 for no canary.",
        )
    if canary.analysis is not None:
        if canary.analysis.max is None and canary.analysis.min is None:
            yield Problem(
                field="canary.analysis", reason="it has no bound.", fix="Give max, min or both."
            )
        yield from _count_problems("canary.analysis.rounds", canary.analysis.rounds, low=1)


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
