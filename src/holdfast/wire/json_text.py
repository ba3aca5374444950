"""Reads JSON into the same nodes as YAML, because `json` neither says on which line a field
stands nor refuses a key that is given twice. Called by `wire.yaml` alone.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from holdfast.core.tree import Leaf
from holdfast.wire.nodes import Composer, Node, Refused
from holdfast.wire.scalars import bounded_integer, tidy_number

_TOKEN = re.compile(
    r"""(?x)
    (?P<space>[ \t\r\n]+)
    | (?P<text>"(?:[^"\\\x00-\x1f]++|\\.)*+")
    | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
    | (?P<word>true|false|null)\b
    | (?P<mark>[{}\[\],:])
    """
)
_WORDS: dict[str, Leaf] = {"true": True, "false": False, "null": None}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class JsonReader:
    """Reads one JSON value, or several after each other as in JSON lines."""

    def __init__(self, text: str, composer: Composer) -> None:
        self._text = text
        self._composer = composer
        self._place = 0
        self._line = 1
        self._token = self._scan()

    def documents(self) -> list[Node]:
        """Return every value of the text."""
        found = []
        while self._token.kind != "end":
            found.append(self._value(1))
            self._composer.document_ended(self._token.line)
        return found

    def _value(self, depth: int) -> Node:
        token = self._take()
        node = self._composer.started(token.line, depth)
        match token.kind, token.text:
            case "mark", "{":
                self._mapping(node, depth)
            case "mark", "[":
                self._sequence(node, depth)
            case "text", text:
                node.value = self._string(text, token.line)
            case "number", text:
                node.value = _number(text, token.line)
            case "word", text:
                node.value = _WORDS[text]
            case _:
                raise self._unexpected(token)
        return self._composer.ended(node)

    def _mapping(self, node: Node, depth: int) -> None:
        pairs: dict[str, Node] = {}
        node.pairs = pairs
        if self._skip("}"):
            return
        while True:
            key = self._take()
            if key.kind != "text":
                raise self._unexpected(key)
            name = self._string(key.text, key.line)
            self._composer.check_new_key(pairs, name, key.line)
            self._expect(":")
            value = self._value(depth + 1)
            value.line = key.line
            pairs[name] = value
            if self._skip("}"):
                return
            self._expect(",")

    def _sequence(self, node: Node, depth: int) -> None:
        node.items = []
        if self._skip("]"):
            return
        while True:
            node.items.append(self._value(depth + 1))
            if self._skip("]"):
                return
            self._expect(",")

    def _string(self, text: str, line: int) -> str:
        try:
            value = json.loads(text) if "\\" in text else text[1:-1]
        except ValueError:
            raise Refused(line, "a text has an escape that JSON does not know.", "") from None
        return self._composer.checked_text(str(value), line)

    def _skip(self, mark: str) -> bool:
        if self._token.kind == "mark" and self._token.text == mark:
            self._take()
            return True
        return False

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token.kind != "mark" or token.text != mark:
            raise self._unexpected(token)

    def _take(self) -> _Token:
        token = self._token
        if token.kind != "end":
            self._token = self._scan()
        return token

    def _scan(self) -> _Token:
        while self._place < len(self._text):
            found = _TOKEN.match(self._text, self._place)
            if not found:
                return _Token("unknown", self._text[self._place], self._line)
            self._place = found.end()
            if found.lastgroup != "space":
                return _Token(found.lastgroup or "", found.group(), self._line)
            self._line += found.group().count("\n")
        return _Token("end", "", self._line)

    def _unexpected(self, token: _Token) -> Refused:
        if token.kind == "end":
            return Refused(token.line, "the JSON ends too early.", "Complete it.")
        found = ascii(token.text[:1])
        return Refused(token.line, f"{found} is not valid JSON here.", "Fix the JSON.")


def _number(text: str, line: int) -> int | float:
    try:
        if text.lstrip("-").isdigit():
            return bounded_integer(text)
        number = float(text) if len(text) <= 400 else float("inf")
    except ValueError as error:
        raise Refused(line, f"{error}.", "Quote it if it is a name.") from None
    if number in (float("inf"), float("-inf")):
        raise Refused(line, "it is not a finite number.", "Give a smaller one.")
    return tidy_number(number)
