"""Real processes on this machine:  python -m launch.local -n 2 -- python -m pretrain.main ...

Every line of output begins with its process's number.  The first process that fails ends all, and
its exit code is the launcher's; SIGTERM and SIGINT are passed on to every process.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time


def main() -> int:
    """Starts the processes, follows them, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m launch.local", description=__doc__)
    parser.add_argument("-n", type=int, default=2, help="number of processes")
    parser.add_argument("--devices", type=int, default=0, help="fake CPU devices of each process")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or args.n < 1:
        parser.error("name a command to run, after --")
    address = f"localhost:{_free_port()}"
    processes = [start(command, n, args.n, address, args.devices) for n in range(args.n)]
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda got, _: [p.send_signal(got) for p in processes])
    return follow(processes)


def start(command: list[str], index: int, count: int, address: str, devices: int):
    """One process, told who it is by the variables that `pretrain.machine.join` reads."""
    own = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(index),
        "PYTHONUNBUFFERED": "1",
    }
    if devices:
        flags = os.environ.get("XLA_FLAGS", "")
        own["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}"
    # A session of its own: a terminal's Ctrl-C reaches it once, through the launcher.
    process = subprocess.Popen(
        command, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    threading.Thread(target=_echo, args=(process, index), daemon=True).start()
    return process


def _echo(process: subprocess.Popen, index: int) -> None:
    assert process.stdout
    for line in process.stdout:
        sys.stdout.write(f"[{index}] {line}")
        sys.stdout.flush()


def follow(processes: list[subprocess.Popen], patience: float = 30.0) -> int:
    """Waits for all; after a failure gives the others `patience` seconds, then ends them."""
    codes: list[int | None] = [None]
    while None in codes and not any(codes):
        time.sleep(0.1)
        codes = [p.poll() for p in processes]
    failed = [f"{n} with {code}" for n, code in enumerate(codes) if code]
    if failed:
        print(f"[launch] process {', '.join(failed)} failed: ending the others", flush=True)
        _end(processes, patience)
    time.sleep(0.2)  # their last lines
    return next((abs(code) for code in codes if code), 0)


def _end(processes: list[subprocess.Popen], patience: float) -> None:
    for p in processes:
        p.terminate()
    deadline = time.monotonic() + patience
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    for p in processes:
        p.kill()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
