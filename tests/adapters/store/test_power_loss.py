"""The store after a power failure: what was acknowledged is on the disk, whatever else is lost.

`kill -9` leaves what the kernel was given; a power failure leaves only what was synced. The
images are made from the system calls of a real run; see tests/adapters/store/power_loss.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.store.power_loss import DiskImage, SystemCall, images, trace
from tests.adapters.store.store_script import broken_invariants, dump, open_store, operations

from holdfast.core.errors import HoldfastError

MEMORY = Path("/dev/shm")


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"]).returncode == 0


pytestmark = pytest.mark.skipif(
    not _can_trace(), reason="needs strace, and the right to trace a child (Debian: strace)"
)


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as home:
        yield Path(home)


@pytest.fixture(scope="module")
def calls(room: Path) -> list[SystemCall]:
    (room / "traced").mkdir()
    return trace(room / "traced")


@pytest.fixture(scope="module")
def states(room: Path) -> list[object]:
    """What the store holds after each operation, from the empty one on."""
    path = room / "whole.db"
    store = open_store(path)
    found: list[object] = [dump(path), *(dump(path) for _ in operations(store))]
    store.close()
    return found


def problems_of(image: DiskImage, states: list[object], room: Path) -> list[str]:
    place = room / "image"
    place.mkdir()
    for name, content in image.files.items():
        (place / name).write_bytes(content)
    path = place / "holdfast.db"
    try:
        found = broken_invariants(path)
        if dump(path) not in states[image.acknowledged : image.acknowledged + 2]:
            found.append(f"not the state after {image.acknowledged} operations, nor the next")
    except HoldfastError as error:
        found = [f"refused: {error}"]
    finally:
        shutil.rmtree(place)
    return [f"call {image.point}, {image.how}: {each}" for each in found]


def test_a_power_failure_loses_nothing_acknowledged(
    calls: list[SystemCall], states: list[object], room: Path
) -> None:
    tried = list(images(calls, rounds=1, stride=7))
    assert [each for image in tried for each in problems_of(image, states, room)] == []
    assert len(tried) >= 150
    assert sum(call.kind == "acknowledged" for call in calls) == len(states) - 1


def test_the_images_show_a_store_that_does_not_sync(
    calls: list[SystemCall], states: list[object], room: Path
) -> None:
    """Without its syncs the same run loses acknowledged writes: the check can fail."""
    hasty = [call for call in calls if call.kind not in ("sync", "sync-directory")]
    lost = images(hasty, rounds=1, stride=29)
    assert any(problems_of(image, states, room) for image in lost)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_no_image_of_thousands_loses_anything_acknowledged(
    calls: list[SystemCall], states: list[object], room: Path, seed: int
) -> None:
    tried = 0
    for image in images(calls, rounds=8, seed=seed):
        assert problems_of(image, states, room) == []
        tried += 1
    assert tried >= 3_000
