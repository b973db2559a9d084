"""Several processes write the parts that one would, in bounded memory, and end with the caller."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pretrain.data.corpus import part_workers, writer
from pretrain.data.corpus.sentences import DOCUMENT, SENTENCE, Piece
from pretrain.runtime.errors import UserError

ROOT = Path(__file__).parents[4]
HOLD = """
import multiprocessing, sys, time
from pathlib import Path
from pretrain.data.corpus import part_workers
from tests.pretrain.data.corpus.test_part_workers import PARTS

with part_workers.open_pool(Path(sys.argv[1]), False, 2) as pool:
    pool.write_part(Path(sys.argv[2]), PARTS[0], True)
    pool.finish()
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    time.sleep(600)
"""
PARTS = [
    [Piece(f"Budor {n} in mada.", DOCUMENT, 4, 18), Piece("Tin kor.", SENTENCE, 2, 8)]
    for n in range(7)
]


@pytest.fixture
def pool(corpus):
    with part_workers.open_pool(corpus.folder / "tokenizer", False, 2) as pool:
        yield pool


def test_parts_are_those_of_one_process_and_few_wait(corpus, pool, tmp_path):
    closing = writer.closing_tokens(corpus.tokenizer, False)
    tokens = 0
    for number, part in enumerate(PARTS):
        tokens += pool.write_part(tmp_path / f"{number}.npz", part, number == 0)
        assert len(pool.waiting) <= part_workers.AHEAD * 2
    tokens += pool.finish()
    for number, part in enumerate(PARTS):
        own = tmp_path / "own.npz"
        tokens -= writer.write_part(own, part, number == 0, corpus.tokenizer, closing)
        with np.load(own) as expected, np.load(tmp_path / f"{number}.npz") as written:
            assert {*expected} == {*written}
            for name in expected:
                np.testing.assert_array_equal(written[name], expected[name])
    assert tokens == 0


def test_workers_end_with_a_caller_that_is_killed(corpus, tmp_path):
    words = [str(corpus.folder / "tokenizer"), str(tmp_path / "0.npz")]
    caller = subprocess.Popen(
        [sys.executable, "-c", HOLD, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    workers = [int(pid) for pid in caller.stdout.readline().split()]
    assert workers
    caller.kill()
    caller.communicate()  # to the end of its output, which its workers have, too
    end = time.monotonic() + 60
    while (left := [pid for pid in workers if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


def is_alive(pid: int) -> bool:
    """Checks for a process that is there, and more than an entry for its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_one_process_needs_no_pool(tmp_path):
    with part_workers.open_pool(tmp_path, False, 1) as pool:
        assert pool is None


def test_what_a_worker_meets_is_raised_by_the_caller(pool, tmp_path):
    (tmp_path / "file").touch()
    pool.write_part(tmp_path / "file" / "0.npz", PARTS[0], True)
    with pytest.raises(NotADirectoryError):
        pool.finish()


def test_a_worker_that_was_ended_is_named_with_what_to_do(pool, tmp_path):
    pool.write_part(tmp_path / "0.npz", PARTS[0], True)
    pool.finish()
    for process in multiprocessing.active_children():
        process.kill()

    def write_until_it_is_noticed():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pool.write_part(tmp_path / "1.npz", PARTS[1], False)
            pool.finish()

    with pytest.raises(UserError, match=r"was ended.*fewer --processes"):
        write_until_it_is_noticed()
