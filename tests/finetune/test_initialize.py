"""A job begins with another's backbone, to the bit, or from scratch."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.finetune import common
from finetune import initialize
from finetune import job as jobs
from finetune.prediction.predictor import Predictor
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.training.reports import metrics_file
from tests.support import tagging_data, tiny_jobs
from tests.support.tiny_jobs import table
from tests.support.tiny_models import KINDS, draw_params, run
from tests.support.tiny_runs import assert_same

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run", "table"]

VECTORS = ("token_VD", "fixed_VD")


@pytest.mark.parametrize("kind", KINDS)
def test_the_backbone_is_restored_to_the_bit_and_named(run, table, kind):
    said = []
    job = jobs.build_job(tiny_jobs.recipe(table, run(kind).workdir), tiny_jobs.ignore)
    new = jax.device_put(tagging_data.draw_params(job.task, job.train.batch(0)), jax.devices()[0])
    with tiny_jobs.one_device():
        params = initialize.restore_backbone(job.start, said.append)(new)
        assert_same(initialize.restore_backbone(job.start, said.append, True)(new), new)
    assert "all parameters are new" in said.pop()
    expected = dict(draw_params(run(kind).backbone))
    rows = dict(params["backbone"])
    if kind == "clm":  # whose task has tokens of its own
        old, both = expected.pop("token_VD"), rows.pop("token_VD")
        assert_same(both, np.concatenate([old, new["backbone"]["token_VD"][len(old) :]]))
    assert_same(rows, expected)
    assert_same(params["head"], new["head"])
    fates = dict(line.strip().rsplit(": ", 1) for line in said[1:])
    assert len(fates) == len(jax.tree.leaves(params))
    assert {fate for name, fate in fates.items() if name.startswith("head")} == {"new"}
    of_backbone = {fate for name, fate in fates.items() if name.startswith("backbone")}
    assert of_backbone == {"restored"} | ({"restored, and 3 new rows"} if kind == "clm" else set())


def test_layers_are_taken_by_their_numbers():
    backbone = {"layers": {"w_DF": np.arange(8.0).reshape(4, 2, 1)}, "token_VD": np.ones(3)}
    taken = initialize.take_layers(backbone, (1, 3))
    np.testing.assert_array_equal(taken["layers"]["w_DF"][..., 0], [[0, 1], [4, 5]])
    assert taken["token_VD"] is backbone["token_VD"]
    assert initialize.take_layers(backbone, ()) is backbone
    with pytest.raises(UserError, match="no stack of layers"):
        initialize.take_layers({"layer_0": {}}, (1,))


def test_a_network_from_scratch_learns_a_task(table, tmp_path):
    model = tiny_jobs.TRANSFORMER | dict(
        L=tiny_jobs.L,
        attention="bi",
        norm="post",
        init_scale=0.2,
        dropout=0.0,
        attention_dropout=0.0,
    )
    recipe = tiny_jobs.recipe(table, **{"optim.steps": 80, "optim.lr": 0.01})
    recipe.train.update(eval_every=80, log_every=80, save_every=80)
    recipe.text_format, recipe.model = "bert", ConfigDict(model)
    recipe.tokens = ConfigDict(dict(name="wordpiece", V=30))
    said = []
    tiny_jobs.train(recipe, tmp_path / "run", said.append)
    assert "all parameters are new: init is ''" in said
    assert metrics_file.read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["dev/accuracy"] > 0.9


@pytest.fixture
def words(table, tmp_path):
    """A recipe of a network over words, whose vectors are in a file."""
    (tmp_path / "glove.txt").write_text("ab 1 2\ncd 3 4\nheld 5 6\n")
    (tmp_path / "test.tsv").write_text("ab held unheard\tyes\t1\n")
    recipe = tiny_jobs.recipe(table, **{"data.test": str(tmp_path / "test.tsv"), "optim.steps": 3})
    recipe.text_format, recipe.tokens = "words", ConfigDict(dict(name="words"))
    model = dict(name="text_cnn", V=None, D=None, filters=((2, 4),), tables=("learned", "fixed"))
    recipe.model = ConfigDict(model)
    tables = ("backbone/token_VD", "backbone/fixed_VD")
    recipe.vectors.update(path=str(tmp_path / "glove.txt"), tables=tables)
    recipe.task.head.update(pool="max", scale=0.0)
    recipe.optim = common.adadelta(max_norm={"head/w_DC": 1e-3}, l2=0.1)
    recipe.optim.steps = 3
    return recipe


def test_words_begin_with_the_vectors_of_a_file_and_padding_stays_zero(words, tmp_path):
    said = []
    params = tiny_jobs.train(words, tmp_path / "run", said.append).params
    assert "glove.txt: 3 of 11 words have vectors (27.3%)" in "".join(said)
    tuned = jobs.load_job(tmp_path / "run")
    pieces = tuned.run.tokenizer.pieces
    rows = {name: dict(zip(pieces, params["backbone"][name], strict=True)) for name in VECTORS}
    for word, vector_D in {"ab": (1, 2), "cd": (3, 4), "held": (5, 6)}.items():
        np.testing.assert_array_equal(rows["fixed_VD"][word], vector_D)
        assert (rows["token_VD"][word] != np.array(vector_D)).any()  # learned, or shrunk by l2
    assert "unheard" not in pieces
    for name in VECTORS:
        np.testing.assert_array_equal(params["backbone"][name][0], 0)
    assert 0 < np.linalg.norm(params["head"]["w_DC"], axis=0).max() <= 1e-3 * (1 + 1e-5)


def test_vectors_are_refused_of_an_embedding_that_is_there(run, words):
    words.init, words.model = str(run("mlm").workdir), ConfigDict()
    with pytest.raises(UserError, match=r"vectors\.path: .* has an embedding already"):
        jobs.build_job(words, tiny_jobs.ignore)


def test_a_width_that_nothing_says_is_asked_for(words):
    words.vectors.path = ""
    with pytest.raises(UserError, match=r"model\.D: say how wide the words' vectors are"):
        jobs.build_job(words, tiny_jobs.ignore)


@pytest.mark.slow
def test_a_task_s_own_network_learns_and_predicts_without_a_backbone(tmp_path):
    tagging_data.write_conll(tmp_path / "a.conll")
    recipe = tiny_jobs.recipe(tmp_path / "a.conll", **{"optim.steps": 90, "optim.lr": 0.05})
    recipe.train.update(eval_every=90, log_every=90, save_every=90)
    recipe.text_format, recipe.tokens = "words", ConfigDict(dict(name="words"))
    paths = dict.fromkeys(("train", "dev"), str(tmp_path / "a.conll"))
    recipe.data = ConfigDict(dict(format="conll", **paths))
    characters = dict(E=4, filters=((3, 8),))
    own = dict(name="recurrent", U=8, cell="gru", join=(), characters=characters)
    (tmp_path / "glove.txt").write_text("koba 1 2 3 4\nfada 4 3 2 1\n")
    vectors = dict(path=str(tmp_path / "glove.txt"), tables=("encoder/word_VD",))
    recipe.vectors.update(vectors)
    fields = dict(scheme="iob2", min_count=1, own_characters=9, encoder=own, head=dict(dropout=0.0))
    recipe.task = ConfigDict(dict(name="tag", **fields))
    said = []
    tiny_jobs.train(recipe, tmp_path / "run", said.append)
    assert "2 of 13 words have vectors" in " ".join(said)
    tuned = jobs.load_job(tmp_path / "run")
    assert tuned.run.backbone is None
    predict = Predictor(tuned, Layout(make_mesh(devices=jax.devices()[:1])))
    found = tuned.data.tags(tagging_data.EXAMPLES, predict(tagging_data.EXAMPLES))
    assert found == [x["labels"] for x in tagging_data.EXAMPLES]
    with pytest.raises(UserError, match="model"):
        load_run(tmp_path / "run")
