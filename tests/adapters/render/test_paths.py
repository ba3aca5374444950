"""Nothing outside the root is ever read, whatever a path says and whatever lies on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.adapters.render.repo import Repo, config_map

from holdfast.adapters.render import files as paths
from holdfast.adapters.render.files import (
    MAX_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
    PathKind,
    RepositoryFiles,
    resolve_path,
)
from holdfast.core.errors import ValidationError

ESCAPES = [
    "../outside", "a/../../outside", "/etc/passwd", "//etc/passwd", "~root/x", "a\\..\\b",
    "..\\outside", "%2e%2e/outside", "%2E%2E%2Foutside", "a/%00", "a\x00b", "a\nb", ".git/config",
    "a/.git/config", ".GIT/config", "a/GIT~1/x", "a/\u202egnp.yaml", "x" * 2000, "../" * 40 + "etc",
    "./../x", "a/./../../x", "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES, ids=ascii)
def test_a_path_that_leads_out_is_refused_before_the_disk_is_looked_at(path: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        resolve_path(path, where="here")
    assert "here" in str(refusal.value)
    assert str(refusal.value).isprintable() or "\n" in str(refusal.value)


def test_a_path_is_resolved_against_the_directory_it_is_written_in() -> None:
    assert resolve_path("../../base", beneath=("a", "b", "c"), where="x") == ("a", "base")
    assert resolve_path("./x.yaml", beneath=("a",), where="x") == ("a", "x.yaml")
    assert resolve_path(".", where="x") == ()
    assert resolve_path("", where="x") == ()
    assert resolve_path("a..b/...", where="x") == ("a..b", "...")


@pytest.mark.parametrize("kind", ["file", "directory", "chain", "loop", "dangling", "absolute"])
def test_links_are_refused_wherever_they_stand(repo: Repo, tmp_path: Path, kind: str) -> None:
    canary = tmp_path / "outside"
    canary.mkdir()
    (canary / "x.yaml").write_text(config_map("leaked"))
    repo.write({"real/x.yaml": config_map("a")})
    link = repo.root / "link"
    match kind:
        case "file":
            (repo.root / "d").mkdir()
            link = repo.root / "d" / "x.yaml"
            link.symlink_to(canary / "x.yaml")
        case "directory":
            link.symlink_to(canary)
        case "chain":
            (repo.root / "second").symlink_to("../outside")
            link.symlink_to("second")
        case "loop":
            link.symlink_to("link")
        case "dangling":
            link.symlink_to("nowhere")
        case "absolute":
            link.symlink_to("/")
    wanted = link.relative_to(repo.root).parts
    with RepositoryFiles(repo.root) as files:
        for parts in (wanted, (*wanted, "x.yaml"), (*wanted, "..", "x")):
            with pytest.raises(ValidationError, match="link"):
                files.find(parts[:2])
        with pytest.raises(ValidationError, match="link"):
            files.read(wanted)
    with pytest.raises(ValidationError, match="link"):
        repo.render()


def test_a_directory_that_becomes_a_link_between_check_and_use_is_refused(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name is opened in the directory before it, so a swap cannot redirect the rest."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.yaml").write_text(config_map("leaked"))
    repo.write({"a/x.yaml": config_map("mine")})
    with RepositoryFiles(repo.root) as files:
        assert files.find(("a", "x.yaml")) is PathKind.FILE
        (repo.root / "a").rename(repo.root / "b")
        (repo.root / "a").symlink_to(outside)
        with pytest.raises(ValidationError, match="link"):
            files.read(("a", "x.yaml"))
        assert b"mine" in files.read(("b", "x.yaml"))


def test_a_directory_that_is_swapped_while_it_is_walked_is_read_as_it_was_or_refused(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.yaml").write_text(config_map("leaked"))
    repo.write({"a/b/x.yaml": config_map("mine")})
    real = os.open

    def swapping(path: object, *args: object, **more: object) -> int:
        fd = real(path, *args, **more)  # type: ignore[arg-type]
        if path == "a":  # the walk stands in a now; what a leads to changes under it
            monkeypatch.setattr(paths.os, "open", real)
            (repo.root / "a" / "b").rename(repo.root / "gone")
            (repo.root / "a" / "b").symlink_to(outside)
        return fd

    with RepositoryFiles(repo.root) as files:
        monkeypatch.setattr(paths.os, "open", swapping)
        with pytest.raises(ValidationError, match="link"):
            files.read(("a", "b", "x.yaml"))


def test_a_pipe_is_refused_and_does_not_hang_the_reader(repo: Repo) -> None:
    os.mkfifo(repo.root / "x.yaml")
    with pytest.raises(ValidationError, match="neither a file nor a directory"):
        repo.render()
    with RepositoryFiles(repo.root) as files, pytest.raises(ValidationError):
        files.read(("x.yaml",))


def test_what_the_export_left_out_is_refused_where_it_is_asked_for(repo: Repo) -> None:
    repo.write({"apps/a.yaml": config_map("a"), "other/b.yaml": config_map("b")})
    repo.left_out = {
        "apps/sub/c.yaml": "is a link, which is never followed",
        "other/.hidden/d.yaml": "is a link, which is never followed",
    }
    with pytest.raises(ValidationError, match=r"apps/sub/c\.yaml: it is a link"):
        repo.render("apps")
    with pytest.raises(ValidationError, match="it is a link"):
        repo.render("apps/sub/c.yaml")
    assert len(repo.render("other").objects) == 1


def test_a_name_that_is_not_utf8_is_refused_in_plain_ascii(repo: Repo) -> None:
    (Path(os.fsdecode(os.fsencode(repo.root) + b"/\xff.yaml"))).write_text(config_map("a"))
    with pytest.raises(ValidationError) as refusal:
        repo.render()
    assert str(refusal.value).isascii()


def test_limits_on_files_are_refusals(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write({f"{at}.yaml": config_map(f"c{at}") for at in range(6)})
    monkeypatch.setattr(paths, "MAX_FILES", 5)
    with pytest.raises(ValidationError, match="over 5"):
        repo.render()
    monkeypatch.setattr(paths, "MAX_FILES", MAX_FILES)
    monkeypatch.setattr(paths, "MAX_BYTES", 100)
    with pytest.raises(ValidationError, match="0 MiB"):
        repo.render()
    monkeypatch.setattr(paths, "MAX_BYTES", MAX_BYTES)
    (repo.root / "0.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ValidationError, match=r"0\.yaml: it is over 4 MiB"):
        repo.render()
