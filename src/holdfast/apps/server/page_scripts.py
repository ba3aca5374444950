"""Scripts of the page without their comments, which a browser need not fetch.

The sources are written for people, types and all. Taking comments out needs no more than telling
them from strings, templates and regular expressions; and every line keeps its number, so that what
a browser says of a script is true of the source.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<slash>/)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<name>(?:\.\s*)?[\w$#]+)"
    r"|(?P<sign>\+\+|--|[^\"'])",
    flags=re.DOTALL,
)
_REGEX = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(?P<end>`|\$\{)", flags=re.DOTALL)
"""The text of a template up to its end, or to an expression in it."""
_BEFORE_REGEX = frozenset("case delete do else in instanceof new return throw typeof void".split())
_UNCLEAR = frozenset("} ++ -- await of yield".split())
"""A slash behind these divides or begins a regular expression: that takes a parser to tell."""
_HEADS = frozenset("for if while with".split())
"""Behind the bracket that one of these opens, a statement begins."""
_VALUE = "value"


def strip_comments(script: str) -> str:
    """Return a script without its comments; as it stands where it cannot be read for certain."""
    kept: list[str] = []
    opened: list[str] = []
    last = ";"
    place = 0
    while place < len(script):
        token = _TOKEN.match(script, place)
        if token is None:
            return script
        kind, text, place = token.lastgroup, token[0], token.end()
        if kind == "space":
            kept.append(text)
            continue
        if kind == "comment":
            kept.append("\n" * text.count("\n") or " ")
            continue
        if kind == "slash" and last != _VALUE:
            regex = _REGEX.match(script, token.start())
            if last in _UNCLEAR or regex is None:
                return script
            kept.append(regex[0])
            last, place = _VALUE, regex.end()
            continue
        kept.append(text)
        if text in ("(", "[", "{"):
            opened.append(last if text == "(" else text)
            last = text
        elif text == "`" or (text == "}" and opened[-1:] == ["${"]):
            template = _TEMPLATE.match(script, place)
            if template is None:
                return script
            if text == "}":
                opened.pop()
            kept.append(template[0])
            place = template.end()
            last = _VALUE
            if template["end"] == "${":
                opened.append("${")
                last = "{"
        elif text in (")", "]", "}"):
            if not opened:
                return script
            head = opened.pop()
            last = text if text == "}" or head in _HEADS else _VALUE
        elif kind == "sign" or text in _BEFORE_REGEX | _UNCLEAR | _HEADS:
            last = text
        else:
            last = _VALUE
    return "".join(kept) if not opened else script
