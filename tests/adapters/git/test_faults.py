"""A remote that fails in any way is unknown: typed, in time, and what was fetched before stays."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.git.git_world import FAST, GitWorld, expect_unavailable, exported_files
from tests.support.certificates import Authority
from tests.support.git_host import HostFault, running_children, serve
from tests.support.processes import free_port, is_alive, wait_until

from holdfast.adapters.git.address import parse_address
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.gitops.source import Ancestry
from holdfast.reconcile.gitops.ports import NO_GIT_CREDENTIAL, GitCredential

FAULTS = {
    "401": (HostFault(status=401), "did not accept the credential"),
    "403": (HostFault(status=403), "does not permit"),
    "404": (HostFault(status=404), "is not there"),
    "429": (HostFault(status=429), "less often"),
    "500": (HostFault(status=500), "error of its own"),
    "503": (HostFault(status=503), "error of its own"),
    "moved": (HostFault(status=301, headers={"Location": "http://127.0.0.1:1/x"}), "redirects"),
    "hangs": (HostFault(hang=True), "in time"),
    "drips": (HostFault(drip=True), "in time"),
    "cut": (HostFault(after=20), "broke off"),
    "cut at once": (HostFault(after=0), "broke off"),
    "pack 401": (HostFault(on="fetch", status=401), "did not accept the credential"),
    "pack 403": (HostFault(on="fetch", status=403), "does not permit"),
    "pack 500": (HostFault(on="fetch", status=500), "error of its own"),
    "pack hangs": (HostFault(on="fetch", hang=True), "in time"),
    "pack drips": (HostFault(on="fetch", drip=True), "in time"),
    "pack cut": (HostFault(on="fetch", after=150), "broke off"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failing_remote_is_told_and_the_last_good_commit_stays(
    served: GitWorld, name: str
) -> None:
    fault, said = FAULTS[name]
    good = served.origin.commit({"a": "1"})
    served.play(lambda repository: repository.fetch("main", known=None))
    new = served.origin.commit({"a": "2", "b": os.urandom(5000)})

    async def failing(repository: GitRepository) -> None:
        served.host.fault = fault
        error = await expect_unavailable(repository.fetch("main", known=good))
        assert said in str(error) and str(served.address) in str(error)
        assert await exported_files(repository, good) == {"a": b"1"}
        served.host.fault = None

    async def well_again(repository: GitRepository) -> None:
        found = await repository.fetch("main", known=good)
        assert (found.sha, found.ancestry) == (new, Ancestry.AHEAD)

    if said == "in time":
        # Long enough for the remote to say where its branches are, where that is not the fault.
        served.limits = replace(served.limits, list_timeout=20 if fault.on else 1, fetch_timeout=1)
    served.play(failing)
    served.limits = FAST
    served.play(well_again)
    assert len(served.copies()) == 1
    assert not list(served.cache.glob("repo-*/copy-*/objects/*/tmp_*"))


def test_a_first_fetch_that_fails_leaves_nothing_behind(served: GitWorld) -> None:
    served.origin.commit({"a": os.urandom(50_000)})
    served.host.fault = HostFault(on="fetch", after=9000)

    async def story(repository: GitRepository) -> None:
        assert "broke off" in str(await expect_unavailable(repository.fetch("main", known=None)))

    served.play(story)
    assert served.copies() == []


def test_a_refused_connection_and_an_unknown_host_are_told(world: GitWorld) -> None:
    async def story(_: GitRepository) -> None:
        for host in (f"127.0.0.1:{free_port()}", "127.0.0.1:1"):
            there = world.repositories.open(parse_address(f"http://{host}/a"), NO_GIT_CREDENTIAL)
            assert "could not be reached" in str(
                await expect_unavailable(there.fetch("main", known=None))
            )
            await expect_unavailable(there.head("main"))
        there = world.repositories.open(parse_address("https://nowhere.invalid/a"))
        assert "could not be reached" in str(
            await expect_unavailable(there.fetch("main", known=None))
        )

    world.play(story)


def test_a_host_that_speaks_no_tls_is_told(served: GitWorld) -> None:
    async def story(_: GitRepository) -> None:
        address = parse_address(f"https://127.0.0.1:{served.host.port}/origin.git")
        await expect_unavailable(served.repositories.open(address).fetch("main", known=None))

    served.play(story)


def test_a_certificate_is_checked_against_the_authority_that_was_given(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1"})
    authority = Authority.create(world.tmp / "authority")
    issued = authority.issue("git", hosts=["IP:127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.certificate, issued.key)
    trusting = GitCredential(authority=authority.certificate.read_text())
    with serve(world.tmp, tls=tls) as host:
        good = parse_address(f"https://127.0.0.1:{host.port}/origin.git")
        wrong = parse_address(f"https://localhost:{host.port}/origin.git")

        async def story(_: GitRepository) -> None:
            repository = world.repositories.open(good, trusting)
            assert (await repository.fetch("main", known=None)).sha == commit
            for stranger in (
                world.repositories.open(good),
                world.repositories.open(wrong, trusting),
            ):
                error = await expect_unavailable(stranger.fetch("main", known=None))
                assert "not trusted" in str(error)

        world.play(story)


def test_a_local_repository_that_is_gone_is_told(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        world.origin.path.rename(world.tmp / "elsewhere")
        assert "is not there" in str(
            await expect_unavailable(repository.fetch("main", known=commit))
        )
        world.origin.path.mkdir()
        assert "is not there" in str(
            await expect_unavailable(repository.fetch("main", known=commit))
        )
        assert await exported_files(repository, commit) == {"a": b"1"}

    world.play(story)


def test_a_redirect_does_not_lead_the_credential_to_another_host(served: GitWorld) -> None:
    served.origin.commit({"a": "1"})
    with serve(served.origin.path.parent) as other:

        async def story(repository: GitRepository) -> None:
            for status in (301, 302, 307, 308):
                location = other.url("origin.git/info/refs?service=git-upload-pack")
                served.host.fault = HostFault(status=status, headers={"Location": location})
                assert "redirects" in str(
                    await expect_unavailable(repository.fetch("main", known=None))
                )

        served.play(story)
        assert other.requests == []


def test_a_repository_that_outgrows_its_limit_is_refused(served: GitWorld) -> None:
    small = served.origin.commit({"a": "1"})
    served.limits = replace(served.limits, mirror_bytes=300_000)

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        served.origin.commit({"a": os.urandom(600_000)})
        assert "larger than" in str(await expect_unavailable(repository.fetch("main", known=small)))
        assert await exported_files(repository, small) == {"a": b"1"}

    served.play(story)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_full_disk_is_said_clearly(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1"})
    world.options["git"] = script(
        world.tmp / "git",
        f'[ "$1" = fetch ] && [ -e "{world.tmp}/full" ] && '
        'echo "fatal: write error: No space left on device" >&2 && exit 128\nexec git "$@"',
    )

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        (world.tmp / "full").touch()
        world.origin.commit({"a": "2"})
        assert "no space left" in str(
            await expect_unavailable(repository.fetch("main", known=commit))
        )
        assert await exported_files(repository, commit) == {"a": b"1"}
        (world.tmp / "full").unlink()
        assert (await repository.fetch("main", known=commit)).ancestry == Ancestry.AHEAD

    world.play(story)


def test_a_missing_git_is_said_clearly(world: GitWorld) -> None:
    world.options["git"] = "/nonexistent/git"

    async def story(repository: GitRepository) -> None:
        assert "Install git" in str(await expect_unavailable(repository.fetch("main", known=None)))

    world.play(story)


@contextmanager
def forking_git(world: GitWorld) -> Iterator[Path]:
    """A git that hangs, with a child that holds its output open and one that ignores signals."""
    pids = world.tmp / "pids"
    world.options["git"] = script(
        world.tmp / "git",
        f"trap '' TERM HUP INT\nsleep 300 & echo $! >> {pids}\necho $$ >> {pids}\nsleep 300",
    )
    try:
        yield pids
    finally:
        for pid in numbers(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def numbers(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_a_git_that_hangs_and_forks_is_killed_with_all_its_children(world: GitWorld) -> None:
    world.limits = replace(FAST, list_timeout=2)
    with forking_git(world) as pids:

        async def story(repository: GitRepository) -> None:
            assert "in time" in str(await expect_unavailable(repository.fetch("main", known=None)))

        world.play(story)
        wait_until(lambda: not any(is_alive(pid) for pid in numbers(pids)), what="all to be gone")
        assert len(numbers(pids)) == 2


def test_a_leader_that_dies_takes_its_children_with_it(world: GitWorld) -> None:
    pids = world.tmp / "pids"
    world.limits = replace(FAST, list_timeout=2)
    world.options["git"] = script(world.tmp / "git", f"sleep 300 & echo $! > {pids}; exit 0")

    async def story(repository: GitRepository) -> None:
        assert "in time" in str(await expect_unavailable(repository.fetch("main", known=None)))

    world.play(story)
    wait_until(lambda: not is_alive(numbers(pids)[0]), what="the child to be gone")


def test_a_process_that_left_the_group_with_the_pipes_is_not_waited_for(world: GitWorld) -> None:
    """As ssh does that goes on as a master; only its own end would close them."""
    pids = world.tmp / "pids"
    world.options["git"] = script(
        world.tmp / "git", f"setsid sh -c 'echo $$ > {pids}; exec sleep 300' & \nsleep 300"
    )
    world.limits = replace(FAST, list_timeout=2)

    async def story(repository: GitRepository) -> None:
        began = time.monotonic()
        assert "in time" in str(await expect_unavailable(repository.fetch("main", known=None)))
        assert time.monotonic() - began < 60
        assert is_alive(numbers(pids)[0]), "it was to outlive git"

    try:
        world.play(story)  # a pipe that is left open is a warning, which is an error
        gc.collect()
    finally:
        for pid in numbers(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def test_a_cancelled_caller_leaves_no_process_behind(world: GitWorld) -> None:
    with forking_git(world) as pids:

        async def story(repository: GitRepository) -> None:
            asking = asyncio.ensure_future(repository.fetch("main", known=None))
            await asyncio.to_thread(wait_until, lambda: len(numbers(pids)) == 2)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.to_thread(
                wait_until, lambda: not any(is_alive(pid) for pid in numbers(pids))
            )

        world.play(story)


def test_one_who_waits_for_a_shared_fetch_may_leave_without_ending_it(served: GitWorld) -> None:
    commit = served.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        new = served.origin.commit({"a": "2"})
        held = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def wait() -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(held.wait(), loop))

        served.host.fault = HostFault(on="fetch", pause=wait)
        first = asyncio.ensure_future(repository.fetch("main", known=commit))
        await asyncio.to_thread(wait_until, lambda: served.host.requests.count("fetch") == 2)
        second = asyncio.ensure_future(repository.fetch("main", known=commit))
        await asyncio.to_thread(wait_until, lambda: served.host.requests.count("list") == 5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        held.set()
        assert (await second).sha == new

    served.play(story)


def test_closing_ends_what_is_under_way(served: GitWorld) -> None:
    served.origin.commit({"a": "1"})
    served.host.fault = HostFault(on="fetch", hang=True)

    async def story(repository: GitRepository) -> None:
        asking = asyncio.ensure_future(repository.fetch("main", known=None))
        await asyncio.to_thread(wait_until, lambda: "fetch" in served.host.requests)
        await served.repositories.aclose()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert running_children("fetch") == []

    served.play(story)


def test_a_hanging_fetch_does_not_hold_up_what_is_here_already(served: GitWorld) -> None:
    good = served.origin.commit({"a": "1"})
    served.origin.commit({"b": "1"}, branch="other")

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        served.host.fault = HostFault(on="fetch", hang=True)
        stuck = asyncio.ensure_future(repository.fetch("other", known=None))
        await asyncio.to_thread(wait_until, lambda: served.host.requests.count("fetch") == 2)
        assert (await repository.fetch("main", known=good)).ancestry == Ancestry.SAME
        assert await exported_files(repository, good) == {"a": b"1"}
        assert not stuck.done()
        stuck.cancel()

    served.play(story)
