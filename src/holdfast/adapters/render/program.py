"""The one way a renderer starts a program: fixed arguments, built environment, bounded in all.

Called by the Kustomize renderer and by the decryptor.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.render.files import MIB
from holdfast.adapters.render.sandbox import CONFINED, NOT_CONFINED, OPEN
from holdfast.core.errors import ConfigurationError
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import quote_text

MAX_OUTPUT = 64 * MIB
MAX_STDERR = 64 * 2**10
"""What is kept of the error output."""
MAX_MEMORY = 2048 * MIB
"""Address space of a child; Go reserves far more than it uses."""
MAX_OPEN_FILES = 512

_SANDBOX = Path(__file__).with_name("sandbox.py")
_CHUNK = 2**16
_REAP_SECONDS = 5.0
_TRIAL_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """What a program did."""

    code: int
    output: bytes
    stderr: str
    """Its error output, cut and not redacted: never shown as it is."""


class LimitExceeded(Exception):
    """A program took more than it may; the text completes "the program …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An executable file."""

    path: str
    stamp: str
    """Differs when the file does: part of what an answer depends on."""


def find_program(given: str | None, names: Sequence[str], *, hint: str) -> Program:
    """Find the given program, or the first of some names on PATH."""
    for candidate in [given] if given else names:
        path = shutil.which(candidate)
        if path is not None:
            seen = Path(path).stat()
            stamp = f"{seen.st_dev}:{seen.st_ino}:{seen.st_size}:{seen.st_mtime_ns}"
            return Program(path=str(Path(path).absolute()), stamp=stamp)
    shown = quote_text(given, 200) if given else " or ".join(names)
    raise ConfigurationError(f"There is no program {shown} that could be run.", hint=hint)


async def run_program(
    program: Program,
    arguments: Sequence[str],
    *,
    directory: Path,
    seconds: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    writes: int = 0,
    unconfined: bool = False,
) -> ProgramResult:
    """Run a program in a directory until it ends. Raises Overran when it takes too much.

    Nothing of it is left behind: its process group is ended in every case. Without a way to take
    the network from it, it is not started (ConfigurationError), unless `unconfined` lets it run.
    """
    limits = (str(int(seconds) + 1), str(MAX_MEMORY), str(writes), str(MAX_OPEN_FILES))
    confinement = OPEN if unconfined else CONFINED
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-B",
        str(_SANDBOX),
        *limits,
        confinement,
        program.path,
        *arguments,
        cwd=directory,
        env={"HOME": str(directory), "TMPDIR": str(directory), **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    parts = (
        asyncio.ensure_future(_read_output(process.stdout)),
        asyncio.ensure_future(_read_stderr(process.stderr)),
        asyncio.ensure_future(_write_stdin(process.stdin, stdin)),
    )
    try:
        async with asyncio.timeout(seconds):
            output, stderr, _ = await asyncio.gather(*parts)
            await process.wait()
    except TimeoutError:
        raise LimitExceeded(f"did not end within {format_seconds(seconds)}") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        await asyncio.shield(_reap(process))
    assert process.returncode is not None  # noqa: S101  # it was waited for
    if process.returncode == NOT_CONFINED and not output:
        raise _not_confined_error(program.path)
    return ProgramResult(code=process.returncode, output=output, stderr=stderr)


async def can_confine() -> bool:
    """True when the network can be taken away from a program here."""
    here = Program(path=sys.executable, stamp="")
    with tempfile.TemporaryDirectory(prefix="holdfast-confine-") as directory:
        try:
            result = await run_program(
                here, ["-ISc", ""], directory=Path(directory), seconds=_TRIAL_TIMEOUT
            )
        except (ConfigurationError, LimitExceeded, OSError):
            return False
    return result.code == 0


def _not_confined_error(path: str) -> ConfigurationError:
    return ConfigurationError(
        f"{Path(path).name} was not started: the network cannot be taken away from a process on "
        "this system, and what it would read comes from whoever may commit.",
        hint="Run the controller on Linux (x86_64 or aarch64) where a process may set a system "
        "call filter, as in the image; or accept the risk with --allow-unconfined-renderer.",
    )


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a killed child, and let its pipes go though a stranger holds them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REAP_SECONDS):
            # A child is only seen to be gone once its pipes were read to their end.
            await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
            await process.wait()
    # The public class has no way to close a pipe that a runaway grandchild still holds.
    process._transport.close()  # type: ignore[attr-defined]


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(_CHUNK):
        pass


async def _read_output(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None  # noqa: S101  # a pipe was asked for
    chunks: list[bytes] = []
    size = 0
    while chunk := await stream.read(_CHUNK):
        size += len(chunk)
        if size > MAX_OUTPUT:
            raise LimitExceeded(f"printed over {MAX_OUTPUT // MIB} MiB")
        chunks.append(chunk)
    return b"".join(chunks)


async def _read_stderr(stream: asyncio.StreamReader | None) -> str:
    """Keep the end, where programs say why they failed."""
    assert stream is not None  # noqa: S101  # a pipe was asked for
    kept = b""
    while chunk := await stream.read(_CHUNK):
        kept = (kept + chunk)[-MAX_STDERR:]
    return kept.decode(errors="replace")


async def _write_stdin(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    assert stream is not None  # noqa: S101  # a pipe was asked for
    with suppress(BrokenPipeError, ConnectionResetError):  # it may end before it has read all
        stream.write(data)
        await stream.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.close()
        await stream.wait_closed()
