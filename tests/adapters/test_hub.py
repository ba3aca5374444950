"""Downloads from a hub of ours (tests/support/hub.py): whole and checked, or not complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hub import ModelHub, serve_hub

from holdfast.adapters.hub import (
    Download,
    Hub,
    LocalModel,
    RemoteFile,
    directory_digest,
    read_marker,
    select_files,
)
from holdfast.core.errors import (
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.redact import Secret
from holdfast.core.service.model_cache import GGUF_NAME, MARKER

WEIGHTS = bytes(range(256)) * 64
FILES = {
    "config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": WEIGHTS,
    "original/consolidated.pth": WEIGHTS,
    ".gitattributes": b"*",
    "tokenizer/vocab.txt": b"a b c",
}


@pytest.fixture
def hub() -> Iterator[tuple[ModelHub, str]]:
    model_hub = ModelHub(files=dict(FILES))
    with serve_hub(model_hub) as endpoint:
        yield model_hub, endpoint


def download(endpoint: str, directory: Path, **given: object) -> LocalModel:
    options: dict[str, object] = {"repo": "org/tiny", "revision": "main", "pause": 0.01}
    token = given.pop("token", None)
    held = Hub(endpoint, token=Secret(str(token)) if token else None, timeout=0.5)
    return Download(directory=directory, **(options | given)).run(held)  # type: ignore[arg-type]


def test_what_is_loaded_is_downloaded_and_the_marker_says_so_last(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    model_hub, endpoint = hub
    model = download(endpoint, tmp_path)
    assert model.commit == model_hub.commit
    assert set(model.files) == {"config.json", "model.safetensors", "tokenizer/vocab.txt"}
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS
    assert read_marker(tmp_path) == model
    assert directory_digest(tmp_path) == model.digest
    asked = len(model_hub.requests)
    assert download(endpoint, tmp_path) == model and len(model_hub.requests) == asked
    assert os.stat(tmp_path / "model.safetensors").st_mode & 0o444 == 0o444  # of another user


def test_a_token_does_not_follow_a_redirect_to_another_host(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    model_hub, endpoint = hub
    model_hub.token = "let-me-in"
    download(endpoint, tmp_path, token="let-me-in")
    assert all("authorization" in each for each in model_hub.asked("/resolve/"))
    assert model_hub.asked("/cdn/") and not any(
        "authorization" in each for each in model_hub.asked("/cdn/")
    )


def test_a_download_that_was_cut_off_goes_on_where_it_was(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    model_hub, endpoint = hub
    model_hub.cut_after = 5000
    download(endpoint, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS
    assert [each.get("range") for each in model_hub.asked("/cdn/")] == [None, "bytes=5000-"]


def test_a_host_that_ignores_ranges_begins_anew(hub: tuple[ModelHub, str], tmp_path: Path) -> None:
    model_hub, endpoint = hub
    model_hub.cut_after, model_hub.ignore_ranges = 5000, True
    download(endpoint, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


FAULTS: list[tuple[dict[str, object], type[HoldfastError], str]] = [
    ({"cut_after": 10, "always_cut": True}, TargetUnavailable, "bytes came"),
    ({"corrupt": True}, TargetUnavailable, "SHA-256"),
    ({"stall": 1.0}, TargetUnavailable, "timed out"),
    ({"failures": 99}, TargetUnavailable, "503"),
    ({"token": "secret"}, PermissionDenied, "HF_TOKEN"),
    ({"repo": "org/other"}, NotFound, "no org/tiny"),
]


@pytest.mark.parametrize(("fault", "error", "words"), FAULTS, ids=lambda each: str(each)[:40])
def test_what_did_not_come_whole_is_never_complete(
    hub: tuple[ModelHub, str],
    tmp_path: Path,
    fault: dict[str, object],
    error: type[HoldfastError],
    words: str,
) -> None:
    model_hub, endpoint = hub
    for name, value in fault.items():
        setattr(model_hub, name, value)
    with pytest.raises(error, match=words):
        download(endpoint, tmp_path, attempts=2)
    assert not (tmp_path / MARKER).exists()
    assert not (tmp_path / "model.safetensors").exists()
    for name, value in {"token": "", "cut_after": None, "failures": 0, "stall": 0.0}.items():
        setattr(model_hub, name, value)
    model_hub.corrupt, model_hub.repo = False, "org/tiny"
    download(endpoint, tmp_path)  # and what there is of it is in nobody's way
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_a_few_failures_are_outlived(hub: tuple[ModelHub, str], tmp_path: Path) -> None:
    model_hub, endpoint = hub
    model_hub.failures = 3
    assert download(endpoint, tmp_path).commit == model_hub.commit


def test_a_file_that_was_changed_before_the_marker_is_fetched_again(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    _, endpoint = hub
    download(endpoint, tmp_path)
    (tmp_path / MARKER).unlink()
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"x")
    download(endpoint, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_a_complete_directory_that_was_truncated_since_is_refused(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    _, endpoint = hub
    download(endpoint, tmp_path)
    os.truncate(tmp_path / "model.safetensors", 7)
    with pytest.raises(ValidationError, match="has 7 bytes"):
        download(endpoint, tmp_path)


def test_a_moved_head_changes_nothing_that_is_complete(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    model_hub, endpoint = hub
    model = download(endpoint, tmp_path)
    model_hub.files["config.json"] = b'{"new": true}'
    assert model_hub.commit != model.commit
    assert download(endpoint, tmp_path) == model
    other = download(endpoint, tmp_path / "other", revision=model_hub.commit)
    assert other.commit == model_hub.commit and other.digest != model.digest


def test_another_content_than_declared_is_never_complete(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    _, endpoint = hub
    with pytest.raises(ValidationError, match="is declared"):
        download(endpoint, tmp_path, digest="sha256:" + "0" * 64)
    assert not (tmp_path / MARKER).exists()
    right = directory_digest(tmp_path)
    assert download(endpoint, tmp_path, digest=right).digest == right


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a//b", "a\nb", MARKER, "a\\b"])
def test_a_path_that_leads_out_is_refused(
    hub: tuple[ModelHub, str], tmp_path: Path, path: str
) -> None:
    model_hub, endpoint = hub
    model_hub.files[path] = b"x"
    with pytest.raises(ValidationError, match="cannot be kept"):
        download(endpoint, tmp_path)
    assert not list(tmp_path.iterdir())


def files(*paths: str) -> list[RemoteFile]:
    return [RemoteFile(path=path, size=1, sha256=None, blob="x") for path in paths]


GGUF = [
    ("", ["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "a-Q4_K_M.gguf"),
    ("q8_0", ["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "a-Q8_0.gguf"),
    ("", ["mmproj-a.gguf", "tiny.gguf", "README.md"], "tiny.gguf"),
]


@pytest.mark.parametrize(("tag", "paths", "expected"), GGUF)
def test_llama_cpp_gets_one_file(tag: str, paths: list[str], expected: str) -> None:
    assert [each.path for each in select_files(files(*paths), tag)] == [expected]


def test_a_gguf_file_in_parts_or_of_no_such_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="one part of several"):
        select_files(files("a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf"), "")
    with pytest.raises(NotFound, match="no GGUF file of Q2"):
        select_files(files("a-Q4_K_M.gguf"), "Q2")


def test_a_gguf_file_has_a_name_that_is_known_before(
    hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    model_hub, endpoint = hub
    model_hub.files = {"chat-Q4_K_M.gguf": WEIGHTS, "chat-Q8_0.gguf": WEIGHTS}
    download(endpoint, tmp_path, gguf="")
    assert (tmp_path / GGUF_NAME).read_bytes() == WEIGHTS
    assert not (tmp_path / "chat-Q8_0.gguf").exists()
