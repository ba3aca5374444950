"""Shows what codify would propose, as the text of a patch. Nothing is pushed.

The files are a stranger's and may hold a credential beside the value in question. So whatever in
them looks like one is masked, and of a Secret no line is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.align import Opcode, align
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.redact import MASK, names_a_password, redact, redact_tree
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Tree
from holdfast.wire.yaml import read_documents

MAX_PATCH = 256 * 1024
"""Characters of a patch that are shown."""
_CONTEXT_LINES = 3
_MIN_SECRET = 4
"""Characters from which on a secret is looked for anywhere in a line."""
_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodifyPreview:
    """What a pull request about a drift would change in the repository."""

    title: str
    branch: str
    obstacle: str = ""
    """Why there would be none; empty when there would be one."""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    patch: str = ""
    """A unified diff, with whatever looks like a credential masked."""
    secret: bool = False
    """True for a Secret: what changes in its file is not shown."""


def make_patch(result: CodifyResult) -> str:
    """Write the edits as a unified diff. May take its time: not for the event loop."""
    parts: list[str] = []
    for file, after in sorted(result.files.items()):
        before = result.before.get(file)
        hidden = _hidden_texts(before) | _hidden_texts(after)
        parts.extend(_mask_line(line, hidden) for line in _file_diff(file, before, after))
    text = "\n".join(parts) + "\n"
    return text if len(text) <= MAX_PATCH else f"{text[:MAX_PATCH]}\n… the patch is longer\n"


def _file_diff(file: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    old, new = _lines(before), _lines(after)
    yield "--- /dev/null" if before is None else f"--- a/{file}"
    yield "+++ /dev/null" if after is None else f"+++ b/{file}"
    for hunk in _hunks(align(old, new)):
        first, last = hunk[0], hunk[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for tag, i1, i2, j1, j2 in hunk:
            if tag == "equal":
                yield from _marked(" ", old[i1:i2])
                continue
            yield from _marked("-", old[i1:i2])
            yield from _marked("+", new[j1:j2])


def _lines(text: bytes | None) -> list[str]:
    return (text or b"").decode(errors="replace").splitlines(keepends=True)


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.rstrip("\r\n")
        if not line.endswith(("\n", "\r")):
            yield _NO_NEWLINE


def _range(start: int, stop: int) -> str:
    count = stop - start
    begin = start + 1 if count else start
    return str(begin) if count == 1 else f"{begin},{count}"


def _hunks(opcodes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Part the changes that have more than twice the context between them."""
    hunk: list[Opcode] = []
    for place, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        if tag != "equal":
            hunk.append((tag, i1, i2, j1, j2))
            continue
        head, tail = min(_CONTEXT_LINES, i2 - i1), max(i2 - _CONTEXT_LINES, i1)
        last = place == len(opcodes) - 1
        if hunk and (last or i2 - i1 > 2 * _CONTEXT_LINES):
            yield [*hunk, (tag, i1, i1 + head, j1, j1 + head)]
            hunk = []
        elif hunk:
            hunk.append((tag, i1, i2, j1, j2))
            continue
        if not last:
            hunk.append((tag, tail, i2, tail + j1 - i1, j2))
    if any(each[0] != "equal" for each in hunk):
        yield hunk


def _hidden_texts(text: bytes | None) -> frozenset[str]:
    """Everything in a file that looks like a credential, or that a Secret holds."""
    if text is None:
        return frozenset()
    try:
        documents = read_documents(text, source="file")
    except ValidationError:
        return frozenset()  # lines are masked by their form alone
    found: set[str] = set()
    for document in documents:
        value = document.value
        found.update(_credentials_in(value))
        if isinstance(value, dict) and value.get("kind") == "Secret":
            for part in ("data", "stringData"):
                found.update(_leaves(value.get(part)))
    return frozenset(part for each in found for part in each.splitlines() if part.strip())


def _credentials_in(value: Tree, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        called = value.get("name")
        for key, item in value.items():
            named = called if key == "value" and isinstance(called, str) else key
            yield from _credentials_in(item, named)
    elif isinstance(value, list):
        masked = redact_tree(value, name=name)
        assert isinstance(masked, list)  # noqa: S101  # a list is masked into a list
        for item, shown in zip(value, masked, strict=True):
            if isinstance(item, str):
                if item != shown:
                    yield item
            else:
                yield from _credentials_in(item, name)
    elif isinstance(value, str):
        if redact_tree(value, name=name) != value:
            yield value
    elif value is not None and not isinstance(value, bool) and names_a_password(name):
        yield str(value)


def _leaves(value: Tree) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield str(value)


def _mask_line(line: str, hidden: frozenset[str]) -> str:
    mark, text = line[:1], line[1:]
    for each in sorted(hidden, key=len, reverse=True):
        if len(each) >= _MIN_SECRET:
            text = text.replace(each, MASK)
        elif text.rpartition(":")[2].strip(" \"'") == each:
            text = text[: text.rindex(each)] + MASK
    return mark + escape_unprintable(redact(text), ascii_only=False)
