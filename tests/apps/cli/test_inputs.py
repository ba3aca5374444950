"""Specs from files: every error of every file at once, each with its place."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.apps.cli.conftest import CHAT, EMBED, Holdfast

from holdfast.apps.cli.inputs import load_specs
from holdfast.core.errors import ValidationError


def slugs(*paths: str, recursive: bool = False) -> list[str]:
    return [each.spec.slug for each in load_specs(paths, recursive=recursive)]


def problems(*paths: str) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        load_specs(paths)
    return [str(problem) for problem in caught.value.problems]


def test_specs_come_in_the_order_of_their_files_and_documents() -> None:
    Path("b.yaml").write_text(f"{EMBED}---\n{CHAT}")
    Path("a.json").write_text('{"name": "rerank", "model": "m", "backend": "vllm"}')
    assert slugs("b.yaml", "a.json") == ["embed", "support-bot", "rerank"]
    assert [each.source for each in load_specs(["b.yaml"])] == ["b.yaml:1", "b.yaml:5"]


def test_a_folder_gives_its_yaml_and_json_and_never_runs_python() -> None:
    Path("d/sub").mkdir(parents=True)
    Path("d/.hidden").mkdir()
    Path("d/chat.yml").write_text(CHAT)
    Path("d/boom.py").write_text("raise SystemExit('this must not run')")
    Path("d/notes.txt").write_text("no spec")
    Path("d/.hidden/x.yaml").write_text("not: a workload")
    Path("d/sub/embed.yaml").write_text(EMBED)
    assert slugs("d") == ["support-bot"]
    assert slugs("d", recursive=True) == ["support-bot", "embed"]


def test_an_empty_folder_is_an_error_and_says_what_to_do() -> None:
    Path("d/sub").mkdir(parents=True)
    (problem,) = problems("d")
    assert problem.endswith("Name a file. Add -R to look into subfolders.")


def test_every_problem_of_every_file_is_told_with_its_line() -> None:
    Path("a.yaml").write_text(f"{CHAT}canary:\n  weight: 300\n  modle: x\n  model: y\n")
    Path("b.yaml").write_text("name: x\nname: y\n")
    Path("c.yaml").write_text("[1, 2]\n")
    Path("d.yaml").write_text("kind: ConfigMap\nname: z\nmodel: m\nbackend: vllm\n")
    found = problems("a.yaml", "b.yaml", "c.yaml", "d.yaml", "missing.yaml")
    assert [problem.split(": ")[:2] for problem in found] == [
        ["a.yaml:10", "canary.modle"],
        ["a.yaml:9", "canary.weight"],
        ["b.yaml:2", "key 'name' is given twice, first on line 1. Keep one."],
        ["c.yaml:1", "A workload is a mapping of fields; this is a list. Start with name, model "
         "and backend."],
        ["d.yaml:1", "kind"],
        ["missing.yaml", "there is no such file. Check the path."],
    ]  # fmt: skip


def test_another_kubernetes_object_is_one_problem_that_names_its_kind() -> None:
    Path("a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    (problem,) = problems("a.yaml")
    assert problem == (
        "a.yaml:2: kind: 'ConfigMap' is not declared here. Give documents of Workload."
    )


def test_two_declarations_of_one_slug_are_refused() -> None:
    Path("a.yaml").write_text(CHAT)
    Path("b.yaml").write_text(CHAT.replace("support-bot", "Support Bot"))
    (problem,) = problems("a.yaml", "b.yaml")
    assert problem.startswith("b.yaml:1: workload support-bot is declared in a.yaml:1 too.")


def test_one_slug_in_two_projects_is_two_workloads() -> None:
    Path("a.yaml").write_text(f"{CHAT}project: one\n---\n{CHAT}project: two\n")
    assert slugs("a.yaml") == ["support-bot", "support-bot"]


def test_a_python_file_exports_its_globals() -> None:
    Path("w.py").write_text(
        "from holdfast.core.workload import WorkloadSpec\n"
        "print('from the file')\n"
        "a = WorkloadSpec(name='a', model='m', backend='vllm')\n"
        "b = WorkloadSpec(name='b', model='m', backend='vllm')\n"
        "if __name__ == '__main__': raise RuntimeError('run as a program')\n"
    )
    assert slugs("w.py") == ["a", "b"]


@pytest.mark.parametrize("form", ["workloads = [spec]", "def workloads():\n    yield spec"])
def test_a_python_file_can_name_its_workloads(form: str) -> None:
    Path("shared.py").write_text(
        "from holdfast.core.workload import WorkloadSpec\n"
        "spec = WorkloadSpec(name='a', model='m', backend='vllm')\n"
        "other = WorkloadSpec(name='b', model='m', backend='vllm')\n"
    )
    Path("w.py").write_text(f"from shared import spec, other\n{form}\n")
    assert slugs("w.py") == ["a"]


@pytest.mark.parametrize(
    "form", ["[b, c]", "(b, c)", "{'b': b, 'c': c}", "[a, b, c, b]"], ids=lambda form: form[0]
)
def test_a_list_beside_a_spec_is_not_ignored(form: str) -> None:
    Path("w.py").write_text(
        "from holdfast.core.workload import WorkloadSpec as W\n"
        "a, b, c = (W(name=n, model='m', backend='vllm') for n in 'abc')\n"
        f"every = {form}\n"
        "del b, c\n"
    )
    assert slugs("w.py") == ["a", "b", "c"]


def test_what_stands_beside_a_spec_in_a_list_must_be_one() -> None:
    Path("w.py").write_text(
        "from holdfast.core.workload import WorkloadSpec as W\n"
        "every = [W(name='a', model='m', backend='vllm'), 'b']\n"
    )
    assert "not a WorkloadSpec" in problems("w.py")[0]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("010", "some parsers read 010 as 8, others as 10."),
        ("0_10", "some parsers read 0_10 as 8, others as 10."),
        ("08", "08 begins with a zero."),
    ],
)
def test_a_number_that_parsers_read_differently_is_refused(number: str, reason: str) -> None:
    Path("a.yaml").write_text(f"{EMBED}replicas: {number}\n")
    (problem,) = problems("a.yaml")
    assert problem.startswith(f"a.yaml:4: {reason} Write the number without leading zeros")


def test_a_number_that_only_looks_odd_is_taken() -> None:
    Path("a.yaml").write_text(f"{EMBED}config: {{a: 0, b: 0x10, c: 0o10, d: '010', e: 0.5}}\n")
    (spec,) = (each.spec for each in load_specs(["a.yaml"]))
    assert spec.config == {"a": 0, "b": 16, "c": 8, "d": "010", "e": 0.5}


def test_a_misspelt_field_is_answered_with_the_one_that_was_meant() -> None:
    Path("a.yaml").write_text(f"{EMBED}replcias: 2\n")
    (problem,) = problems("a.yaml")
    assert problem == "a.yaml:4: replcias: there is no such field. Did you mean replicas?"


BROKEN = {
    "raise ValueError('no\\x1b[31m')": "w.py:1: it failed with ValueError: no",
    "x = 1\n1 / 0": "w.py:2: it failed with ZeroDivisionError",
    "def f(:": "w.py:1: it failed with SyntaxError",
    "import nowhere_at_all": "w.py:1: it failed with ModuleNotFoundError",
    "x = 1": "w.py: it exports no WorkloadSpec.",
    "workloads = [1]": "w.py: it exports something beside its specs that is not a WorkloadSpec.",
    "raise SystemExit(0)": "w.py:1: it failed with SystemExit",
    "from holdfast.core.workload import WorkloadSpec as W\nW(name='', model='m', backend='b')":
        "w.py:2: name: it is empty.",
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BROKEN.items())
def test_a_broken_python_file_is_told_by_its_line(text: str, expected: str) -> None:
    Path("w.py").write_text(text)
    assert problems("w.py")[0].startswith(expected)


def test_what_a_python_file_prints_stays_off_stdout(holdfast: Holdfast) -> None:
    Path("w.py").write_text(
        "from holdfast.core.workload import WorkloadSpec\nprint('hello')\n"
        "a = WorkloadSpec(name='a', model='m', backend='vllm')\n"
    )
    run = holdfast("validate", "-f", "w.py", "-o", "json")
    assert json.loads(run.out)["workloads"] == [
        {
            "slug": "a",
            "source": "w.py",
            "pinned_by": "none",
            "warnings": [
                "model m: it has no revision, so each start takes the newest. Give the commit to "
                "serve."
            ],
        }
    ]
    assert "hello" in run.err


def test_stdin_is_yaml_or_json(holdfast: Holdfast) -> None:
    assert holdfast("validate", "-f", "-", "-o", "name", stdin=CHAT).out == "support-bot\n"
    document = json.dumps({"name": "a", "model": "\U0001f600", "backend": "vllm"})
    assert holdfast("validate", "-f", "-", "-o", "name", stdin=document).out == "a\n"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    Path("a.yaml").write_text(CHAT)
    Path("a.yaml").chmod(0)
    if os.access("a.yaml", os.R_OK):
        pytest.skip("this user may read everything")
    assert "cannot be read" in problems("a.yaml")[0]


def test_a_device_without_an_end_is_read_up_to_the_limit() -> None:
    assert stat.S_ISCHR(os.stat("/dev/zero").st_mode)
    assert "over 4 MiB" in problems("/dev/zero")[0]


def test_a_validation_screen(holdfast: Holdfast, chat: Path) -> None:
    assert holdfast("validate", "-f", "chat.yaml").screen == (
        "warning: chat.yaml:1: workload support-bot: model llama-3.1-8b: it has no revision, so "
        "each start takes the newest. Give the commit to serve.\n"
        "WORKLOAD     BACKEND  MODEL PINNED BY  DECLARED IN\n"
        "support-bot  vllm     none             chat.yaml:1\n"
        "1 workload, no problem.\n"
        "Next: holdfast plan -f chat.yaml\n"
    )


COMMIT = "0123456789abcdef0123456789abcdef01234567"
PINS = [
    ({"model_revision": COMMIT}, "commit", None),
    ({"model_revision": "main"}, "none", "a branch or a tag can be moved"),
    ({"model": "/srv/models/chat"}, "path", None),
    ({"model": f"oci://registry.example/chat@sha256:{'ab' * 32}"}, "digest", None),
    ({"model": "oci://registry.example/chat:1"}, "none", "names no digest"),
    ({"backend": "ollama", "model": "llama3"}, "none", "Nothing can pin it"),
    (
        {"backend": "ollama", "model": "llama3", "model_digest": f"sha256:{'ab' * 32}"},
        "none",
        "other weights than those of its digest are told as drift",
    ),
    (
        {
            "model_revision": COMMIT,
            "adapters": [
                {"name": "sql", "source": "org/sql"},
                {"name": "own", "source": "/lora/own"},
            ],
        },
        "commit",
        "adapter sql from org/sql: an adapter of a hub takes no revision",
    ),
    (
        {"model_revision": COMMIT, "adapters": [{"name": "own", "source": "/lora/own"}]},
        "commit",
        None,
    ),
    (
        {"model_revision": COMMIT, "canary": {"weight": 5, "model_revision": "next"}},
        "commit",
        "revision next is no commit",
    ),
    (
        {"model_revision": COMMIT, "canary": {"weight": 5, "model": "org/other"}},
        "commit",
        "model org/other: it has no revision",
    ),
]


@pytest.mark.parametrize(("change", "pin", "warning"), PINS)
def test_a_model_that_nothing_pins_is_a_warning_and_no_error(
    holdfast: Holdfast, change: dict[str, Any], pin: str, warning: str | None
) -> None:
    spec = {"name": "chat", "model": "org/chat", "backend": "vllm", **change}
    run = holdfast("validate", "-f", "-", "-o", "json", stdin=json.dumps(spec))
    (found,) = json.loads(run.out)["workloads"]
    assert (run.code, found["pinned_by"]) == (0, pin)
    assert ("warning:" in run.err) == (warning is not None)
    assert (warning or "") in run.err and (warning or "") in " ".join(found.get("warnings", ()))


def test_a_custom_resource_is_validated_too(holdfast: Holdfast) -> None:
    custom = {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team"},
        "spec": {"modelRef": "org/chat", "modelRevision": COMMIT},
    }
    run = holdfast("validate", "-f", "-", stdin=json.dumps(custom))
    assert run.code == 0 and "commit" in run.out and "warning" not in run.err
    custom["spec"]["backend"] = "llamacpp"
    run = holdfast("validate", "-f", "-", stdin=json.dumps(custom))
    assert run.code == 1 and "takes no revision" in run.err


def test_a_refused_spec_screen(holdfast: Holdfast) -> None:
    Path("bad.yaml").write_text("name: x\nmodel: m\nbackend: vllm\nreplicas: -1\ncolour: red\n")
    run = holdfast("validate", "-f", "bad.yaml")
    assert run.code == 1
    assert run.out == ""
    assert run.err.splitlines()[0] == (
        "error[invalid]: Input was refused. 2 problems in what was declared."
    )
    assert run.err.splitlines()[1].startswith("  bad.yaml:5: colour: there is no such field.")
    assert run.err.splitlines()[2].startswith("  bad.yaml:4: replicas: ")
    assert run.err.splitlines()[3] == "  Nothing was changed."


def test_a_refused_spec_is_a_document_for_programs(holdfast: Holdfast) -> None:
    Path("bad.yaml").write_text("name: x\nmodel: m\nbackend: vllm\nreplicas: -1\n")
    run = holdfast("validate", "-f", "bad.yaml", "-o", "json")
    error = json.loads(run.out)
    assert (error["apiVersion"], error["kind"], error["code"]) == (
        "cli.holdfast.dev/v1", "Error", "invalid",
    )  # fmt: skip
    assert error["problems"][0]["where"] == "bad.yaml:4: replicas"


def test_render_turns_python_into_yaml_that_reads_back(holdfast: Holdfast) -> None:
    Path("w.py").write_text(
        "from holdfast.core.workload import WorkloadSpec\n"
        "a = WorkloadSpec(name='yes', slug='a', model='0755', backend='vllm', env={'ON': 'on'})\n"
    )
    text = holdfast("render", "-f", "w.py").out
    assert text == (
        "apiVersion: holdfast.dev/v1\nkind: Workload\nslug: a\n"
        'name: "yes"\nmodel: "0755"\nbackend: vllm\nenv:\n  "ON": "on"\n'
    )
    Path("a.yaml").write_text(text)
    assert load_specs(["a.yaml"])[0].spec == load_specs(["w.py"])[0].spec
