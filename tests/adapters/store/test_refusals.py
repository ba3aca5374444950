"""Each file that cannot be trusted is refused, with who, why and what to do."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.adapters.store.store_script import dump, open_store, operations

from holdfast.adapters.store import OpenMode, Store
from holdfast.adapters.store.files import watermark_path
from holdfast.core.errors import (
    AlreadyExists,
    ConfigurationError,
    HoldfastError,
    StoreHeld,
    StoreUnavailable,
)
from holdfast.core.names import WorkloadId


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a life behind it, closed."""
    path = tmp_path / "holdfast.db"
    store = open_store(path)
    for _ in operations(store):
        pass
    store.close()
    return path


def refusal(path: Path, mode: OpenMode = OpenMode.SERVER) -> str:
    with pytest.raises(StoreUnavailable) as refused:
        Store.open(path, mode=mode)
    assert "Nothing was changed." in str(refused.value)
    return str(refused.value)


def test_a_second_server_is_told_who_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with Store.open(path, mode=OpenMode.SERVER) as first:
        text = refusal(path)
        assert f"process {os.getpid()} on {os.uname().nodename}" in text
        first.announce("http://127.0.0.1:8420")
        text = refusal(path)
        assert "http://127.0.0.1:8420" in text
    Store.open(path, mode=OpenMode.SERVER).close()


def test_an_embedded_client_is_sent_to_the_server_that_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with Store.open(path, mode=OpenMode.SERVER) as server:
        server.announce("http://127.0.0.1:8420")
        with pytest.raises(StoreHeld, match=r"HOLDFAST_URL=http://127\.0\.0\.1:8420") as refused:
            Store.open(path)
        assert refused.value.url == "http://127.0.0.1:8420"


def test_a_server_is_refused_while_an_embedded_client_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with Store.open(path):
        assert "embedded client" in refusal(path)


def test_the_file_is_free_again_when_its_server_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    program = (
        "import sys, time; from holdfast.adapters.store import OpenMode, Store\n"
        "store = Store.open(sys.argv[1], mode=OpenMode.SERVER)\n"
        "store.write(lambda tx: tx.create_project('acme'))\n"
        "print('open', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert f"process {child.pid} " in refusal(path)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with Store.open(path, mode=OpenMode.SERVER) as store:
        assert [project.slug for project in store.projects()] == ["acme"]


def killed_after_a_write(path: Path) -> None:
    """Open a store in a process of its own, commit, and kill it: the commit is in the log."""
    program = (
        "import os, sys; from holdfast.adapters.store import OpenMode, Store\n"
        "store = Store.open(sys.argv[1], mode=OpenMode.SERVER)\n"
        "store.write(lambda tx: tx.create_project('acme'))\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)


@pytest.mark.parametrize("first", ["real", "link"])
@pytest.mark.parametrize("second", ["real", "link"])
def test_a_symbolic_link_is_the_file_that_it_leads_to(
    tmp_path: Path, first: str, second: str
) -> None:
    """SQLite's log lies beside the real file, whatever name it was opened by."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "here").mkdir()
    names = {"real": tmp_path / "disk" / "store.db", "link": tmp_path / "here" / "holdfast.db"}
    names["link"].symlink_to(names["real"])
    killed_after_a_write(names[first])
    with Store.open(names[second], mode=OpenMode.SERVER) as store:
        assert [project.slug for project in store.projects()] == ["acme"]
        assert "is held by a server" in refusal(names[first])


def test_a_link_that_leads_to_itself_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    path.symlink_to(path)
    with pytest.raises(StoreUnavailable) as refused:
        Store.open(path)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_file_with_a_second_name_is_refused(tmp_path: Path, mode: OpenMode) -> None:
    """Under the other name there is another log: an acknowledged write would not be seen."""
    path, other = tmp_path / "holdfast.db", tmp_path / "other.db"
    killed_after_a_write(path)
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(StoreUnavailable, match="hard links") as refused:
            Store.open(name, mode=mode)
        assert "-wal" in str(refused.value)
    other.unlink()
    with Store.open(path, mode=mode) as store:
        assert [project.slug for project in store.projects()] == ["acme"]


def test_admin_commands_write_beside_a_running_server(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with Store.open(path, mode=OpenMode.SERVER) as server:
        with Store.open(path, mode=OpenMode.ADMIN) as admin:
            admin.write(lambda tx: tx.create_project("acme"))
        assert server.project("acme") is not None


def test_a_project_that_is_there_is_not_told_as_another_writer(tmp_path: Path) -> None:
    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.ADMIN) as store:
        store.write(lambda tx: tx.create_project("acme"))
        with pytest.raises(AlreadyExists) as refused:
            store.write(lambda tx: tx.create_project("acme"))
        assert str(refused.value).startswith("Already exists. Project acme already exists.")


@pytest.mark.parametrize(
    "content", [b"h", b"hello", b"x" * 8192, b"SQLite format 3\0" + b"\1" * 500]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(content)
    text = refusal(path)
    assert "damaged or not a Holdfast database" in text
    assert "put a backup in their place" in text
    assert str(path) in text
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    assert "another program" in refusal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("keep", [1, 100, 4096, 0.5, 0.99])
@pytest.mark.parametrize("mode", [OpenMode.SERVER, OpenMode.CLIENT])
def test_a_truncated_file_is_refused(file: Path, keep: float, mode: OpenMode) -> None:
    size = file.stat().st_size
    os.truncate(file, int(keep if keep > 1 or keep == 1 else size * keep))
    assert "put a backup in their place" in refusal(file, mode)


def test_a_file_whose_content_is_gone_is_not_begun_anew(file: Path) -> None:
    os.truncate(file, 0)
    assert "is gone or empty" in refusal(file)


def test_a_file_that_is_gone_is_not_begun_anew_unless_told(file: Path) -> None:
    file.unlink()
    text = refusal(file)
    assert "--accept-rollback" in text
    assert watermark_path(file).name in text
    assert not file.exists()
    with Store.open(file, mode=OpenMode.SERVER, accept_rollback=True) as store:
        assert store.projects() == []


def test_a_read_only_file_or_directory_is_refused(tmp_path: Path) -> None:
    """Run as nobody where the tests run as root, whom no mode holds back."""
    place = tmp_path / "place"
    place.mkdir()
    open_store(place / "holdfast.db").close()
    program = (
        "import os, sys\n"
        "from holdfast.adapters.store import Store\n"
        "from holdfast.core.errors import StoreUnavailable\n"
        "os.chdir(sys.argv[1])\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: Store.open('holdfast.db')\n"
        "except StoreUnavailable as error: print(error)\n"
    )

    def attempt() -> str:
        # The child enters the directory while it may still pass the ones above.
        done = subprocess.run(
            [sys.executable, "-c", program, str(place)], capture_output=True, text=True, check=True
        )
        return done.stdout

    for file_mode, place_mode in ((0o444, 0o777), (0o666, 0o555)):
        for each in place.iterdir():
            each.chmod(file_mode)
        place.chmod(place_mode)
        answer = attempt()
        place.chmod(0o755)
        assert "cannot be opened for writing" in answer
        assert "writable for this user" in answer


def test_an_older_backup_put_in_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    store = open_store(path)
    life = operations(store)
    for _ in range(5):
        next(life)
    store.backup(tmp_path / "backup.db")
    for _ in life:
        pass
    store.close()
    shutil.copy(tmp_path / "backup.db", path)
    before = path.read_bytes()
    text = refusal(path)
    assert "older than it was: it had 18 commits and now has 5" in text
    assert "--accept-rollback" in text
    assert path.read_bytes() == before
    assert "older than it was" in refusal(path, OpenMode.CLIENT)
    with Store.open(path, mode=OpenMode.SERVER, accept_rollback=True) as accepted:
        assert accepted.serial == 5
    Store.open(path, mode=OpenMode.SERVER).close()


def test_a_version_of_a_lost_future_is_never_given_again(tmp_path: Path) -> None:
    """A plan made before a roll-back must not fit a workload that was changed after it."""
    path, where = tmp_path / "holdfast.db", WorkloadId(project="acme", slug="a")
    store = open_store(path)
    life = operations(store)
    for _ in range(3):
        next(life)
    store.backup(tmp_path / "backup.db")
    next(life)
    lost = store.record(where)
    assert lost is not None
    store.close()
    shutil.copy(tmp_path / "backup.db", path)
    with Store.open(path, mode=OpenMode.SERVER, accept_rollback=True) as accepted:
        again = accepted.write(
            lambda tx: tx.update_workload(
                lost.uid, {"replicas": 5}, version=None, writer=next(iter(lost.writers.values()))
            )
        )
    assert again.generation == lost.generation
    assert again.version != lost.version


def test_another_database_put_in_place_is_noticed(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    open_store(other).close()
    shutil.copy(other, file)
    assert "another database than the one that was here before" in refusal(file)


def test_a_log_removed_after_a_crash_is_noticed(tmp_path: Path) -> None:
    path, crashed = tmp_path / "holdfast.db", tmp_path / "crashed"
    crashed.mkdir()
    store = open_store(path)
    for _ in operations(store):
        pass
    store._write_watermark()
    for name in ("holdfast.db", "holdfast.db.serial"):  # as a crash leaves them, less the log
        shutil.copy(tmp_path / name, crashed / name)
    store.close()
    assert "-wal had been removed" in refusal(crashed / "holdfast.db")


def test_a_witness_that_lags_behind_or_is_unreadable_raises_no_alarm(file: Path) -> None:
    for text in ('{"lineage": "%s", "serial": 1}', "", "{", "[]"):
        with Store.open(file) as store:
            lineage = store.lineage
        watermark_path(file).write_text(text % lineage if "%" in text else text)
        Store.open(file, mode=OpenMode.SERVER).close()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_removed_or_replaced_under_a_running_server_takes_no_more_writes(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / "holdfast.db"
    with Store.open(path, mode=OpenMode.SERVER) as store:
        store.write(lambda tx: tx.create_project("one"))
        store.write(lambda tx: tx.create_project("two"))
        Path(f"{path}{suffix}").rename(tmp_path / "elsewhere")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                store.write(lambda tx: tx.create_project("three"))


def everything(store: Store) -> list[object]:
    """Ask every question."""
    return [
        store.projects(),
        store.workload_count(),
        store.records("acme"),
        store.tokens("acme"),
        store.history("acme", limit=1000),
        store.drifts(None, include_resolved=True),
        [store.recall(f"acme/k{number}") for number in range(10)],
    ]


def test_a_flipped_bit_is_noticed_or_does_no_harm(file: Path) -> None:
    """Whatever is served is what was stored; a file in doubt is refused."""
    with Store.open(file) as store:
        truth = everything(store)
    whole = file.read_bytes()
    dice = random.Random(7)
    noticed = 0
    for _ in range(300):
        content = bytearray(whole)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        file.write_bytes(content)
        for side in ("-wal", "-shm"):
            Path(f"{file}{side}").unlink(missing_ok=True)
        try:
            with Store.open(file, mode=OpenMode.SERVER) as store:
                assert everything(store) == truth
        except HoldfastError:
            noticed += 1
    assert noticed > 30


def test_a_backup_is_one_committed_state_and_never_replaces_a_file(
    file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "backup.db"
    with Store.open(file) as store:
        store.backup(copy)
        with pytest.raises(ConfigurationError):
            store.backup(copy)
    assert dump(copy) == dump(file)
    with Store.open(copy) as restored:
        assert restored.check() == []
    assert [each.name for each in tmp_path.glob("*.part*")] == []


def test_only_the_owner_can_read_the_files(file: Path) -> None:
    with Store.open(file):
        for each in file.parent.glob("holdfast.db*"):
            if not each.name.endswith(".serial"):
                assert each.stat().st_mode & 0o077 == 0, each
