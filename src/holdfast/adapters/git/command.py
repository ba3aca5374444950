"""Runs Git: the one place in this package that starts a process.

Arguments are a list that our own code fixed, the environment is built, the process leads a group
of its own, and the whole group is killed when the deadline passes, the caller is cancelled, or it
says more than it may. Nothing is left behind, not even a zombie.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

from holdfast.adapters.git.address import RepositoryAddress
from holdfast.adapters.git.environment import GitEnvironment
from holdfast.core.errors import NOTHING_CHANGED
from holdfast.reconcile.gitops.ports import SourceUnavailable

_MAX_SHOWN = 300


class GitErrorKind(StrEnum):
    """Why a Git command failed."""

    TIMEOUT = "late"
    TOO_LARGE = "too-much"
    GIT_MISSING = "no-program"
    DISK_FULL = "no-space"
    UNAUTHENTICATED = "credential"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "missing"
    NO_SUCH_REVISION = "no-revision"
    RATE_LIMITED = "busy"
    SERVER_ERROR = "server"
    REDIRECTED = "moved"
    UNKNOWN_HOST_KEY = "host-key"
    UNTRUSTED_CERTIFICATE = "certificate"
    UNREACHABLE = "connection"
    MALFORMED_OBJECTS = "refused-objects"
    CONFLICT = "moved-meanwhile"
    DECLINED = "declined"
    CORRUPT = "damaged"
    """The local copy is not what it should be; a new one may help."""
    OTHER = "other"


class GitError(Exception):
    """A Git command did not do its work. Stays inside this package."""

    def __init__(self, kind: GitErrorKind, output: str = "") -> None:
        super().__init__(kind, output)
        self.kind = kind
        self.output = output


# In the order in which they are tried: a full disk also looks like damage, a lost connection
# also looks like a broken pack.
_ERROR_PATTERNS: tuple[tuple[GitErrorKind, str], ...] = (
    (GitErrorKind.DISK_FULL, r"No space left on device|Disk quota exceeded|File too large"),
    (
        GitErrorKind.CONFLICT,
        r"\(stale info\)|\(fetch first\)|\(non-fast-forward\)"
        r"|\[remote rejected\].*\((?:failed to update ref|.*cannot lock ref)",
    ),
    (GitErrorKind.DECLINED, r"\[remote rejected\]|hook declined|protected branch"),
    (
        GitErrorKind.UNKNOWN_HOST_KEY,
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
    ),
    (
        GitErrorKind.UNTRUSTED_CERTIFICATE,
        r"certificate verification failed|SSL certificate problem|[Cc]ertificate .*(?:expired"
        r"|not trusted|verify)|does not match target host name|SSL_ERROR|gnutls_handshake",
    ),
    (
        GitErrorKind.UNAUTHENTICATED,
        r"returned error: 401|Authentication failed|could not read (?:Username|Password)"
        r"|Permission denied \(|Invalid username or (?:password|token)",
    ),
    (GitErrorKind.FORBIDDEN, r"returned error: 403"),
    (GitErrorKind.RATE_LIMITED, r"returned error: 429|Too Many Requests"),
    (
        GitErrorKind.REDIRECTED,
        r"returned error: 30[0-9]|unable to update url base from redirection",
    ),
    (GitErrorKind.SERVER_ERROR, r"returned error: 5\d\d"),
    (
        GitErrorKind.NO_SUCH_REVISION,
        r"couldn't find remote ref|not our ref|unadvertised object|no such remote ref",
    ),
    (
        GitErrorKind.NOT_FOUND,
        r"returned error: 4\d\d|repository '.*' not found|[Rr]epository not found"
        r"|does not appear to be a git repository|not a git repository|does not exist"
        r"|not valid: is this a git repository",
    ),
    (GitErrorKind.MALFORMED_OBJECTS, r"fsck error in packed object|fsck error in pack objects"),
    (
        GitErrorKind.UNREACHABLE,
        r"Could not resolve host|Failed to connect|[Cc]onnection (?:refused|reset|timed out|closed)"
        r"|Operation (?:timed out|too slow)|early EOF|unexpected disconnect|RPC failed"
        r"|remote end hung up|Empty reply from server|transfer closed|Name or service not known"
        r"|No route to host|Network is unreachable|Recv failure|invalid server response"
        r"|bad line length|unexpected flush packet|Temporary failure in name resolution",
    ),
    (
        GitErrorKind.CORRUPT,
        r"\.lock': File exists|cannot lock ref|unable to (?:read|write|create)|corrupt|bad object"
        r"|bad tree|is empty|packfile|inflate|missing (?:blob|tree|commit)|invalid object"
        r"|Not a valid (?:object|commit)|bad (?:signature|config|revision)|missing object"
        r"|index-pack failed|did not send all necessary objects|[Cc]ould not (?:parse|read)"
        r"|invalid index-pack output|is not a (?:commit|valid)|hash mismatch|unable to access"
        r"|broken",
    ),
)
_COMPILED_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _ERROR_PATTERNS)

_DESCRIPTIONS: dict[GitErrorKind, tuple[str, str]] = {
    GitErrorKind.TIMEOUT: (
        "gave no answer in time",
        "Check the host and the network on the way to it.",
    ),
    GitErrorKind.TOO_LARGE: (
        "is larger than a local copy may be",
        "Use a smaller repository, or raise the limit for copies.",
    ),
    GitErrorKind.GIT_MISSING: (
        "was not asked: git could not be started",
        "Install git, 2.32 or newer.",
    ),
    GitErrorKind.DISK_FULL: (
        "could not be copied: there is no space left on this machine's disk",
        "Free some space where repositories are kept; nothing has to be restarted.",
    ),
    GitErrorKind.UNAUTHENTICATED: (
        "did not accept the credential",
        "Give a token or key that may read this repository.",
    ),
    GitErrorKind.FORBIDDEN: (
        "does not permit this to the credential",
        "Give the token or key access to this repository.",
    ),
    GitErrorKind.NOT_FOUND: (
        "is not there, or the credential may not know of it",
        "Check the address, and whether the credential may read it.",
    ),
    GitErrorKind.NO_SUCH_REVISION: (
        "has no such revision",
        "Check the branch, tag or commit; it may have been deleted or renamed.",
    ),
    GitErrorKind.RATE_LIMITED: ("asks to be asked less often", "It is asked again later."),
    GitErrorKind.SERVER_ERROR: (
        "answered with an error of its own",
        "Check the health of the host.",
    ),
    GitErrorKind.REDIRECTED: (
        "redirects to another address, which is not followed because of the credential",
        "Write the new address.",
    ),
    GitErrorKind.UNKNOWN_HOST_KEY: (
        "has a host key that known_hosts does not have",
        "Compare the key with what the host publishes, then add it to known_hosts.",
    ),
    GitErrorKind.UNTRUSTED_CERTIFICATE: (
        "has a certificate that is not trusted",
        "Give the certificate of its authority, or fix the host's.",
    ),
    GitErrorKind.UNREACHABLE: (
        "could not be reached, or broke off",
        "Check the host and the network on the way to it.",
    ),
    GitErrorKind.MALFORMED_OBJECTS: (
        "sent objects that Git itself calls malformed, so none of them was taken",
        "Run `git fsck` in the repository and fix what it finds.",
    ),
    GitErrorKind.CORRUPT: (
        "could not be read: its local copy is damaged, and making a new one did not help",
        "Check the disk where repositories are kept.",
    ),
}
_UNREACHABLE = frozenset(
    {
        GitErrorKind.TIMEOUT,
        GitErrorKind.UNREACHABLE,
        GitErrorKind.SERVER_ERROR,
        GitErrorKind.RATE_LIMITED,
    }
)
"""The same for everybody who asks that address now."""
_OTHER_DESCRIPTION = ("could not be read", "Check the address and the host.")


def classify_error(output: str) -> GitErrorKind:
    """Say what kind of error Git's output means."""
    for kind, pattern in _COMPILED_PATTERNS:
        if pattern.search(output):
            return kind
    return GitErrorKind.OTHER


def source_unavailable(
    failed: GitError, address: RepositoryAddress, what: str, *, changed: str = NOTHING_CHANGED
) -> SourceUnavailable:
    """Say a failure in full. `what` is the revision or branch that the repository was asked for."""
    happened, hint = _DESCRIPTIONS.get(failed.kind, _OTHER_DESCRIPTION)
    output = f" Git said: {failed.output[:_MAX_SHOWN]}." if failed.output else ""
    error = SourceUnavailable(
        f"Repository {address} {happened}; it was asked for {what}.{output}",
        changed=changed,
        hint=hint,
    )
    error.unreachable = failed.kind in _UNREACHABLE
    return error


MAX_OUTPUT = 4 << 20
"""Bytes that a command may say when its caller names no other bound."""
_MAX_STDERR = 64 << 10
_CHUNK = 1 << 20
_PIPE_TIMEOUT = 1.0
"""Seconds that a stranger gets to let go of the pipes of a process that ended."""
_POLL_INTERVAL = 0.02


MAX_PROCESSES_PER_HOST, MAX_LOCAL_PROCESSES = 4, 8
"""Processes that talk to one host at a time, and that talk to nobody."""


class GitProgram:
    """The program. One serves every repository, and bounds how many processes there are."""

    def __init__(self, program: str = "git") -> None:
        self._program = program
        self._slots: weakref.WeakValueDictionary[str, asyncio.Semaphore] = (
            weakref.WeakValueDictionary()
        )
        """By host, for as long as anybody talks to it or waits to."""

    async def run(
        self,
        *arguments: str,
        environment: GitEnvironment,
        deadline: float,
        stdin: bytes | None = None,
        limit: int = MAX_OUTPUT,
        ok_statuses: Sequence[int] = (0,),
    ) -> tuple[int, bytes]:
        """Run one command and return its status, which is one of `ok_statuses`, and what it wrote.

        Raises GitFailed for any other status, after `deadline` seconds, and when it wrote more
        than `limit` bytes.
        """
        gathered = bytearray()

        def gather(chunk: bytes) -> None:
            if len(gathered) + len(chunk) > limit:
                raise GitError(GitErrorKind.TOO_LARGE)
            gathered.extend(chunk)

        status = await self.stream(
            *arguments,
            environment=environment,
            deadline=deadline,
            stdin=stdin,
            on_chunk=gather,
            ok_statuses=ok_statuses,
        )
        return status, bytes(gathered)

    async def stream(
        self,
        *arguments: str,
        environment: GitEnvironment,
        deadline: float,
        on_chunk: Callable[[bytes], None],
        stdin: bytes | None = None,
        ok_statuses: Sequence[int] = (0,),
        in_thread: bool = False,
    ) -> int:
        """Run one command and hand on what it writes in chunks, in a thread if asked to.

        Whatever `on_chunk` raises ends the command and is raised here. Nobody waits for a slot of
        a host for longer than `deadline` either.
        """
        async with self._slot(environment.host, deadline):
            return await self._run_process(
                arguments,
                environment,
                deadline,
                on_chunk,
                stdin=stdin,
                ok_statuses=ok_statuses,
                in_thread=in_thread,
            )

    @asynccontextmanager
    async def _slot(self, host: str, deadline: float) -> AsyncIterator[None]:
        slot = self._slots.get(host)
        if slot is None:
            slot = self._slots[host] = asyncio.Semaphore(
                MAX_PROCESSES_PER_HOST if host else MAX_LOCAL_PROCESSES
            )
        try:
            async with asyncio.timeout(deadline if host else None):
                await slot.acquire()
        except TimeoutError:
            raise GitError(
                GitErrorKind.TIMEOUT, "others wait for an answer of this host too"
            ) from None
        try:
            yield
        finally:
            slot.release()

    async def _run_process(
        self,
        arguments: Sequence[str],
        environment: GitEnvironment,
        deadline: float,
        on_chunk: Callable[[bytes], None],
        *,
        stdin: bytes | None,
        ok_statuses: Sequence[int],
        in_thread: bool,
    ) -> int:
        process = await self._start(arguments, environment, with_input=stdin is not None)
        stderr = _StderrTail(environment)
        timed_out = False
        failure: Exception | None = None
        try:
            async with asyncio.timeout(deadline), asyncio.TaskGroup() as group:
                group.create_task(stderr.read(process.stderr))
                group.create_task(_write_stdin(process, stdin))
                reading = group.create_task(_read_stdout(process, on_chunk, in_thread=in_thread))
            failure = reading.result()
        except TimeoutError:
            timed_out = True
        finally:
            await _terminate(process)
        if timed_out:
            raise stderr.error(GitErrorKind.TIMEOUT)
        if failure is not None:
            raise failure
        status = process.returncode or 0
        if status not in ok_statuses:
            raise stderr.error()
        return status

    async def _start(
        self, arguments: Sequence[str], environment: GitEnvironment, *, with_input: bool
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
                await _terminate(await starting)
            raise
        error = starting.exception()
        if error is None:
            return starting.result()
        if not isinstance(error, OSError):
            raise error
        # Not raised from it: its frames hold the environment, and with it the credential.
        raise GitError(GitErrorKind.GIT_MISSING, error.strerror or "")


class _StderrTail:
    """The end of what a process wrote to stderr. Has no text form: it may repeat a credential."""

    def __init__(self, environment: GitEnvironment) -> None:
        self._environment = environment
        self._end = bytearray()

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        """Keep the end of what comes, however much it is."""
        while stream is not None and (chunk := await stream.read(_MAX_STDERR)):
            self._end.extend(chunk)
            del self._end[:-_MAX_STDERR]

    def error(self, kind: GitErrorKind | None = None) -> GitError:
        """Return it as an error that may be shown."""
        text = self._end.decode("utf-8", "replace")
        return GitError(kind or classify_error(text), self._environment.sanitize(text))


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Make sure that nothing of a process group is left."""
    pipes = (process.stdout, process.stderr)
    if process.returncode is None or not all(pipe is None or pipe.at_eof() for pipe in pipes):
        _kill(process)
    waiting = asyncio.ensure_future(_wait_for_exit(process))
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _wait_for_exit(process: asyncio.subprocess.Process) -> None:
    # Its pipes are closed by the loop once they are read to their end, and only then `wait`
    # answers. A process that left the group can hold them, and that is not waited for.
    with suppress(TimeoutError):
        async with asyncio.timeout(_PIPE_TIMEOUT):
            for pipe in (process.stdout, process.stderr):
                while pipe is not None and await pipe.read(_CHUNK):
                    pass
            await process.wait()
    while process.returncode is None:  # noqa: ASYNC110  # nothing tells of it, see above
        await asyncio.sleep(_POLL_INTERVAL)
    # The public class has no way to close what such a stranger holds open.
    process._transport.close()  # type: ignore[attr-defined]


def _kill(process: asyncio.subprocess.Process) -> None:
    # The number of a group is not given away while it has members, also when its leader is gone.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _write_stdin(process: asyncio.subprocess.Process, stdin: bytes | None) -> None:
    if process.stdin is None or stdin is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it will say itself why it ended
        for start in range(0, len(stdin), _CHUNK):
            process.stdin.write(stdin[start : start + _CHUNK])
            await process.stdin.drain()
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.close()
        await process.stdin.wait_closed()


async def _read_stdout(
    process: asyncio.subprocess.Process, on_chunk: Callable[[bytes], None], *, in_thread: bool
) -> Exception | None:
    failure: Exception | None = None
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
        if failure is not None:
            continue
        try:
            if in_thread:
                await asyncio.to_thread(on_chunk, chunk)
            else:
                on_chunk(chunk)
        except Exception as error:
            failure = error
            _kill(process)
    return failure
