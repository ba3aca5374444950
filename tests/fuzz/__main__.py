"""Fuzz one target, guided by coverage: `python -m tests.fuzz TARGET SECONDS DIRECTORY`.

The directory gets what was found interesting, and the input that broke it. Prints libFuzzer's
figures; ends with another code than 0 when an input broke the target.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["holdfast"]):
    from tests.fuzz.targets import TARGETS, feed


def main() -> None:
    name, seconds, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    target = TARGETS[name]
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = ["-timeout=5", "-rss_limit_mb=1024", "-max_len=4096", "-print_final_stats=1"]
    arguments = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-artifact_prefix={place}/",
        *limits,
        str(corpus),
    ]
    atheris.Setup(arguments, lambda data: feed(target, data))
    atheris.Fuzz()


main()
