"""One reader for everything that is declared in a file; hostile input included."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import ValidationError
from holdfast.wire.nodes import MAX_DOCUMENTS, UNPRINTABLE
from holdfast.wire.yaml import MAX_BYTES, Document, read_documents, write_document


def read(text: str | bytes, *, json: bool = False) -> list[Document]:
    data = text.encode() if isinstance(text, str) else text
    return read_documents(data, source="a.yaml", json=json)


def value(text: str | bytes, *, json: bool = False) -> object:
    (document,) = read(text, json=json)
    return document.value


def refusal(text: str | bytes, *, json: bool = False) -> str:
    with pytest.raises(ValidationError) as caught:
        read(text, json=json)
    (problem,) = caught.value.problems
    return str(problem)


SCALARS = {
    "y": True, "yes": True, "Yes": True, "on": True, "ON": True, "true": True, "True": True,
    "n": False, "no": False, "NO": False, "off": False, "Off": False, "false": False,
    "yEs": "yEs", "~": None, "null": None, "Null": None, "nil": "nil",
    "0": 0, "-0": 0, "+1": 1, "12": 12, "0755": 493, "010": 8, "08": 8, "0o17": 15, "0x1F": 31,
    "0b11": 3, "-0x10": -16, "1_000": 1000, "0_7": 7, "1e3": 1000, "1.5": 1.5, "1.": 1,
    ".5": 0.5, "-0.0": 0, "6.02e+2": 602, "1.5e-3": 0.0015,
    "12e3456": "12e3456", "1e400": "1e400", "1:30": "1:30", "12:30:45": "12:30:45",
    "2026-01-02": "2026-01-02", "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "1.2.3": "1.2.3", "v1": "v1", "1Gi": "1Gi", "500m": "500m", "+": "+", "-": "-", ".": ".",
    "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63),
    "'yes'": "yes", '"12"': "12", "!!str 12": "12", "!!int 12": 12, "! 12": "12",
    "!!float 1": 1, "!!bool yes": True, "!!null ~": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SCALARS.items())
def test_a_scalar_means_what_it_means_to_kubernetes(text: str, expected: object) -> None:
    found = value(f"[{text}, end]")
    assert found == [expected, "end"]
    assert isinstance(found, list)
    assert type(found[0]) is type(expected)


def test_keys_that_are_no_text_become_the_text_kubernetes_gives_them() -> None:
    assert value("on: 1\n2: x\n0x10: z") == {"true": 1, "2": "x", "16": "z"}


def test_every_document_of_a_file_is_read_with_its_lines() -> None:
    first, second = read("# about\nname: a\nenv:\n  A: x\n  B/C: [1, {d: 2}]\n---\n---\nname: b\n")
    assert (first.line, second.line) == (2, 8)
    assert first.lines == {
        "": 2, "/name": 2, "/env": 3, "/env/A": 4, "/env/B~1C": 5, "/env/B~1C/0": 5,
        "/env/B~1C/1": 5, "/env/B~1C/1/d": 5,
    }  # fmt: skip
    assert first.where("/env/A") == "a.yaml:4"
    assert first.where("/env/missing/deep") == "a.yaml:3"


def test_json_is_read_with_its_lines_too() -> None:
    (document,) = read('{\n "a": [1.0, true,\n  null],\n "b": "\\ud83d\\ude00\\/"\n}', json=True)
    assert document.value == {"a": [1, True, None], "b": "😀/"}
    assert document.lines["/a/2"] == 3
    assert document.lines["/b"] == 4


def test_several_json_values_in_one_file_are_several_documents() -> None:
    assert [each.value for each in read('{"a":1}\n{"b":2}', json=True)] == [{"a": 1}, {"b": 2}]


def test_a_file_of_comments_has_no_document() -> None:
    assert read("# nothing\n---\n~\n") == []


def test_an_anchor_can_be_used_again_and_nothing_is_shared() -> None:
    found = value("x: &x {a: [1]}\nz: *x\n")
    assert found == {"x": {"a": [1]}, "z": {"a": [1]}}
    assert isinstance(found, dict)
    assert found["x"] is not found["z"]


def test_a_merge_key_brings_fields_in_and_later_ones_win() -> None:
    text = "x: &x {a: 1, b: 2}\nw: &w {b: 9, c: 3}\nz:\n  <<: [*x, *w]\n  a: 0\n"
    found = value(text)
    assert isinstance(found, dict)
    assert found["z"] == {"a": 0, "b": 2, "c": 3}


HOSTILE = {
    "a key twice": ("a: 1\nb: 2\na: 3", "a.yaml:3: key 'a' is given twice, first on line 1."),
    "a key twice in other words": ("on: 1\ntrue: 2", "a.yaml:2: key 'true'"),
    "a key twice after a merge": (
        "x: &x {a: 1}\nz:\n  <<: *x\n  b: 1\n  b: 2", "a.yaml:5: key 'b' is given twice"),
    "a merge that undoes a key": (
        "x: &x {a: 1}\nz:\n  a: 2\n  <<: *x", "a.yaml:4: it brings key 'a' in after"),
    "two merges": ("x: &x {a: 1}\nz:\n  <<: *x\n  <<: *x", "a.yaml:4: key '<<'"),
    "a merge of no mapping": ("x: &x [1]\nz: {<<: *x}", "takes mappings only"),
    "a merge with itself": ("x: &x\n  <<: *x", "a.yaml:2: anchor 'x' contains itself"),
    "a list in itself": ("x: &x [*x]", "contains itself"),
    "an unknown anchor": ("x: *nope", "no anchor 'nope'"),
    "an anchor of another document": ("x: &a 1\n---\ny: *a", "a.yaml:3: there is no anchor"),
    "deep nesting": ("[" * 100_000, "nested over 64 deep"),
    "deep mappings": ("{a: " * 100_000, "nested over 64 deep"),
    "deep lists": ("- " * 100_000, "nested over 64 deep"),
    "depth through aliases": (
        "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40, "nested over 64"),
    "a python tag": ("x: !!python/object/apply:os.system [ls]", "is not allowed here"),
    "a python name": ("x: !!python/name:os.system", "is not allowed here"),
    "a tag of one's own": ("x: !secret y", "tag '!secret' is not allowed"),
    "binary": ("x: !!binary aGk=", "is not allowed"),
    "a tag that lies": ("x: !!int abc", "is tagged !!int and is not one"),
    "a tag directive": ("%TAG ! tag:evil,2000:\n---\nx: 1", "%TAG directive"),
    "a large integer": ("x: 9223372036854775808", "does not fit in 64 bits"),
    "a very large integer": ("x: " + "9" * 100_000, "does not fit in 64 bits"),
    "a large octal": ("x: 0" + "7" * 50, "does not fit in 64 bits"),
    "infinity": ("x: .inf", "not a finite number"),
    "no number": ("x: .NaN", "not a finite number"),
    "a long fraction": ("x: 0." + "1" * 5_000, "too long"),
    "many documents": ("---\na\n" * (MAX_DOCUMENTS + 5), f"over {MAX_DOCUMENTS} documents"),
    "many values": ("[" + "1," * 150_000 + "]", "over 100000 values"),
    "not UTF-8": (b"a: 1\nb: \xff", "a.yaml:2: it is not UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbfa: 1", "byte order mark"),
    "UTF-16": ("a: 1".encode("utf-16"), "byte order mark"),
    "UTF-16 without a mark": ("a: 1".encode("utf-16-le"), "U+0000"),
    "NUL": (b"a: b\x00c", "U+0000"),
    "NUL, escaped": ('a: "\\0"', "U+0000"),
    "a terminal escape": (b"a: 1\nb: \x1b[31m", "a.yaml:2: it has the control character U+001B"),
    "a terminal escape, escaped": ('a: "\\e[31m"', "U+001B"),
    "reversed text": ("a: '\u202egpj'", "U+202E"),
    "a line separator": ("a: 'x\u2028y'", "U+2028"),
    "a list as a key": ("? [a]\n: 1", "a key is a list or a mapping"),
    "no key": ("~: 1", "neither text nor a whole number"),
    "a fraction as a key": ("1.5: x", "neither text nor a whole number"),
    "a tab": ("a:\n\tb: 1", "a.yaml:2"),
    "an open bracket": ("a: [1\nb: 2", "a.yaml:2"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused_with_its_line(text: str | bytes, expected: str) -> None:
    assert expected in refusal(text)


HOSTILE_JSON = {
    "a key twice": ('{"a": 1,\n"a": 2}', "a.yaml:2: key 'a' is given twice, first on line 1."),
    "a key twice, escaped": ('{"a": 1, "\\u0061": 2}', "key 'a'"),
    "deep nesting": ("[" * 100_000, "nested over 64"),
    "deep objects": ('{"a":' * 100_000, "nested over 64"),
    "a large integer": ("[9223372036854775808]", "64 bits"),
    "a very large integer": ("[" + "9" * 100_000 + "]", "64 bits"),
    "an overflow": ("[1e400]", "not a finite number"),
    "NaN": ("[NaN]", "'N' is not valid JSON here"),
    "Infinity": ("[-Infinity]", "'-' is not valid JSON here"),
    "a lone surrogate": ('["\\ud800"]', "U+D800"),
    "NUL": ('["\\u0000"]', "U+0000"),
    "a raw new line in a text": ('["a\nb"]', "is not valid JSON here"),
    "an unclosed text": ('"' + "\\" * 100_000, "is not valid JSON here"),
    "a trailing comma": ("[1,]", "']' is not valid JSON here"),
    "a comment": ("// hi\n{}", "'/' is not valid JSON here"),
    "an early end": ('{"a":', "the JSON ends too early"),
    "an unknown escape": ('["\\x41"]', "escape"),
    "many values": ("[" + "1," * 150_000 + "1]", "over 100000 values"),
}


@pytest.mark.parametrize(("text", "expected"), HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_refused_with_its_line(text: str, expected: str) -> None:
    assert expected in refusal(text, json=True)


def test_an_alias_bomb_is_refused_before_anything_walks_it() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for last, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]")
    assert "aliases" in refusal("\n".join(lines))


def test_a_file_over_the_limit_is_refused_before_it_is_parsed() -> None:
    assert "over 4 MiB" in refusal(b"a" * (MAX_BYTES + 1))


def test_a_refusal_shows_no_value_of_the_file() -> None:
    text = "password: hunter2-hunter2\npassword: hunter2-hunter2\n"
    assert "hunter2" not in refusal(text)


def test_the_parser_without_c_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [yes, 0755, 1e3, '12', 2026-01-02]\nb: &b {c: ~}\nd:\n  <<: *b\n  e: |\n    x\n"
    fast = value(text)
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert value(text) == fast
    assert "nested over 64" in refusal("[" * 5_000)


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

texts = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda text: not UNPRINTABLE.search(text) and "\r" not in text
)
trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: number % 1 != 0)
    | texts
    | st.sampled_from(list(SCALARS)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@unhurried
@given(tree=st.dictionaries(texts, trees, min_size=1, max_size=5))
def test_what_is_written_is_read_back_the_same(tree: dict[str, object]) -> None:
    text = write_document(tree)  # type: ignore[arg-type]  # the strategy makes trees
    assert value(text) == tree


@unhurried
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    for json in (False, True):
        with contextlib.suppress(ValidationError):
            read(data, json=json)


def test_importing_the_reader_does_not_import_the_parser() -> None:
    code = "import sys, holdfast.wire.yaml; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
