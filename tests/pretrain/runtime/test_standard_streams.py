"""A process whose standard streams are closed goes on, and writes what it prints into no file."""

import subprocess
import sys

import pytest

from tests.support.tiny_runs import ROOT

SCRIPT = """
import pretrain
import subprocess, sys
with open(sys.argv[1], "w") as file:
    print("printed")
    print("said", file=sys.stderr, flush=True)
    subprocess.run(["sh", "-c", "echo child; echo child >&2"], check=True)
    print(file.fileno(), sys.stdin.read(), file=file)
"""


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-", "2</dev/null"])
def test_what_is_printed_to_a_closed_stream_reaches_no_file(tmp_path, closed):
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        [*words, str(tmp_path / "out")], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True
    )
    assert done.returncode == 0
    assert (tmp_path / "out").read_text() == "3 \n"
