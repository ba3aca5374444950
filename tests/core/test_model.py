"""What a model reference names, what pins it, and how files are named by what is in them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from holdfast.core.model import (
    ModelPin,
    files_digest,
    image_reference,
    is_commit,
    model_pin,
    unpinned_reason,
)
from holdfast.core.single_machine import unsupported_fields

COMMIT = "0123456789abcdef0123456789abcdef01234567"
IMAGE = f"oci://registry.example/chat@sha256:{'ab' * 32}"
PINS = [
    ("org/name", "vllm", COMMIT, ModelPin.COMMIT),
    ("org/name", "vllm", COMMIT[:7], ModelPin.NONE),
    ("org/name", "vllm", COMMIT.upper(), ModelPin.NONE),
    ("org/name", "vllm", "v1.0", ModelPin.NONE),
    ("org/name", "vllm", None, ModelPin.NONE),
    ("llama3:8b", "ollama", None, ModelPin.NONE),
    ("/models/chat", "vllm", None, ModelPin.PATH),
    ("./chat.gguf", "llamacpp", None, ModelPin.PATH),
    (IMAGE, "vllm", None, ModelPin.DIGEST),
    ("oci://registry.example/chat:1", "vllm", None, ModelPin.NONE),
]


@pytest.mark.parametrize(("model", "backend", "revision", "pin"), PINS)
def test_only_a_commit_or_a_digest_is_a_pin(
    model: str, backend: str, revision: str | None, pin: ModelPin
) -> None:
    assert model_pin(model, backend, revision) is pin
    assert bool(unpinned_reason(model, backend, revision)) == (pin is ModelPin.NONE)
    assert is_commit(revision) == (revision == COMMIT)


def test_an_image_is_read_with_the_path_inside_it() -> None:
    found = image_reference(f"{IMAGE}#models/chat.gguf")
    assert (f"oci://{found.reference}", found.path) == (IMAGE, "models/chat.gguf")


def test_files_are_named_as_the_documented_command_names_them(tmp_path: Path) -> None:
    files = {"b.bin": b"two", "a/config.json": b"one", "a-z": b"", "Z": b"three"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / ".hidden").write_text("not a part of it")
    command = (
        "find . -type f ! -path '*/.*' -printf '%P\\0' | LC_ALL=C sort -z"
        " | xargs -0 sha256sum | sha256sum"
    )
    said = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.split()[0]
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert files_digest(hashes) == f"sha256:{said}"


UNUSED = [
    ({"backend": "vllm"}, None),
    ({"backend": "sglang"}, None),
    ({"backend": "vllm", "command": "vllm serve ${MODEL}"}, "the command is your own"),
    ({"backend": "llamacpp"}, "takes no revision"),
    ({"backend": "ollama"}, "takes no revision"),
    ({"backend": "vllm", "model": "/models/chat"}, "a path has no revisions"),
    ({"backend": "vllm", "model": IMAGE}, "pinned by the digest"),
]


@pytest.mark.parametrize(("fields", "reason"), UNUSED)
def test_one_machine_refuses_a_revision_that_no_process_would_get(
    fields: dict[str, str], reason: str | None
) -> None:
    declared = {"model": "org/name", "model_revision": COMMIT, **fields}
    found = {each.field: each.reason for each in unsupported_fields(declared)}
    assert (reason or "") in found.get("model_revision", "")
    assert ("model_revision" in found) == (reason is not None)
