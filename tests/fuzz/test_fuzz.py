"""Parsers that meet strangers answer or refuse, whatever they are given."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS, feed
from tests.support.processes import ROOT

ALPHABET = b"\x00\t\n\r \"#$&'*,-.:;<>?@[\\]{|}~09azAZ\xc5\xbf\xff"
SECONDS = 60
SLOWEST = 200
"""Executions in a run below which the fuzzer was stuck rather than searching."""

each_target = pytest.mark.parametrize("name", TARGETS)


@each_target
def test_a_parser_answers_or_refuses_what_was_tampered_with(name: str) -> None:
    target = TARGETS[name]
    chance = random.Random(name)
    for seed in target.seeds:
        feed(target, seed)
        for _ in range(150):
            feed(target, _tampered(seed, chance))


def _tampered(seed: bytes, chance: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.choice(ALPHABET)])
            case 1:
                data[at:at] = bytes([chance.choice(ALPHABET)]) * chance.choice((1, 1, 2, 40))
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case _:
                start = chance.randrange(len(data) + 1)
                data[at:at] = data[start : start + 12]
    return bytes(data)


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 5)
@each_target
def test_a_minute_of_guided_fuzzing_breaks_nothing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="the fuzzer is for Linux on x86-64 alone")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, str(SECONDS), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    broken = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert ran.returncode == 0, f"{broken!r}\n{ran.stderr[-4000:]}"
    done = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    assert done is not None
    assert int(done[1]) > SLOWEST
