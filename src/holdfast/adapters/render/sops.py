"""Opens what SOPS encrypted, with the real program and an age key.

The document goes in by stdin and comes back by stdout; the key is in the child's environment
alone. The child has no network: the block of an encrypted document names the services that are
asked for its key, and anybody who may commit can write there. So age keys are the ones that work.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from holdfast.adapters.render.limits import DECRYPT_SECONDS, MAX_FILE_BYTES
from holdfast.adapters.render.pieces import is_json
from holdfast.adapters.render.program import Overran, Program, Ran, find_program, run
from holdfast.core.errors import ValidationError
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.wire.yaml import read_documents

_INSTALL = "Install sops 3.10 or newer, or give its path."
_REASONS = {
    25: "its content was changed after it was sealed",
    51: "its seal is wrong: it was changed after it was encrypted",
    52: "it has no seal",
    128: "none of its keys is the one that was given",
}
"""Exit codes of SOPS that tell something; its own words may quote the document."""


class SopsDecryptor:
    """Implements the port `Decryptor`."""

    def __init__(
        self,
        *,
        age_key: Secret,
        program: str | None = None,
        seconds: float = DECRYPT_SECONDS,
        scratch: Path | None = None,
    ) -> None:
        """`age_key` may hold several identities, one on each line."""
        self._age_key = age_key
        self._given = program
        self._seconds = seconds
        self._scratch = scratch

    async def decrypt(self, text: bytes, *, source: str, verify: bool = True) -> Fields:
        """Return a document in clear."""
        kind = "json" if is_json(source) else "yaml"
        arguments = ["decrypt", "--input-type", kind, "--output-type", "json"]
        if not verify:
            arguments.append("--ignore-mac")
        with tempfile.TemporaryDirectory(prefix="holdfast-sops-", dir=self._scratch) as home:
            ran = await self._run(arguments, Path(home), source, stdin=text)
        try:
            documents = read_documents(ran.output, source=source, json=True)
        except ValidationError:
            documents = []
        # Nothing of what it printed may be in the error: it is in clear.
        if len(documents) != 1 or not isinstance(documents[0].value, dict):
            raise _closed(source, "what came out of it is not one document")
        return documents[0].value

    async def set_value(self, text: bytes, path: Sequence[str | int], value: Secret) -> bytes:
        """Return an encrypted file with one value replaced, for the same recipients."""
        kind = "json" if text.lstrip().startswith(b"{") else "yaml"
        index = "".join(f"[{json.dumps(step)}]" for step in path)
        with tempfile.TemporaryDirectory(prefix="holdfast-sops-", dir=self._scratch) as home:
            # What is written is encrypted before and after; the value itself goes in by stdin.
            file = Path(home) / f"document.{kind}"
            file.write_bytes(text)
            await self._run(
                ["set", "--value-stdin", "--input-type", kind, "--output-type", kind,
                 "--", str(file), index],
                Path(home),
                "the encrypted file",
                stdin=json.dumps(value.reveal()).encode(),
                writes=4 * MAX_FILE_BYTES,
            )  # fmt: skip
            return file.read_bytes()

    async def _run(
        self, arguments: Sequence[str], home: Path, source: str, *, stdin: bytes, writes: int = 0
    ) -> Ran:
        program = self._program()
        try:
            ran = await run(
                program,
                arguments,
                directory=home,
                seconds=self._seconds,
                stdin=stdin,
                environment={"SOPS_AGE_KEY": self._age_key.reveal()},
                writes=writes,
            )
        except Overran as over:
            raise SourceUnavailable(f"SOPS {over}, so {source} stayed closed.") from None
        except OSError as error:
            raise SourceUnavailable(
                f"SOPS could not be started: {error.strerror}.", todo=_INSTALL
            ) from None
        if ran.code < 0:
            raise SourceUnavailable(
                f"SOPS was ended by signal {-ran.code}, so {source} stayed closed."
            )
        if ran.code:
            raise _closed(source, _REASONS.get(ran.code, f"SOPS ended with status {ran.code}"))
        return ran

    def _program(self) -> Program:
        return find_program(self._given, ("sops",), todo=_INSTALL)


def _closed(source: str, reason: str) -> ValidationError:
    return ValidationError(
        f"The encrypted document {source} cannot be opened: {reason}.",
        todo="Encrypt it with SOPS for the age key that this Application was given.",
    )
