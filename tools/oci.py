"""Packs a directory into an OCI image archive, the same bytes for the same files.

No container engine and no root: `ctr images import` takes what this writes. Owners and times are
set to 0, names are sorted, layers are not compressed.
Called by tools/image.py for Holdfast's own image, and by the test bed for those its node runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
NAME = "io.containerd.image.name"
EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How a container of the image is started, unless its pod says otherwise."""

    entrypoint: Sequence[str]
    command: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    architecture: str = "amd64"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An archive that was written."""

    name: str
    archive: Path
    digest: str
    """Of its manifest: what `name@sha256:…` means."""


def write_image(name: str, archive: Path, roots: Sequence[Path], config: ImageConfig) -> Image:
    """Write one archive with a layer for each root, the lowest first."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="layers-") as scratch:
        layers = [
            _write_layer(root, Path(scratch) / str(number)) for number, root in enumerate(roots)
        ]
        settings = _json(_config_document(config, [digest for _, digest in layers]))
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, settings),
                "layers": [
                    {"mediaType": LAYER, "digest": digest, "size": path.stat().st_size}
                    for path, digest in layers
                ],
            }
        )
        entry = {**_descriptor(MANIFEST, manifest), "annotations": {NAME: name}}
        partial = Path(scratch) / "archive"
        with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
            for content in (settings, manifest):
                _add(tar, _blob_path(_digest(content)), content)
            for path, digest in layers:
                tar.add(path, arcname=_blob_path(digest), filter=_without_owner)
        partial.replace(archive)
    return Image(name=name, archive=archive, digest=entry["digest"])


def read_image(archive: Path) -> Image:
    """Tell name and digest of an archive that `write_image` wrote."""
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        if index is None:
            raise ValueError(f"{archive} is no OCI archive.")
        entry = json.load(index)["manifests"][0]
    return Image(name=entry["annotations"][NAME], archive=archive, digest=entry["digest"])


def _write_layer(root: Path, path: Path) -> tuple[Path, str]:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(root.rglob("*")):
            tar.inodes.clear()  # two names of one file are two files: their order would show
            name = str(entry.relative_to(root))
            tar.add(entry, arcname=name, recursive=False, filter=_without_owner)
    with path.open("rb") as content:
        return path, f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    if not member.mode & stat.S_ISVTX:  # what is left of the umask of who built it
        member.mode = 0o755 if member.isdir() or member.mode & stat.S_IXUSR else 0o644
    return member


# Any: documents of the OCI image format.
def _config_document(config: ImageConfig, layers: Sequence[str]) -> dict[str, Any]:
    return {
        "architecture": config.architecture,
        "os": "linux",
        "created": EPOCH,
        "config": {
            "Entrypoint": list(config.entrypoint),
            "Cmd": list(config.command),
            "User": config.user,
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "Labels": dict(sorted(config.labels.items())),
        },
        "rootfs": {"type": "layers", "diff_ids": list(layers)},
    }


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
