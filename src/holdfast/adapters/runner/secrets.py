"""Reads the secrets that a workload refers to, from `<root>/<project>/<name>/<key>`.

The values go into a child's environment and nowhere else; what is remembered of them is a
keyed fingerprint, which shows that one was rotated and nothing more.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from holdfast.core.redact import MASK, Secret, redact
from holdfast.core.tree import Tree

_PATH_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_MAX_BYTES = 64 * 1024
"""A variable is limited to 128 KiB by Linux; a longer file was not meant to be one."""
_MIN_MASKED = 4
"""Shorter values would mask half of every log."""


class SecretMissing(Exception):
    """A reference leads to nothing usable. Names the reference, never a value."""


class SecretFolder:
    """The directory that the operator of the machine fills."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, project: str, refs: Mapping[str, Tree]) -> dict[str, Secret]:
        """Return variable → secret. Raises MissingSecret for the first that cannot be read."""
        return {name: self._one(project, ref) for name, ref in sorted(refs.items())}

    def _one(self, project: str, ref: Tree) -> Secret:
        name = str(ref.get("name", "")) if isinstance(ref, dict) else ""
        key = str(ref.get("key", "")) if isinstance(ref, dict) else ""
        shown = f"{project}/{name}/{key}"
        if not all(_PATH_PART.fullmatch(part) for part in (project, name, key)):
            raise SecretMissing(f"Secret {shown} is not a usable reference.")
        try:
            base = self._root.resolve() / project
            path = (base / name / key).resolve(strict=True)
            # Links within a project are how mounted secrets are swapped at once; a link to
            # another project's secret, or out of the folder, is somebody's trick.
            if not path.is_relative_to(base):
                raise SecretMissing(f"Secret {shown} leads out of its project's folder.")
            with os.fdopen(
                os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb"
            ) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise SecretMissing(f"Secret {shown} is not a regular file.")
                content = file.read(_MAX_BYTES + 1)
        except (OSError, RuntimeError):  # RuntimeError: a loop of links
            raise SecretMissing(f"Secret {shown} is missing or cannot be read.") from None
        if len(content) > _MAX_BYTES:
            raise SecretMissing(f"Secret {shown} is over {_MAX_BYTES} bytes.")
        try:
            text = content.decode().removesuffix("\n")
        except UnicodeDecodeError:
            raise SecretMissing(f"Secret {shown} is not text.") from None
        if "\0" in text:
            raise SecretMissing(f"Secret {shown} is not text.")
        return Secret(text)


class SecretMask:
    """Hides these values in text, besides whatever looks like a credential."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        found = {form for secret in secrets for form in _printed_forms(secret.reveal())}
        self._forms = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return redact(text)

    def overwrite(self, data: bytes) -> bytes:
        """Put stars in their place, of the same length so that positions stay what they were."""
        for form in self._forms:
            data = data.replace(form.encode(), b"*" * len(form.encode()))
        return data


def _printed_forms(value: str) -> Iterator[str]:
    """Write a value in the forms in which programs print one."""
    # Logs are read by line, and keys have several.
    for part in {value, *value.splitlines()}:
        text = part.strip()
        if len(text) < _MIN_MASKED:
            continue
        yield from (text, repr(text)[1:-1])
        yield from (json.dumps(text, ensure_ascii=strict)[1:-1] for strict in (True, False))
        yield from (quote(text), quote(text, safe=""), quote_plus(text))
        data = part.encode()
        for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
            yield encoded.decode().rstrip("=")
            # What follows the value is encoded with its last bytes.
            yield encoded[: len(data) // 3 * 4].decode()


def load_or_create_key(path: Path) -> bytes:
    """Return the key of this home's fingerprints, made on first use."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        key = os.urandom(32)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
        return key
