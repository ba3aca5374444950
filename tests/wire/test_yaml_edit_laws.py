"""What holds for every edit of every file, and what Kubernetes' own reader makes of the result."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.support import testbed

from holdfast.core.diff import same_value
from holdfast.core.errors import ValidationError
from holdfast.core.tree import Tree
from holdfast.wire.nodes import UNPRINTABLE
from holdfast.wire.yaml import read_documents
from holdfast.wire.yaml_edit import REMOVED, Edit, YamlPath, apply_edit, apply_edits

AWKWARD = [
    "yes", "on", "y", "NO", "off", "null", "~", "", " ", "1_000", "0755", "0o17", "0x1F", "1e3",
    "12e3456", "2026-01-02", "2001-12-14t21:59:43.10-05:00", "1:30", "190:20:30", ".inf", ".5",
    "+1", "-", "- a", "--", "---", "...", "--- a", "--flag=a b", "a: b", "a:", "a #b", "#a", "*a",
    "&a", "!a", "%a", "@a", "`a`", "|", ">", "'", '"', "''", '"x"', "{", "}", "[a]", "a,b", "?",
    "? a", ":", "=", "<<", "<", "a\\b", "tab\there", "line\nbreak", "end\n", "\nlead", "  lead",
    "trail ", "two\n\nparts\n\n", "cr\r\n", "é", "日本語", "🙂", "1.2.3", "v1", "1Gi", "500m",
    "true", "False", "$(VAR)", "{{ x }}", "http://a:80/b?c=d#e", "sha256:0123", "0", "08", "1.",
]  # fmt: skip
TEXT = st.one_of(
    st.sampled_from(AWKWARD),
    st.text(alphabet="ab 0:#-'\"\n{}[],&*!|>%@y_.", max_size=12),
    st.text(max_size=6).filter(lambda text: not UNPRINTABLE.search(text)),
)
LEAVES = st.one_of(TEXT, st.integers(-(2**40), 2**40), st.booleans(), st.none(), st.just(1.5))
KEYS = st.one_of(
    st.sampled_from(["name", "image", "env", "a/b", "8080", "on", "x y"]),
    TEXT.filter(lambda text: text and not re.search(r"\s\Z|[\r\n]", text)),
)
"""Without line breaks: a key over several lines is written with a question mark, and refused."""
TREES: st.SearchStrategy[Tree] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
SLOW = (HealthCheck.too_slow,)
"""A file is made and read on the way, which takes its time on a busy machine."""
ROOTS = st.dictionaries(KEYS, TREES, min_size=1, max_size=5)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file of two documents as some tool or person would lay it out."""
    texts = []
    for _ in range(2):
        dumped = yaml.safe_dump(
            draw(ROOTS), sort_keys=False, allow_unicode=True,
            width=draw(st.sampled_from([40, 999])),
            indent=draw(st.sampled_from([2, 3, 4])),
            default_flow_style=draw(st.sampled_from([False, False, None, True])),
        )  # fmt: skip
        lines = dumped.splitlines()
        for at in draw(st.lists(st.integers(0, len(lines) - 1), max_size=3)):
            commented = [*lines[:at], lines[at] + draw(st.sampled_from([" # c", "\n    # d"])),
                         *lines[at + 1 :]]  # fmt: skip
            if same_value(values("\n".join(commented)), values("\n".join(lines))):
                lines = commented
        texts.append("\n".join(lines) + "\n")
    text = "# head\n" + "---\n".join(texts)
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))).encode()


def values(text: str | bytes) -> list[Tree]:
    data = text.encode() if isinstance(text, str) else text
    try:
        return [document.value for document in read_documents(data, source="a.yaml")]
    except ValidationError:
        return []


def places(tree: Tree, path: YamlPath = ()) -> Iterator[YamlPath]:
    if path:
        yield path
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from places(value, (*path, name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from places(value, (*path, index))


def at(tree: Tree, path: YamlPath) -> Tree:
    for step in path:
        tree = tree[step]  # type: ignore[index, call-overload]
    return tree


@st.composite
def edits(draw: st.DrawFn, tree: Tree) -> Edit:
    path = draw(st.sampled_from(sorted(places(tree), key=str)))
    held = at(tree, path)
    if isinstance(held, dict) and draw(st.booleans()):
        return Edit(path=(*path, draw(KEYS)), value=draw(TREES))
    if isinstance(held, list) and draw(st.booleans()):
        index = draw(st.integers(0, len(held)))
        return Edit(path=(*path, index), value=draw(TREES), insert=True)
    return Edit(path=path, value=draw(st.one_of(TREES, st.just(REMOVED))))


@settings(max_examples=80, suppress_health_check=SLOW)
@given(data=st.data(), before=files())
def test_an_edited_file_says_what_was_meant(data: st.DataObject, before: bytes) -> None:
    trees = values(before)
    assume(len(trees) == 2)
    each = data.draw(edits(trees[0]))
    after = apply_edits(before, [each], document=0)
    found = values(after)
    assert same_value(found[0], apply_edit(trees[0], each))
    assert same_value(found[1], trees[1])
    assert (b"\r\n" in after) == (b"\r\n" in before)
    assert b"\n" not in after.replace(b"\r\n", b"") or b"\r\n" not in before


@settings(max_examples=60, suppress_health_check=SLOW)
@given(data=st.data(), before=files(), value=LEAVES.filter(lambda leaf: "\n" not in str(leaf)))
def test_another_value_for_a_field_changes_its_line_alone(
    data: st.DataObject, before: bytes, value: Tree
) -> None:
    trees = values(before)
    assume(len(trees) == 2)
    tree = trees[0]
    single = [
        path for path in places(tree)
        if not isinstance(at(tree, path), dict | list) and "\n" not in str(at(tree, path))
    ]  # fmt: skip
    assume(single)
    path = data.draw(st.sampled_from(sorted(single, key=str)))
    after = apply_edits(before, [Edit(path=path, value=value)], document=0)
    old, new = before.decode().split("\n"), after.decode().split("\n")
    changed = [code for code in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
               if code[0] != "equal"]  # fmt: skip
    assert len(changed) <= 1
    for _, first, last, to, to_last in changed:
        # Long text may have stood on several lines; it is written on one.
        assert to_last - to <= last - first <= 3


@settings(max_examples=150, suppress_health_check=SLOW)
@given(
    value=TEXT, style=st.sampled_from(["x", "'x'", '"x"', "|\n    x", ">-\n    x", "[x]", "{x: x}"])
)
def test_text_is_read_back_as_that_text(value: str, style: str) -> None:
    before = f"a:\n  b: {style}\n  c: 1\n".encode()
    for path in (("a", "b"), ("a", "n")):
        after = apply_edits(before, [Edit(path=path, value=value)], document=0)
        assert values(after)[0]["a"][path[1]] == value  # type: ignore[index, call-overload]


def test_kubernetes_reads_the_text_that_was_meant(tmp_path: Path) -> None:
    """Every awkward text in every style, through the two readers of the real kubectl."""
    kubectl = kubectl_or_skip()
    styles = ("x", "'x'", '"x"', "|\n    x")
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"
    meant = {f"k{number}": text for number, text in enumerate(AWKWARD)}
    lines = "".join(f"  {name}: {styles[at % 4]}\n" for at, name in enumerate(meant))
    notes = ", ".join(f"{name}: x" for name in meant)
    before = f"{head}  annotations: {{{notes}}}\ndata:\n{lines}"
    changes = [Edit(path=("data",), value={**meant}),
               Edit(path=("metadata", "annotations"), value={**meant})]  # fmt: skip
    changes += [Edit(path=("data", f"new-{name}"), value=text) for name, text in meant.items()]
    (tmp_path / "a.yaml").write_bytes(apply_edits(before.encode(), changes, document=0))
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\n")

    offline = ["label", "--local", "-f", str(tmp_path / "a.yaml"), "-o", "json", "seen=true"]
    read = json.loads(output_of(kubectl, *offline))
    assert {name: read["data"][name] for name in meant} == meant
    assert {name: read["data"][f"new-{name}"] for name in meant} == meant
    assert read["metadata"]["annotations"] == meant
    (built,) = values(output_of(kubectl, "kustomize", str(tmp_path)))
    assert same_value(built["data"], read["data"])  # type: ignore[index, call-overload]


def kubectl_or_skip() -> str:
    try:
        return testbed.find_testbed().path("kubectl")
    except testbed.NoTestbed as error:
        if os.environ.get("HOLDFAST_REQUIRE_TESTBED"):
            raise
        pytest.skip(str(error))


def output_of(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
