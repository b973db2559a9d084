"""Clouds that are played on this machine: a stub of each command, that records how it is called."""

import ast
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
HARD_TO_QUOTE = [
    "python",
    "-m",
    "pretrain.main",
    "a b",
    "it's",
    '"x" \\ ${HOME}',
    "--workdir=/mnt/bucket/r",
]

# Any command: records its words and what is piped into it, and answers as it was told to, in turn.
STUB = """\
import os, sys
folder, words = os.environ["PLAYED"], [os.path.basename(sys.argv[1]), *sys.argv[2:]]
piped = sys.stdin.read() if words[0] in os.environ.get("PIPED", "").split() else ""
kept = {k: v for k, v in os.environ.items() if k.startswith(("JAX_", "SRUN_"))}
with open(f"{folder}/calls", "a") as file:
    file.write(repr({"words": words, "stdin": piped, "env": kept, "cwd": os.getcwd()}) + "\\n")
for name in sorted(name for name in os.listdir(folder) if name.startswith("answer-")):
    said = eval(open(f"{folder}/{name}").read())
    if all(part in " ".join(words) for part in said["to"]):
        if said["once"]:
            os.unlink(f"{folder}/{name}")
        print(said["out"], end="", flush=True)
        print(said["err"], end="", file=sys.stderr)
        sys.exit(said["code"])
"""

# A TPU: its queued resource moves on at every look, its workers are folders that commands run in.
GCLOUD = """\
words = [word for word in words if word != "alpha"]
kind, verb = words[3], words[4]
workers = sorted(f"{folder}/{name}" for name in os.listdir(folder) if name.startswith("worker-"))

def fail(code, text):
    print(text, file=sys.stderr)
    sys.exit(code)

def read(name):
    path = os.path.join(folder, name)
    return open(path).read() if os.path.exists(path) else ""

def write(name, text):
    open(os.path.join(folder, name), "w").write(text)

def happens(event):
    text = read(event)
    write(event, "")
    return text

def pid(worker):
    return read(f"{worker}/quartet-run/pid").strip()

def power_off():
    for worker in workers:
        try:
            os.killpg(int(pid(worker)), 9)
        except (ValueError, ProcessLookupError):
            pass

states = read("states").split()
if verb == "create":
    if text := happens("refuse-create"):
        fail(1, text)
    import shutil
    for worker in workers:
        shutil.rmtree(worker)
        os.mkdir(worker)
    write("deaf", "")
    write("states", happens("next-states") or "WAITING_FOR_RESOURCES ACTIVE")
elif verb == "delete":
    power_off()
    write("states", "")
elif verb == "describe" and kind == "queued-resources":
    if text := happens("hiccup"):
        fail(1, text)
    if not states:
        fail(1, "ERROR: (gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: not found.")
    if "error" in " ".join(words):
        print(read("why"))
    else:
        print(states[0])
        write("states", " ".join(states[1:] or states))
elif verb == "describe":
    print("READY")
elif verb == "scp":
    import shutil
    for worker in workers:
        shutil.copy(words[5], worker)
elif verb == "ssh":
    import signal, subprocess, time
    command = next(word[10:] for word in words if word.startswith("--command="))
    if states != ["ACTIVE"]:
        fail(1, "ERROR: this TPU is in an unusable state")
    if read("deaf"):
        fail(255, "ERROR: connection timed out")
    running = [
        subprocess.Popen(
            ["bash", "-c", command], cwd=worker,
            env=os.environ | {"HOME": worker, "HOSTNAME": f"t1v-n-0-w-{n}"},
        )
        for n, worker in enumerate(workers)
    ]
    event = happens("at-follow") if command.endswith("follow") else ""
    if event:
        kind, steps = event.split()
        while len(read(os.environ.get("PROGRESS", "bucket/progress")).split()) < int(steps):
            time.sleep(0.01)
        if kind == "preempt":
            write("states", "ACTIVE SUSPENDING SUSPENDED")
        if kind in ("preempt", "reboot"):
            power_off()
        if kind == "maintain":
            for worker in workers:
                child = open(f"/proc/{pid(worker)}/task/{pid(worker)}/children").read().split()[0]
                os.kill(int(child), signal.SIGTERM)
        if kind == "deafen":
            write("deaf", "yes")
        if kind in ("preempt", "drop", "deafen"):
            for process in running:
                process.kill()
            fail(255, "ERROR: the connection was closed")
    codes = [process.wait() for process in running]
    sys.exit(next((code for code in codes if code), 0))
else:
    fail(2, f"the stub knows no {words}")
"""

# What a machine's own python3 is asked for: an environment, without a network.
PYTHON3 = """\
#!/bin/sh
for last; do :; done
case "$*" in
  *"uv venv"*) mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
  "-m pip"* | "-m uv"*) test -z "$(cat "$PLAYED/refuse-install" 2> /dev/null)" ;;
  *) exec {python} "$@" ;;
esac
"""

# A program that trains: a step of worker 0 is a line in a file on the bucket, and the others end
# when it does.  Told to stop, all do, and worker 0 says so.
PROGRAM = """\
import os, signal, sys, time
path, steps, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
first = os.environ["HOSTNAME"].endswith("-0")
over = path + "-over"
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))

def done():
    return len(open(path).read().split()) if os.path.exists(path) else 0

def end(code, text=""):
    open(over, "w").close()
    print(text)
    sys.exit(code)

if first and os.path.exists(over):
    os.unlink(over)
while not first:
    time.sleep(0.05)
    if stop or os.path.exists(over) and time.time() - os.path.getmtime(over) < 5:
        sys.exit(75 if stop else 0)
print(f"continuing from step {done()}", sys.argv[4:], flush=True)
for step in range(done() + 1, steps + 1):
    if code and step == steps:
        end(code)
    with open(path, "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.02)
    while os.path.exists(path + "-hold") and not stop:
        time.sleep(0.01)
    if stop:
        end(75, f"Stopped at step {step} of {steps}.")
end(0, f"Finished at step {steps} of {steps}.")
"""


class Played:
    """A folder with a repository, stubs and what they have been asked.

    Attributes:
        repository: the launch scripts and a program, committed.
        bucket: what all machines see.
    """

    def __init__(self, folder: pathlib.Path, workers: int = 0):
        self.folder, self.repository, self.bucket = folder, folder / "repo", folder / "bucket"
        self.bin = folder / "bin"
        for each in (self.bin, self.bucket):
            each.mkdir()
        for n in range(workers):
            (folder / f"worker-{n}").mkdir()
        shutil.copytree(ROOT / "launch", self.repository / "launch")
        for path in self.repository.glob("launch/__pycache__"):
            shutil.rmtree(path)
        (self.repository / "requirements-tpu.txt").touch()
        (self.repository / "program.py").write_text(PROGRAM)
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message=all")
        self.stub("gcloud", GCLOUD if workers else "")
        self.executable("python3", PYTHON3.replace("{python}", sys.executable))

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        subprocess.run(["git", *who, *words], cwd=self.repository, check=True)

    def stub(self, name: str, then: str = "") -> None:
        """A command that is recorded, and then does something."""
        code = self.folder / f"{name}.py"
        code.write_text(STUB + then)
        self.executable(name, f'#!/bin/sh\nexec {sys.executable} -SsE {code} "$0" "$@"\n')

    def executable(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def answer(self, *to: str, out: str = "", err: str = "", code: int = 0, once: bool = True):
        """What the next call in which all of `to` occur says and does instead."""
        number = len(list(self.folder.glob("answer-*"))) + time.monotonic_ns()
        said = {"to": to, "out": out, "err": err, "code": code, "once": once}
        (self.folder / f"answer-{number:020}").write_text(repr(said))

    def play(self, event: str, text: str = "") -> None:
        """Something that is to happen in the stub of gcloud."""
        (self.folder / event).write_text(text)

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "PLAYED": str(self.folder)} | more

    def start(self, script: str, *words: str, **more: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self.repository / "launch" / script, *words],
            cwd=self.repository,
            text=True,
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A shell cannot trap a signal that it began with ignored, as programs in the
            # background of a script do.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, script: str, *words: str, **more: str) -> subprocess.CompletedProcess:
        process = self.start(script, *words, **more)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def calls(self, *parts: str) -> list[dict]:
        """The calls in which all of these occur."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        calls = [ast.literal_eval(line) for line in lines]
        return [call for call in calls if all(part in " ".join(call["words"]) for part in parts)]

    def steps(self) -> list[int]:
        """The steps that the program has taken, in order."""
        path = self.bucket / "progress"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_for(happened, process: subprocess.Popen) -> None:
    """Returns as soon as `happened()`; fails if the process has ended before."""
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def needs_git() -> None:
    """Skips the test where there is no git."""
    if not shutil.which("git"):
        pytest.skip("there is no git to copy the code with")


# A program that says more than a pipe holds, without an end, and saves when it is told to stop.
# Leaves a file once it can be told to stop, and another when it was.
TALKER = """\
import os, signal, sys
leave = lambda name: open(f"{folder}/{{name}}-{{os.getpid()}}", "w")
signal.signal(signal.SIGTERM, lambda *_: (leave("saved"), os._exit(75)))
leave("ready")
while True:
    print("x" * 1000)
"""


def find_child(process: subprocess.Popen) -> int:
    """Returns the pid of the first program that a launcher has started."""
    pids = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return int(pids.split()[0])


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only its exit code."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True
