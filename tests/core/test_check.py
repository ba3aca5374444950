"""What is refused in a declaration: everything at once, each with field, reason and fix."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import FrozenInstanceError
from enum import StrEnum
from typing import Any

import inferencekey
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import credentials, specs, trees

from holdfast.core.backends import Backend
from holdfast.core.errors import ValidationError
from holdfast.core.scan import MAX_DEPTH, MAX_TEXT, MAX_VALUES
from holdfast.core.workload import (
    POSITIONAL_FIELDS,
    SPEC_FIELDS,
    Canary,
    ExecutionPolicy,
    Resources,
    SecretRef,
    TaskType,
    WorkloadSpec,
)

GOOD: dict[str, Any] = {"name": "chat", "model": "m", "backend": "vllm"}
TOKEN = "ik_sdk_0a1b2c3d_" + "f" * 64


class Foreign(StrEnum):
    """An enum of someone else's."""

    VALUE = "value"


def nested(depth: int) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for _ in range(depth):
        tree = {"a": tree}
    return tree


def bomb() -> list[Any]:
    """Thirty lists that each stand twice in the next: a billion values, in thirty lines."""
    value: list[Any] = []
    for _ in range(30):
        value = [value, value]
    return value


def refused(**given: Any) -> ValidationError:  # Any: what is refused is of every type
    with pytest.raises(ValidationError) as caught:
        WorkloadSpec(**{**GOOD, **given})
    return caught.value


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "  "}, "name"),
    ({"name": 5}, "name"),
    ({"name": None}, "name"),
    ({"name": "a" * 201, "slug": "a"}, "name"),
    ({"name": "é"}, "slug"),
    ({"model": ""}, "model"),
    ({"model": ["m"]}, "model"),
    ({"backend": ""}, "backend"),
    ({"backend": "My Server"}, "backend"),
    ({"backend": 1}, "backend"),
    ({"slug": "api"}, "slug"),
    ({"slug": "a" * 64}, "slug"),
    ({"slug": 5}, "slug"),
    ({"slug": None}, "slug"),
    ({"project": "No Slug"}, "project"),
    ({"project": 5}, "project"),
    ({"project": ""}, "project"),
    ({"task_type": "text3text"}, "task_type"),
    ({"task_type": Backend.VLLM}, "task_type"),
    ({"task_type": Foreign.VALUE}, "task_type"),
    ({"task_type": 5}, "task_type"),
    ({"command": ""}, "command"),
    ({"command": "   "}, "command"),
    ({"command": ["vllm"]}, "command"),
    ({"command": "vllm 'serve"}, "command"),
    ({"command": "vllm | tee log"}, "command"),
    ({"command": "vllm", "image": "x"}, "command"),
    ({"command": "vllm", "args": ["x"]}, "command"),
    ({"command": "vllm --api-key hunter2"}, "command"),
    ({"command": "vllm --api-key=hunter2"}, "command"),
    ({"command": "vllm --api-key=-hunter2"}, "command"),
    ({"command": "vllm --quiet --api-key hunter2"}, "command"),
    ({"command": "env HF_TOKEN=hunter2 vllm"}, "command"),
    ({"command": "python3 server.py --port ${PROT}"}, "command"),
    ({"command": "python3 server.py --port $PORT"}, "command"),
    ({"command": "python3 server.py --port=$PORT"}, "command"),
    ({"args": ["--port", "${PROT}"]}, "args"),
    ({"canary": {"weight": 5, "command": "x ${PROT}"}}, "canary.command"),
    ({"command": "FOO=1 python3 server.py"}, "command"),
    ({"slug": "../../etc/passwd"}, "slug"),
    ({"slug": "a b"}, "slug"),
    ({"args": "x"}, "args"),
    ({"args": [1]}, "args"),
    ({"args": ["--hf-token", "hunter2"]}, "args"),
    ({"env": []}, "env"),
    ({"env": {"A": 1}}, "env.A"),
    ({"env": {"A": None}}, "env.A"),
    ({"env": {"1A": "x"}}, "env.1A"),
    ({"env": {"A B": "x"}}, "env.A B"),
    ({"env": {1: "x"}}, "env.1"),
    ({"env": {"HF_TOKEN": "hunter2hunter2"}}, "env.HF_TOKEN"),
    ({"env": {"A": "x"}, "secrets": {"A": {"name": "n", "key": "k"}}}, "env.A"),
    ({"autoscaling": {"min": 1, "max": 2, "metrics": []}}, "autoscaling.metrics"),
    ({"autoscaling": {"min": 1, "max": 2, "metrics": "cpu"}}, "autoscaling.metrics"),
    ({"autoscaling": {"min": 1, "max": 2, "metrics": [{"target": 1}]}}, "autoscaling.metrics"),
    ({"autoscaling": {"min": 1, "max": 2, "preset": "magic"}}, "autoscaling.preset"),
    ({"autoscaling": {"min": 1, "max": 2, "behavior": []}}, "autoscaling.behavior"),
    (
        {"autoscaling": {"min": 1, "max": 2, "metric": "cpu", "preset": "queue"}},
        "autoscaling",
    ),
    ({"nodes": 0}, "nodes"),
    ({"nodes": 1.5}, "nodes"),
    ({"suspend": {"reason": ""}}, "suspend.reason"),
    ({"suspend": {"until": "2026-11-20T18:00:00Z"}}, "suspend"),
    ({"suspend": {"reason": "x", "until": "tomorrow"}}, "suspend.until"),
    ({"suspend": {"reason": "x", "until": "2026-02-31T18:00:00Z"}}, "suspend.until"),
    ({"suspend": {"reason": "x", "until": "2026-11-20T18:00:00"}}, "suspend.until"),
    ({"secrets": []}, "secrets"),
    ({"secrets": 5}, "secrets"),
    ({"secrets": {"A": None}}, "secrets.A"),
    ({"secrets": {"A": "x"}}, "secrets.A"),
    ({"secrets": {"A": {"name": "n"}}}, "secrets.A"),
    ({"secrets": {"A": {"name": "n", "key": "k", "value": "v"}}}, "secrets.A.value"),
    ({"secrets": {"A": {"name": "../n", "key": "k"}}}, "secrets.A"),
    ({"secrets": {"A": {"name": "n", "key": "../k"}}}, "secrets.A"),
    ({"secrets": {"A": {"name": "n", "key": ".k"}}}, "secrets.A"),
    ({"secrets": {"A": {"name": 1, "key": 2}}}, "secrets.A"),
    ({"secrets": {"1": {"name": "n", "key": "k"}}}, "secrets.1"),
    ({"config": []}, "config"),
    ({"config": {1: "x"}}, "config"),
    ({"config": {"command": "x"}}, "config.command"),
    ({"config": {"vllm_version": "1"}}, "config.vllm_version"),
    ({"config": {"a": {"b": object()}}}, "config.a.b"),
    ({"config": {"a": b"bytes"}}, "config.a"),
    ({"config": {"a": {1, 2}}}, "config.a"),
    ({"config": {"a": float("nan")}}, "config.a"),
    ({"config": {"a": [0, float("inf")]}}, "config.a[1]"),
    ({"config": {"a": 2**63}}, "config.a"),
    ({"config": {"a": -(2**63) - 1}}, "config.a"),
    ({"config": {"a": 10**5000}}, "config.a"),
    ({"config": {"a": "x" * (MAX_TEXT + 1)}}, "config.a"),
    ({"config": {"a": TOKEN}}, "config.a"),
    ({"config": {"a": "\x1b[31m"}}, "config.a"),
    ({"config": {"a": "\u202e"}}, "config.a"),
    ({"config": {"a": "\ud800"}}, "config.a"),
    ({"config": {"a\x00": 1}}, "config.a\\x00"),
    ({"description": f"use {TOKEN} for it"}, "description"),
    ({"description": "line\u2028break"}, "description"),
    ({"worker_id": 5.0 + 1j}, "worker_id"),
    ({"replicas": -1}, "replicas"),
    ({"replicas": 1001}, "replicas"),
    ({"replicas": 10**5000}, "replicas"),
    ({"replicas": 1.5}, "replicas"),
    ({"replicas": True}, "replicas"),
    ({"replicas": "2"}, "replicas"),
    ({"replicas": 1, "autoscaling": {"min": 1, "max": 2}}, "replicas"),
    ({"replicas": 1, "execution_policy": "fixed"}, "replicas"),
    ({"autoscaling": 5}, "autoscaling"),
    ({"autoscaling": {"min": 1}}, "autoscaling"),
    ({"autoscaling": {"min": 3, "max": 2}}, "autoscaling.min"),
    ({"autoscaling": {"min": "a", "max": 2}}, "autoscaling.min"),
    ({"autoscaling": {"min": 0, "max": 0}}, "autoscaling.max"),
    ({"autoscaling": {"min": 0, "max": 1, "cool": 1}}, "autoscaling.cool"),
    ({"execution_policy": "sometimes"}, "execution_policy"),
    ({"execution_policy": 5}, "execution_policy"),
    ({"execution_policy_config": {}}, "execution_policy_config"),
    ({"execution_policy": "fixed", "execution_policy_config": 5}, "execution_policy_config"),
    (
        {"execution_policy": "fixed", "execution_policy_config": {"replicas": -1}},
        "execution_policy_config.replicas",
    ),
    ({"execution_policy": "scheduled", "execution_policy_config": {}}, "execution_policy_config"),
    (
        {
            "execution_policy": "autoscaling",
            "execution_policy_config": {"min_workers": 5, "max_workers": 2},
        },
        "execution_policy_config.min_workers",
    ),
    (
        {"execution_policy": "autoscaling", "execution_policy_config": {"max_workers": 0}},
        "execution_policy_config.max_workers",
    ),
    (
        {
            "execution_policy": "autoscaling",
            "execution_policy_config": {"workers": {"source": "cloud"}},
        },
        "execution_policy_config.max_hourly_cost_usd",
    ),
    ({"resources": {"cpu": "lots"}}, "resources.cpu"),
    ({"resources": {"memory": "0"}}, "resources.memory"),
    ({"resources": {"memory": []}}, "resources.memory"),
    ({"resources": {"gpu_memory": "-1Gi"}}, "resources.gpu_memory"),
    ({"resources": {"cpu": 10**5000}}, "resources.cpu"),
    ({"resources": {"gpu": -1}}, "resources.gpu"),
    ({"resources": {"disk": "1Gi"}}, "resources.disk"),
    ({"canary": {"weight": 101, "model": "n"}}, "canary.weight"),
    ({"canary": {"weight": True, "model": "n"}}, "canary.weight"),
    ({"canary": {"weight": None, "model": "n"}}, "canary.weight"),
    ({"canary": {"weight": 5}}, "canary"),
    ({"canary": {"model": "n"}}, "canary"),
    ({"canary": {"weight": 5, "model": "n", "replicas": 0}}, "canary.replicas"),
    ({"canary": {"weight": 5, "command": "a |  b"}}, "canary.command"),
    ({"canary": {"weight": 5, "model": "n", "analysis": 5}}, "canary.analysis"),
    ({"canary": {"weight": 5, "model": "n", "analysis": {"metric": "x"}}}, "canary.analysis"),
    (
        {"canary": {"weight": 5, "model": "n", "analysis": {"metric": "x", "max": 1, "rounds": 0}}},
        "canary.analysis.rounds",
    ),
    (
        {"canary": {"weight": 5, "model": "n", "analysis": {"metric": "x", "interval": "0s"}}},
        "canary.analysis.interval",
    ),
    ({"rollout": {"max_surge": 0}}, "rollout.max_surge"),
    ({"rollout": {"drain_timeout": "-1s"}}, "rollout.drain_timeout"),
    ({"health": {"path": "health"}}, "health.path"),
    ({"health": {"path": 5}}, "health.path"),
    ({"health": {"interval": "0s"}}, "health.interval"),
    ({"health": {"timeout": "1000000000h"}}, "health.timeout"),
    ({"health": {"startup": "1ns"}}, "health.startup"),
    ({"health": {"startup": []}}, "health.startup"),
    ({"health": {"interval": float("nan")}}, "health.interval"),
]


@pytest.mark.parametrize(
    ("given", "field"), BAD, ids=[f"{field}-{index}" for index, (_, field) in enumerate(BAD)]
)
def test_bad_input_is_refused_by_the_name_of_its_field(given: dict[str, Any], field: str) -> None:
    error = refused(**given)
    assert field in [problem.field for problem in error.problems]
    for problem in error.problems:
        assert problem.field
        assert problem.reason.endswith(".")
        assert problem.fix.endswith((".", "?"))
        assert str(problem) in str(error)


def test_all_problems_are_named_at_once() -> None:
    error = refused(name="", slug="api", replicas=-1, health={"path": "x"}, command="a 'b")
    assert [problem.field for problem in error.problems] == [
        "name", "slug", "command", "replicas", "health.path",
    ]  # fmt: skip
    assert "workload (unnamed)" not in str(error)
    assert "5 problems" in str(error)


def test_a_value_nested_too_deep_is_refused() -> None:
    WorkloadSpec(**GOOD, config=nested(MAX_DEPTH - 1))
    assert "deep" in str(refused(config=nested(MAX_DEPTH + 2)))


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    assert "deep" in str(refused(config={"a": loop}))


def test_a_few_values_that_stand_for_billions_are_refused() -> None:
    assert f"over {MAX_VALUES} values" in str(refused(config={"a": bomb()}))


def test_a_refused_value_is_never_echoed() -> None:
    """Each place that quotes the input, fed with a token."""
    secret = "f" * 64
    for bad in (
        {"name": TOKEN, "replicas": -1},
        {"name": TOKEN + "é"},
        {"slug": TOKEN},
        {"backend": TOKEN},
        {"task_type": TOKEN},
        {"execution_policy": TOKEN},
        {"config": {TOKEN: TOKEN}},
        {"env": {TOKEN: "x"}},
        {"secrets": {TOKEN: 5}},
        {"secrets": {"A": {TOKEN: 5}}},
        {"resources": {TOKEN: 5}},
        {"command": f"a $({TOKEN})"},
        {"command": f"a --{TOKEN}-token x"},
    ):
        error = refused(**bad)
        assert secret not in str(error)
        assert secret not in repr(error.problems)


@given(credentials())
def test_a_credential_is_refused_wherever_it_stands(pair: tuple[str, str]) -> None:
    text, secret = pair
    if text.startswith("Bearer"):
        return  # masked on its way out, but too common in prose to be refused
    for bad in ({"description": f"see {text}"}, {"config": {"a": [{"b": text}]}}):
        error = refused(**bad)
        assert secret not in str(error)


@given(st.sampled_from(SPEC_FIELDS), st.one_of(trees(), st.text(), st.binary(), st.integers()))
def test_any_value_is_taken_or_refused_and_nothing_else(field: str, value: object) -> None:
    """No input makes the checks themselves fail."""
    with suppress(ValidationError):
        spec = WorkloadSpec(**{**GOOD, field: value})  # type: ignore[arg-type]
        assert WorkloadSpec(**{"slug": spec.slug, **spec.fields()}).fields() == spec.fields()  # type: ignore[arg-type]


@given(specs())
def test_what_was_accepted_once_is_accepted_again(spec: WorkloadSpec) -> None:
    again = WorkloadSpec(slug=spec.slug, project=spec.project, **spec.fields())  # type: ignore[arg-type]
    assert again == spec


def test_strings_are_taken_where_an_enum_is() -> None:
    spec = WorkloadSpec(
        name="Chat Bot", model="m", backend=" VLLM ", task_type="Text2Text",
        execution_policy="FIXED",
    )  # fmt: skip
    assert spec.backend is Backend.VLLM
    assert spec.task_type is TaskType.TEXT2TEXT
    assert spec.execution_policy is ExecutionPolicy.FIXED
    assert spec.slug == "chat-bot"
    assert spec.fields() == {
        "name": "Chat Bot", "model": "m", "backend": "vllm", "task_type": "text2text",
        "execution_policy": "fixed",
    }  # fmt: skip
    assert all(type(value) is str for value in spec.fields().values())


def test_mappings_are_taken_where_a_nested_value_is() -> None:
    spec = WorkloadSpec(
        **GOOD,
        resources={"cpu": "2"},  # type: ignore[arg-type]
        canary={"weight": 5, "model": "n", "analysis": {"metric": "p99", "max": 1}},  # type: ignore[arg-type]
        secrets={"A": {"name": "n", "key": "k"}},  # type: ignore[dict-item]
    )
    assert spec.resources == Resources(cpu="2")
    assert isinstance(spec.canary, Canary)
    assert spec.secrets == {"A": SecretRef(name="n", key="k")}
    assert spec.fields()["canary"] == {
        "weight": 5, "model": "n", "analysis": {"metric": "p99", "max": 1},
    }  # fmt: skip


def test_a_spec_keeps_what_was_checked_when_the_caller_goes_on_to_change_theirs() -> None:
    env, config = {"A": "x"}, {"a": [1]}
    spec = WorkloadSpec(**GOOD, env=env, config=config)  # type: ignore[arg-type]
    env["A"] = TOKEN
    config["a"].append(2)
    assert spec.env == {"A": "x"}
    assert spec.config == {"a": [1]}
    with pytest.raises(FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "given",
    [
        {"command": "sh -c 'exec vllm --api-key $KEY --port ${PORT}'"},
        {"command": "vllm --port ${PORT} --host=${HOST} --model ${MODEL}"},
        {"command": "env A=1 vllm"},
        {"image": "x", "args": ["${OF_THE_ENTRY_POINT}"]},
        {"command": "vllm --api-key --quiet"},
        {"command": "vllm --max-num-batched-tokens 8192"},
        {"env": {"USE_AUTH_TOKEN": "1", "X_TOKEN": "true"}, "config": {"eos_token": "</s>"}},
        {"command": "vllm --api-key ${KEY}", "secrets": {"KEY": {"name": "a", "key": "b"}}},
        {"command": "vllm --api-key $(KEY)", "secrets": {"KEY": {"name": "a", "key": "b"}}},
        {"command": "vllm --root $(ROOT) --x=${ROOT}/y", "env": {"ROOT": "/srv"}},
        {"image": "vllm/vllm-openai:v0.9@sha256:" + "0" * 64},
        {"env": {"PROXY": "http://user:${PASS}@proxy:3128", "AUTH": "Bearer $(KEY)"}},
        {"description": "Ask contact:jane@example.com. It takes bearer tokens; see api-key docs."},
        {"description": "tabs\tand\nnew lines, ünïcödé and 👩‍🚀"},
        {"replicas": 0, "config": {"a": 2**63 - 1, "b": -(2**63), "c": None, "d": [True, 1.5]}},
        {"args": []},
        {"execution_policy": "scheduled"},
    ],
)
def test_good_input_is_taken(given: dict[str, Any]) -> None:
    WorkloadSpec(**{**GOOD, **given})


def test_long_hostile_texts_are_checked_in_linear_time() -> None:
    pieces = ("eyJ-", "--a", "eyJaaaaaaaa.", "://a:", "-token ", "ik_sdk_a", "a-", "' ", "$(",
              "a:b", "a:bcd ", "hvs.", "Authorization: ", "A_TOKEN", "A=", "${a}")  # fmt: skip
    for piece in pieces:
        text = piece * (MAX_TEXT // len(piece))
        given = {**GOOD, "description": text, "command": text, "backend": text, "slug": text}
        with pytest.raises(ValidationError):
            WorkloadSpec(**given)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"command": "x ${PROT}"}, "Did you mean ${PORT}?"),
        ({"command": "x $PORT"}, "Did you mean ${PORT}?"),
        ({"command": "x ${HUB_TOKEN}"}, "Declare it under env or secrets"),
        ({"command": "x $(HUB_TOKEN)"}, "Declare it under env or secrets"),
        ({"command": "x --key $ROOT", "env": {"ROOT": "/"}}, "Write ${ROOT}."),
        ({"command": "FOO=1 x"}, "move FOO to env."),
        ({"slug": "a b"}, "Did you mean a-b?"),
        ({"canary": {"weight": 5, "modle": "m"}}, "Did you mean model?"),
        ({"resources": {"gpuMemory": "1Gi"}}, "Did you mean gpu_memory?"),
        (
            {"resources": {"zzz": "1Gi"}},
            "Known fields: accelerators, claims, cpu, gpu,",
        ),
    ],
)
def test_a_likely_slip_is_answered_with_what_was_meant(given: dict[str, Any], hint: str) -> None:
    assert any(hint in problem.fix for problem in refused(**given).problems)


def test_a_spec_takes_the_published_clients_fields_by_their_place() -> None:
    published = ("Bot", "bot", "m", "vllm", "acme", "about it", "vllm serve m")
    placed = WorkloadSpec(*published, replicas=2)  # type: ignore[misc]
    named = WorkloadSpec(
        name="Bot", slug="bot", model="m", backend="vllm", project="acme",
        description="about it", command="vllm serve m", replicas=2,
    )  # fmt: skip
    assert placed == named
    for wrong, named_twice in (((*published, "model"), {}), (("Bot", "bot"), {"slug": "other"})):
        with pytest.raises((TypeError, ValidationError)):
            WorkloadSpec(*wrong, model="m", backend="vllm", **named_twice)  # type: ignore[misc]
    with pytest.raises(TypeError, match="at most 14"):
        WorkloadSpec(*map(str, range(15)))  # type: ignore[call-arg, misc]


def test_the_fields_that_may_be_given_by_place_are_those_of_the_published_spec() -> None:
    theirs = list(inspect.signature(inferencekey.WorkloadSpec).parameters)
    assert list(POSITIONAL_FIELDS) == theirs


LEAKS = [
    {"command": "vllm --api-key x"},
    {"command": "vllm --api-key=hunter2"},
    {"command": "curl --basic-auth me:x"},
    {"command": "env HF_TOKEN=abc vllm"},
    {"command": "sh -c 'HF_TOKEN=abc exec vllm'"},
    {"command": "sh -c 'exec vllm --api-key abc'"},
    {"command": "x -H 'Authorization: Bearer abc'"},
    {"command": "x -H Authorization:abc"},
    {"env": {"HF_TOKEN": "abc"}},
    {"env": {"DB_PASSWORD": "1234"}},
    {"env": {"HEADERS": "authorization=Bearer abcdef"}},
    {"env": {"AUTH": "Bearer abcdefgh"}},
    {"env": {"PROXY": "user:pass@proxy:3128"}},
    {"env": {"DSN": "postgres://user:pass@db/x"}},
    {"env": {"A": "AGE-SECRET-KEY-1" + "Q" * 58}},
    {"env": {"A": "hvs." + "a1" * 12}},
    {"env": {"A": "AIza" + "a1" * 18}},
    {"env": {"A": "nvapi-" + "a1" * 12}},
    {"env": {"A": "https://hooks.slack.com/services/T0/B0/abcdefgh"}},
    {"config": {"url": "https://hooks.slack.com/services/T0/B0/abcdefgh"}},
]


@pytest.mark.parametrize("given", LEAKS, ids=lambda given: str(*given.values())[:40])
def test_what_looks_like_a_credential_is_refused_and_not_repeated(given: dict[str, Any]) -> None:
    error = refused(**given)
    assert any("secret in clear" in each.reason or "credential" in each.reason
               for each in error.problems)  # fmt: skip
    for secret in ("hunter2", "abc", "1234", "pass@", "QQQ", "a1a1", "T0/B0"):
        assert secret not in str(error)
