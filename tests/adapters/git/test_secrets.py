"""A credential reaches its own host and nothing else: no argument, file, log or error."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.git.git_world import (
    GitWorld,
    everything_below,
    expect_unavailable,
    exported_files,
)
from tests.support.git_host import HostFault
from tests.support.planted_secrets import Surfaces, frame_locals, planted_secret
from tests.support.processes import wait_until

from holdfast.adapters.git.address import parse_address
from holdfast.adapters.git.environment import online_environment
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import GitCredential

KNOWN = "git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1\n"
FAULTS = [
    HostFault(status=401),
    HostFault(status=403),
    HostFault(status=404),
    HostFault(status=302, headers={"Location": "http://127.0.0.1:1/"}),
    HostFault(status=500),
    HostFault(after=3),
    HostFault(on="fetch", after=20),
    HostFault(on="fetch", status=401),
]


def command_lines() -> bytes:
    """Read the arguments of every process of the machine."""
    found = b""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += file.read_bytes() + b"\n"
    return found


def test_a_token_is_seen_nowhere(served: GitWorld, caplog: pytest.LogCaptureFixture) -> None:
    canary = planted_secret("git token", "opaque{}")
    caplog.set_level(logging.DEBUG)
    surfaces = Surfaces()
    served.host.token = canary.value
    served.origin.commit({"a": "1"})

    async def story(_: GitRepository) -> None:
        repository = served.open(GitCredential(token=Secret(canary.value)))
        surfaces.add_value("repository", repository)
        found = await repository.fetch("main", known=None)
        await exported_files(repository, found.sha)
        served.origin.commit({"a": "2"})
        for fault in FAULTS:
            served.host.fault = fault
            error = await expect_unavailable(repository.fetch("main", known=None))
            surfaces.add("errors", repr(error), str(error), *frame_locals(error))
        served.host.fault = HostFault(hang=True)
        asking = asyncio.ensure_future(repository.fetch("main", known=None))
        await asyncio.to_thread(wait_until, lambda: b"ls-remote" in command_lines())
        surfaces.add("arguments", await asyncio.to_thread(command_lines))
        surfaces.add("files while it runs", await asyncio.to_thread(everything_below, served.tmp))
        asking.cancel()

    served.play(story)
    surfaces.add("files", everything_below(served.tmp))
    surfaces.add("logs", caplog.text)
    assert surfaces.leaks([canary]) == []
    assert any(served.host.authorizations)


def test_a_host_that_repeats_the_token_does_not_get_it_into_our_errors(served: GitWorld) -> None:
    canary = planted_secret("git token", "opaque{}")
    surfaces = Surfaces()
    served.options["git"] = str(served.tmp / "git")
    served.tmp.joinpath("git").write_text(
        "#!/bin/sh\nenv | grep -i authorization >&2\n"
        'env | grep -i authorization | sed "s/.*Basic //" | base64 -d >&2\nexit 1\n'
    )
    served.tmp.joinpath("git").chmod(0o755)

    async def story(_: GitRepository) -> None:
        repository = served.open(GitCredential(token=Secret(canary.value)))
        error = await expect_unavailable(repository.fetch("main", known=None))
        assert "Basic ***" in str(error)
        surfaces.add("errors", repr(error), str(error), *frame_locals(error))

    served.play(story)
    assert surfaces.leaks([canary]) == []


def test_a_token_that_cannot_be_sent_is_not_shown(served: GitWorld) -> None:
    canary = planted_secret("git token", "two{}\nlines")
    surfaces = Surfaces()

    async def story(_: GitRepository) -> None:
        repository = served.open(GitCredential(token=Secret(canary.value)))
        with pytest.raises(ConfigurationError) as refused:
            await repository.fetch("main", known=None)
        surfaces.add(
            "errors", repr(refused.value), str(refused.value), *frame_locals(refused.value)
        )

    served.play(story)
    assert surfaces.leaks([canary]) == []


FAKE_SSH = """\
#!{python}
import json, os, shlex, sys
config = sys.argv[sys.argv.index("-F") + 1]
values = dict(line.split(None, 1) for line in open(config) if len(line.split()) > 1)
key = values["IdentityFile"].strip().strip('"')
known = values["UserKnownHostsFile"].strip().strip('"')
record = dict(arguments=sys.argv[1:], config=open(config).read(), known=open(known).read())
if key != "none":
    record["key"] = open(key).read()
    record["modes"] = [oct(os.stat(path).st_mode & 0o777) for path in
                       (key, known, config, os.path.dirname(key))]
record["environment"] = sorted(os.environ)
with open({log!r}, "a") as log:
    log.write(json.dumps(record) + "\\n")
program, path = shlex.split(sys.argv[-1])
os.execvp("git", ["git", program.removeprefix("git-"), path])
"""


def with_fake_ssh(world: GitWorld) -> Path:
    log = world.tmp / "ssh.log"
    program = world.tmp / "fake ssh"
    program.write_text(FAKE_SSH.format(python=sys.executable, log=str(log)))
    program.chmod(0o755)
    world.options["ssh"] = str(program)
    return log


def test_ssh_runs_with_its_own_key_and_known_hosts_and_leaves_neither(world: GitWorld) -> None:
    log = with_fake_ssh(world)
    canary = planted_secret("ssh key", "-----BEGIN KEY-----\n{}\n-----END KEY-----")
    surfaces = Surfaces()
    commit = world.origin.commit({"a": "1"})
    address = parse_address(f"ssh://git@git.example.com:2222{world.origin.path}")
    credential = GitCredential(ssh_key=Secret(canary.value), known_hosts=KNOWN)

    async def story(_: GitRepository) -> None:
        repository = world.repositories.open(address, credential)
        assert (await repository.fetch("main", known=None)).sha == commit
        assert list((world.cache / "home").iterdir()) == []
        error = await expect_unavailable(repository.fetch("nothing", known=None))
        surfaces.add("errors", repr(error), str(error), *frame_locals(error))

    world.play(story)
    (first, *_) = log.read_text().splitlines()
    log.unlink()
    record = json.loads(first)
    assert record["key"] == canary.value + "\n" and record["known"] == KNOWN
    assert record["modes"] == ["0o600", "0o600", "0o600", "0o700"]
    assert record["arguments"][-2:] == [
        "git@git.example.com",
        f"git-upload-pack '{world.origin.path}'",
    ]
    assert "SSH_AUTH_SOCK" not in record["environment"]
    surfaces.add("arguments", *record["arguments"])
    surfaces.add("files", everything_below(world.cache))
    assert surfaces.leaks([canary]) == []


def test_ssh_itself_reads_our_settings_as_we_mean_them(tmp_path: Path) -> None:
    credential = GitCredential(ssh_key=Secret("key"), known_hosts=KNOWN)
    home = tmp_path / "a home"
    home.mkdir()
    with online_environment(
        home, parse_address("git@git.example.com:a"), credential
    ) as environment:
        command = shlex.split(environment.reveal()["GIT_SSH_COMMAND"])
        ran = subprocess.run(
            [*command, "-G", "git@git.example.com"], capture_output=True, text=True, check=True
        )
        settings = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
        (private,) = home.iterdir()
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    expected = {
        "stricthostkeychecking": "true",
        "batchmode": "yes",
        "identitiesonly": "yes",
        "identityagent": "none",
        "identityfile": str(private / "key"),
        "userknownhostsfile": str(private / "known_hosts"),
        "globalknownhostsfile": "/dev/null",
        "passwordauthentication": "no",
        "forwardagent": "no",
        "permitlocalcommand": "no",
        "updatehostkeys": "false",
        "controlmaster": "false",
    }
    assert {name: settings[name].strip('"') for name in expected} == expected
    assert "proxycommand" not in settings
    assert list(home.iterdir()) == []


def test_ssh_refuses_a_host_without_a_key_that_is_known(
    world: GitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = world.tmp / "ssh"
    program.write_text("#!/bin/sh\necho 'Host key verification failed.' >&2\nexit 255\n")
    program.chmod(0o755)
    world.options["ssh"] = str(program)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")

    async def story(_: GitRepository) -> None:
        repository = world.repositories.open(parse_address("git@git.example.com:a"))
        error = await expect_unavailable(repository.fetch("main", known=None))
        assert "host key" in str(error) and "known_hosts" in str(error)

    world.play(story)


def test_a_folder_that_ssh_would_read_as_more_than_a_name_is_refused(world: GitWorld) -> None:
    world.cache = world.tmp / 'quo"te %d ${x}'

    async def story(_: GitRepository) -> None:
        repository = world.repositories.open(parse_address("git@git.example.com:a"))
        with pytest.raises(ConfigurationError, match="plain name"):
            await repository.fetch("main", known=None)

    world.play(story)


def test_keys_that_a_killed_process_left_are_removed_at_the_next_start(world: GitWorld) -> None:
    world.play(lambda repository: repository.head("main"))
    left = world.cache / "home" / "access-1"
    left.mkdir()
    (left / "key").write_text("key")
    world.play(lambda repository: repository.head("main"))
    assert not left.exists()


def test_another_host_is_sent_nothing_of_a_credential(served: GitWorld) -> None:
    """The header is bound to the address, also within one process that knows several."""
    served.origin.commit({"a": "1"})
    served.host.token = ""
    address = replace(served.address, host="localhost")

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        assert all(served.host.authorizations)
        served.host.authorizations.clear()
        await served.repositories.open(address).fetch("main", known=None)
        assert not any(served.host.authorizations)

    served.play(story)


def test_no_variable_of_ours_holds_the_token_outside_the_child(served: GitWorld) -> None:
    before = dict(os.environ)
    served.origin.commit({"a": "1"})
    served.play(lambda repository: repository.fetch("main", known=None))
    assert dict(os.environ) == before
