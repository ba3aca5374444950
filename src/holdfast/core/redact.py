"""Hides secrets before values become text.

`Secret` is the only type that may hold one. The two scanners find secrets where they do not
belong: in a declaration, which is then refused, and in text on its way out, which is masked.
"""

from __future__ import annotations

import hmac
import re
from typing import NoReturn

from holdfast.core.tree import Tree

MASK = "***"
_MIN_CREDENTIAL_LENGTH = 12

TOKEN = re.compile(r"ik_(?:sdk|live|ui|link)_([0-9A-Za-z]{1,64})_[0-9A-Za-z]+")
# Each alternative can start only where its own run of characters starts, or always matches once
# it has read far: so a hostile text is read once, and not once for each of its characters.
_CREDENTIALS = re.compile(
    r"""(?x)
    ik_(?:sdk|live|ui|link)_(?:[0-9A-Za-z]+_[0-9A-Za-z_-]+|[0-9A-Za-z-]{12,})
    | (?<![A-Za-z0-9])(?:
        hf_[A-Za-z0-9]{16,} | sk-[A-Za-z0-9_-]{16,} | gh[pousr]_[A-Za-z0-9]{20,}
      | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
      | xox[abprs]-[A-Za-z0-9-]{10,} | (?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])
      | AGE-SECRET-KEY-1[0-9A-Za-z]{16,} | hv[sbr]\.[A-Za-z0-9_-]{16,} | AIza[A-Za-z0-9_-]{30,}
      | nvapi-[A-Za-z0-9_-]{16,} | gsk_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{30,}
      | ya29\.[A-Za-z0-9_-]{16,}
      | hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{8,})
    | (?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*eyJ)
      [A-Za-z0-9_-]{11,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*
    | -----BEGIN[A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?<=://)(?:[^/\s"'<>:@]*:(?!\$[{(]?[A-Za-z_])[^/\s"'<>]+|[^/\s"'<>:@]{20,})(?=@)
    | (?<![A-Za-z0-9_.@/-])(?!(?i:mailto|contact|owner|e-?mail|author|maintainer|by|from|to):)
      [A-Za-z0-9_.-]{1,64}+:(?!\$|git@)[^\s"'<>:@/,;]{3,}+
      (?=@(?!sha(?:256|512):)[A-Za-z0-9])
    """
)
_NAME = (
    r"(?:token|secret|(?:api|access|secret|private|auth)[-_]?key|credentials?|basic[-_]?auth"
    r"|password|passwd|passphrase)"
)
_SECRET_WORDS = re.compile(r"(?i)token|secret|key|credential|passw|passphrase|bearer|basic")
_PASSWORD_NAME = re.compile(r"(?i)(?:password|passwd|passphrase)$")
_HEADER = re.compile(
    r"""(?ix) (?:authorization|x-api-key|api-key)["']?\s*[:=]\s*["']?
    (?:(?:bearer|basic|token)\s+)? (?P<value>[^\s"']{3,})
    | ^\s*(?:bearer|basic)\s+(?P<whole>[A-Za-z0-9._~+/=-]{8,})\s*$"""
)
"""A header that lets its bearer in, in a value or a script."""
_SECRET_NAME = re.compile(
    rf"(?i)(?:(?:^|[-_.]|(?-i:(?<=[a-z0-9])(?=[A-Z]))){_NAME}|password|passwd|passphrase)$"
)
_VOCABULARY = re.compile(
    r"(?i)(?:^|[-_.])(?:bos|eos|pad|unk|sep|cls|mask|stop|start|end|image|audio|video)[-_]token$"
)
"""Tokens of a tokenizer, which are no secrets."""
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+")
_VALUE = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&}\])]+)"""
_FLAG = re.compile(rf"(?i)(?<![\w.-])(-{{1,2}}[\w.-]*?{_NAME})(\s+(?!-)){_VALUE}")
_ASSIGNMENT = re.compile(rf"""(?i)(?=[acpst])({_NAME})(\s?=\s?|\\?["']\s?:\s?){_VALUE}""")
_SCRIPT_ASSIGNMENT = re.compile(rf"(?<![\w.-])([A-Z][A-Z0-9_]*?_?(?i:{_NAME}))(=){_VALUE}")
"""A variable that a script sets, in capitals as variables are."""
_REFERENCE = re.compile(r"""["']?\$[{(]?[A-Za-z_][A-Za-z0-9_]*[})]?["']?""")


class Secret:
    """A value that cannot be printed, compared in the open, pickled or stored.

    `reveal()` is the one way out, and is easy to search for.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret itself. Use it at the point of need and keep no copy."""
        return self._value

    def fingerprint(self, key: bytes) -> str:
        """Return a keyed hash: equal for equal secrets under one key, useless without it."""
        return hmac.new(key, self._value.encode(), "sha256").hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    __hash__ = None  # type: ignore[assignment]  # a hash would let a set or dict reveal equality

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


def names_a_secret(name: str) -> bool:
    """True when a variable, flag or key of this name usually holds a credential.

    The name may be a path segment such as `[name=HF_TOKEN]`.
    """
    name = name.rstrip("]")
    return bool(_SECRET_NAME.search(name)) and not _VOCABULARY.search(name)


def names_a_password(name: str) -> bool:
    """True for a name under which even a short number is a secret."""
    return bool(_PASSWORD_NAME.search(name.rstrip("]")))


def is_reference(text: str) -> bool:
    """True for `${NAME}` and `$(NAME)`, filled in where a command runs: no secrets."""
    return bool(_REFERENCE.fullmatch(text))


def credential_in(text: str) -> str | None:
    """Say what kind of credential a text contains, or None. Never returns the text itself."""
    found = _CREDENTIALS.search(text)
    if not found:
        return None
    return "a Holdfast token" if found.group().startswith("ik_") else "a credential"


def assigned_secret_in(text: str) -> bool:
    """True for text that gives a secret a value: a header, `HF_TOKEN=…` or `--api-key …` in it.

    Only a text with a blank in it can, or one that is a header: a lone word has a name of its own.
    """
    if not _SECRET_WORDS.search(text) and not _HEADER.search(text):
        return False
    header = _HEADER.search(text)
    if header and not is_reference(header["value"] or header["whole"] or ""):
        return True
    if " " not in text.strip():
        return False
    found = (*_SCRIPT_ASSIGNMENT.finditer(text), *_FLAG.finditer(text))
    return any(_is_secret_value(each) for each in found)


def _is_secret_value(found: re.Match[str]) -> bool:
    name, _, value = found.groups()
    before = found.string[max(0, found.start() - 16) : found.end(1)]
    plain = value.strip("\"'")
    if is_reference(value) or "$" in value or plain.startswith("-") or _VOCABULARY.search(before):
        return False
    return names_a_password(name) or not (plain.isdigit() or plain.lower() in ("true", "false"))


def redact(text: str) -> str:
    """Mask every credential in a text on its way to a person, a log or a file."""
    if len(text) < _MIN_CREDENTIAL_LENGTH and text.isidentifier():
        return text  # most keys and many values: too short to be a credential of any form
    text = _CREDENTIALS.sub(_mask_credential, text)
    if not _SECRET_WORDS.search(text):
        return text  # the rest masks what follows one of these words
    text = _BEARER.sub(lambda found: f"{found.group(1)} {MASK}", text)
    text = _ASSIGNMENT.sub(_mask_value, text)
    return _FLAG.sub(_mask_value, text)


def quote_text(text: str, limit: int = 60) -> str:
    """Quote a piece of someone's input in a message: no credential, ASCII alone, not too long."""
    return ascii(redact(text)[:limit])


def redact_tree(value: Tree, *, name: str = "") -> Tree:
    """Mask credentials anywhere in a tree, by their form and by the name they stand under."""
    if isinstance(value, dict):
        called = value.get("name")  # a pair of name and value, as Kubernetes has in `env`
        alias = called if isinstance(called, str) else ""
        return {
            redact(key): redact_tree(item, name=alias if key == "value" else key)
            for key, item in value.items()
        }
    if isinstance(value, list):
        flags = ["", *(item if isinstance(item, str) else "" for item in value)]
        return [
            redact_tree(item, name=flag if flag.startswith("-") and names_a_secret(flag) else name)
            for flag, item in zip(flags, value, strict=False)  # a flag stands before its value
        ]
    if isinstance(value, str):
        return MASK if value and names_a_secret(name) and not is_reference(value) else redact(value)
    return value


def _mask_credential(found: re.Match[str]) -> str:
    token = TOKEN.match(found.group())
    if token:
        kind = found.group().split("_", 2)[1]
        return f"ik_{kind}_{token.group(1)[:8]}…"
    return MASK


def _mask_value(found: re.Match[str]) -> str:
    name, gap, value = found.groups()
    before = found.string[max(0, found.start() - 16) : found.end(1)]
    if is_reference(value) or _VOCABULARY.search(before):
        return found.group()
    return f"{name}{gap}{MASK}"
