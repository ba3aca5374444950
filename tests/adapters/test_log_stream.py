"""Log lines reach whoever reads them, and wait for nobody who does not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from holdfast.adapters.log_stream import LogStream


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)  # ends a write that is still waiting
    os.close(writer)


def test_lines_arrive_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer)
    for number in range(100):
        stream.write(f"{number}\n".encode())
    assert stream.flush(20)
    assert os.read(reader, 65_536).decode().split() == [str(number) for number in range(100)]


def test_writing_never_waits_for_a_reader(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer, max_waiting=1_000_000)
    done = threading.Event()

    def write() -> None:
        for _ in range(30_000):
            stream.write(b"x" * 99 + b"\n")
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert done.wait(20), "the writer waited for a reader"
    assert not stream.flush(0.05)
    read = b""
    while b"log_lines_dropped" not in read:
        read += os.read(reader, 1_000_000)
    assert len(read) < 1_100_000, "what waited was bounded"


def test_a_reader_that_left_stops_nobody() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        stream = LogStream(writer)
        for _ in range(10):
            stream.write(b"nobody reads this\n")
            assert stream.flush(20)
    finally:
        os.close(writer)
