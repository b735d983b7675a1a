"""A log whose reader stalls holds up nobody."""

import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from torpor.operations.log_stream import WAITING_MAX, PatientLines

DEADLINE_S: Final = 10.0
PIPE_BYTES: Final = 4_096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of one that holds little."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reads, writes
    for end in (reads, writes):
        os.close(end)


def read(reads: int, size: int) -> bytes:
    heard = b""
    while len(heard) < size:
        heard += os.read(reads, size - len(heard))
    return heard


def test_lines_come_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    lines = PatientLines(writes, on_lost=lambda _: None)
    told = [f"line {number} with an é\n" for number in range(100)]
    for text in told:
        lines.write(text)
    assert read(reads, len("".join(told).encode())).decode() == "".join(told)
    lines.close(DEADLINE_S)


def test_what_a_stalled_reader_leaves_waits_up_to_a_bound_and_what_is_lost_is_told() -> None:
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    lost: list[int] = []
    is_told = threading.Event()

    def tell(number: int) -> None:
        lost.append(number)
        is_told.set()

    lines = PatientLines(writes, on_lost=tell)
    line = f"{'x' * (PIPE_BYTES - 1)}\n"
    for _ in range(3 * WAITING_MAX):
        lines.write(line)
    with os.fdopen(reads, "rb") as pipe, ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read)
        assert is_told.wait(DEADLINE_S)
        lines.close(DEADLINE_S)
        os.close(writes)
        taken = read.result(DEADLINE_S).decode().count(line)
    assert WAITING_MAX <= taken < 3 * WAITING_MAX
    assert sum(lost) == 3 * WAITING_MAX - taken


def test_a_reader_that_stalls_for_good_does_not_keep_the_end(pipe: tuple[int, int]) -> None:
    _, writes = pipe
    lines = PatientLines(writes, on_lost=lambda _: None)
    lines.write("x" * 2 * PIPE_BYTES)
    lines.close(0.05)
    lines.write("too late\n")


def test_a_reader_that_left_is_nobodys_fault() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    lines = PatientLines(writes, on_lost=lambda _: None)
    lines.write("to nobody\n")
    lines.close(DEADLINE_S)
    os.close(writes)
