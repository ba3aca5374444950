"""Hypothesis strategies for the values of the core, shared by every property test.

A new field of `WorkloadSpec`, or of what nests in it, gets its strategy here: a test fails
until it does.
"""

from __future__ import annotations

import base64
import shlex
import string
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TypeVar

from hypothesis import strategies as st

from holdfast.core.backends import Backend
from holdfast.core.cluster_parts import (
    DeviceClaimSpec,
    PortProtocol,
    Scaler,
    ServicePortSpec,
    ServiceSpec,
    ServiceType,
)
from holdfast.core.drift import Drift, find_drift
from holdfast.core.live import Live, Phase, Status, Writer
from holdfast.core.lora import WITH_ADAPTERS, LoraAdapter
from holdfast.core.names import WorkloadId, is_slug
from holdfast.core.redact import names_a_secret
from holdfast.core.tree import Fields, Tree
from holdfast.core.workload import (
    Analysis,
    Autoscaling,
    Cache,
    Canary,
    Desired,
    Health,
    Resources,
    Rollout,
    ScalingMetric,
    SecretRef,
    Suspend,
    TaskType,
    WorkloadSpec,
)

T = TypeVar("T")

WORDS = st.text(string.ascii_letters + string.digits + "éß日 ", min_size=1, max_size=12).filter(
    str.strip
)
# Hypothesis likes to draw words it has seen in the code, and some of them name secrets.
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6).filter(
    lambda name: not names_a_secret(name)
)
_LETTERS = string.ascii_lowercase + string.digits
SLUGS = (
    st.lists(st.text(_LETTERS, min_size=1, max_size=4), min_size=1, max_size=3)
    .map("-".join)
    .filter(is_slug)
)
COUNTS = st.integers(0, 8)
QUANTITIES = st.one_of(
    st.integers(1, 64).map(str),
    st.builds(lambda number, unit: f"{number}{unit}", st.integers(1, 999), st.sampled_from(
        ["m", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]
    )),
    st.sampled_from(["0.5", ".5", "1.5Gi", "+2", "1e3", "2.0"]),
)  # fmt: skip
DURATIONS = st.one_of(
    st.integers(1, 3600),
    st.floats(0.5, 60.0).map(lambda seconds: round(seconds, 3)),
    st.integers(1, 90).map(lambda n: f"{n}s"),
    st.integers(1, 5000).map(lambda n: f"{n}ms"),
    st.builds(lambda m, s: f"{m}m{s}s", st.integers(0, 50), st.integers(1, 59)),
    st.integers(1, 20).map(lambda n: f"{n}h"),
)
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53), st.floats(-1e6, 1e6, allow_nan=False, allow_infinity=False)
)
TIMES = st.builds(
    datetime.fromtimestamp,
    st.integers(0, 4_000_000_000_000).map(lambda millis: millis / 1000),
    tz=st.sampled_from([UTC, timezone(timedelta(hours=2))]),
)

# Names that rules single out are drawn often, since that is where a rule can be wrong.
_KEYS = st.one_of(
    NAMES,
    st.sampled_from(["env", "config", "timeout", "cpu", "interval", "image", "secrets", "name"]),
)


def leaves() -> st.SearchStrategy[Tree]:
    """Null, truth values, numbers and text."""
    return st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.just(""), DURATIONS, QUANTITIES)


def trees(max_leaves: int = 8) -> st.SearchStrategy[Tree]:
    """Any plain value."""
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)
        ),
        max_leaves=max_leaves,
    )


def mappings() -> st.SearchStrategy[Fields]:
    """A mapping of plain values, as `config` is one."""
    return st.dictionaries(_KEYS, trees(), max_size=3)


def objects() -> st.SearchStrategy[Fields]:
    """Something like a Kubernetes object: keyed lists, quantities, lists without a key."""
    variable = st.fixed_dictionaries({"name": NAMES, "value": WORDS})
    container = st.fixed_dictionaries(
        {"name": NAMES, "image": WORDS},
        optional={
            "env": st.lists(variable, max_size=3, unique_by=lambda item: str(item["name"])),
            "resources": st.fixed_dictionaries(
                {"limits": st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITIES)}
            ),
            "args": st.lists(WORDS, max_size=3),
        },
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "containers": st.lists(container, max_size=3, unique_by=lambda item: str(item["name"])),
            "replicas": COUNTS,
            "data": st.dictionaries(_KEYS, WORDS, max_size=3),
            "other": trees(),
        },
    )


@st.composite
def command_pairs(draw: st.DrawFn) -> tuple[str, str]:
    """A command line and another spelling of the same one."""
    word = st.text(string.ascii_letters + string.digits + "./:_ é", min_size=1, max_size=8)
    plain = word.filter(str.strip)
    positionals = draw(st.lists(plain, min_size=1, max_size=3))
    names = draw(st.lists(NAMES.map(lambda name: f"--x-{name}"), unique=True, max_size=4))
    flags = {name: draw(st.lists(word, min_size=1, max_size=2)) for name in names}
    switches = draw(st.lists(NAMES.map(lambda name: f"--enable-{name}"), unique=True, max_size=2))

    def spelled() -> str:
        # Positionals keep their order, and so do the values of one flag; all else may move.
        tracks = [[[part] for part in positionals], *([[switch]] for switch in switches)]
        for name, values in flags.items():
            track = []
            for value in values:
                joined = draw(st.booleans())
                track.append([f"{name}={value}"] if joined else [name, value])
            tracks.append(track)
        line: list[str] = []
        while any(tracks):
            track = draw(st.sampled_from([track for track in tracks if track]))
            line += track.pop(0)
        gap = draw(st.sampled_from([" ", "  ", "\t"]))
        return gap.join(_quoted(part, draw(st.booleans())) for part in line)

    return spelled(), spelled()


def _quoted(part: str, double: bool) -> str:
    return f'"{part}"' if double else shlex.quote(part)


def commands() -> st.SearchStrategy[str]:
    """A command line."""
    return st.lists(
        st.one_of(WORDS, st.sampled_from(["--x-a=1", "--x-b", "--enable-x", "--"])),
        min_size=1,
        max_size=4,
    ).map(shlex.join)


REVISIONS = st.sampled_from(["main", "v1.2", "refs/pr/7", "0123456789abcdef" * 2 + "01234567"])
DIGESTS = st.sampled_from(["sha256:" + "ab" * 32, "sha256:" + "01" * 32])


def _built(
    kind: type[T], parts: dict[str, st.SearchStrategy[object]], *needed: str
) -> st.SearchStrategy[T]:
    required = {name: parts[name] for name in needed}
    optional = {name: part for name, part in parts.items() if name not in needed}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: kind(**given))


# One entry for each field, so that a test can compare the names with those of the dataclass.
CLAIM = {
    "name": SLUGS, "resource_claim_name": SLUGS, "resource_claim_template_name": SLUGS,
    "request": SLUGS,
}  # fmt: skip
_BY_CLAIM = _built(
    DeviceClaimSpec, {**CLAIM, "resource_claim_template_name": st.none()},
    "name", "resource_claim_name",
)  # fmt: skip
_BY_TEMPLATE = _built(
    DeviceClaimSpec, {**CLAIM, "resource_claim_name": st.none()},
    "name", "resource_claim_template_name",
)  # fmt: skip
CLAIMS = st.one_of(_BY_CLAIM, _BY_TEMPLATE)
PORT = {
    "name": SLUGS, "port": st.sampled_from([80, 9000, 9001]),
    "target_port": st.sampled_from(["9001", "grpc"]), "protocol": st.sampled_from(PortProtocol),
}  # fmt: skip
SERVICE = {
    "type": st.sampled_from(ServiceType),
    "annotations": st.dictionaries(NAMES, WORDS, max_size=2),
    "ports": st.lists(
        _built(ServicePortSpec, PORT, "name", "port"),
        max_size=2,
        unique_by=(lambda each: each.name, lambda each: each.port),
    ).map(tuple),
}
RESOURCES = {
    "cpu": QUANTITIES, "memory": QUANTITIES, "gpu": COUNTS, "gpu_memory": QUANTITIES,
    "accelerators": st.dictionaries(
        st.sampled_from(["amd.com/gpu", "rdma/hca"]), st.integers(1, 8), max_size=2
    ),
    "claims": st.lists(CLAIMS, max_size=2).map(tuple),
}  # fmt: skip
SCALING_METRIC = {"metric": WORDS, "target": st.floats(0.5, 99, allow_nan=False)}
AUTOSCALING = {
    "min": st.integers(0, 4), "max": st.integers(4, 9), "metric": WORDS,
    "target": st.floats(0.5, 99, allow_nan=False),
    "metrics": st.lists(_built(ScalingMetric, SCALING_METRIC, "metric"), min_size=1, max_size=2)
    .map(tuple),
    "preset": st.sampled_from(["queue", "kv-cache"]), "idle_after": DURATIONS,
    "scaler": st.sampled_from(Scaler),
    "behavior": st.sampled_from([
        {"scaleDown": {"stabilizationWindowSeconds": 300}},
        {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}},
    ]),
}  # fmt: skip
ANALYSIS = {
    "metric": WORDS, "max": st.floats(1, 9), "min": st.floats(0, 1),
    "interval": DURATIONS, "rounds": st.integers(1, 9),
}  # fmt: skip
CACHE = {
    "size": QUANTITIES, "storage_class": SLUGS,
    "access_mode": st.sampled_from(["ReadWriteOnce", "ReadWriteMany"]),
}  # fmt: skip
ROLLOUT = {"max_surge": st.integers(1, 4), "drain_timeout": DURATIONS}
HEALTH = {
    "path": st.sampled_from(["/health", "/v1/models"]),
    "interval": DURATIONS, "timeout": DURATIONS, "startup": DURATIONS,
}  # fmt: skip
SUSPEND = {
    "reason": WORDS, "until": st.sampled_from(["2026-11-20T18:00:00Z", "2020-01-01T00:00:00+02:00"])
}  # fmt: skip
SECRET_REF = {"name": SLUGS, "key": st.text(_LETTERS + "_-", min_size=1, max_size=8)}


CANARY = {
    "weight": st.integers(0, 100), "model": WORDS, "model_revision": REVISIONS,
    "model_digest": DIGESTS, "command": commands(), "image": WORDS,
    "replicas": st.integers(1, 4), "analysis": _built(Analysis, ANALYSIS, "metric", "max"),
    "env": st.dictionaries(NAMES.map(lambda name: f"C_{name}"), WORDS, max_size=2),
    "resources": _built(Resources, RESOURCES),
}  # fmt: skip
EXECUTION = st.one_of(
    st.just({"execution_policy": "fixed"}),
    COUNTS.map(lambda n: {
        "execution_policy": "fixed", "execution_policy_config": {"replicas": n},
    }),
    st.sampled_from(["0 8 * * *", "0 9 * * 1-5"]).map(lambda cron: {
        "execution_policy": "scheduled", "execution_policy_config": {"cron": cron},
    }),
    st.builds(lambda low, high: {
        "execution_policy": "autoscaling",
        "execution_policy_config": {"min_workers": low, "max_workers": high},
    }, st.integers(0, 3), st.integers(3, 6)),
)  # fmt: skip
_VARIABLES = st.text(string.ascii_uppercase + string.digits + "_", max_size=6).filter(
    lambda name: not names_a_secret(name)
)
POD_TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({"labels": st.dictionaries(NAMES, WORDS, max_size=2)}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "priorityClassName": WORDS,
                "volumes": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
                "hostIPC": st.booleans(),
            },
        ),
    },
)


def _said_once(scale: Autoscaling) -> Autoscaling:
    """The same without what is said in another way too, or has nothing to apply to."""
    if scale.metrics is not None or scale.preset is not None:
        scale = replace(scale, metric=None)
    if scale.metrics is not None and scale.preset is None:
        scale = replace(scale, target=None)
    return replace(scale, idle_after=None) if scale.min else scale


SPEC = {
    "name": WORDS,
    "model": WORDS,
    "backend": st.one_of(st.sampled_from(Backend), SLUGS),
    "slug": SLUGS,
    "project": SLUGS,
    "description": WORDS,
    "task_type": st.sampled_from(TaskType),
    "model_revision": REVISIONS,
    "model_digest": DIGESTS,
    "cache": _built(Cache, CACHE, "size"),
    "command": commands(),
    "image": WORDS,
    "args": st.lists(WORDS, max_size=3),
    "env": st.dictionaries(_VARIABLES.map(lambda name: f"E_{name}"), WORDS, max_size=3),
    "secrets": st.dictionaries(
        _VARIABLES.map(lambda name: f"S_{name}"),
        _built(SecretRef, SECRET_REF, "name", "key"),
        max_size=2,
    ),
    "config": mappings(),
    "vllm_version": WORDS,
    "worker_id": WORDS,
    "gpu_resource_id": WORDS,
    "replicas": COUNTS,
    "autoscaling": _built(Autoscaling, AUTOSCALING, "min", "max").map(_said_once),
    "resources": _built(Resources, RESOURCES),
    "execution_policy": EXECUTION,
    "execution_policy_config": EXECUTION,
    "canary": _built(Canary, CANARY, "weight", "model"),
    "pod_template": POD_TEMPLATES,
    "service": _built(ServiceSpec, SERVICE),
    "rollout": _built(Rollout, ROLLOUT),
    "health": _built(Health, HEALTH),
    "nodes": st.integers(1, 4),
    "suspend": _built(Suspend, SUSPEND, "reason"),
    "adapters": st.lists(
        st.builds(LoraAdapter, name=SLUGS, source=SLUGS.map(lambda slug: f"/lora/{slug}")),
        max_size=2,
        unique_by=lambda each: each.name,
    ),
}
_AMOUNTS = ("replicas", "autoscaling", "execution_policy", "execution_policy_config")
_STARTS = ("command", "image", "args")


@st.composite
def specs(draw: st.DrawFn) -> WorkloadSpec:
    """Any valid workload: each field set or left unset, exclusive ones chosen among."""
    given = draw(
        st.fixed_dictionaries(
            {name: SPEC[name] for name in ("name", "model", "backend", "slug")},
            optional={
                name: part
                for name, part in SPEC.items()
                if name not in ("name", "model", "backend", "slug", *_AMOUNTS, *_STARTS)
            },
        )
    )
    amount = draw(st.sampled_from(["", "replicas", "autoscaling", "execution_policy"]))
    if amount == "execution_policy":
        given |= draw(EXECUTION)
    elif amount:
        given[amount] = draw(SPEC[amount])
    for name in draw(st.sampled_from([(), ("command",), ("image",), ("args",), ("image", "args")])):
        given[name] = draw(SPEC[name])
    if given["backend"] not in WITH_ADAPTERS:
        given.pop("adapters", None)
    return WorkloadSpec(**given)


def fields() -> st.SearchStrategy[Fields]:
    """The fields of any valid workload."""
    return specs().map(WorkloadSpec.fields)


def ids() -> st.SearchStrategy[WorkloadId]:
    """A workload's identity."""
    return st.builds(WorkloadId, project=SLUGS, slug=SLUGS)


def writers() -> st.SearchStrategy[Writer]:
    """A writer, known more or less well."""
    return st.builds(
        Writer,
        manager=st.sampled_from(["kubectl-edit", "curl", "holdfast-sdk", "keda", "nobody"]),
        actor=st.one_of(st.none(), WORDS),
        operation=st.sampled_from(["update", "apply"]),
        subresource=st.one_of(st.none(), st.just("scale")),
        at=st.one_of(st.none(), TIMES),
    )


@st.composite
def lives(draw: st.DrawFn, where: WorkloadId | None = None) -> Live:
    """A live workload whose fields are those of some valid spec."""
    observed = draw(fields())
    return Live(
        id=where or draw(ids()),
        uid=draw(NAMES),
        version=draw(NAMES),
        generation=draw(st.integers(1, 99)),
        fields=observed,
        writers={name: draw(writers()) for name in list(observed)[2:4]},
        status=draw(
            st.builds(
                Status,
                phase=st.sampled_from(Phase),
                message=WORDS,
                ready=COUNTS,
                wanted=COUNTS,
                canary_weight=st.integers(0, 100),
                endpoint=st.one_of(st.none(), st.just("http://127.0.0.1:9")),
            )
        ),
        created_at=draw(TIMES),
        updated_at=draw(TIMES),
    )


@st.composite
def desired_and_live(draw: st.DrawFn) -> tuple[Desired, Live]:
    """Two sides of one workload; some fields are equal, so that partial drift is common."""
    where = draw(ids())
    live = draw(lives(where))
    wanted = draw(fields())
    kept = draw(st.sets(st.sampled_from(sorted(live.fields))))
    mixed = {
        name: live.fields[name] if name in kept and name in live.fields else value
        for name, value in wanted.items()
    }
    return Desired(id=where, fields=mixed), live


def drifts() -> st.SearchStrategy[Drift]:
    """The drift between two sides."""
    return desired_and_live().map(lambda pair: find_drift(desired=pair[0], live=pair[1]))


_ALPHABET = string.ascii_letters + string.digits
_RANDOM = st.text(_ALPHABET, min_size=24, max_size=40)


@st.composite
def credentials(draw: st.DrawFn) -> tuple[str, str]:
    """A credential as it would stand in a text, and the part of it that must not survive."""
    secret = draw(_RANDOM)
    kind = draw(st.sampled_from(["sdk", "live", "hf", "sk", "ghp", "glpat", "jwt", "pem", "url",
                                 "user-url", "bearer"]))  # fmt: skip
    match kind:
        case "sdk" | "live":
            return f"ik_{kind}_0a1b2c3d_{secret}", secret
        case "hf" | "ghp":
            return f"{kind}_{secret}", secret
        case "sk" | "glpat":
            return f"{kind}-{secret}", secret
        case "jwt":
            head = base64.urlsafe_b64encode(b'{"alg":"HS256"}').decode().rstrip("=")
            return f"{head}.{secret}.{secret[::-1]}", secret
        case "pem":
            return (
                f"-----BEGIN RSA PRIVATE KEY-----\n{secret}\n-----END RSA PRIVATE KEY-----",
                secret,
            )
        case "url":
            return f"https://deploy:{secret}@git.example.com/x.git", secret
        case "user-url":
            return f"https://{secret}@git.example.com/x.git", secret
        case _:
            return f"Bearer {secret}", secret
