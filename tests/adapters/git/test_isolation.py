"""Nothing of the host, the user or the repository has a say in how Git runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.git.git_world import BRANCH, GitWorld, exported_files, make_push

from holdfast.adapters.git.environment import offline_environment, online_environment
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import GitCredential


@pytest.fixture
def trap(world: GitWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every setting of the user and the host that runs a program, and a folder full of them."""
    sprung = world.tmp / "sprung"
    program = world.tmp / "trap"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {sprung}\nexit 1\n')
    program.chmod(0o755)
    settings = (
        f"[core]\n hooksPath = {world.tmp}\n fsmonitor = {program}\n sshCommand = {program}\n"
        f" askPass = {program}\n pager = {program}\n alternateRefsCommand = {program}\n"
        f"[credential]\n helper = !{program}\n"
        f'[url "ext::{program}"]\n insteadOf = /\n insteadOf = http\n'
        f'[protocol "ext"]\n allow = always\n[protocol]\n allow = always\n'
        f'[filter "evil"]\n smudge = {program}\n clean = {program}\n process = {program}\n'
        f"[gpg]\n program = {program}\n[push]\n gpgSign = true\n[commit]\n gpgSign = true\n"
        f"[uploadpack]\n packObjectsHook = {program}\n"
        f"[fetch]\n recurseSubmodules = true\n[submodule]\n recurse = true\n"
    )
    home = world.tmp / "their home"
    home.mkdir()
    (home / ".gitconfig").write_text(settings)
    for hook in ("pre-push", "post-checkout", "reference-transaction", "post-index-change"):
        (world.tmp / hook).symlink_to(program)
    near = world.tmp / "near"
    subprocess.run(["git", "init", "--quiet", near], check=True)
    with (near / ".git" / "config").open("a") as config:
        config.write(settings)
    monkeypatch.chdir(near)
    for name, value in {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": str(home / ".gitconfig"),
        "GIT_CONFIG_PARAMETERS": f"'core.hookspath={world.tmp}'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(world.tmp),
        "GIT_DIR": str(near / ".git"),
        "GIT_SSH_COMMAND": str(program),
        "GIT_ASKPASS": str(program),
        "GIT_EXTERNAL_DIFF": str(program),
        "GIT_PAGER": str(program),
        "GIT_PROXY_COMMAND": str(program),
        "GIT_TRACE": str(sprung),
        "GIT_TRACE_CURL": str(sprung),
        "GIT_TEMPLATE_DIR": str(world.tmp),
        "GIT_OBJECT_DIRECTORY": str(near),
        "GIT_ALLOW_PROTOCOL": "ext:file:http",
        "LD_PRELOAD": "",
    }.items():
        monkeypatch.setenv(name, value)
    yield sprung
    assert not sprung.exists(), sprung.read_text()


@pytest.mark.usefixtures("trap")
def test_settings_of_the_user_and_the_host_have_no_effect(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1", ".gitattributes": "* filter=evil diff=evil\n"})

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("main", known=None)).sha == commit
        assert (await exported_files(repository, commit))["a"] == b"1"
        assert await repository.push(make_push(commit)) == await repository.head(BRANCH)
        assert await repository.delete(BRANCH)

    world.play(story)


@pytest.mark.usefixtures("trap")
def test_what_a_repository_carries_has_no_effect(world: GitWorld) -> None:
    modules = f'[submodule "x"]\n\tpath = x\n\turl = {world.tmp}/other\n\tupdate = !touch x\n'
    blob = world.origin.blob
    commit = world.origin.commit_entries(
        [
            ("100644", blob(modules.replace("\tupdate = !touch x\n", "")), b".gitmodules"),
            ("160000", "2" * 40, b"x"),
            ("100644", blob("* filter=evil export-subst export-ignore\n"), b".gitattributes"),
            ("100644", blob("$Format:%H$\n"), b"subst"),
            ("100755", blob("#!/bin/sh\ntouch sprung\n"), b"hooks/post-checkout"),
            ("100644", blob("[core]\n\tbare = false\n"), b"config"),
            ("100644", blob("ref: refs/heads/main\n"), b"HEAD"),
            ("100644", blob("x"), b"objects/x"),
        ]
    )

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        found = await exported_files(repository, commit)
        assert found["subst"] == b"$Format:%H$\n"
        assert len(found) == 7

    world.play(story)


def test_a_command_that_needs_no_remote_can_reach_none(world: GitWorld) -> None:
    variables = offline_environment(world.tmp).reveal()
    assert variables["GIT_ALLOW_PROTOCOL"] == ""
    ran = subprocess.run(["git", "ls-remote", str(world.origin.path)], env=variables, cwd="/")
    assert ran.returncode != 0


def test_a_command_can_use_the_transport_of_its_address_alone(world: GitWorld) -> None:
    with online_environment(
        world.tmp, world.address, GitCredential(token=Secret("x"))
    ) as environment:
        variables = environment.reveal()
        assert variables["GIT_ALLOW_PROTOCOL"] == "file"
        for address in ("ext::sh -c true", "http://127.0.0.1:1/", "ssh://127.0.0.1/a"):
            ran = subprocess.run(
                ["git", "ls-remote", "--", address],
                env=variables,
                cwd="/",
                capture_output=True,
                text=True,
            )
            assert "not allowed" in ran.stderr
