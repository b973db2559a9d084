"""Commands as processes of their own, begun in a tenth of a second.

A server imports the libraries once, and forks for each command: what it saves is their import.
"""

import atexit
import contextlib
import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
from multiprocessing import forkserver

PathLike = str | os.PathLike
ROOT = pathlib.Path(__file__).parents[2]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.support.preloaded"])


class Process:
    """A process of `python -m MODULE` or `python -c CODE`, as `subprocess.Popen` would be it."""

    def __init__(
        self, command: list, environment: dict[str, str] | None = None, folder: PathLike = ROOT
    ):
        self.args = [str(word) for word in command]
        self.pipes = tempfile.TemporaryDirectory()
        self.said = [pathlib.Path(self.pipes.name, name) for name in ("stdout", "stderr")]
        for file in self.said:
            file.touch()
        with contextlib.chdir(ROOT):  # where the server imports from
            forkserver.ensure_running()
        words = (self.args, dict(environment or os.environ), str(folder), self.said)
        self.process = SERVER.Process(target=become, args=words)
        self.process.start()
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, ...]:
        """Waits for the end; returns what was said on stdout and stderr."""
        self.process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return tuple(file.read_bytes().decode() for file in self.said)


def become(command: list[str], environment: dict[str, str], folder: str, files: list) -> None:
    """Runs the command as this process."""
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [folder, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.orig_argv = command
    _, kind, program, *words = command
    sys.argv = [kind, *words]
    try:
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()  # which a process of `multiprocessing` leaves out


def run(*command: PathLike, **options) -> subprocess.CompletedProcess:
    """Runs `python COMMAND` to its end; the options are those of `Process`."""
    process = Process([sys.executable, *command], **options)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode or 0, out, err)
