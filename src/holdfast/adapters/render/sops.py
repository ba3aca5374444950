"""Opens what SOPS encrypted, with the real program and an age key.

The document goes in by stdin and comes back by stdout; the key is in the child's environment
alone. The block of an encrypted document names the services that are asked for its key, and
anybody who may commit can write there. So a block with anything but age keys is refused, and SOPS
gets one that is written anew from what was read in it. Besides, the child has no network.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from holdfast.adapters.render.files import MAX_FILE_BYTES
from holdfast.adapters.render.manifests import is_json
from holdfast.adapters.render.program import (
    LimitExceeded,
    Program,
    ProgramResult,
    find_program,
    run_program,
)
from holdfast.core.errors import ValidationError
from holdfast.core.redact import Secret, quote_text
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.wire.yaml import read_documents, write_document

DECRYPT_TIMEOUT = 20.0

_INSTALL_HINT = "Install sops 3.10 or newer, or give its path."
_EXIT_REASONS = {
    25: "its content was changed after it was sealed",
    51: "its seal is wrong: it was changed after it was encrypted",
    52: "it has no seal",
    128: "none of its keys is the one that was given",
}
"""Exit codes of SOPS that tell something; its own words may quote the document."""
_SERVICES = {
    "kms": "AWS KMS",
    "gcp_kms": "Google Cloud KMS",
    "azure_kv": "Azure Key Vault",
    "hc_vault": "HashiCorp Vault",
    "hckms": "Huawei Cloud KMS",
    "pgp": "PGP",
}
"""Keys of a block that make SOPS ask somebody else."""
_BLOCK_KEYS = frozenset(
    """
    age key_groups shamir_threshold lastmodified mac mac_only_encrypted version
    unencrypted_suffix encrypted_suffix unencrypted_regex encrypted_regex
    unencrypted_comment_regex encrypted_comment_regex
    """.split()
)


class SopsDecryptor:
    """Implements the port `Decryptor`."""

    def __init__(
        self,
        *,
        age_key: Secret,
        program: str | None = None,
        seconds: float = DECRYPT_TIMEOUT,
        scratch: Path | None = None,
        unconfined: bool = False,
    ) -> None:
        """`age_key` may hold several identities, one on each line."""
        self._age_key = age_key
        self._given = program
        self._seconds = seconds
        self._scratch = scratch
        self._unconfined = unconfined

    async def decrypt(self, text: bytes, *, source: str, verify: bool = True) -> Fields:
        """Return a document in clear."""
        kind = "json" if is_json(source) else "yaml"
        text = restrict_to_age(text, source=source, json_text=kind == "json")
        arguments = ["decrypt", "--input-type", kind, "--output-type", "json"]
        if not verify:
            arguments.append("--ignore-mac")
        with tempfile.TemporaryDirectory(prefix="holdfast-sops-", dir=self._scratch) as home:
            result = await self._run(arguments, Path(home), source, stdin=text)
        try:
            documents = read_documents(result.output, source=source, json=True)
        except ValidationError:
            documents = []
        # Nothing of what it printed may be in the error: it is in clear.
        if len(documents) != 1 or not isinstance(documents[0].value, dict):
            raise _cannot_decrypt(source, "what came out of it is not one document")
        return documents[0].value

    async def set_value(self, text: bytes, path: Sequence[str | int], value: Secret) -> bytes:
        """Return an encrypted file with one value replaced, for the same recipients."""
        kind = "json" if text.lstrip().startswith(b"{") else "yaml"
        text = restrict_to_age(text, source="the encrypted file", json_text=kind == "json")
        index = "".join(f"[{json.dumps(step)}]" for step in path)
        with tempfile.TemporaryDirectory(prefix="holdfast-sops-", dir=self._scratch) as home:
            # What is written is encrypted before and after; the value itself goes in by stdin.
            file = Path(home) / f"document.{kind}"
            file.write_bytes(text)
            await self._run(
                [
                    "set",
                    "--value-stdin",
                    "--input-type",
                    kind,
                    "--output-type",
                    kind,
                    "--",
                    str(file),
                    index,
                ],
                Path(home),
                "the encrypted file",
                stdin=json.dumps(value.reveal()).encode(),
                writes=4 * MAX_FILE_BYTES,
            )
            return file.read_bytes()

    async def _run(
        self, arguments: Sequence[str], home: Path, source: str, *, stdin: bytes, writes: int = 0
    ) -> ProgramResult:
        program = self._program()
        try:
            result = await run_program(
                program,
                arguments,
                directory=home,
                seconds=self._seconds,
                stdin=stdin,
                environment={"SOPS_AGE_KEY": self._age_key.reveal()},
                writes=writes,
                unconfined=self._unconfined,
            )
        except LimitExceeded as over:
            raise SourceUnavailable(f"SOPS {over}, so {source} was not decrypted.") from None
        except OSError as error:
            raise SourceUnavailable(
                f"SOPS could not be started: {error.strerror}.", hint=_INSTALL_HINT
            ) from None
        if result.code < 0:
            raise SourceUnavailable(
                f"SOPS was ended by signal {-result.code}, so {source} was not decrypted."
            )
        if result.code:
            raise _cannot_decrypt(
                source, _EXIT_REASONS.get(result.code, f"SOPS ended with status {result.code}")
            )
        return result

    def _program(self) -> Program:
        return find_program(self._given, ("sops",), hint=_INSTALL_HINT)


def restrict_to_age(text: bytes, *, source: str, json_text: bool) -> bytes:
    """Return a document whose block says no more than which age keys open it.

    Raises ValidationError when it names anything else. All but the block stays as it was, to the
    letter: the seal is over values as SOPS reads them.
    """
    documents = read_documents(text, source=source, json=json_text)
    value = documents[0].value if len(documents) == 1 else None
    block = value.get("sops") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(block, dict):
        raise _cannot_decrypt(source, "it is not one document with a sops block")
    twin = next((key for key in value if key != "sops" and key.casefold() == "sops"), None)
    if twin is not None:
        raise _cannot_decrypt(source, f"it has the key {quote_text(twin)} beside sops")
    whole: Fields = {**value, "sops": _age_block(block, source)}
    if json_text:
        return json.dumps(whole, ensure_ascii=False).encode()
    anew = _replace_block(text, whole, documents[0].lines.get("/sops", 0))
    try:
        again = read_documents(anew, source=source)
    except ValidationError:
        again = []
    return anew if [each.value for each in again] == [whole] else write_document(whole).encode()


def _age_block(block: Fields, source: str, known: frozenset[str] = _BLOCK_KEYS) -> Fields:
    """Check a block, or one of its groups of keys; what is empty in it is left out."""
    kept: Fields = {key: value for key, value in block.items() if value not in (None, "", [], {})}
    for key in kept:
        if key in _SERVICES:
            raise _cannot_decrypt(
                source, f"its block asks {_SERVICES[key]} ({key}), and only age is used"
            )
        if key not in known:
            raise _cannot_decrypt(
                source, f"its block has the key {quote_text(key)}, which is not known"
            )
    for group in _list_of_mappings(kept, "key_groups", source):
        _age_block(group, source, frozenset({"age"}))
    for recipient in _list_of_mappings(kept, "age", source):
        if not set(recipient) <= {"recipient", "enc"}:
            raise _cannot_decrypt(source, "an age key in its block has a key that is not known")
    return kept


def _list_of_mappings(block: Fields, key: str, source: str) -> list[Fields]:
    values = block.get(key, [])
    found = [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []
    if not isinstance(values, list) or len(found) != len(values):
        raise _cannot_decrypt(source, f"{key} in its block is not a list of mappings")
    return found


def _replace_block(text: bytes, whole: Fields, line: int) -> bytes:
    """Put a block, written on one line, in the place of the one that begins on a line."""
    lines = text.split(b"\n")
    end = line
    while end < len(lines) and (not lines[end].strip() or lines[end][:1] in b" \t"):
        end += 1
    block = f"sops: {json.dumps(whole['sops'], ensure_ascii=False)}".encode()
    return b"\n".join([*lines[: max(line - 1, 0)], block, *lines[end:], b""])


def _cannot_decrypt(source: str, reason: str) -> ValidationError:
    return ValidationError(
        f"The encrypted document {source} cannot be opened: {reason}.",
        hint="Encrypt it with SOPS for the age key that this Application was given.",
    )
