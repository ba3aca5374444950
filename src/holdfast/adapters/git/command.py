"""Runs Git: the one place in this package that starts a process.

Arguments are a list that our own code fixed, the environment is built, the process leads a group
of its own, and the whole group is killed when the deadline passes, the caller is cancelled, or it
says more than it may. Nothing is left behind, not even a zombie.
"""

from __future__ import annotations

import asyncio
import os
import signal
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from holdfast.adapters.git.environment import Environment
from holdfast.adapters.git.trouble import GitFailed, Trouble, diagnose

OUTPUT = 4 << 20
"""Bytes that a command may say when its caller names no other bound."""
_SAID = 64 << 10
_CHUNK = 1 << 20
_PIPES = 1.0
"""Seconds that a stranger gets to let go of the pipes of a process that ended."""
_LOOK = 0.02


PER_HOST, LOCAL = 4, 8
"""Processes that talk to one host at a time, and that talk to nobody."""


class Git:
    """The program. One serves every repository, and bounds how many processes there are."""

    def __init__(self, program: str = "git") -> None:
        self._program = program
        self._places: weakref.WeakValueDictionary[str, asyncio.Semaphore] = (
            weakref.WeakValueDictionary()
        )
        """By host, for as long as anybody talks to it or waits to."""

    async def run(
        self,
        *arguments: str,
        environment: Environment,
        deadline: float,
        given: bytes | None = None,
        limit: int = OUTPUT,
        fine: Sequence[int] = (0,),
    ) -> tuple[int, bytes]:
        """Run one command and return its status, which is one of `fine`, and what it wrote.

        Raises GitFailed for any other status, after `deadline` seconds, and when it wrote more
        than `limit` bytes.
        """
        gathered = bytearray()

        def gather(chunk: bytes) -> None:
            if len(gathered) + len(chunk) > limit:
                raise GitFailed(Trouble.TOO_MUCH)
            gathered.extend(chunk)

        status = await self.feed(
            *arguments,
            environment=environment,
            deadline=deadline,
            given=given,
            take=gather,
            fine=fine,
        )
        return status, bytes(gathered)

    async def feed(
        self,
        *arguments: str,
        environment: Environment,
        deadline: float,
        take: Callable[[bytes], None],
        given: bytes | None = None,
        fine: Sequence[int] = (0,),
        apart: bool = False,
    ) -> int:
        """Run one command and hand on what it writes, piece by piece; in a thread when `apart`.

        Whatever `take` raises ends the command and is raised here. Nobody waits for a place in
        line before a host for longer than `deadline` either.
        """
        async with self._place(environment.host, deadline):
            return await self._feed(
                arguments, environment, deadline, take, given=given, fine=fine, apart=apart
            )

    @asynccontextmanager
    async def _place(self, host: str, deadline: float) -> AsyncIterator[None]:
        place = self._places.get(host)
        if place is None:
            place = self._places[host] = asyncio.Semaphore(PER_HOST if host else LOCAL)
        try:
            async with asyncio.timeout(deadline if host else None):
                await place.acquire()
        except TimeoutError:
            raise GitFailed(Trouble.LATE, "others wait for an answer of this host too") from None
        try:
            yield
        finally:
            place.release()

    async def _feed(
        self,
        arguments: Sequence[str],
        environment: Environment,
        deadline: float,
        take: Callable[[bytes], None],
        *,
        given: bytes | None,
        fine: Sequence[int],
        apart: bool,
    ) -> int:
        process = await self._start(arguments, environment, with_input=given is not None)
        said = _Said(environment)
        late = False
        failure: Exception | None = None
        try:
            async with asyncio.timeout(deadline), asyncio.TaskGroup() as group:
                group.create_task(said.listen(process.stderr))
                group.create_task(_tell(process, given))
                reading = group.create_task(_hand_on(process, take, apart=apart))
            failure = reading.result()
        except TimeoutError:
            late = True
        finally:
            await _end(process)
        if late:
            raise said.failure(Trouble.LATE)
        if failure is not None:
            raise failure
        status = process.returncode or 0
        if status not in fine:
            raise said.failure()
        return status

    async def _start(
        self, arguments: Sequence[str], environment: Environment, *, with_input: bool
    ) -> asyncio.subprocess.Process:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                self._program,
                *arguments,
                env=environment.reveal(),
                stdin=asyncio.subprocess.PIPE if with_input else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                limit=_CHUNK,
            )
        )
        # Waited for even when we are cancelled: a process that is half started cannot be killed.
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            with suppress(OSError):
                await _end(await starting)
            raise
        error = starting.exception()
        if error is None:
            return starting.result()
        if not isinstance(error, OSError):
            raise error
        # Not raised from it: its frames hold the environment, and with it the credential.
        raise GitFailed(Trouble.NO_PROGRAM, error.strerror or "")


class _Said:
    """What a process said of its trouble. Has no text form: it may repeat a credential."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._end = bytearray()

    async def listen(self, stream: asyncio.StreamReader | None) -> None:
        """Keep the end of what is said, however much it is."""
        while stream is not None and (chunk := await stream.read(_SAID)):
            self._end.extend(chunk)
            del self._end[:-_SAID]

    def failure(self, trouble: Trouble | None = None) -> GitFailed:
        """Return the error that it amounts to, fit to be shown."""
        text = self._end.decode("utf-8", "replace")
        return GitFailed(trouble or diagnose(text), self._environment.shown(text))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure that nothing of a process group is left."""
    pipes = (process.stdout, process.stderr)
    if process.returncode is None or not all(pipe is None or pipe.at_eof() for pipe in pipes):
        _kill(process)
    waiting = asyncio.ensure_future(_gone(process))
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _gone(process: asyncio.subprocess.Process) -> None:
    # Its pipes are closed by the loop once they are read to their end, and only then `wait`
    # answers. A process that left the group can hold them, and that is not waited for.
    with suppress(TimeoutError):
        async with asyncio.timeout(_PIPES):
            for pipe in (process.stdout, process.stderr):
                while pipe is not None and await pipe.read(_CHUNK):
                    pass
            await process.wait()
    while process.returncode is None:  # noqa: ASYNC110  # nothing tells of it, see above
        await asyncio.sleep(_LOOK)
    # The public class has no way to close what such a stranger holds open.
    process._transport.close()  # type: ignore[attr-defined]


def _kill(process: asyncio.subprocess.Process) -> None:
    # The number of a group is not given away while it has members, also when its leader is gone.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _tell(process: asyncio.subprocess.Process, given: bytes | None) -> None:
    if process.stdin is None or given is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it will say itself why it ended
        for start in range(0, len(given), _CHUNK):
            process.stdin.write(given[start : start + _CHUNK])
            await process.stdin.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.close()
        await process.stdin.wait_closed()


async def _hand_on(
    process: asyncio.subprocess.Process, take: Callable[[bytes], None], *, apart: bool
) -> Exception | None:
    failure: Exception | None = None
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
        if failure is not None:
            continue
        try:
            if apart:
                await asyncio.to_thread(take, chunk)
            else:
                take(chunk)
        except Exception as error:
            failure = error
            _kill(process)
    return failure
