"""A backup is taken beside a server, and noticed when it is put in place of what it was made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.adapters.store import OpenMode, Store
from holdfast.apps.cli.main import cli
from holdfast.core.errors import StoreUnavailable


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.db"
    with Store.open(path) as store:
        store.write(lambda tx: tx.create_project("acme"))
    return path


def backup(db: Path, copy: Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["backup", str(copy), "--db", str(db)])
    return done.exit_code, done.output


def test_a_backup_is_taken_while_a_server_holds_the_file(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with Store.open(db, mode=OpenMode.SERVER):
        code, shown = backup(db, copy)
    assert code == 0, shown
    assert f"{copy} is a copy of {db}." in shown
    with Store.open(copy) as restored:
        assert [each.slug for each in restored.projects()] == ["acme"]


def test_an_existing_file_is_not_overwritten(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    code, shown = backup(db, copy)
    assert code == 1
    assert "already exists" in shown
    assert copy.read_text() == "precious"


def test_a_backup_put_in_place_is_noticed(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert backup(db, copy)[0] == 0
    with Store.open(db) as store:
        store.write(lambda tx: tx.create_project("later"))
    for suffix in ("-wal", "-shm"):
        db.with_name(db.name + suffix).unlink(missing_ok=True)
    copy.replace(db)
    with pytest.raises(StoreUnavailable, match="accept-rollback"):
        Store.open(db, mode=OpenMode.SERVER)
    Store.open(db, mode=OpenMode.SERVER, accept_rollback=True).close()
