"""One attempt at a program that resumes:  python -m launch.attempt -- python -m pretrain.main ...

Whoever starts programs anew, be it Slurm, Kubernetes, SkyPilot or `launch/tpu_vm.sh`, goes by the
exit code: 0 of a program that has finished, 75 of one that was stopped before its end, or that has
lost another of its processes.  This passes the program's exit code on, and SIGTERM to the program.
Where the program is one process of several, SIGABRT is how JAX ends it for the loss of another: the
exit code is then 75.

What the program says, on stdout or stderr, goes to stdout.  When nobody reads that any more, the
program is told to stop and the exit code is 1; lines that a full disk does not take are dropped,
and counted on stderr.  If this process is killed, Linux kills the program.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from types import FrameType

from launch.command_line import Parser
from launch.programs import Output, end_with_parent, say

AGAIN = 75  # EX_TEMPFAIL of sysexits.h: try again
JOINED = "QUARTET_JOINED"  # names a file for the program, to write there which of several it is


def main() -> int:
    parser = Parser("launch.attempt", __doc__)
    parser.add_argument("--code", type=pathlib.Path, help="a file to write the exit code to, too")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- and the program")
    args = parser.parse_args()
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        parser.error("name a program to run, after --")
    with tempfile.NamedTemporaryFile("r") as joined:
        code = attempt(program, {JOINED: joined.name})
        if code == 128 + signal.SIGABRT and (who := joined.read()):
            lost = "if no process is named above, it was process 0"
            say(f"{who} was ended by JAX, as another one was lost; {lost}: start the run again")
            code = AGAIN
    if args.code:
        args.code.write_text(f"{code}\n")
    return code


def attempt(program: list[str], variables: dict[str, str]) -> int:
    """Runs `program`, with environment variables of its own, to its end.

    Returns:
        Its exit code: 128 + n after signal n, and 127 if there is no such program; 1 if nobody
        read what it said.
    """
    running: list[subprocess.Popen] = []
    early: list[int] = []  # signals to pass on once the program is there

    def pass_on(signum: int, _: FrameType | None) -> None:
        if signum != signal.SIGTERM:
            return  # a terminal sends its SIGINT to the program by itself
        for process in running:
            process.send_signal(signum)
        if not running:
            early.append(signum)

    # Before the program starts: a signal in between would kill it before it can save.
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, pass_on)
    try:
        process = subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | variables | {"PYTHONUNBUFFERED": "1"},
            preexec_fn=end_with_parent,
        )
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        return 127
    running.append(process)
    for missed in early:
        process.send_signal(missed)
    output = Output()
    _echo(process, output)
    code = process.wait()
    output.report()
    if code and output.is_closed:
        return 1
    return code if code >= 0 else 128 - code


def _echo(process: subprocess.Popen, output: Output) -> None:
    """Prints all that the process says, and tells it to stop once nobody reads that."""
    assert process.stdout
    for line in process.stdout:
        was_closed = output.is_closed
        output.write(line)
        if output.is_closed and not was_closed:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
