"""Real processes that know who they are, share the GPUs, and end together."""

import os
import signal
import subprocess
import sys

import pytest

from launch import local
from launch.attempt import AGAIN
from tests.support.fake_clouds import has_ended
from tests.support.tiny_runs import ROOT

WHO = "import os; print(os.environ['JAX_PROCESS_ID'], 'of', os.environ['JAX_NUM_PROCESSES'])"
MINE = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('JAX_PLATFORMS'))"


def launch(code: str, *options: str, n: int = 2, **more: str) -> subprocess.CompletedProcess:
    own = {k: v for k, v in os.environ.items() if k not in ("JAX_PLATFORMS", *more)} | more
    command = [sys.executable, "-m", "launch.local", "-n", str(n), *options]
    return subprocess.run(
        [*command, "--", sys.executable, "-c", code],
        cwd=ROOT,
        env=own,
        text=True,
        capture_output=True,
        timeout=60,
    )


def test_every_process_is_told_who_it_is_and_its_lines_are_marked():
    done = launch(WHO, n=3, JAX_PLATFORMS="cpu")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]


def test_what_a_process_says_on_either_stream_arrives_whole_whatever_the_bytes():
    code = "import os; os.write(1, b'a\\n\\xff\\n'); os.write(2, b'b\\n'); os.write(1, b'no end')"
    assert launch(code, n=1).stdout.splitlines() == ["[0] a", "[0] \ufffd", "[0] b", "[0] no end"]


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit(7)", 7, "process 1 with 7 failed"),
        ("os.kill(os.getpid(), 9)", AGAIN, "process 1 with -9 was lost"),
        ("os.abort()", AGAIN, "process 1 with -6 was lost"),
        ("sys.exit(75)", AGAIN, "process 1 with 75 was stopped"),
    ],
)
def test_the_first_failure_ends_all_and_a_lost_process_means_again(end, code, said):
    wait = "import os, sys, time; time.sleep(0 if os.environ['JAX_PROCESS_ID'] == '1' else 600)"
    done = launch(f"{wait}; {end}", JAX_PLATFORMS="cpu")
    assert done.returncode == code
    assert said in done.stdout


def test_one_process_alone_that_a_signal_ended_has_the_code_of_a_shell():
    assert launch("import os; os.kill(os.getpid(), 9)", n=1).returncode == 128 + 9


def test_nothing_that_a_process_has_started_outlives_a_failure(tmp_path):
    child = f"import os, time; open('{tmp_path}/pid', 'w').write(str(os.getpid())); time.sleep(600)"
    code = f"""
import os, subprocess, sys, time
if os.environ["JAX_PROCESS_ID"] == "0":
    subprocess.run([sys.executable, "-c", {child!r}])
while not os.path.exists("{tmp_path}/pid") or not open("{tmp_path}/pid").read():
    time.sleep(0.01)
sys.exit(1)
"""
    assert launch(code, JAX_PLATFORMS="cpu").returncode == 1
    assert has_ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("n", "visible", "seen"),
    [
        (2, "0,1", ["[0] 0 None", "[1] 1 None"]),
        (2, "GPU-a,GPU-b,GPU-c,GPU-d", ["[0] GPU-a,GPU-b None", "[1] GPU-c,GPU-d None"]),
        (1, "3,5", ["[0] 3,5 None"]),
        (2, "", ["[0]  None", "[1]  None"]),
    ],
)
def test_each_process_is_shown_its_equal_share_of_the_gpus(n, visible, seen):
    assert sorted(launch(MINE, n=n, CUDA_VISIBLE_DEVICES=visible).stdout.splitlines()) == seen


def test_gpus_that_cannot_be_shared_evenly_are_refused():
    done = launch(MINE, n=2, CUDA_VISIBLE_DEVICES="0,1,2")
    assert done.returncode == 2
    assert "3 GPUs cannot be shared evenly by 2 processes" in done.stderr


def test_on_the_cpu_and_with_fake_devices_no_gpu_is_shared():
    both = {"CUDA_VISIBLE_DEVICES": "0"}
    assert launch(MINE, JAX_PLATFORMS="cpu", **both).stdout.count(" 0 cpu") == 2
    assert launch(MINE, "--devices=2", **both).stdout.count(" 0 cpu") == 2


def test_gpus_are_counted_where_no_variable_names_them(monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.setattr(local.pathlib, "Path", lambda _: tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert local.list_gpus() == ["0", "1", "2"]


def run_main(monkeypatch, start, *words: str) -> int:
    """Runs the launcher in this process, with another way to start one."""
    monkeypatch.setattr(local, "start_process", start)
    monkeypatch.setattr(sys, "argv", ["local", *words])
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        return local.main()
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def test_a_signal_while_a_process_starts_reaches_each_once(monkeypatch):
    started, sent = [], []

    class Process(subprocess.Popen):
        def send_signal(self, sig):
            sent.append((started.index(self), sig))

    def start(command, _variables):
        started.append(Process(command, stdout=subprocess.PIPE, text=True))
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return started[-1]

    assert run_main(monkeypatch, start, "-n", "3", "--", "true") == 0
    assert sent == [(n, signal.SIGTERM) for n in range(3)]


def test_a_program_that_there_is_not_is_named_and_what_was_started_ends(monkeypatch, capsys):
    started, plain = [], local.start_process

    def start(_command, variables):
        started.append(plain(["no-such-program" if started else "sleep", "60"], variables))
        return started[-1]

    assert run_main(monkeypatch, start, "--", "no-such-program") == 127
    assert capsys.readouterr().err == "no-such-program: No such file or directory\n"
    assert [process.wait() for process in started] == [-signal.SIGTERM]


def test_fewer_processes_than_one_are_refused():
    done = launch(WHO, n=0)
    assert (done.returncode, done.stderr) == (2, "error: -n 0: want 1 process or more\n")
