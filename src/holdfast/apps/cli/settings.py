"""Where each setting comes from: flags, environment, project file, user file, defaults.

A project file travels with a repository, so it is trusted less: it cannot hold a token, one
that belongs to somebody else is ignored, and a token kept in the user's own file is never
sent to an address that only a project file names.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.errors import ConfigurationError

NAMES = ("url", "project", "token")
PROJECT_FILE = "holdfast.toml"
_INFERENCEKEY = {
    "url": "INFERENCEKEY_BASE_URL",
    "project": "INFERENCEKEY_PROJECT",
    "token": "INFERENCEKEY_SDK_TOKEN",
}
_DEFAULTS = {"project": "default"}
FLAG, ENVIRONMENT, PROJECT, USER, DEFAULT = "flag", "environment", "project", "user", "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSetting:
    """One setting and where it was found."""

    value: str
    kind: str
    origin: str
    """For people: the flag, the variable, or the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """Every setting that has a value, and what was ignored on the way."""

    found: Mapping[str, CliSetting]
    warnings: tuple[str, ...] = ()

    def get(self, name: str) -> str | None:
        """Return a value, or None when nothing sets it."""
        setting = self.found.get(name)
        return setting.value if setting else None


@dataclass(slots=True)
class _SettingsSearch:
    found: dict[str, CliSetting] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, value: str | None, kind: str, origin: str) -> None:
        if value and name not in self.found:
            self.found[name] = CliSetting(value=value, kind=kind, origin=origin)


def resolve_settings(
    flags: Mapping[str, str], *, environ: Mapping[str, str] = os.environ, start: Path | None = None
) -> CliSettings:
    """Gather the settings, the nearest source first."""
    search = _SettingsSearch()
    for name in NAMES:
        search.add(name, flags.get(name), FLAG, f"--{name}")
    for name in NAMES:
        variable = f"HOLDFAST_{name.upper()}"
        search.add(name, environ.get(variable), ENVIRONMENT, variable)
    _add_project_file(search, start or Path.cwd())
    _add_user_file(search, user_file(environ))
    for name, variable in _INFERENCEKEY.items():
        search.add(name, environ.get(variable), ENVIRONMENT, variable)
    for name, value in _DEFAULTS.items():
        search.add(name, value, DEFAULT, "default")
    _drop_token_for_project_url(search)
    return CliSettings(found=search.found, warnings=tuple(search.warnings))


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the user's own settings are kept."""
    base = environ.get("XDG_CONFIG_HOME")
    home = Path(base) if base else Path(environ.get("HOME") or Path.home()) / ".config"
    return home / "holdfast" / "config.toml"


def project_file(start: Path) -> Path | None:
    """Return the nearest project file, from a directory upward."""
    for folder in (start, *start.parents):
        path = folder / PROJECT_FILE
        if path.is_file():
            return path
    return None


def read_file(path: Path) -> dict[str, str]:
    """Read a settings file. Raises ConfigurationError for what it cannot mean."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            f"{path} cannot be read: {reason}.", hint="Fix the file, or move it away."
        ) from error
    for name, value in values.items():
        if name not in NAMES or not isinstance(value, str):
            raise ConfigurationError(
                f"{path}: {name[:40]!a} is not a setting with a text value.",
                hint=f"Known settings: {', '.join(NAMES)}.",
            )
    return values


def _add_project_file(search: _SettingsSearch, start: Path) -> None:
    path = project_file(start)
    if path is None:
        return
    if not _trusted(path.stat().st_uid):
        search.warnings.append(f"{path} was ignored: it belongs to another user.")
        return
    values = read_file(path)
    if values.pop("token", None):
        search.warnings.append(
            f"The token in {path} was ignored: that file is shared. Set HOLDFAST_TOKEN."
        )
    for name, value in values.items():
        search.add(name, value, PROJECT, str(path))


def _trusted(owner: int) -> bool:
    return owner in (os.getuid(), 0)


def _add_user_file(search: _SettingsSearch, path: Path) -> None:
    if not path.is_file():
        return
    values = read_file(path)
    if "token" in values and stat.S_IMODE(path.stat().st_mode) & 0o077:
        search.warnings.append(
            f"{path} holds a token and others can read it. Run: chmod 600 {path}"
        )
    for name, value in values.items():
        search.add(name, value, USER, str(path))


def _drop_token_for_project_url(search: _SettingsSearch) -> None:
    url, token = search.found.get("url"), search.found.get("token")
    if url and token and url.kind == PROJECT and token.kind == USER:
        del search.found["token"]
        search.warnings.append(
            f"The token in {token.origin} was not used, because only {url.origin} names "
            f"{url.value}. If you trust it, set HOLDFAST_URL or HOLDFAST_TOKEN."
        )
