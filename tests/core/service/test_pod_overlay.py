"""A podTemplate over the rendered pod: merged as Kubernetes merges, and never against the service.

The golden files pin the pod template of each case; write them anew with `HOLDFAST_GOLDEN=1`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.inference_services import canary, document
from tests.support.pod_templates import OVERLAYS, REFUSED_OVERLAYS, server
from tests.support.refused import RefusedSpec

from holdfast.core.errors import InvalidSpec
from holdfast.core.service.children import Facts, manifests
from holdfast.core.service.pod_overlay import overlay_template
from holdfast.core.service.spec import PodTemplateSpec
from holdfast.wire.inference_service_v1alpha1 import service_from_json, service_to_json

GOLDEN = Path(__file__).parent / "overlays"


# Any: rendered objects are walked by hand here, and below.
def template(overlay: dict[str, Any] | None, **change: Any) -> dict[str, Any]:
    given: dict[str, Any] = change if overlay is None else {"podTemplate": overlay, **change}
    deployment: Any = manifests(service_from_json(document(given)), Facts())[0]
    found: dict[str, Any] = deployment["spec"]["template"]
    return found


def container(found: dict[str, Any], name: str = "server") -> dict[str, Any]:
    return next(each for each in found["spec"]["containers"] if each["name"] == name)


@pytest.mark.parametrize("case", OVERLAYS)
def test_a_pod_with_an_overlay_is_byte_for_byte_what_it_was(case: str) -> None:
    text = json.dumps(template(OVERLAYS[case]), indent=1) + "\n"
    file = GOLDEN / f"{case}.json"
    if os.environ.get("HOLDFAST_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("case", REFUSED_OVERLAYS, ids=lambda case: case.why)
def test_what_the_service_relies_on_is_refused(case: RefusedSpec) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        service_from_json(document(case.change))
    fields = [problem.field for problem in refusal.value.problems]
    assert case.field in fields, fields
    assert "do-not-tell" not in str(refusal.value)


@pytest.mark.parametrize("case", OVERLAYS)
def test_an_overlay_is_read_back_as_it_was_written(case: str) -> None:
    service = service_from_json(document({"podTemplate": OVERLAYS[case]}))
    written: Any = service_to_json(service)
    assert written["spec"]["podTemplate"] == OVERLAYS[case]
    assert service_from_json(written) == service


def test_an_overlay_holds_for_the_canary_too() -> None:
    change = {"podTemplate": OVERLAYS["labels-and-annotations"], **canary()}
    objects: tuple[Any, ...] = manifests(service_from_json(document(change)), Facts())
    teams = [
        each["spec"]["template"]["metadata"]["labels"]["team"]
        for each in objects
        if each["kind"] == "Deployment"
    ]
    assert teams == ["chat", "chat"]


def test_a_handler_takes_the_place_of_ours_and_keeps_the_pace() -> None:
    probe = container(template(server(readinessProbe={"exec": {"command": ["/ok"]}})))
    assert probe["readinessProbe"] == {
        "exec": {"command": ["/ok"]},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 2,
    }


def test_another_source_of_a_volume_takes_the_place_of_ours() -> None:
    overlay = {"spec": {"volumes": [{"name": "shared-memory", "hostPath": {"path": "/dev/shm"}}]}}
    volumes = template(overlay)["spec"]["volumes"]
    assert volumes == [{"name": "shared-memory", "hostPath": {"path": "/dev/shm"}}]


def test_a_command_may_refer_to_a_variable_of_the_overlay() -> None:
    overlay = server(env=[{"name": "NODE", "value": "a"}])
    args = container(template(overlay, args=["--name", "${NODE}"]))["args"]
    assert args[-2:] == ["--name", "$(NODE)"]
    with pytest.raises(InvalidSpec, match="nothing fills in"):
        template(None, args=["--name", "${NODE}"])


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["server", "a", "delete"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "containers",
                    "volumes",
                    "name",
                    "env",
                    "value",
                    "ports",
                    "$patch",
                    "emptyDir",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(spec=st.dictionaries(st.sampled_from(["containers", "volumes", "x"]), TREES, max_size=3))
def test_any_overlay_is_refused_or_keeps_the_server_and_what_finds_it(spec: dict[str, Any]) -> None:
    try:
        found = template({"spec": spec})
    except InvalidSpec:
        return
    plain = template(None)
    assert found["metadata"] == plain["metadata"]
    kept, was = container(found), container(plain)
    assert was["ports"][0] in kept["ports"]
    assert kept["image"] == was["image"]
    assert kept["readinessProbe"]


@given(spec=st.dictionaries(st.sampled_from(["volumes", "a", "b"]), TREES, max_size=3))
def test_putting_an_overlay_over_twice_is_as_good_as_once(spec: dict[str, Any]) -> None:
    try:
        service = service_from_json(document({"podTemplate": {"spec": spec}}))
    except InvalidSpec:
        return
    overlay = service.spec.pod_template
    once: Any = manifests(service, Facts())[0]
    assert isinstance(overlay, PodTemplateSpec)
    assert overlay_template(once["spec"]["template"], overlay) == once["spec"]["template"]
