"""Secrets on their way through a renderer: what is encrypted, opening it, one form for data."""

from __future__ import annotations

import base64
import binascii
import re

from holdfast.adapters.render.pieces import Piece, Problems
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Tree

SEALED = re.compile(r"ENC\[AES256_GCM,")
_SEALED_BYTES = b"ENC[AES256_GCM,"


def is_secret(item: Fields) -> bool:
    """True for a Secret of the core API."""
    return item.get("kind") == "Secret" and item.get("apiVersion") == "v1"


def is_encrypted(value: Tree) -> bool:
    """True for a document that SOPS encrypted: it has the block that says how."""
    block = value.get("sops") if isinstance(value, dict) else None
    return isinstance(block, dict) and "mac" in block


def opened(sealed: Fields, clear: Fields) -> Fields:
    """Put what was decrypted in the place of each sealed value.

    Everything else stays as our own reader read it: parsers disagree on plain scalars, and what
    is reviewed must be what is applied. Raises KeyError when the two do not fit together.
    """
    merged = _opened({key: value for key, value in sealed.items() if key != "sops"}, clear)
    assert isinstance(merged, dict)  # noqa: S101  # a mapping went in
    return merged


def _opened(sealed: Tree, clear: Tree) -> Tree:
    if isinstance(sealed, dict):
        if not isinstance(clear, dict):
            raise KeyError
        return {key: _opened(value, clear[key]) for key, value in sealed.items()}
    if isinstance(sealed, list):
        if not isinstance(clear, list) or len(clear) != len(sealed):
            raise KeyError
        return [_opened(one, other) for one, other in zip(sealed, clear, strict=True)]
    if isinstance(sealed, str) and SEALED.match(sealed):
        if isinstance(clear, str) and SEALED.match(clear):
            raise KeyError
        return clear
    return sealed


def data_in_clear(item: Fields, piece: Piece, problems: Problems) -> Fields:
    """Write a Secret the way API servers give it: all of it under `data`, in plain base64."""
    item = dict(item)
    data: Fields = {}
    for part, read in (("data", _decoded), ("stringData", _encoded)):
        values = item.pop(part, None)
        if values is None:
            continue
        if not isinstance(values, dict):
            problems.add(piece.where(f"/{part}"), f"{part} is not a mapping.", "Write name: value.")
            continue
        for key, value in values.items():
            at = piece.where(f"/{part}/{key.replace('~', '~0').replace('/', '~1')}")
            try:
                raw = read(value)
            except ValueError as error:
                problems.add(at, f"the value of {quoted(key)} in {part} {error}.", "Fix it.")
                continue
            if _SEALED_BYTES in raw:
                problems.add(
                    at,
                    f"the value of {quoted(key)} is encrypted, and nothing here can open it.",
                    "Encrypt the whole document with SOPS; a generator cannot take encrypted "
                    "files.",
                )
                continue
            data[key] = base64.b64encode(raw).decode()
    if data:
        item["data"] = data
    return item


def _decoded(value: Tree) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError("is not text in base64")
    try:
        return base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(
            "is encrypted, and its document has no sops block"
            if SEALED.match(value)
            else "is not base64: use stringData for plain text"
        ) from None


def _encoded(value: Tree) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError("is not text: quote it")
    return value.encode()
