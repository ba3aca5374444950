"""What a disk may hold after the power failed: images made from the traced calls of a store.

`trace` runs a store's life under strace and reads back every call that changed its directory.
`images` replays them up to a point and leaves of the rest what a disk may: only what was synced
surely survives; any other write is there, is lost, or is torn at the size of a sector. The log's
index (`-shm`) is left out, as it is memory and not disk.

As a program, `python -m tests.adapters.store.power_loss PATH` is the life that is traced.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.adapters.store.store_script import open_store, operations
from tests.support.processes import ROOT

import holdfast.adapters.store.store as store_module

SECTOR = 512
CALLS = "openat,write,pwrite64,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,renameat2"
ACKNOWLEDGED = b"acknowledged\n"
LOG_PAGES = 40
"""A short log is folded often, so that checkpoints are among the points."""

_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (\d+)")
_DESCRIPTOR = re.compile(r"^(?:\d+|AT_FDCWD)<([^>]*)>")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCall:
    """One call that changed the disk, or an acknowledgement between two of them."""

    kind: str
    name: str = ""
    data: bytes = b""
    offset: int = 0
    to: str = ""


@dataclass(slots=True)
class _File:
    safe: bytes = b""
    """What surely survives."""
    pending: list[SystemCall] = field(default_factory=list)
    """What was done since the last sync."""


@dataclass(slots=True)
class _Disk:
    files: dict[str, _File] = field(default_factory=dict)
    names: list[tuple[str, dict[str, _File]]] = field(default_factory=list)
    """The directory as it was before each change of it that is not synced yet, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskImage:
    """The files of one disk, and how many operations had been acknowledged by then."""

    files: dict[str, bytes]
    acknowledged: int
    point: int
    how: str


def trace(directory: Path) -> list[SystemCall]:
    """Run a store's life in the directory and give what it did to the disk, in order."""
    log = directory.with_name(directory.name + ".trace")
    subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-y",
            "-xx",
            "-s",
            "10000000",
            "-e",
            f"trace={CALLS}",
            "-o",
            str(log),
            sys.executable,
            "-m",
            "tests.adapters.store.power_loss",
            str(directory / "holdfast.db"),
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = log.read_text().splitlines()
    log.unlink()
    return list(_read(lines, str(directory) + "/"))


def _read(lines: list[str], inside: str) -> Iterator[SystemCall]:
    positions: dict[str, int] = {}
    for line in lines:
        if "unfinished" in line and inside.encode().hex() in line.replace("\\x", ""):
            raise AssertionError("two threads wrote at once: their order is not known")
        if not (match := _CALL.match(line)):
            continue
        call, arguments, answer = match[1], match[2], int(match[3])
        strings = [bytes.fromhex(text.replace("\\x", "")) for text in _STRING.findall(arguments)]
        descriptor = _DESCRIPTOR.match(arguments)
        opened = bytes.fromhex(descriptor[1].replace("\\x", "")).decode() if descriptor else ""
        if call == "write" and strings == [ACKNOWLEDGED]:
            yield SystemCall(kind="acknowledged")
            continue
        path = strings[0].decode() if call in ("openat", "unlink", "rename") else opened
        if call in ("fsync", "fdatasync") and path + "/" == inside:
            yield SystemCall(kind="sync-directory")
        if not path.startswith(inside) or path.endswith("-shm"):
            continue
        name = path.removeprefix(inside)
        if call == "openat":
            positions[name] = 0
            if "O_CREAT" in arguments:
                yield SystemCall(kind="create", name=name)
            if "O_TRUNC" in arguments:
                yield SystemCall(kind="truncate", name=name)
        elif call == "pwrite64":
            offset = int(arguments.rpartition(", ")[2])
            yield SystemCall(kind="write", name=name, data=strings[0][:answer], offset=offset)
        elif call == "write":
            at = positions.get(name, 0)
            positions[name] = at + answer
            yield SystemCall(kind="write", name=name, data=strings[0][:answer], offset=at)
        elif call == "ftruncate":
            yield SystemCall(kind="truncate", name=name, offset=int(arguments.rpartition(", ")[2]))
        elif call in ("fsync", "fdatasync"):
            yield SystemCall(kind="sync", name=name)
        elif call == "unlink":
            yield SystemCall(kind="delete", name=name)
        elif call == "rename":
            yield SystemCall(kind="rename", name=name, to=strings[1].decode().removeprefix(inside))
        else:
            raise AssertionError(f"a call that is not understood: {line[:200]}")


def images(
    calls: list[SystemCall], *, rounds: int, stride: int = 1, seed: int = 0
) -> Iterator[DiskImage]:
    """Give, for each call (or each `stride`-th), what may be left when the power fails after it.

    Two images lose all or none of what was not synced; `rounds` more lose and tear at random.
    """
    disk, acknowledged = _Disk(), 0
    for point, call in enumerate(calls):
        acknowledged += call.kind == "acknowledged"
        _carry_out(disk, call)
        if point % stride:
            continue
        chance = random.Random(f"{seed} {point}")
        hows = ["lost", "kept", *(f"random {number}" for number in range(rounds))]
        for how in hows:
            files = _survivors(disk, how, chance)
            yield DiskImage(files=files, acknowledged=acknowledged, point=point, how=how)


def _carry_out(disk: _Disk, call: SystemCall) -> None:
    match call.kind:
        case "create" if call.name not in disk.files:
            disk.names.append((call.name, dict(disk.files)))
            disk.files[call.name] = _File()
        case "write" | "truncate":
            disk.files[call.name].pending.append(call)
        case "sync":
            file = disk.files[call.name]
            file.safe, file.pending = _apply(file.safe, file.pending), []
            # A synced file has its name: the file systems we run on write both together.
            disk.names = [(name, before) for name, before in disk.names if name != call.name]
        case "delete":
            disk.names.append(("", dict(disk.files)))
            del disk.files[call.name]
        case "rename":
            disk.names.append(("", dict(disk.files)))
            disk.files[call.to] = disk.files.pop(call.name)
        case "sync-directory":
            disk.names = []
        case _:
            pass


def _survivors(disk: _Disk, how: str, chance: random.Random) -> dict[str, bytes]:
    # Changes of the directory are kept in order: what is lost is a tail of them.
    steps = [before for _, before in disk.names] + [disk.files]
    index = {"lost": 0, "kept": len(steps) - 1}.get(how, chance.randrange(len(steps)))
    left = {}
    for name, file in steps[index].items():
        if how == "lost":
            left[name] = file.safe
        elif how == "kept":
            left[name] = _apply(file.safe, file.pending)
        else:
            left[name] = _apply(
                file.safe, [part for call in file.pending for part in _torn(call, chance)]
            )
    return left


def _torn(call: SystemCall, chance: random.Random) -> list[SystemCall]:
    match chance.choice(("kept", "lost", "torn")):
        case "lost":
            return []
        case "torn" if call.kind == "write":
            return [
                SystemCall(kind="write", data=call.data[at : at + SECTOR], offset=call.offset + at)
                for at in range(0, len(call.data), SECTOR)
                if chance.random() < 0.5
            ]
        case _:
            return [call]


def _apply(content: bytes, calls: list[SystemCall]) -> bytes:
    changed = bytearray(content)
    for call in calls:
        if call.kind == "truncate":
            del changed[call.offset :]
            changed.extend(bytes(call.offset - len(changed)))
        else:
            changed.extend(bytes(max(0, call.offset - len(changed))))
            changed[call.offset : call.offset + len(call.data)] = call.data
    return bytes(changed)


def main() -> None:
    store_module.CHECKPOINT_PAGES = LOG_PAGES
    store = open_store(Path(sys.argv[1]))
    for _ in operations(store):
        os.write(sys.stdout.fileno(), ACKNOWLEDGED)
    store.close()


if __name__ == "__main__":
    main()
