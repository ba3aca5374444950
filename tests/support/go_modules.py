"""CustomResourceDefinitions of other projects, from their Go modules.

Fetched once per machine over plain HTTP, checked by their digest, and kept beside the programs of
the test cluster.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.support.testbed import cache_root

TIMEOUT = 60.0


class NoDefinitions(Exception):
    """The definitions are not there; the text says why."""


@dataclass(frozen=True, kw_only=True)
class DefinitionModule:
    """Where some definitions come from."""

    name: str
    """Of the directory that keeps them."""
    module: str
    version: str
    sha256: str
    folder: str
    files: tuple[str, ...]

    # Any: objects of the Kubernetes API as they come over the wire.
    def definitions(self) -> list[dict[str, Any]]:
        """Give the definitions, fetching the module where it is not cached."""
        directory = cache_root() / self.name / self.version
        if not directory.exists():
            self._fetch(directory)
        return [yaml.safe_load((directory / file).read_text()) for file in self.files]

    def _fetch(self, directory: Path) -> None:
        url = f"{_proxy()}/{self.module}/@v/{self.version}.zip"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310  # https or what GOPROXY says
                archive = answer.read()
        except (OSError, urllib.error.URLError) as error:
            raise NoDefinitions(f"{url} could not be fetched: {error}. Set GOPROXY?") from error
        if hashlib.sha256(archive).hexdigest() != self.sha256:
            raise NoDefinitions(f"{url} is not the file that it was; nothing was kept.")
        directory.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="fetching-", dir=directory.parent) as scratch,
            zipfile.ZipFile(io.BytesIO(archive)) as module,
        ):
            made = Path(scratch) / "definitions"
            made.mkdir()
            for file in self.files:
                name = f"{self.module}@{self.version}/{self.folder}/{file}"
                (made / file).write_bytes(module.read(name))
            try:
                made.rename(directory)
            except OSError:  # another process was faster
                if not directory.exists():
                    raise
                shutil.rmtree(made)


def _proxy() -> str:
    for each in os.environ.get("GOPROXY", "").replace("|", ",").split(","):
        if each.startswith(("http://", "https://")):
            return each.rstrip("/")
    return "https://proxy.golang.org"
