"""One run per folder, and files that are whole or absent."""

import errno
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from pretrain.runtime import run_config, workdir
from pretrain.runtime.errors import UserError

ROOT = pathlib.Path(__file__).parents[3]
HOLD = """
import sys, subprocess
from pretrain.runtime import workdir
with workdir.locked(sys.argv[1]):
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


def test_a_second_process_is_refused_and_told_who_holds_the_folder(tmp_path, hold):
    holder, _ = hold(tmp_path)
    with pytest.raises(UserError) as refusal, workdir.locked(tmp_path):
        pass
    for fact in (str(tmp_path), f"pid {holder.pid}", socket.gethostname(), "since 20"):
        assert fact in str(refusal.value)


def test_the_lock_tells_of_no_credentials(tmp_path, hold):
    hold(tmp_path, "--config.corpus.source=text:s3://key:secret@bucket/a b/*.txt")
    with pytest.raises(UserError, match="in use by pid") as refusal, workdir.locked(tmp_path):
        pass
    for text in (str(refusal.value), (tmp_path / "lock").read_text()):
        assert "secret" not in text
        assert "text:s3://bucket/a b/*.txt" in text


def test_a_refused_process_leaves_the_lock_with_its_holder(tmp_path, hold):
    hold(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError, match="in use by pid"), workdir.locked(tmp_path):
            pass


def test_the_same_process_cannot_lock_twice(tmp_path):
    with (
        workdir.locked(tmp_path),
        pytest.raises(UserError, match=f"pid {os.getpid()}"),
        workdir.locked(tmp_path),
    ):
        pass


def test_the_lock_of_a_killed_process_is_taken_over_aloud(tmp_path, hold, capsys):
    holder, _ = hold(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with workdir.locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert f"taking over from pid {holder.pid}" in capsys.readouterr().err


def test_a_lock_given_back_is_taken_silently(tmp_path, hold, capsys):
    holder, _ = hold(tmp_path)
    holder.communicate("")
    with workdir.locked(tmp_path):
        pass
    assert capsys.readouterr().err == ""


def test_children_do_not_keep_the_lock_of_a_killed_parent(tmp_path, hold):
    holder, child = hold(tmp_path, "child")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    try:
        with workdir.locked(tmp_path):
            os.kill(child, 0)  # the child is still there
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    script = """
import os, sys, time
from pretrain.runtime import workdir
with workdir.locked(sys.argv[1]):
    if child := os.fork():
        print(child, flush=True)
        os.kill(os.getpid(), 9)
    os.close(1)
    time.sleep(60)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    child = int(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False).stdout)
    try:
        with workdir.locked(tmp_path):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_unreadable_lock_file_does_not_stop_a_run(tmp_path):
    (tmp_path / "lock").write_text("{half a")
    with workdir.locked(tmp_path):
        pass


@pytest.mark.parametrize("there", [True, False])
def test_a_lock_that_is_a_link_is_refused_and_its_target_untouched(tmp_path, there):
    target = tmp_path / "precious"
    if there:
        target.write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(target)
    with pytest.raises(UserError, match="run/lock: it is a link"), workdir.locked(tmp_path / "run"):
        pass
    assert not there or target.read_text() == "kept"
    assert target.exists() == there


@pytest.mark.parametrize(
    ("call", "why"),
    [("open", errno.EACCES), ("ftruncate", errno.EIO), ("pwrite", errno.ENOSPC)],
)
def test_a_lock_that_cannot_be_written_is_named_and_free(tmp_path, monkeypatch, call, why):
    def fail(*args):
        raise OSError(why, os.strerror(why))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(UserError, match=f"lock: {os.strerror(why)}"), workdir.locked(tmp_path):
            pass
    with workdir.locked(tmp_path):
        pass


def test_what_may_hold_addresses_is_readable_by_its_owner_alone(tmp_path):
    (tmp_path / "lock").touch(0o644)
    with workdir.locked(tmp_path):
        run_config.write_config(tmp_path, {"corpus": {"source": "text:s3://key:secret@host/a"}})
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"lock": 0o600, "config.json": 0o600}
    run_config.write_config(tmp_path, {"corpus": {"source": "text:a/*.txt", "x": (1, 2)}})
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o666 & ~umask()
    workdir.write_json(tmp_path / "plain.json", 1)
    assert (tmp_path / "plain.json").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run.*Not a directory"):
        workdir.check_writable(tmp_path / "file" / "run")


def test_check_writable_makes_the_folder_and_leaves_nothing_in_it(tmp_path):
    workdir.check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_json_comes_back_and_no_draft_stays(tmp_path):
    value = {"a": [1, 2.5, None], "ö": "ß", "deep": {"x": True}}
    workdir.write_json(tmp_path / "new" / "f.json", value)
    assert workdir.read_json(tmp_path / "new" / "f.json") == value
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["f.json"]


def test_a_value_that_is_not_json_leaves_the_old_file(tmp_path):
    workdir.write_json(tmp_path / "f.json", 1)
    with pytest.raises(TypeError):
        workdir.write_json(tmp_path / "f.json", {"x": object()})
    assert workdir.read_json(tmp_path / "f.json") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    workdir.write_json(tmp_path / "f.json", 1)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        workdir.write_json(tmp_path / "f.json", 2)
    assert workdir.read_json(tmp_path / "f.json") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": 1,\n "b" 2}', r"f\.json is not JSON at line 2, column 6"),
        (b"", r"f\.json is not JSON at line 1"),
        (b'{"a": "\xff"}', r"f\.json is not UTF-8 at byte 7"),
        (b"[" * 200_000, r"f\.json is not ours: it is nested too deeply"),
        (b"9" * 5_000, r"f\.json is not ours: Exceeds the limit"),
    ],
)
def test_broken_json_is_named_with_its_place(tmp_path, content, complaint):
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        workdir.read_json(tmp_path / "f.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no\.json: No such file"):
        workdir.read_json(tmp_path / "no.json")
