"""An InferenceService is checked as a whole, and every problem is named at once."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from tests.support.inference_services import ACCEPTED, REFUSED, document
from tests.support.refused import RefusedSpec

from holdfast.core.errors import AlreadyExists, Conflict, InvalidSpec, ValidationError
from holdfast.core.service import validation
from holdfast.core.service.spec import (
    CanarySpec,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    ResourceSpec,
)
from holdfast.core.service.validation import RULES
from holdfast.wire.crd import INFERENCE_SERVICE
from holdfast.wire.inference_service_v1alpha1 import service_from_json
from holdfast.wire.service_mapping import spec_of


def spec(**given: object) -> InferenceServiceSpec:
    base: dict[str, object] = {
        "model_ref": "llama3-8b-q4",
        "replicas": 2,
        "resources": ResourceSpec(cpu="4", memory="16Gi", gpu_memory="24Gi"),
        "health_check": HealthCheckSpec(path="/healthz", interval="10s", timeout="5s"),
    }
    return InferenceServiceSpec(**{**base, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"canary": CanarySpec(model_ref="llama3-8b-q8", weight=50)},
        {"min_replicas": 2, "max_replicas": 10},
    ],
)
def test_a_good_spec_passes(given: dict[str, object]) -> None:
    spec(**given).validate()


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_wrong_one_is_refused_and_says_where(case: RefusedSpec) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        service_from_json(document(case.change))
    fields = [problem.field for problem in refusal.value.problems]
    assert any(field == case.field or field.startswith(f"{case.field}.") for field in fields)
    assert isinstance(refusal.value, ValidationError)


@pytest.mark.parametrize("why", ACCEPTED)
def test_what_is_right_is_accepted(why: str) -> None:
    service_from_json(document(ACCEPTED[why])).validate()


def test_every_rule_is_broken_by_some_case() -> None:
    """A rule that no case breaks is a rule that nobody has seen at work."""
    broken = set()
    for case in REFUSED:
        with pytest.raises(InvalidSpec) as refusal:
            service_from_json(document(case.change))
        broken |= {str(problem) for problem in refusal.value.problems}
    assert [rule.field for rule in RULES if str(rule.problem) not in broken] == []


@pytest.mark.parametrize(
    ("backend", "flag"),
    [
        ("vllm", "--master-addr=10.0.0.1"),
        ("vllm", "--master_addr"),
        ("vllm", "--node_rank=1"),
        ("vllm", "--headless"),
        ("sglang", "--dist-init-addr"),
        ("sglang", "--nccl-init-addr=10.0.0.1:5000"),
    ],
)
def test_a_flag_that_joins_nodes_is_refused_with_several_nodes_alone(
    backend: str, flag: str
) -> None:
    one = spec(backend=backend, args=(flag, "x"))
    one.validate()
    with pytest.raises(InvalidSpec) as raised:
        replace(one, nodes=2).validate()
    assert [each.field for each in raised.value.problems] == ["args"]
    assert flag.partition("=")[0] in str(raised.value)


def test_all_problems_are_named_at_once() -> None:
    wrong = spec(
        model_ref="", replicas=0, min_replicas=10, max_replicas=5, health_check=HealthCheckSpec(
            path="", interval=0, timeout="soon",  # type: ignore[arg-type]
        ), canary=CanarySpec(model_ref="", weight=101),
    )  # fmt: skip
    with pytest.raises(InvalidSpec) as refusal:
        wrong.validate()
    assert {
        "modelRef", "replicas", "minReplicas", "canary.modelRef", "canary.weight",
        "healthCheck.path", "healthCheck.interval", "healthCheck.timeout",
    } <= {problem.field for problem in refusal.value.problems}  # fmt: skip


def test_a_part_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(InvalidSpec, match="canary: a str was given"):
        spec(canary="much").validate()


@pytest.mark.parametrize("name", ["a" * 41, "", "Upper", "4-first", "ends-", "dots.in"])
def test_a_name_that_pods_could_not_carry_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"metadata\.name"):
        InferenceService(name=name, spec=spec()).validate()


def test_a_name_of_forty_letters_is_accepted() -> None:
    InferenceService(name="a" * 40, spec=spec()).validate()


def test_a_secret_in_clear_is_refused_and_not_repeated() -> None:
    for given in (
        {"args": ("--api-key", "hunter2hunter2")},
        {"env": {"HF_TOKEN": "hunter2hunter2"}},
        {"args": ("--x", "hf_" + "a1B2" * 9)},
    ):
        with pytest.raises(InvalidSpec) as refusal:
            spec(**given).validate()
        assert "hunter2" not in str(refusal.value)
        assert "a1B2" not in str(refusal.value)


def test_a_number_of_seconds_is_a_duration() -> None:
    check = HealthCheckSpec(path="/", interval=10, timeout=5.0)  # type: ignore[arg-type]
    assert (check.interval, check.timeout) == ("10s", "5s")


def test_an_object_that_is_there_already_is_a_conflict() -> None:
    assert issubclass(AlreadyExists, Conflict)


KEY = {"VLLM_API_KEY": {"name": "keys", "key": "vllm"}}


@pytest.mark.parametrize("written", ["$(VLLM_API_KEY)", "${VLLM_API_KEY}"])
def test_a_declared_variable_may_stand_after_a_flag_for_a_secret(written: str) -> None:
    given = service_from_json(
        document({"args": ["--api-key", written], "secrets": KEY}), checked=False
    )
    given.validate()
    spec_of(given)  # a workload may say the same


@pytest.mark.parametrize("written", ["$(VLLM_API_KEY)", "${VLLM_API_KEY}", "$VLLM_API_KEY"])
def test_a_variable_that_nothing_fills_in_is_refused_with_the_fix(written: str) -> None:
    given = service_from_json(document({"args": ["--api-key", written]}), checked=False)
    with pytest.raises(InvalidSpec) as refusal:
        given.validate()
    assert "under env or secrets" in str(refusal.value)


def test_fields_of_a_later_version_are_kept_apart_at_any_depth() -> None:
    known = document({"secrets": KEY, "scheduling": {"nodeSelector": {"a": "b"}}})
    later = deepcopy(known)
    later["spec"]["topology"] = {"racks": 2}
    later["spec"]["healthCheck"]["deep"] = True
    later["spec"]["secrets"]["VLLM_API_KEY"]["version"] = 3
    found = service_from_json(later, lenient=True)
    assert set(found.unknown) == {
        "spec.topology",
        "spec.healthCheck.deep",
        "spec.secrets[VLLM_API_KEY].version",
    }
    assert found.spec == service_from_json(known).spec
    assert service_from_json(known, lenient=True).unknown == ()
    with pytest.raises(InvalidSpec):
        service_from_json(later)


def test_each_rule_that_the_api_server_asks_has_a_case_that_breaks_it() -> None:
    """The cases are put to a real one: a rule without one might hold of everything there."""
    broken = set()
    for case in REFUSED:
        with pytest.raises(InvalidSpec) as refusal:
            service_from_json(document(case.change))
        broken |= {str(problem) for problem in refusal.value.problems if case.server}
    asked = [rule for rules in INFERENCE_SERVICE.rules.values() for rule in rules if rule.cel]
    of_changes = (validation.IMMUTABLE_TASK_TYPE, validation.IMMUTABLE_CACHE)
    assert [
        str(rule.problem)
        for rule in asked
        if rule not in of_changes and str(rule.problem) not in broken
    ] == []
