"""The environment in which Git runs: built from nothing, so that nothing of the host leaks in.

No configuration of the system, the user or the repository's owner counts: no hooks, filters,
helpers, proxies for credentials, prompts or submodules, and one transport, that of the address.
A credential travels in variables or in private files that are gone when the command is; never in
arguments, which every user of the machine can read.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.adapters.git.address import GitScheme, RepositoryAddress
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import MASK, Secret, redact
from holdfast.core.text_style import escape_unprintable
from holdfast.reconcile.gitops.ports import GitCredential

_INHERITED = ("PATH", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")
"""How to find programs, and how to get out of this network."""
_CONFIG: Mapping[str, str] = {
    "protocol.allow": "never",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.symlinks": "false",
    "core.askPass": "",
    "core.logAllRefUpdates": "false",
    "core.alternateRefsCommand": "",
    "credential.helper": "",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "push.gpgSign": "false",
    "push.followTags": "false",
    "transfer.fsckObjects": "true",
    # Old, harmless slips of other tools, which half of all long histories have.
    "fetch.fsck.zeroPaddedFilemode": "ignore",
    "fetch.fsck.missingSpaceBeforeDate": "ignore",
    "fetch.fsck.badTimezone": "ignore",
    "transfer.bundleURI": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "i18n.logOutputEncoding": "UTF-8",
    "protocol.version": "2",
    # A redirect is not followed: it could lead the credential to another host.
    "http.followRedirects": "false",
    "http.sslVerify": "true",
}
_SSH_CONFIG = """\
Host *
  BatchMode yes
  StrictHostKeyChecking yes
  UserKnownHostsFile "{known_hosts}"
  GlobalKnownHostsFile /dev/null
  UpdateHostKeys no
  VerifyHostKeyDNS no
  CheckHostIP no
  IdentitiesOnly yes
  IdentityFile {identity}
  IdentityAgent none
  PreferredAuthentications publickey
  PasswordAuthentication no
  KbdInteractiveAuthentication no
  CanonicalizeHostname no
  ControlMaster no
  ControlPath none
  ForwardAgent no
  ForwardX11 no
  ClearAllForwardings yes
  PermitLocalCommand no
  ProxyCommand none
  RequestTTY no
  ConnectTimeout 15
  ServerAliveInterval 10
  ServerAliveCountMax 2
  LogLevel ERROR
"""
_SAFE_PATH = re.compile(r"[\w./+@=,: -]+")


class GitEnvironment:
    """The variables of one Git process. Has no text form: it may hold a credential."""

    __slots__ = ("_hidden", "_variables", "host")

    def __init__(
        self, variables: Mapping[str, str], hidden: tuple[str, ...] = (), *, host: str = ""
    ) -> None:
        self._variables = dict(variables)
        self._hidden = hidden
        self.host = host
        """Whom the process talks to; empty when to nobody."""

    def reveal(self) -> dict[str, str]:
        """Return the variables themselves, for the process alone."""
        return dict(self._variables)

    def with_variables(self, **more: str) -> GitEnvironment:
        """Return the same with more variables."""
        return GitEnvironment({**self._variables, **more}, self._hidden, host=self.host)

    def sanitize(self, text: str) -> str:
        """Return what a process said, as one line without credentials and control characters."""
        for each in self._hidden:
            text = text.replace(each, MASK)
        lines = [
            escape_unprintable(line.strip()) for line in redact(text).splitlines() if line.strip()
        ]
        return "; ".join(lines[-6:])


def offline_environment(home: Path) -> GitEnvironment:
    """Return what a command needs that asks no remote: no transport at all."""
    return GitEnvironment(_variables(home, {}, protocol=""))


@contextmanager
def online_environment(
    home: Path,
    address: RepositoryAddress,
    credential: GitCredential,
    *,
    ssh: str = "ssh",
    pinned: tuple[str, ...] = (),
) -> Iterator[GitEnvironment]:
    """Hold what a command needs to reach one address, and nothing else, with a credential.

    Keys and certificates are in files only while it is held. Raises ConfigurationError for a
    credential that cannot be sent.
    """
    private = Path(tempfile.mkdtemp(prefix="access-", dir=home))
    try:
        environment = _network_environment(home, address, credential, pinned)
        if address.scheme is GitScheme.SSH:
            command = _ssh_command(private, credential, ssh)
            environment = environment.with_variables(GIT_SSH_VARIANT="ssh", GIT_SSH_COMMAND=command)
        elif credential.authority:
            file = _private_file(private, "authority", Secret(credential.authority))
            environment = environment.with_variables(GIT_SSL_CAINFO=file)
        yield environment
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _network_environment(
    home: Path, address: RepositoryAddress, credential: GitCredential, pinned: tuple[str, ...]
) -> GitEnvironment:
    # Nothing may fail in here once the header is made: a traceback would show it.
    config: dict[str, str] = {}
    hidden: tuple[str, ...] = ()
    if address.scheme in (GitScheme.HTTPS, GitScheme.HTTP) and pinned:
        # The name was resolved and checked; a second answer of the name service may be another.
        at = ",".join(f"[{each}]" if ":" in each else each for each in pinned)
        config["http.curloptResolve"] = f"{address.host}:{address.port}:{at}"
    if address.scheme in (GitScheme.HTTPS, GitScheme.HTTP) and credential.token is not None:
        header, hidden = _auth_header(credential)
        config[f"http.{address.url}.extraHeader"] = header
    variables = _variables(home, config, protocol=address.scheme.value)
    return GitEnvironment(variables, hidden, host=address.host)


def _variables(home: Path, config: Mapping[str, str], *, protocol: str) -> dict[str, str]:
    every = {**_CONFIG, **config}
    numbered = {
        name: text
        for at, (key, value) in enumerate(every.items())
        for name, text in ((f"GIT_CONFIG_KEY_{at}", key), (f"GIT_CONFIG_VALUE_{at}", value))
    }
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_DIR": os.devnull,  # none, unless a command names its own: never one found nearby
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": str(len(every)),
        **numbered,
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
    }


def _auth_header(credential: GitCredential) -> tuple[str, tuple[str, ...]]:
    """Return the header that carries a token, and every form of it that must not be shown."""
    token = credential.token.reveal() if credential.token else ""
    user = credential.user or "holdfast"
    sound = all(char.isascii() and char.isprintable() and char != " " for char in user + token)
    if not token or not sound or ":" in user:
        token = ""  # so that no traceback shows it
        raise ConfigurationError(
            "The credential of a repository has characters that no token or user name has.",
            hint="Get a fresh token; it is one line without spaces.",
        )
    pair = base64.b64encode(f"{user}:{token}".encode()).decode()
    return f"Authorization: Basic {pair}", (token, pair)


def _ssh_command(private: Path, credential: GitCredential, ssh: str) -> str:
    if not _SAFE_PATH.fullmatch(str(private)):
        raise ConfigurationError(
            f"The directory {str(private.parent)!a} has characters that ssh reads as more than "
            "a name.",
            hint="Keep repositories in a directory with a plain name.",
        )
    identity = "none"
    if credential.ssh_key is not None:
        identity = f'"{_private_file(private, "key", credential.ssh_key)}"'
    known_hosts = _private_file(private, "known_hosts", Secret(credential.known_hosts))
    settings = Secret(_SSH_CONFIG.format(known_hosts=known_hosts, identity=identity))
    return shlex.join([ssh, "-F", _private_file(private, "config", settings)])


def _private_file(folder: Path, name: str, text: Secret) -> str:
    path = folder / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text.reveal().rstrip("\n") + "\n")  # a key without its last line is none
    return str(path)
