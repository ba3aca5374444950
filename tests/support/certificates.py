"""Makes the certificates of a test cluster with the `openssl` command.

Standard Python can use certificates but not make them. Called by the control plane for its own
parts, and by tests that want to be somebody: a certificate's subject is the user and the groups.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.testbed import NoTestbed

DAYS = "30"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
# The machine's own openssl.cnf may add or lack anything.
CONFIG = """\
[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign,digitalSignature
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority that lives in a directory."""

    directory: Path

    @property
    def certificate(self) -> Path:
        return self.directory / "ca.crt"

    @classmethod
    def create(cls, directory: Path) -> Authority:
        """Make a new authority; whatever an earlier one left in the directory goes."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        (directory / "openssl.cnf").write_text(CONFIG)
        authority = cls(directory=directory)
        authority._openssl(
            *["req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", DAYS],
            *["-subj", "/CN=holdfast-testbed", "-extensions", "authority"],
            *["-config", "openssl.cnf"],
        )
        return authority

    def issue(
        self, user: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> Certificate:
        """Make a certificate for a user in groups, or for a server at hosts."""
        name = secrets.token_hex(6)
        subject = "".join(f"/O={_escaped(group)}" for group in groups) + f"/CN={_escaped(user)}"
        self._openssl(
            *["req", "-new", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr"],
            *["-subj", subject, "-config", "openssl.cnf"],
        )
        extensions = self.directory / f"{name}.cnf"
        alternatives = f"subjectAltName = {','.join(hosts)}\n" if hosts else ""
        extensions.write_text(CONFIG + alternatives)
        self._openssl(
            *["x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", "-days", DAYS],
            *["-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", f"0x{secrets.token_hex(15)}"],
            *["-extfile", extensions.name, "-extensions", "leaf"],
        )
        return Certificate(
            certificate=self.directory / f"{name}.crt", key=self.directory / f"{name}.key"
        )

    def signing_pair(self, name: str) -> Certificate:
        """Make a bare key pair, for service-account tokens; `certificate` is the public key."""
        key, public = self.directory / f"{name}.key", self.directory / f"{name}.pub"
        curve = ["-pkeyopt", "ec_paramgen_curve:P-256"]
        self._openssl("genpkey", "-algorithm", "EC", *curve, "-out", key.name)
        self._openssl("pkey", "-in", key.name, "-pubout", "-out", public.name)
        return Certificate(certificate=public, key=key)

    def _openssl(self, *arguments: str) -> None:
        command = shutil.which("openssl")
        if command is None:
            raise NoTestbed(
                "The test cluster needs the `openssl` command for its certificates, and there is "
                "none on PATH. Install the openssl package."
            )
        ran = subprocess.run(
            [command, *arguments],
            cwd=self.directory,
            env={**os.environ, "OPENSSL_CONF": "openssl.cnf"},
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise RuntimeError(f"openssl {arguments[0]} failed: {ran.stderr}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("/", "\\/")
