"""A file is edited by hand-sized cuts: what is not the change is not touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import ValidationError
from holdfast.core.tree import Tree
from holdfast.wire.yaml import read_documents
from holdfast.wire.yaml_edit import REMOVED, Edit, apply_edit, apply_edits, remove_document

CORPUS = Path(__file__).parent.parent / "corpus" / "codify"


def cases() -> list[tuple[str, dict[str, Tree]]]:
    found = []
    for file in sorted(CORPUS.glob("*.yaml")):
        (document,) = read_documents(file.read_bytes(), source=file.name)
        assert isinstance(document.value, list)
        for case in document.value:
            assert isinstance(case, dict)
            found.append((f"{file.stem}: {case['name']}", case))
    return found


CASES = cases()


def text_of(case: dict[str, Tree], name: str) -> bytes:
    text = case[name]
    assert isinstance(text, str)
    data = text.replace("\n", "\r\n").encode() if case.get("crlf") else text.encode()
    return b"\xef\xbb\xbf" + data if case.get("bom") else data


def edits_of(case: dict[str, Tree]) -> list[Edit]:
    given = case["edits"]
    assert isinstance(given, list)
    return [
        Edit(
            path=tuple(each["path"]),  # type: ignore[arg-type, call-overload, index]
            value=REMOVED if each.get("remove") else each["value"],  # type: ignore[union-attr, call-overload, index]
            insert=bool(each.get("insert")),  # type: ignore[union-attr]
        )
        for each in given
    ]


def document_of(case: dict[str, Tree]) -> int:
    number = case.get("document", 0)
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES])
def test_the_corpus_is_edited_byte_for_byte(case: dict[str, Tree]) -> None:
    before = text_of(case, "before")
    if "refused" in case:
        with pytest.raises(ValidationError) as caught:
            apply_edits(before, edits_of(case), document=document_of(case))
        assert str(case["refused"]) in str(caught.value)
        return
    after = apply_edits(before, edits_of(case), document=document_of(case))
    assert after.decode() == text_of(case, "after").decode()


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES])
def test_an_edit_leaves_lines_it_has_nothing_to_do_with(case: dict[str, Tree]) -> None:
    """A comment of its own line survives every edit, unless it was inside what went."""
    if "refused" in case:
        return
    before = text_of(case, "before").decode()
    after = apply_edits(before.encode(), edits_of(case), document=document_of(case)).decode()
    comments = [line for line in before.splitlines() if line.strip().startswith("# ")]
    kept = [line for line in comments if "deeper than" not in line and "of u" not in line]
    assert all(line in after.splitlines() for line in kept)


def test_doing_an_edit_twice_is_doing_it_once() -> None:
    before = b"a:\n  b: 1 # b\n"
    edits = [Edit(path=("a", "c"), value="yes"), Edit(path=("a", "b"), value=2)]
    once = apply_edits(before, edits, document=0)
    assert apply_edits(once, edits, document=0) == once


@pytest.mark.parametrize(
    ("before", "document", "after"),
    [
        ("a: 1\n---\nb: 2\n", 0, "---\nb: 2\n"),
        ("# licence\n\na: 1\n---\nb: 2\n", 0, "# licence\n\n---\nb: 2\n"),
        ("a: 1\n---\nb: 2\n", 1, "a: 1\n"),
        ("---\na: 1\n---\n# b\nb: 2\n---\nc: 3\n", 1, "---\na: 1\n---\nc: 3\n"),
        ("---\r\na: 1\r\n---\r\nb: 2\r\n", 0, "---\r\nb: 2\r\n"),
        ("a: 1\n...\n---\nb: 2\n...\n", 0, "---\nb: 2\n...\n"),
        ("a: 1\n---\nb: 2\n...\n", 1, "a: 1\n"),
        ("---\n# nothing\n---\na: 1\n---\nb: 2", 0, "---\n# nothing\n---\nb: 2"),
        ("\ufeffa: 1\n---\nb: 2\n", 1, "\ufeffa: 1\n"),
        ("a: 1\n", 0, ""),
    ],
)
def test_a_document_goes_and_the_others_stay(before: str, document: int, after: str) -> None:
    assert remove_document(before.encode(), document=document).decode() == after


def test_a_document_that_is_not_there_cannot_go() -> None:
    with pytest.raises(ValidationError, match="no document 1"):
        remove_document(b"a: 1\n", document=1)


def test_a_path_into_what_is_not_there_makes_it() -> None:
    assert apply_edit({"a": 1}, Edit(path=("b", "c", 0, "d"), value=2)) == {
        "a": 1,
        "b": {"c": [{"d": 2}]},
    }


def test_a_refusal_names_the_file_and_shows_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        apply_edits(
            b"a: hunter2\n", [Edit(path=("a", "b"), value="hunter3")], document=0, source="s.yaml"
        )
    assert "s.yaml" in str(caught.value)
    assert "hunter" not in str(caught.value)
