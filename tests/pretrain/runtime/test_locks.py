"""One process at a time: on a run's folder, and on a corpus that is made."""

import errno
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from pretrain.runtime.errors import UserError
from pretrain.runtime.locks import check_writable, lock_build, lock_workdir

ROOT = pathlib.Path(__file__).parents[3]
HOLD = """
import sys, subprocess
from pretrain.runtime.locks import lock_workdir
with lock_workdir(sys.argv[1]):
    child = subprocess.Popen(["sleep", "60"], close_fds=False) if "child" in sys.argv else None
    print(child.pid if child else 0, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold():
    """Starts processes that hold the lock of a folder until killed or their stdin is closed."""
    started = []

    def start(folder, *args):
        command = [sys.executable, "-c", HOLD, str(folder), *args]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=ROOT, **pipes))
        return started[-1], int(started[-1].stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_process_is_refused_and_told_the_owner(tmp_path, hold):
    holder, _ = hold(tmp_path)
    with pytest.raises(UserError) as refusal, lock_workdir(tmp_path):
        pass
    for fact in (str(tmp_path), f"pid {holder.pid}", socket.gethostname(), "since 20"):
        assert fact in str(refusal.value)


def test_the_lock_tells_of_no_credentials(tmp_path, hold):
    hold(tmp_path, "--config.corpus.source=text:s3://key:secret@bucket/a b/*.txt")
    with pytest.raises(UserError, match="in use by pid") as refusal, lock_workdir(tmp_path):
        pass
    for text in (str(refusal.value), (tmp_path / "lock").read_text()):
        assert "secret" not in text
        assert "text:s3://bucket/a b/*.txt" in text


def test_a_refused_process_leaves_the_lock_with_its_holder(tmp_path, hold):
    hold(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError, match="in use by pid"), lock_workdir(tmp_path):
            pass


def test_the_same_process_cannot_lock_twice(tmp_path):
    with (
        lock_workdir(tmp_path),
        pytest.raises(UserError, match=f"pid {os.getpid()}"),
        lock_workdir(tmp_path),
    ):
        pass


def test_the_lock_of_a_killed_process_is_taken_over_aloud(tmp_path, hold, capsys):
    holder, _ = hold(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock_workdir(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert f"taking over from pid {holder.pid}" in capsys.readouterr().err


def test_a_lock_given_back_is_taken_silently(tmp_path, hold, capsys):
    holder, _ = hold(tmp_path)
    holder.communicate("")
    with lock_workdir(tmp_path):
        pass
    assert capsys.readouterr().err == ""


def test_children_do_not_keep_the_lock_of_a_killed_parent(tmp_path, hold):
    holder, child = hold(tmp_path, "child")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    try:
        with lock_workdir(tmp_path):
            os.kill(child, 0)  # the child is still there
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    script = """
import os, sys, time
from pretrain.runtime.locks import lock_workdir
with lock_workdir(sys.argv[1]):
    if child := os.fork():
        print(child, flush=True)
        os.kill(os.getpid(), 9)
    os.close(1)
    time.sleep(60)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    child = int(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False).stdout)
    try:
        with lock_workdir(tmp_path):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_unreadable_lock_file_does_not_stop_a_run(tmp_path):
    (tmp_path / "lock").write_text("{half a")
    with lock_workdir(tmp_path):
        pass


@pytest.mark.parametrize("there", [True, False])
def test_a_linked_lock_is_refused_and_its_target_untouched(tmp_path, there):
    target = tmp_path / "precious"
    if there:
        target.write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(target)
    with pytest.raises(UserError, match="run/lock: it is a link"), lock_workdir(tmp_path / "run"):
        pass
    assert not there or target.read_text() == "kept"
    assert target.exists() == there


@pytest.mark.parametrize(
    ("call", "why"), [("open", errno.EACCES), ("ftruncate", errno.EIO), ("pwrite", errno.ENOSPC)]
)
def test_a_lock_that_cannot_be_written_is_named_and_free(tmp_path, monkeypatch, call, why):
    def fail(*args):
        raise OSError(why, os.strerror(why))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(UserError, match=f"lock: {os.strerror(why)}"), lock_workdir(tmp_path):
            pass
    with lock_workdir(tmp_path):
        pass


def test_the_lock_is_readable_by_its_owner_alone(tmp_path):
    (tmp_path / "lock").touch(0o644)
    with lock_workdir(tmp_path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_second_build_waits_and_says_for_whom(tmp_path):
    script = """
import sys
from pretrain.runtime.locks import lock_build
with lock_build(sys.argv[1]):
    print("has it", flush=True)
"""
    path = tmp_path / "corpus.lock"
    with lock_build(path):
        command = [sys.executable, "-c", script, str(path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        second = subprocess.Popen(command, cwd=ROOT, **pipes)
        notice = second.stderr.readline()
        assert notice.startswith(f"waiting for pid {os.getpid()} on host {socket.gethostname()}")
        assert notice.endswith("which does the same: corpus\n")
        assert second.poll() is None
    assert second.communicate()[0] == "has it\n"
    assert list(tmp_path.iterdir()) == []


def test_a_build_waits_for_a_lock_that_took_the_place_of_a_removed_one(tmp_path):
    path, holders, order = tmp_path / "corpus.lock", [], []

    def build(name):
        with lock_build(path):
            holders.append(name)
            order.append((name, len(holders)))
            time.sleep(0.02)
            holders.remove(name)

    # Each opens the file anew, so that threads lock one another out as processes do.
    threads = [threading.Thread(target=build, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == [(number, 1) for number in range(8)]
    assert not path.exists()


def test_the_lock_of_a_build_is_no_link(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "corpus.lock").symlink_to("precious")
    with (
        pytest.raises(UserError, match=r"corpus\.lock: it is a link"),
        lock_build(tmp_path / "corpus.lock"),
    ):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run.*Not a directory"):
        check_writable(tmp_path / "file" / "run")


def test_check_writable_makes_the_folder_and_leaves_nothing_in_it(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def fail_in(workdir, make=lambda: None):
    def work():
        make()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), lock_workdir(workdir):
        work()


def test_work_that_leaves_no_file_leaves_no_lock_and_no_folder(tmp_path):
    fail_in(tmp_path / "runs" / "new", (tmp_path / "runs" / "new" / "checkpoints").mkdir)
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty").mkdir()
    fail_in(tmp_path / "empty")
    assert [*tmp_path.rglob("*")] == [tmp_path / "empty"]


def test_work_that_has_left_a_file_keeps_its_lock(tmp_path):
    fail_in(tmp_path / "run", (tmp_path / "run" / "config.json").touch)
    assert sorted(x.name for x in (tmp_path / "run").iterdir()) == ["config.json", "lock"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "lock").touch()  # of an earlier life
    fail_in(tmp_path / "old")
    assert (tmp_path / "old" / "lock").exists()
    (tmp_path / "with-folder" / "mine").mkdir(parents=True)
    fail_in(tmp_path / "with-folder")
    assert (tmp_path / "with-folder" / "mine").exists()


def test_work_beside_another_new_folder_leaves_that(tmp_path):
    fail_in(tmp_path / "runs" / "a", (tmp_path / "runs" / "b").mkdir)
    assert [*tmp_path.rglob("*")] == [tmp_path / "runs", tmp_path / "runs" / "b"]


def test_a_lock_that_was_removed_before_it_was_got_is_opened_anew(tmp_path, monkeypatch):
    lock, flock = tmp_path / "lock", fcntl.flock

    def flock_late(*args):
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()  # as its holder does between the opening and this
        flock(*args)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    with lock_workdir(tmp_path):
        assert json.loads(lock.read_text())["pid"] == os.getpid()
        with pytest.raises(UserError, match="in use by pid"), lock_workdir(tmp_path):
            pass
