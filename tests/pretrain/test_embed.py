"""`pretrain.embed`: all lines of a text come to the file, also after a kill or an error."""

import json

import h5py
import jax
import numpy as np
import pytest

from pretrain import embed
from pretrain.distributed.sharding import make_mesh
from pretrain.inference import embedding_file, vector_tables
from pretrain.runtime.errors import UserError
from pretrain.runtime.locks import lock_workdir
from tests.support import commands
from tests.support import tiny_runs as toys
from tests.support.tiny_models import STEP, draw_params, save

pytest_plugins = ["tests.support.tiny_models"]
pytestmark = pytest.mark.usefixtures("exactly")


def read(path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: x[:] for name, x in file.items() if name != embedding_file.INDEX}


@pytest.fixture
def text(lines, tmp_path):
    """The lines in a file, blocks of three."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f" {line}\n" for line in lines))
    return path


@pytest.fixture
def threes(monkeypatch):
    monkeypatch.setattr(embed, "LINES", 3)
    monkeypatch.setattr(embed, "make_mesh", lambda: make_mesh(devices=jax.devices()[:1]))


@pytest.fixture
def write(run, threes):
    """Writes a text's vectors; returns what was said."""

    def write(text, out, kind="clm", **options):
        said = []
        embed.embed(run(kind), text, out, said.append, tokens=64, **options)
        return said

    return write


def test_the_file_is_as_readers_of_elmo_files_expect_it(run, write, text, lines, tmp_path):
    said = write(text, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        assert set(file) == {str(i) for i in range(len(lines))} | {"sentence_to_index"}
        assert file["sentence_to_index"].shape == (1,)
        index = json.loads(file["sentence_to_index"][0])
        assert index == {line: str(i) for i, line in enumerate(lines)}  # the last of equal ones
        for i, line in enumerate(lines):
            ids = run("clm").tokenizer.encode([line])[0]
            assert file[str(i)].shape == (3, len(ids), 16)
            assert file[str(i)].dtype == np.float32
            pieces = [run("clm").tokenizer.pieces[token] for token in ids]
            assert json.loads(file[str(i)].attrs["tokens"]) == pieces
    # Behind how far it is, which a slow machine says, too.
    assert "lines without tokens: 2; their arrays have no rows" in said
    assert said[-1].startswith("9 sentences, 21 words")
    assert not (tmp_path / "out.h5.partial").exists()


def test_after_an_error_or_a_kill_finished_blocks_are_kept(write, text, tmp_path, monkeypatch):
    write(text, tmp_path / "straight.h5")
    out, partial = tmp_path / "out.h5", embedding_file.partial_folder(tmp_path / "out.h5")
    add = embedding_file.add_sentence

    def fails(file, number, *rest):
        if number == 6:
            raise OSError("no space left on device")
        add(file, number, *rest)

    monkeypatch.setattr(embedding_file, "add_sentence", fails)
    with pytest.raises(UserError, match=r"00000002.h5: cannot be written: no space left"):
        write(text, out)
    monkeypatch.setattr(embedding_file, "add_sentence", add)
    (partial / ".00000002.h5.draft").write_bytes(b"what a killed process leaves")
    with lock_workdir(partial), pytest.raises(UserError, match="in use by pid"):
        write(text, out)
    assert not out.exists()
    assert write(text, out)[-1].startswith("3 sentences")
    toys.assert_same(read(out), read(tmp_path / "straight.h5"))


def fail(*_):
    raise UserError("no space left on device")


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".h5"])
def test_tables_have_a_vector_for_each_line_also_after_an_error(
    write, text, lines, tmp_path, monkeypatch, ending
):
    out, options = tmp_path / f"out{ending}", dict(pool="last_two", normalize=True)
    if ending == ".npy":
        with monkeypatch.context() as patch:
            patch.setattr(vector_tables, "write_table", fail)
            with pytest.raises(UserError, match="no space left"):
                write(text, out, **options)
        assert write(text, out, **options)[0] == "going on behind 3 blocks of at most 3 lines"
    else:
        write(text, out, **options)
    found = vector_tables.read_table(out)
    assert found.vectors_ND.shape == (len(lines), 16)
    # A line without tokens, of a system without marks, has no direction.
    expected = [float(bool(line)) for line in lines]
    np.testing.assert_allclose(np.linalg.norm(found.vectors_ND, axis=1), expected, rtol=1e-5)
    if ending != ".npy":
        assert found.texts == lines
        assert (found.made_from["pool"], found.made_from["normalize"]) == ("last_two", True)
    assert not (tmp_path / f"out{ending}.partial").exists()


def test_a_table_of_several_vectors_a_line_is_refused(write, text, tmp_path):
    for options in (dict(), dict(layers="top"), dict(pool="mean", layers="all")):
        with pytest.raises(UserError, match=r"out.npy: holds a vector for each line: say --pool"):
            write(text, tmp_path / "out.npy", **options)


def test_what_was_begun_from_something_else_is_refused_by_name(
    run, write, text, tmp_path, monkeypatch
):
    out = tmp_path / "out.h5"
    monkeypatch.setattr(embedding_file.Blocks, "join", lambda *_: None)  # as if stopped before
    write(text, out)
    with pytest.raises(UserError, match=r"out.h5.partial was begun .* delete(.|\n)*choice.layers"):
        write(text, out, layers="top")
    save(run("clm").workdir, draw_params(run("clm").backbone, seed=1), STEP + 1)
    with pytest.raises(UserError, match=r"step: 3 -> 4\n  weights: "):
        write(text, out)
    text.write_text("something else\n")
    with pytest.raises(UserError, match="text: "):
        write(text, out)


def test_a_line_without_an_end_is_refused_at_the_door(tmp_path, write):
    (tmp_path / "in.txt").write_text("a\n" + "word " * 300_000)
    with pytest.raises(UserError, match=r"in.txt, line 2: longer than 1,048,576 characters"):
        write(tmp_path / "in.txt", tmp_path / "out.h5")
    assert not (tmp_path / "out.h5.partial").exists()


# --- at the keyboard -------------------------------------------------------------------------


def command(toy, *words, devices=1):
    return commands.run("-m", "pretrain.embed", *words, environment=toy.environment(devices))


def test_the_command_writes_the_file_on_any_devices(run, toy, write, text, tmp_path):
    write(text, tmp_path / "expected.h5", "mlm", layers="all", mix="1,0,-1")
    words = f"--workdir={run('mlm').workdir}", "--mix=1,0,-1", text, tmp_path / "out.h5"
    done = command(toy, *words, devices=4)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("9 sentences, 21 words: ")
    expected, found = (read(tmp_path / f"{name}.h5") for name in ("expected", "out"))
    assert found.keys() == expected.keys()
    for name, x in found.items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-4)
