"""What a pod does before it serves from a cache, run by a real shell on what a download wrote."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.hub import ModelHub, serve_hub
from tests.support.inference_services import COMMIT, document

from holdfast.adapters.hub import Download, Hub
from holdfast.core.service.model_cache import (
    MARKER,
    MODELS,
    cached_model,
    check_container,
    job_name,
    resolved_model,
)
from holdfast.core.service.spec import InferenceService
from holdfast.wire.inference_service_v1alpha1 import service_from_json

CACHE = {"modelRef": "org/tiny", "cache": {"size": "1Gi"}}


def service(**change: object) -> InferenceService:
    return service_from_json(document({**CACHE, **change}))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A directory in a cache, as a download left it."""
    model = cached_model(service(), canary=False)
    assert model is not None
    directory = tmp_path / model.directory
    hub = ModelHub(files={"config.json": b"{}", "a/model.safetensors": bytes(5000)})
    with serve_hub(hub) as endpoint:
        Download(repo=model.repo, revision=model.revision, directory=directory).run(Hub(endpoint))
    return directory


def check(cache: Path) -> tuple[int, str]:
    model = cached_model(service(), canary=False)
    assert model is not None
    command = check_container(model, "x", {})["command"]
    assert isinstance(command, list)
    line = [str(part).replace(MODELS, str(cache.parent)) for part in command]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


def test_a_whole_model_is_served(cache: Path) -> None:
    assert check(cache) == (0, "")


def test_a_model_without_a_marker_is_not_served(cache: Path) -> None:
    (cache / MARKER).unlink()
    code, said = check(cache)
    assert code == 1 and "never completed" in said


def test_a_directory_that_is_not_there_is_not_served(cache: Path) -> None:
    cache.rename(cache.parent / "elsewhere")
    code, said = check(cache)
    assert code == 1 and "never completed" in said


def test_a_truncated_file_is_not_served(cache: Path) -> None:
    os.truncate(cache / "a" / "model.safetensors", 4999)
    code, said = check(cache)
    assert code == 1 and "a/model.safetensors has 4999 bytes, and 5000 were downloaded" in said


def test_a_missing_file_is_not_served(cache: Path) -> None:
    (cache / "config.json").unlink()
    code, said = check(cache)
    assert code == 1 and "config.json has 0 bytes" in said


def test_all_that_decides_what_is_in_a_directory_is_in_its_name() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"modelRef": "org/other"},
        {"modelRevision": "v2"},
        {"modelDigest": "sha256:" + "ab" * 32},
        {"backend": "llamacpp"},
        {"backend": "llamacpp", "modelRef": "org/tiny:Q8_0"},
    ]
    models = [cached_model(service(**change), canary=False) for change in changes]
    names = {model.directory for model in models if model is not None}
    assert len(names) == len(changes)
    assert cached_model(service(modelRevision="main"), canary=False) == models[0]
    held = models[0]
    assert held is not None
    assert job_name(service(), held, "uid-1") != job_name(service(), held, "uid-2")


IMAGE = "oci://registry.example/chat"
RESOLVED: list[tuple[dict[str, object], str | None, str | None, str]] = [
    ({"modelRevision": COMMIT}, COMMIT, None, ""),
    ({"modelRevision": COMMIT, "cache": None}, COMMIT, None, ""),
    ({"modelRevision": "main"}, None, None, "not downloaded yet"),
    ({"modelRevision": "main", "cache": None}, None, None, "Nothing pins it"),
    ({"cache": None}, None, None, "Nothing pins it"),
    ({"cache": None, "modelRef": "/models/chat"}, None, None, "what is at a path"),
    ({"cache": None, "modelRef": f"{IMAGE}:1"}, None, None, "resolves the tag"),
    (
        {"cache": None, "modelRef": f"{IMAGE}:1@sha256:{'ab' * 32}#a/b"},
        None,
        f"sha256:{'ab' * 32}",
        "",
    ),
    ({"cache": None, "modelRef": "llama3", "backend": "ollama"}, None, None, "have not said"),
]


@pytest.mark.parametrize(("change", "commit", "digest", "unknown"), RESOLVED)
def test_what_a_model_stands_for_is_known_or_said_to_be_unknown(
    change: dict[str, object], commit: str | None, digest: str | None, unknown: str
) -> None:
    found = resolved_model(service(**change))
    assert (found.commit, found.digest) == (commit, digest)
    assert unknown in (found.unknown or "") and bool(unknown) == bool(found.unknown)
