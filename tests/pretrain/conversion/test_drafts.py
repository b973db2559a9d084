"""Whatever fails, no trace is left, and one line says what it was."""

import errno
import functools
import json
import os
import shutil

import numpy as np
import pytest

from pretrain.checkpoint import streaming_writer
from pretrain.conversion import exporter, importer
from pretrain.formats import safetensors
from pretrain.formats.base import explain_write_errors
from pretrain.runtime.errors import UserError
from tests.support import array_files, bert_release
from tests.support.failing_disk import DISK, FOREVER, refused


def importing(source, workdir):
    return functools.partial(importer.import_weights, source, workdir, print)


def exporting(run, folder, **kind):
    return functools.partial(exporter.export_weights, run, folder, print, **kind)


@pytest.fixture
def plain_checkpoint(monkeypatch):
    """A checkpoint is a file, quickly written: for what is around it."""

    def write(workdir, step, leaves):
        folder = workdir / "checkpoints" / str(step)
        with explain_write_errors(folder):
            folder.mkdir(parents=True)
            (folder / "arrays").write_bytes(b"".join(x.tobytes() for _, x in leaves))

    monkeypatch.setattr(streaming_writer, "write", write)


@pytest.fixture
def plain_read(monkeypatch):
    """All weights are ones, quickly read."""
    monkeypatch.setattr(
        exporter, "read_parameter", lambda run, name, shape: np.ones(shape, np.float32)
    )


def count_operations(folder, work):
    with DISK.failing(folder, FOREVER) as disk:
        work()
    return disk.count


# --- every operation -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [False, True])
def test_an_import_leaves_nothing_whichever_operation_fails(
    release, tmp_path, plain_checkpoint, is_there
):
    workdir = tmp_path / "new/run"
    if is_there:
        workdir.mkdir(parents=True)
        (workdir / "notes").write_text("mine")
        (workdir / "lock").write_text("")
    count = count_operations(tmp_path / "tried", importing(release, tmp_path / "tried/run"))
    shutil.rmtree(tmp_path / "tried")
    assert count > 10
    for after in range(count - 2 * is_there):  # of which two make the folders
        said = refused(tmp_path, importing(release, workdir), after)
        assert "No space left on device" in said
    importing(release, workdir)()


@pytest.mark.parametrize("kind", ["hugging_face", "npz"])
def test_an_export_leaves_nothing_whichever_operation_fails(run, tmp_path, plain_read, kind):
    count = count_operations(tmp_path / "tried", exporting(run, tmp_path / "tried/out", kind=kind))
    shutil.rmtree(tmp_path / "tried")
    assert count >= 6
    for after in range(count):
        said = refused(tmp_path, exporting(run, tmp_path / "new/out", kind=kind), after)
        assert "No space left on device" in said
    exporting(run, tmp_path / "new/out", kind=kind)()


# --- a full disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 500, 2000])
def test_an_import_to_a_full_disk_leaves_nothing(release, tmp_path, room):
    with array_files.small_disk(room):
        said = refused(tmp_path, importing(release, tmp_path / "run"))
    assert os.strerror(errno.EFBIG) in said


@pytest.mark.parametrize("room", [0, 300, 3000])
def test_an_export_to_a_full_disk_leaves_nothing(run, tmp_path, room):
    with array_files.small_disk(room):
        said = refused(tmp_path, exporting(run, tmp_path / "out"))
    assert os.strerror(errno.EFBIG) in said


# --- sources and places that are not what they should be -----------------------------------------


def flipped(folder):
    data = (folder / "model.npz").read_bytes()
    place = data.index(b"bert/pooler/dense/kernel") + 300
    (folder / "model.npz").write_bytes(array_files.flipped(data, place, 3))


BIAS = "bert/pooler/dense/bias"


def retyped(dtype):
    """(folder) -> its release's bias is of another type."""
    change = lambda arrays: arrays.update({BIAS: arrays[BIAS].astype(dtype)})  # noqa: E731
    return lambda at: bert_release.rewrite(at, change)


BROKEN = {
    "is not finite": lambda at: bert_release.rewrite(at, lambda x: x[BIAS].fill(np.nan)),
    **{f"bias: is {x}": retyped(x) for x in ("float64", "int32", "int8", "bool")},
    "Bad CRC-32": flipped,
    "other: cannot be read": lambda at: (at / "other").symlink_to("/proc/self/mem"),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_broken_release_leaves_the_workdir_absent(release, tmp_path, reason):
    source = bert_release.copy(release, tmp_path / "source")
    BROKEN[reason](source)
    said = refused(tmp_path, importing(source, tmp_path / "new/run"))
    assert reason in said


def test_what_a_killed_import_left_is_removed_and_told(release, run, tmp_path, plain_checkpoint):
    workdir = tmp_path / "run"
    shutil.copytree(run / "tokenizer", workdir / ".draft" / "tokenizer")
    shutil.copytree(run / "checkpoints", workdir / "checkpoints")
    said = []
    importer.import_weights(release, workdir, said.append)
    assert said[0].startswith("removed what a killed process left: ")
    assert sorted(x.name for x in workdir.iterdir()) == sorted([*importer.PARTS, "lock"])
    assert [x.name for x in (workdir / "checkpoints" / "0").iterdir()] == ["arrays"]


def test_what_a_killed_export_left_is_removed_and_told(run, tmp_path, plain_read):
    (tmp_path / ".out.draft").mkdir()
    (tmp_path / ".out.draft" / "model.safetensors").write_text("")
    said = []
    exporter.export_weights(run, tmp_path / "out", said.append)
    assert said[0].startswith("removed what a killed process left: ")
    assert [x.name for x in tmp_path.iterdir()] == ["out"]


NO_PLACE = {
    "there already": lambda at: (at / "out").symlink_to(at / "nothing"),
    "is there already": lambda at: (at / "out").mkdir(),
    "Not a directory": lambda at: (at / "new").write_text(""),
}


@pytest.mark.parametrize("reason", NO_PLACE)
def test_a_place_that_cannot_be_written_is_told_in_a_line(run, tmp_path, reason):
    NO_PLACE[reason](tmp_path)
    place = tmp_path / ("new/out" if "directory" in reason else "out")
    assert reason in refused(tmp_path, exporting(run, place))


def test_names_too_long_for_the_disk_are_told_in_a_line(release, run, tmp_path):
    almost, long = tmp_path / ("x" * 250), tmp_path / ("x" * 300)
    for said in (
        refused(tmp_path, exporting(run, almost)),
        refused(tmp_path, exporting(run, long)),
        refused(tmp_path, importing(release, long)),
    ):
        assert "File name too long" in said
    said = refused(tmp_path, importing(long, tmp_path / "run"))
    assert "does not exist" in said


def test_a_run_that_theirs_cannot_compute_leaves_nothing(run, tmp_path):
    other = bert_release.copy(run, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["model"]["normed_embedding"] = False
    (other / "config.json").write_text(json.dumps(config))
    said = refused(tmp_path, exporting(other, tmp_path / "new/out"))
    assert "normed_embedding=False: theirs can only be True" in said


@pytest.mark.parametrize("text", ["[" * 200_000, '{"weight_map": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_json_that_no_reader_can_hold_is_told_in_a_line(tmp_path, name, text):
    head = len(text).to_bytes(8, "little") if name.endswith("safetensors") else b""
    (tmp_path / name).write_bytes(head + text.encode())
    with pytest.raises(UserError, match=f"{name}: is broken") as caught:
        safetensors.open_arrays(tmp_path)
    assert "\n" not in str(caught.value)
