"""Real processes on this machine:  python -m launch.local -n 2 -- python -m pretrain.main ...

On a machine with NVIDIA GPUs each process is shown its equal share of them: with as many processes
as GPUs, one each.  CUDA_VISIBLE_DEVICES says which GPUs there are to share, JAX_PLATFORMS=cpu that
there are none.
Every line of output begins with its process's number.  The first process that fails ends all, and
its exit code is the launcher's: 75 where one of several was killed, or ended by JAX for the loss of
another.  SIGTERM and SIGINT are passed on to every process.  When nobody reads the output any more,
all are told to stop and the exit code is 1; lines that a full disk does not take are dropped, and
counted on stderr.  If the launcher is killed, Linux kills the processes.
"""

import argparse
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import FrameType

from launch.attempt import AGAIN
from launch.command_line import Parser
from launch.programs import Output, end_with_parent

# Killed, or ended by JAX when another process was.
LOST = {-signal.SIGKILL, -signal.SIGABRT}
PATIENCE = 30.0  # seconds that the others have to end after a failure


def main() -> int:
    parser = Parser("launch.local", __doc__)
    parser.add_argument("-n", type=int, default=2, help="number of processes")
    parser.add_argument("--devices", type=int, default=0, help="fake CPU devices of each process")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("name a command to run, after --")
    if args.n < 1:
        parser.error(f"-n {args.n}: want 1 process or more")
    try:
        mine = divide_gpus([] if args.devices else list_gpus(), args.n)
    except ValueError as error:
        parser.error(str(error))
    processes: list[subprocess.Popen] = []
    asked: list[tuple[int, int]] = []  # signals, and how many processes there were to get each

    def pass_on(signum: int, _: FrameType | None) -> None:
        asked.append((signum, len(processes)))
        for process in processes:
            process.send_signal(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, pass_on)
    address = f"localhost:{_free_port()}"
    # After the handlers: a signal in between would kill the processes before they can save.
    for n in range(args.n):
        variables = make_environment(n, args.n, address, args.devices, mine[n])
        try:
            processes.append(start_process(command, variables))
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            _end(processes, PATIENCE)
            return 127
        for missed, count in asked:
            if count <= n:
                processes[n].send_signal(missed)
    output = Output()
    echoes = [
        threading.Thread(target=_echo, args=(*item, output), daemon=True)
        for item in enumerate(processes)
    ]
    for echo in echoes:
        echo.start()
    code = follow(processes, output)
    for echo in echoes:
        echo.join(timeout=1.0)  # the last lines; a child of a process may hold the pipe for longer
    output.report()
    return code


def list_gpus() -> list[str]:
    """Lists the GPUs a process would see here, as CUDA_VISIBLE_DEVICES names them."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return []
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name not in ("", "-1")]
    gpus = [path for path in pathlib.Path("/dev").glob("nvidia*") if re.search(r"\d$", path.name)]
    return [str(n) for n in range(len(gpus))]


def divide_gpus(gpus: list[str], n: int) -> list[list[str]]:
    """Divides `gpus` into `n` equal parts.

    Raises:
        ValueError: they cannot be divided so.
    """
    if len(gpus) % n:
        raise ValueError(
            f"{len(gpus)} GPUs cannot be shared evenly by {n} processes; name those to use in "
            "CUDA_VISIBLE_DEVICES, or set JAX_PLATFORMS=cpu"
        )
    share = len(gpus) // n
    return [gpus[i * share : (i + 1) * share] for i in range(n)]


def make_environment(
    index: int, count: int, address: str, devices: int, gpus: list[str]
) -> dict[str, str]:
    """Returns the variables that tell a process who it is."""
    # `pretrain.distributed.processes.join` reads them.
    variables = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(index),
        "PYTHONUNBUFFERED": "1",  # else a killed process loses its last lines
    }
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if devices:
        flags = os.environ.get("XLA_FLAGS", "")
        variables["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}"
        variables["JAX_PLATFORMS"] = "cpu"
    return variables


def start_process(command: list[str], variables: dict[str, str]) -> subprocess.Popen:
    """Starts a process with environment variables of its own."""
    # A session of its own: a terminal's Ctrl-C reaches it once, through the launcher.
    return subprocess.Popen(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def _echo(index: int, process: subprocess.Popen, output: Output) -> None:
    assert process.stdout
    for line in process.stdout:
        output.write(f"[{index}] {line.rstrip()}\n".encode())


def follow(processes: list[subprocess.Popen], output: Output, patience: float = PATIENCE) -> int:
    """Waits for all; after a failure gives the others `patience` seconds, then ends them.

    Returns:
        The exit code of the process that failed, as a shell tells it: 128 + n after signal n; 1
        if nobody read what they said.
    """
    codes: list[int | None] = [None]
    while None in codes and not any(codes):
        if output.is_closed:
            _end(processes, patience)
            return 1
        time.sleep(0.1)
        codes = [p.poll() for p in processes]
    ended = {n: code for n, code in enumerate(codes) if code}
    is_lost = len(processes) > 1 and not LOST.isdisjoint(ended.values())
    if ended:
        verb = "was stopped" if set(ended.values()) == {AGAIN} else "failed"
        verb = "was lost, start the run again" if is_lost else verb
        who = ", ".join(f"{n} with {code}" for n, code in ended.items())
        output.write(f"[launch] process {who} {verb}: ending the others\n".encode())
        # They wait in collectives for the one that is gone, and would do so for ever.
        _end(processes, patience)
    code = AGAIN if is_lost else next((code for code in codes if code), 0)
    return code if code >= 0 else 128 - code


def _end(processes: list[subprocess.Popen], patience: float) -> None:
    for p in processes:
        p.terminate()
    deadline = time.monotonic() + patience
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    for p in processes:
        try:
            os.killpg(p.pid, signal.SIGKILL)  # its children, too
        except ProcessLookupError:
            p.kill()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
