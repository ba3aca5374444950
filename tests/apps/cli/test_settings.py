"""Where settings come from, and which sources are trusted with what."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.apps.cli.conftest import Holdfast

from holdfast.apps.cli import settings
from holdfast.core.errors import ConfigurationError

SECRET = "ik_sdk_0a1b2c3d_" + "f" * 64


@pytest.fixture
def user_file(home: Path) -> Callable[[str], Path]:
    def write(text: str, mode: int = 0o600) -> Path:
        path = home / ".config" / "holdfast" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def resolved(**flags: str) -> dict[str, tuple[str, str]]:
    found = settings.resolve_settings(flags).found
    return {name: (each.value, each.origin) for name, each in found.items()}


def test_the_nearest_source_wins(
    home: Path, monkeypatch: pytest.MonkeyPatch, user_file: Callable[[str], Path]
) -> None:
    """flags > HOLDFAST_* > project file > user file > INFERENCEKEY_* > defaults"""
    assert resolved()["project"] == ("default", "default")
    monkeypatch.setenv("INFERENCEKEY_PROJECT", "ik")
    assert resolved()["project"] == ("ik", "INFERENCEKEY_PROJECT")
    path = user_file('project = "user"\n')
    assert resolved()["project"] == ("user", str(path))
    (home / "holdfast.toml").write_text('project = "file"\n')
    assert resolved()["project"] == ("file", str(home / "holdfast.toml"))
    monkeypatch.setenv("HOLDFAST_PROJECT", "env")
    assert resolved()["project"] == ("env", "HOLDFAST_PROJECT")
    assert resolved(project="flag")["project"] == ("flag", "--project")


def test_the_nearest_project_file_counts(home: Path) -> None:
    (home / "holdfast.toml").write_text('project = "far"\n')
    Path("holdfast.toml").write_text('project = "near"\n')
    assert resolved()["project"][0] == "near"


def test_a_token_in_a_project_file_is_not_used() -> None:
    Path("holdfast.toml").write_text(f'token = "{SECRET}"\n')
    found = settings.resolve_settings({})
    assert found.get("token") is None
    assert "is shared" in found.warnings[0]
    assert SECRET not in str(found)


def test_a_token_that_others_can_read_is_used_with_a_warning(
    user_file: Callable[..., Path],
) -> None:
    path = user_file(f'token = "{SECRET}"\n', 0o644)
    found = settings.resolve_settings({})
    assert found.get("token") == SECRET
    assert f"chmod 600 {path}" in found.warnings[0]


def test_a_kept_token_is_never_sent_where_only_a_project_file_points(
    monkeypatch: pytest.MonkeyPatch, user_file: Callable[[str], Path]
) -> None:
    """A repository could name a server of its own and collect the tokens of its readers."""
    user_file(f'token = "{SECRET}"\n')
    Path("holdfast.toml").write_text('url = "https://collector.example"\n')
    found = settings.resolve_settings({})
    assert found.get("token") is None
    assert "was not used" in found.warnings[0]
    monkeypatch.setenv("HOLDFAST_URL", "https://collector.example")
    assert settings.resolve_settings({}).get("token") == SECRET


def test_a_project_file_of_another_user_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("holdfast.toml").write_text('url = "https://collector.example"\n')
    monkeypatch.setattr(settings, "_trusted", lambda owner: owner != os.getuid())
    found = settings.resolve_settings({})
    assert found.get("url") is None
    assert "belongs to another user" in found.warnings[0]


@pytest.mark.parametrize("text", ["project = 1\n", "colour = 'x'\n", "not toml", "\x00"])
def test_a_file_that_means_nothing_is_an_error(text: str) -> None:
    Path("holdfast.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"holdfast\.toml"):
        settings.resolve_settings({})


def test_config_view_shows_where_values_come_from(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", SECRET)
    Path("holdfast.toml").write_text('project = "acme"\n')
    run = holdfast("config", "view", "--show-origin", "--url", "https://hf.example")
    assert run.screen == (
        "SETTING  VALUE               FROM\n"
        "url      https://hf.example  --url\n"
        "project  acme                HOME/work/holdfast.toml\n"
        "token    ik_sdk_0a1b2c3d…    HOLDFAST_TOKEN\n"
        "Next: holdfast config set NAME VALUE\n"
    )
    assert SECRET not in holdfast("config", "view", "-o", "json").out


def test_config_set_writes_one_setting_and_keeps_the_others(holdfast: Holdfast, home: Path) -> None:
    holdfast("config", "set", "project", "acme")
    holdfast("config", "set", "url", "https://hf.example")
    path = home / ".config" / "holdfast" / "config.toml"
    assert path.read_text() == 'project = "acme"\nurl = "https://hf.example"\n'
    run = holdfast("config", "set", "token", "-", stdin=SECRET + "\n")
    assert SECRET not in run.screen
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = json.loads(holdfast("config", "view", "-o", "json").out)
    assert [each["origin"] for each in document["settings"]] == [str(path)] * 3


def test_config_set_refuses_a_token_in_the_project_file(holdfast: Holdfast) -> None:
    run = holdfast("config", "set", "token", SECRET, "--local")
    assert run.code == 1
    assert SECRET not in run.screen
    assert not Path("holdfast.toml").exists()
    assert holdfast("config", "set", "project", "acme", "--local").code == 0
    assert holdfast("config", "path").out == f"{Path('holdfast.toml').absolute()}\n"
