"""An Application as JSON and in files: nothing is lost, nothing is guessed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.applications import ACCEPTED, FULL, document, routes

from holdfast.core.custom_resource import Condition, schema_fields
from holdfast.core.errors import InvalidSpec, ValidationError
from holdfast.core.gitops.application import (
    ApplicationId,
    ApplicationSpec,
    ApplicationStatus,
    ObjectSummary,
)
from holdfast.wire.application_v1alpha1 import (
    application_from_json,
    read_applications,
    status_from_json,
    status_to_json,
)
from holdfast.wire.crd import APPLICATION, make_crd
from holdfast.wire.resource_json import json_fields
from holdfast.wire.yaml import write_document

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("why", ACCEPTED)
def test_nothing_of_an_object_is_lost_when_it_is_read(why: str) -> None:
    found = document(ACCEPTED[why])
    assert json_fields(application_from_json(found).spec) == found["spec"]


def test_what_the_api_server_adds_is_read() -> None:
    found = document(FULL)
    found["metadata"] |= {
        "uid": "u1", "generation": 3, "resourceVersion": "7", "managedFields": [],
        "annotations": {"holdfast.dev/paused-until": "2026-11-20T18:00:00Z"},
        "deletionTimestamp": "2026-11-16T10:00:00Z",
    }  # fmt: skip
    found["status"] = {"sync": "synced", "fromTheFuture": 1}
    application = application_from_json(found)
    assert (application.uid, application.generation, application.deleting) == ("u1", 3, True)
    assert application.id == ApplicationId(namespace="gitops", name="shop")
    assert application.annotations["holdfast.dev/paused-until"] == "2026-11-20T18:00:00Z"
    assert application.status == ApplicationStatus(sync="synced")


def uncovered(kind: type, value: Any, path: str = "") -> list[str]:
    """The fields that a document leaves out, at any depth."""
    missing = []
    for part in schema_fields(kind):
        given = [each for each in value if part.wire in each]
        name = f"{path}{part.wire}"
        inner = part.shape.item if part.shape.item else part.shape
        if not given:
            missing.append(name)
        elif inner.is_nested:
            held = [each[part.wire] for each in given]
            flat = [item for each in held for item in (each if isinstance(each, list) else [each])]
            missing += uncovered(inner.base, flat, f"{name}.")
    return missing


def test_the_full_example_has_every_field_there_is() -> None:
    assert uncovered(ApplicationSpec, [document(FULL)["spec"]]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        document({"repository": "x"}),
        document({"source": {"url": "https://h.example/a", "branch": "main"}}),
        document(routes({"remediation": "report", "when": "now"})),
        {**document(), "data": {}},
        {**document(), "kind": "Workload"},
        {**document(), "apiVersion": "argoproj.io/v1alpha1"},
        {"spec": []},
        {"spec": None},
        [],
        None,
        "Application",
    ],
)
def test_what_cannot_be_read_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSpec):
        application_from_json(wrong)


def test_what_is_stored_already_can_be_read_without_being_checked() -> None:
    stored = document({"source": {"url": "git://old.example/a"}})
    assert application_from_json(stored, checked=False).spec.source.url == "git://old.example/a"


def test_a_status_survives() -> None:
    status = ApplicationStatus(
        sync="drifted", health="degraded", revision="0123456789abcdef", drifted=2,
        not_in_sync=(ObjectSummary(object="Deployment a/b", standing="drifted", drift="drf-1"),),
        conditions=(Condition(type="Ready", status="True", reason="Succeeded"),),
    )  # fmt: skip
    said = status_to_json(status)
    assert said["shortRevision"] == "0123456"
    assert status_from_json(said) == status
    assert replace(status, revision="fedcba9876543210").short_revision == "fedcba9"
    assert replace(status, revision=None).short_revision is None


def test_the_definition_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "crd.py", "--check"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_the_schema_defaults_nothing_and_names_every_field() -> None:
    definition: Any = make_crd(APPLICATION)
    text = json.dumps(definition)
    assert '"default"' not in text
    version = definition["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    for part, kind in (("spec", ApplicationSpec), ("status", ApplicationStatus)):
        assert set(schema[part]["properties"]) == {each.wire for each in schema_fields(kind)}
    assert definition["spec"]["names"]["shortNames"] == ["holdapp"]
    assert definition["metadata"]["name"] == APPLICATION.name == "applications.holdfast.dev"


def fields_of(kind: type) -> set[str]:
    """The wire names of a type and of all that it holds."""
    names = set()
    for part in schema_fields(kind):
        names.add(part.wire)
        inner = part.shape.item or part.shape
        names |= fields_of(inner.base) if inner.is_nested else set()
        names |= set(inner.choices)
    return names


def test_every_field_and_every_choice_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "application.md").read_text()
    known = fields_of(ApplicationSpec) | fields_of(ApplicationStatus)
    page = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    words = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]+)`", page))))
    assert sorted(known - words) == []


def test_the_example_of_the_reference_is_right(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "application.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    (found,) = read_applications([tmp_path])
    assert str(found.id) == "gitops/shop"


def put(path: Path, *documents: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\n".join(write_document(each) for each in documents))
    return path


def test_applications_are_read_from_files_and_folders(tmp_path: Path) -> None:
    put(tmp_path / "b.yaml", document(name="one"), document(name="two"))
    put(tmp_path / "deep" / "er" / "c.yml", document(name="three", namespace=""))
    (tmp_path / "a.json").write_text(json.dumps(document(FULL, name="four")))
    put(tmp_path / ".hidden" / "x.yaml", {"not": "read"})
    put(tmp_path / "notes.txt", {"not": "read"})
    found = read_applications([tmp_path])
    assert [str(each.id) for each in found] == [
        "gitops/four", "gitops/one", "gitops/two", "/three",
    ]  # fmt: skip
    assert found[3].namespace == "default"
    assert read_applications([tmp_path / "deep" / "er" / "c.yml"]) == found[3:]


def test_an_empty_folder_declares_nothing(tmp_path: Path) -> None:
    assert read_applications([tmp_path]) == ()


def test_everything_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    bad = put(
        tmp_path / "bad.yaml",
        document(name="fine"),
        document({"project": "?", "source": {"url": "https://h.example/a", "interval": "1s"}}),
        document(name="fine"),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
        ["a", "list"],
    )
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ValidationError) as refusal:
        read_applications([tmp_path, tmp_path / "gone.yaml"])
    fields = [problem.field for problem in refusal.value.problems]
    lines = bad.read_text().splitlines()
    interval = next(n for n, line in enumerate(lines, 1) if "interval" in line)
    project = next(n for n, line in enumerate(lines, 1) if "project: '?'" in line)
    assert f"{bad}:{interval}: source.interval" in fields
    assert f"{bad}:{project}: project" in fields
    text = str(refusal.value)
    for told in (
        f"Application gitops/fine is declared in {bad}:1 too.",
        "kind: it is not Application.",
        "this is a list",
        "broken.yaml:2: ",
        "gone.yaml: it cannot be read (No such file or directory).",
    ):
        assert told in text, text
