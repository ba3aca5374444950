"""Finds SOPS, or builds it once per machine. `make testbed` builds it.

Tests take it from the fixture `sops`: it encrypts what they need with a key pair that is for
tests alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support import go_module
from tests.support.missing import without
from tests.support.testbed import Say

__all__ = ["sops"]

PROGRAM = go_module.GoProgram(
    name="sops",
    title="SOPS",
    module="github.com/getsops/sops/v3",
    version="v3.13.3",
    package="./cmd/sops",
    lasting="about two minutes",
)
# Made for these tests, by age-keygen; nothing else was ever encrypted for them.
RECIPIENT = "age14zwew6nxlnschrmuzrngk4rgc3y82kqjeyrgekepa250062yjyjs550r5a"
IDENTITY = "AGE-SECRET-KEY-1AD6K0C0YC8NRPC3RPUQ3VY6KEFFT4LE4N829DKEEE557NG34MRZSD6HKWY"
OTHER_IDENTITY = "AGE-SECRET-KEY-18YE3CCL02ZKT7NCKAJE08VNCA8VWLAGH7CJJ8UP2GF0T8VTP3V8SR0K99N"


class NoSops(go_module.NotBuilt):
    """It is not there; the text says why."""


@dataclass(frozen=True, slots=True)
class Sops:
    """The program, as a person at a terminal uses it."""

    path: str

    def encrypt(self, text: str, *, suffix: str = "yaml", only: str = "^(data|stringData)$") -> str:
        """Encrypt a document for the test key; `only` says which fields, empty for all."""
        chosen = ["--encrypted-regex", only] if only else []
        return self._run(
            ["encrypt", "--age", RECIPIENT, *chosen, "--input-type", suffix, "--output-type",
             suffix, "--filename-override", f"x.{suffix}"],
            text,
        )  # fmt: skip

    def decrypt(self, text: str, *, suffix: str = "yaml") -> str:
        """Decrypt a document with the test key, its seal checked."""
        return self._run(["decrypt", "--input-type", suffix, "--output-type", suffix], text)

    def _run(self, arguments: list[str], text: str) -> str:
        ran = subprocess.run(
            [self.path, *arguments],
            input=text,
            env={"SOPS_AGE_KEY": IDENTITY, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def find() -> str:
    """Give the SOPS that is there already. Never builds; raises NoSops."""
    for candidate in (os.environ.get("HOLDFAST_SOPS"), shutil.which("sops"), str(PROGRAM.path)):
        if candidate and os.access(candidate, os.X_OK):
            return str(Path(candidate).absolute())
    raise NoSops(f"SOPS is not built: `make testbed` builds it, in {PROGRAM.lasting}.")


def find_or_build(say: Say) -> str:
    """Give SOPS, building it first where it is missing; raises NotBuilt."""
    try:
        return find()
    except NoSops:
        return str(go_module.build(PROGRAM, say))


@pytest.fixture(scope="session")
def sops(pytestconfig: pytest.Config) -> Sops:
    """SOPS, to encrypt with."""
    try:
        return Sops(find())
    except NoSops as missing:
        without(pytestconfig, "SOPS", missing)
