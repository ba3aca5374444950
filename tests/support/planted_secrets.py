"""Secrets planted for a test, and the search for them in everything that came out.

Only a part of each value is searched for, so that a truncated leak is found too, and in every
form in which text travels. What is found is named by its label: a report holds no value.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickle
import secrets
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from holdfast.core import tokens

LENGTH = 20
"""How many characters of a value are searched for."""


@dataclass(frozen=True, slots=True)
class PlantedSecret:
    """One planted value; `needle` is the part that must be seen nowhere."""

    label: str
    value: str
    needle: str

    def __repr__(self) -> str:
        return f"Canary({self.label})"


def planted_token(label: str, kind: str = "sdk") -> PlantedSecret:
    """A well-formed token that no server knows."""
    return planted_value(
        label, tokens.mint(kind, secrets.token_bytes(tokens.RANDOM_BYTES)).secret.reveal()
    )


def planted_value(label: str, value: str) -> PlantedSecret:
    """A token that some server knows."""
    return PlantedSecret(label, value, value.rpartition("_")[2][:LENGTH])


def planted_secret(label: str, shape: str) -> PlantedSecret:
    """A value of any shape; its needle takes the place of `{}`."""
    needle = "q" + secrets.token_hex(LENGTH)[: LENGTH - 1]
    return PlantedSecret(label, shape.replace("{}", needle), needle)


class Surfaces:
    """Everything that came out, by the name of where."""

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}

    def add(self, name: str, *contents: object) -> None:
        """Keep what a surface showed; a second time adds to it."""
        for content in contents:
            data = content if isinstance(content, bytes) else str(content).encode(errors="replace")
            self.seen[name] = self.seen.get(name, b"") + data + b"\n"

    def add_value(self, name: str, value: object) -> None:
        """Keep what a value of ours shows of itself."""
        self.add(name, repr(value), value)

    def add_failure(self, name: str, work: Callable[[], object]) -> None:
        """Keep what an exception shows: text, pickle, and its frames with their locals."""
        self.add(name, *frame_locals(self._raised(name, work)))

    def add_refusal(self, name: str, work: Callable[[], object]) -> None:
        """Keep what an exception shows of an argument that was refused.

        Not the locals: the functions that looked at the argument hold it, as their caller does.
        """
        self._raised(name, work)

    def _raised(self, name: str, work: Callable[[], object]) -> Exception:
        try:
            shown = work()
        except Exception as error:
            self.add_value(name, error)
            self.add(name, pickle.dumps(error))
            return error
        raise AssertionError(f"{name} was expected to fail, and gave a {type(shown).__name__}")

    def leaks(
        self,
        canaries: Iterable[PlantedSecret],
        allowed: Callable[[str, str], bool] = lambda *_: False,
    ) -> list[str]:
        """Name surface, canary and form of everything found."""
        forms = [
            (each, form, text) for each in canaries for form, text in encodings_of(each.needle)
        ]
        return [
            f"{name}: {canary.label} ({form})"
            for name, data in self.seen.items()
            for canary, form, text in forms
            if text in data and not allowed(name, canary.label)
        ]


def encodings_of(needle: str) -> Iterator[tuple[str, bytes]]:
    """Write a needle in each form in which it may be carried, wherever it stands in a value."""
    raw = needle.encode()
    seen = set()
    plain = {
        "raw": raw,
        "hex": binascii.hexlify(raw),
        "URL-encoded": quote(needle, safe="").encode(),
        "JSON": json.dumps(needle)[1:-1].encode(),
        "upper case": raw.upper(),
        "lower case": raw.lower(),
        "swapped case": raw.swapcase(),
        "reversed": raw[::-1],
    }
    for shift in range(3):  # what stands before it moves the groups of three
        whole = base64.b64encode(b"\0" * shift + raw)
        inner = whole[4 if shift else 0 : -4]
        plain[f"base64 +{shift}"] = inner
        plain[f"base64url +{shift}"] = inner.replace(b"+", b"-").replace(b"/", b"_")
    for form, text in plain.items():
        if text not in seen:
            seen.add(text)
            yield form, text


def frame_locals(error: BaseException) -> Iterator[str]:
    """Show the locals of every frame but those of the tests, which hold what they planted."""
    chain: BaseException | None = error
    while chain is not None:
        shown = traceback.TracebackException.from_exception(chain, capture_locals=True)
        for frame in shown.stack:
            if "/tests/" not in frame.filename:
                yield f"{frame.filename}:{frame.lineno} {frame.name} {frame.locals}"
        chain = chain.__cause__ or chain.__context__
