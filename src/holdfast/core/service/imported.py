"""Reads a Deployment that somebody else made as the fields of a workload.

The inverse of the rendering, as far as there is one. What a workload cannot say is named, one by
one, so that nothing gets lost unseen. Values of secrets are never taken over. Pure; called by
`holdfast import`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import credential_in, is_reference, names_a_secret
from holdfast.core.scan import scan, shown_name
from holdfast.core.service.children import WORKLOAD
from holdfast.core.service.engines import OWN_VARIABLES, PORT, Engine, engine_of
from holdfast.core.service.left_over import Lost, left_over, list_at, mapping_at, pick_container
from holdfast.core.service.manifests import RENDERER
from holdfast.core.service.pod import DRAIN, GPU, GPU_MEMORY_NOTE, LEAVE, MODEL_NOTE
from holdfast.core.service.probed import health_of
from holdfast.core.service.recognised import Line, own_port, recognise, values_of, without
from holdfast.core.tree import Fields, Tree

GRACE = 30
"""What Kubernetes gives a pod that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The fields of a workload, and what they leave out.

    `scheduling` is for the custom resource alone: a workload elsewhere has no nodes to choose.
    """

    slug: str
    namespace: str | None
    fields: Fields
    scheduling: Fields
    lost: tuple[Lost, ...]


def imported(
    deployment: Fields,
    *,
    autoscaler: Fields | None = None,
    model: str | None = None,
    backend: str | None = None,
) -> Imported:
    """Read a Deployment, and the autoscaler that scales it. Raises ValidationError without model.

    `model` and `backend` are for those that cannot be told from it.
    """
    metadata, spec = mapping_at(deployment, "metadata"), mapping_at(deployment, "spec")
    template = mapping_at(spec, "template")
    pod = mapping_at(template, "spec")
    container = pick_container(pod)
    ours = RENDERER in mapping_at(metadata, "annotations")
    notes = mapping_at(template, "metadata", "annotations") if ours else {}
    labels = mapping_at(metadata, "labels") if ours else {}
    slug = str(labels.get(WORKLOAD) or metadata.get("name") or "")
    lost: list[Lost] = []
    env, secrets = _environment(container, lost)
    line = recognise(
        _words(container.get("command")),
        _words(container.get("args")),
        image=str(container.get("image") or ""),
        env={name: value for name, value in env.items() if isinstance(value, str)},
        backend=backend or _text(labels.get("app.kubernetes.io/name")),
        model=model or _text(notes.get(MODEL_NOTE)),
        ours=ours,
    )
    if line.model is None:
        raise _no_model(slug)
    engine = engine_of(line.backend)
    resources = _resources(container, lost)
    if GPU_MEMORY_NOTE in notes:
        resources["gpu_memory"] = notes[GPU_MEMORY_NOTE]
    drain = _drain(pod, ours)
    fields: Fields = {"name": slug, "model": line.model, "backend": line.backend}
    fields |= _image(container, engine, line)
    if line.command is not None:
        fields["config"] = {"entrypoint": list[Tree](line.command)}
    args = _arguments(line, engine, slug, resources, drain, fields, lost)
    if args:
        fields["args"] = list[Tree](args)
    own = _own_variables(engine, line.model)
    fields |= {"env": kept} if (kept := _foreign_variables(env, own, lost)) else {}
    fields |= {"secrets": secrets} if secrets else {}
    fields |= _amount(spec, autoscaler, lost)
    fields |= {"resources": resources} if resources else {}
    fields |= _rollout(spec, drain, bool(resources.get("gpu")), lost)
    health = health_of(container, engine, spec if ours else None, line.model, lost)
    fields |= {"health": health} if health else {}
    scheduling = left_over(deployment, container, engine, "gpu_memory" in resources, lost)
    return Imported(
        slug=slug,
        namespace=_text(metadata.get("namespace")),
        fields=fields,
        scheduling=scheduling,
        lost=tuple(lost),
    )


def _environment(container: Fields, lost: list[Lost]) -> tuple[Fields, Fields]:
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
            lost.append(Lost(field=f"env.{name}", reason=f"its value comes from a {kind}."))
        elif any(scan([("env", {name: str(entry.get("value") or "")})])):
            reason = "it looks like a credential. Keep it in a Secret, and name it under secrets."
            lost.append(Lost(field=f"env.{shown_name(name)}", reason=reason))
        else:
            plain[name] = str(entry.get("value") or "")
    for entry in list_at(container, "envFrom"):
        for kind, prefix in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if ref := mapping_at(entry, kind):
                reason = f"all keys of {prefix} {ref.get('name')} become variables; name each."
                lost.append(Lost(field="envFrom", reason=reason))
    return plain, secrets


def _own_variables(engine: Engine, model: str) -> dict[str, str]:
    own = {"HOST": "0.0.0.0", "PORT": str(PORT)}  # noqa: S104  # inside a pod
    return own | {name: value.replace("${MODEL}", model) for name, value in engine.env}


def _foreign_variables(env: Mapping[str, Tree], own: dict[str, str], lost: list[Lost]) -> Fields:
    kept: Fields = {}
    for name, value in env.items():
        if name not in OWN_VARIABLES:
            kept[name] = value
        elif own.get(name, value) != value:
            reason = f"Holdfast sets it itself, to {own[name]}."
            lost.append(Lost(field=f"env.{name}", reason=reason))
    return kept


def _image(container: Fields, engine: Engine, line: Line) -> Fields:
    image = str(container.get("image") or "")
    flag = engine.drain_flag
    if line.own and flag and image == engine.image and values_of(line.args, flag) is None:
        # With the image itself declared, a flag for draining would be added.
        return {"vllm_version": image.rpartition(":")[2].removeprefix("v")}
    return {"image": image} if image else {}


def _arguments(
    line: Line,
    engine: Engine,
    slug: str,
    resources: Fields,
    drain: int,
    fields: Fields,
    lost: list[Lost],
) -> list[str]:
    """The user's own arguments: without those that the rendering adds by itself."""
    args = _without_secrets(list(line.args), lost)
    if line.implied:
        does = " ".join(engine.command)
        lost.append(Lost(field="image", reason=f"its entry point gives way to: {does}"))
    port = own_port([*(line.command or ()), *args])
    if port:
        lost.append(Lost(field="args", reason=f"pods listen on port {PORT}, not {port}."))
    for flag in engine.address_flags[::2]:
        args = without(args, flag, values=1)
    if not engine.address_flags and port:
        args = ["${PORT}" if part == port else part for part in args]
        args = [f"--port={PORT}" if part == f"--port={port}" else part for part in args]
    if not line.own:
        return args
    names = list(dict.fromkeys((slug, line.model or "")))
    if engine.names_flag and values_of(args, engine.names_flag) == names:
        args = without(args, engine.names_flag, values=len(names))
    added = {}
    if engine.parallel_flag and resources.get("gpu", 1) != 1:
        added[engine.parallel_flag] = str(resources["gpu"])
    if engine.drain_flag and fields.get("image") == engine.image:
        added[engine.drain_flag] = str(drain)
    for flag, value in added.items():
        if values_of(args, flag) == [value]:
            args = without(args, flag, values=1)
    return args


def _without_secrets(args: list[str], lost: list[Lost]) -> list[str]:
    kept: list[str] = []
    for place, part in enumerate(args):
        flag, equals, value = part.partition("=")
        before = args[place - 1] if place else ""
        named = names_a_secret(flag) and equals and not is_reference(value)
        follows = before.startswith("-") and names_a_secret(before) and not part.startswith("-")
        if credential_in(part) or named or (follows and not is_reference(part)):
            shown = shown_name(before if follows else flag)
            reason = f"{shown} has a credential in clear. Keep it in a Secret, under secrets."
            lost.append(Lost(field="args", reason=reason))
            if follows and kept and kept[-1] == before:
                kept.pop()
        else:
            kept.append(part)
    return kept


def _resources(container: Fields, lost: list[Lost]) -> Fields:
    requests = mapping_at(container, "resources", "requests")
    limits = mapping_at(container, "resources", "limits")
    found: Fields = {}
    cpu = requests.get("cpu", limits.get("cpu"))
    memory = limits.get("memory", requests.get("memory"))
    if cpu is not None:
        found["cpu"] = str(cpu)
    if memory is not None:
        found["memory"] = str(memory)
    gpus = limits.get(GPU, requests.get(GPU))
    if gpus is not None and str(gpus).isdigit() and int(str(gpus)):
        found["gpu"] = int(str(gpus))
    if "cpu" in limits:
        lost.append(Lost(field="resources.limits.cpu", reason="pods get no CPU limit."))
    if "memory" in requests and requests["memory"] != limits.get("memory"):
        reason = f"request and limit become one: {memory}."
        lost.append(Lost(field="resources.memory", reason=reason))
    for name in dict.fromkeys((*requests, *limits)):
        if name not in ("cpu", "memory", GPU):
            lost.append(Lost(field=f"resources.{name}", reason="a workload cannot ask for it."))
    return found


def _amount(spec: Fields, autoscaler: Fields | None, lost: list[Lost]) -> Fields:
    if autoscaler is None:
        count = spec.get("replicas", 1)
        if count == 0:
            lost.append(Lost(field="replicas", reason="0 cannot be declared; it is left open."))
        return {"replicas": count} if isinstance(count, int) and count else {}
    bounds = mapping_at(autoscaler, "spec")
    scale: Fields = {"min": bounds.get("minReplicas", 1), "max": bounds.get("maxReplicas")}
    metrics = list_at(bounds, "metrics")
    for each in metrics[1:]:
        lost.append(Lost(field="autoscaler.metrics", reason=f"one counts, not {each.get('type')}."))
    if "behavior" in bounds:
        lost.append(Lost(field="autoscaler.behavior", reason="a workload cannot say it."))
    for each in metrics[:1]:
        resource, pods = mapping_at(each, "resource"), mapping_at(each, "pods")
        if resource and "averageUtilization" in mapping_at(resource, "target"):
            percent = mapping_at(resource, "target")["averageUtilization"]
            scale |= {"metric": resource.get("name"), "target": percent}
        elif pods:
            average = _number(mapping_at(pods, "target").get("averageValue"))
            scale |= {"metric": mapping_at(pods, "metric").get("name"), "target": average}
        else:
            lost.append(Lost(field="autoscaler.metrics", reason=f"{each.get('type')} is unknown."))
    return {"autoscaling": scale}


def _drain(pod: Fields, ours: bool) -> int:
    grace = pod.get("terminationGracePeriodSeconds", GRACE)
    grace = grace if isinstance(grace, int) else GRACE
    return grace - LEAVE - 5 if ours else grace


def _rollout(spec: Fields, drain: int, gpus: bool, lost: list[Lost]) -> Fields:
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
        lost.append(Lost(field="strategy", reason=f"{how} becomes {ends}."))
    if drain != DRAIN and drain > 0:
        rollout["drain_timeout"] = f"{drain}s"
    return {"rollout": rollout} if rollout else {}


def _no_model(slug: str) -> ValidationError:
    problem = Problem(
        field="model",
        reason="neither the command line nor the environment names one.",
        fix="Give --model, and --backend if that cannot be told either.",
    )
    return ValidationError(f"The model of Deployment {slug} cannot be told.", problems=[problem])


def _words(value: Tree) -> list[str]:
    return [str(part) for part in value] if isinstance(value, list) else []


def _text(value: Tree) -> str | None:
    return str(value) if value else None


def _number(value: Tree) -> float | None:
    text = str(value)
    number = float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    return int(number) if number == int(number) else number
