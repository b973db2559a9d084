"""A run goes on from another: what the weights decide is from there, what they lack is grown."""

import functools
import json
import shutil

import numpy as np
import pytest
from ml_collections import ConfigDict

from pretrain.checkpoint import named_leaves
from pretrain.data import batches
from pretrain.data.tokenizers import registry
from pretrain.inference import continuation
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.training.train_state import State

pytest_plugins = ["tests.support.tiny_models", "tests.support.tiny_runs"]


def test_architecture_and_tokenizer_are_the_runs_and_the_rest_the_recipes(toy, run, tmp_path):
    config = toy.config("clm", {"model.D": 24, "model.dropout": 0.3, "optim.lr": 0.5})
    config.init = str(run("clm").workdir)
    start = continuation.open_start(config, tmp_path)
    model = run("clm").config.model.to_dict()
    assert start.config.model.to_dict() == {**model, "dropout": 0.3}
    assert (start.config.optim.lr, config.model.D) == (0.5, 24)
    assert start.corpus_fields()["tokens"]["folder"] == f"{run('clm').workdir}/tokenizer"
    changed, others = start.notes
    assert "as in the recipe, not as in" in changed
    assert changed.endswith(": dropout=0.3")
    assert others.endswith("not as in the recipe: D=16")


def test_a_run_that_resumes_does_not_ask_for_what_it_began_with(toy, run, tmp_path):
    config = toy.config("clm")
    config.init = str(run("clm").workdir)
    first = continuation.open_start(config, tmp_path / "own")
    shutil.copytree(run("clm").workdir, tmp_path / "own")  # as after a save
    config.init = first.config.init = str(tmp_path / "gone")
    run_config.write_config(tmp_path / "own", json.loads(first.config.to_json_best_effort()))
    again = continuation.open_start(config, tmp_path / "own")
    assert again.config.model == first.config.model
    assert again.corpus_fields()["tokens"]["folder"] == str(tmp_path / "own" / "tokenizer")
    config.corpus.tokens.extend = 3
    with pytest.raises(UserError, match="began with 0, and its vocabulary stays"):
        continuation.open_start(config, tmp_path / "own")
    with pytest.raises(UserError, match="gone holds no run"):
        continuation.open_start(config, tmp_path / "new")
    config.init = str(tmp_path / "never")  # before it is compared with the run's own
    with pytest.raises(UserError, match="never holds no run"):
        continuation.open_start(config, tmp_path / "own")


def test_longer_rows_bring_positions_and_another_backbone_is_not_taken(toy, run, tmp_path):
    config = toy.config("clm", {"batches.L": 48})
    config.init = str(run("clm").workdir)
    start = continuation.open_start(config, tmp_path)
    assert start.config.model.L == 48
    assert "model.L=48 for the rows of this recipe: the run has 32" in start.notes
    config.model = ConfigDict(dict(name="recurrent", D=8))
    start = continuation.open_start(config, tmp_path)
    assert (start.config.model.name, start.config.model.D) == ("transformer", 16)
    assert any("name='transformer'" in note for note in start.notes)


def test_a_vocabulary_grows_by_as_many_words_as_the_recipe_says(toy, run, tmp_path):
    config = toy.config("clm", {"corpus.tokens.extend": 5})
    config.init = str(run("clm").workdir)
    start = continuation.open_start(config, tmp_path)
    V = run("clm").tokenizer.V
    assert (start.config.model.V, start.config.corpus.tokens.known) == (V + 5, V)
    assert f"{V} words or pieces, 5 are new" in start.notes[-1]
    rows = start.loop_options(run("clm").tokenizer, print)
    assert rows["evaluate_first"]
    config.init_optimizer = True
    with pytest.raises(UserError, match="no averages for rows of new words"):
        continuation.open_start(config, tmp_path).loop_options(run("clm").tokenizer, print)


def test_more_kinds_of_segments_than_the_run_has_are_the_recipes(toy, run, tmp_path):
    config = toy.config("mlm", {"model.S": 3})
    config.init = str(run("mlm").workdir)
    start = continuation.open_start(config, tmp_path)
    assert start.config.model.S == 3
    assert start.notes[0].endswith(": S=3")
    config.model.S = 1
    assert continuation.open_start(config, tmp_path).config.model.S == 2
    config = toy.config("mlm", {"model.S": 3})
    config.init = str(run("clm").workdir)  # without segments: none are invented
    assert continuation.open_start(config, tmp_path).config.model.get("S", 0) == 0


def test_a_vocabulary_of_its_own_is_of_words_here_and_there(toy, run, tmp_path):
    config = toy.config("bilm", {"model.V": 40, "init_tokens": "recipe"})
    config.init = str(run("bilm").workdir)
    start = continuation.open_start(config, tmp_path)
    assert (start.config.model.V, start.config.corpus.tokens.name) == (40, "words")
    assert start.corpus_fields() == start.config.corpus
    assert not [note for note in start.notes if "V=" in note]  # it is the recipe's
    assert "corpus.tokens.split='punctuation', where" in start.notes[-1]
    assert "has split='blank': fewer words may match" in start.notes[-1]
    config.corpus.tokens.split = "blank"
    *_, note = continuation.open_start(config, tmp_path).notes
    assert note.endswith("rows are matched by word")
    config.init = str(run("clm").workdir)
    with pytest.raises(UserError, match="name has to be 'words', here and in"):
        continuation.open_start(config, tmp_path)
    config.init_tokens = "mine"
    with pytest.raises(UserError, match="init_tokens='mine' is none of run, recipe"):
        continuation.open_start(config, tmp_path)


def test_rows_of_words_are_found_by_word_in_another_vocabulary(toy, run, tmp_path):
    workdir = shutil.copytree(run("clm").workdir, tmp_path / "words")
    shutil.rmtree(workdir / "tokenizer")
    registry.learn(iter(["a a a b b c"]), name="words").save(workdir / "tokenizer")
    words = {"name": "words", "extend": 0}
    config = toy.config("clm", {"init_tokens": "recipe", "corpus.tokens": words})
    config.init = str(workdir)
    params, _ = continuation.load_params(run("clm"))
    state = State(*[named_leaves.nest(params)] * 4, None, 0, 0)
    start, said = continuation.open_start(config, tmp_path / "run"), list[str]()
    tokenizer = registry.learn(iter(["d d c a"]), name="words")
    new = start.loop_options(tokenizer, said.append)["prepare"](state).params
    table, old = (np.asarray(x) for x in (new["backbone"]["token_VD"], params["backbone/token_VD"]))
    np.testing.assert_array_equal(table[:3], old[:3])  # the marks
    np.testing.assert_array_equal(table[4:6], old[[3, 5]])  # "a" and "c"
    np.testing.assert_allclose(table[[3, 6]], np.stack([old[:6].mean(0)] * 2), rtol=1e-6)
    assert [line for line in said if "matched by word: 5 of 6 rows restored" in line]


def test_without_init_a_recipe_is_what_it_was(toy, tmp_path):
    config = toy.config("clm")
    start = continuation.open_start(config, tmp_path)
    assert (start.config, start.loop_options(None, print)) == (config, {})
    assert start.corpus_fields() == config.corpus


REFUSED = {
    "init_positions='stretched' is none of new, interpolated": ("init_positions", "stretched"),
    "not trained for objective 'mlm'": ("objective.name", "mlm"),
    "another optimiser: adamw, here sgd": ("optim.name", "sgd"),
    "reads texts in the other direction, by its text_format 'gpt'": ("batches.backward", True),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_go_on_so_is_refused_before_a_text_is_read(message, toy, run, tmp_path):
    config = toy.config("clm", {"init": str(run("clm").workdir), "init_optimizer": True})
    place, value = REFUSED[message]
    *sections, key = place.split(".")
    with config.unlocked():
        functools.reduce(getattr, sections, config)[key] = value
    with pytest.raises(UserError, match=message):
        continuation.open_start(config, tmp_path)


def test_special_tokens_that_the_run_lacks_are_refused_before_a_text_is_read(toy, run, tmp_path):
    config = toy.config("mlm", {"init": str(run("mlm").workdir)})
    layout = batches.configure(**config.batches)
    run_start = continuation.open_start(config, tmp_path)
    special = run_start.run.tokenizer.special
    run_start.check_special([layout])
    for name in layout.required_special:
        del special[name]
    with pytest.raises(UserError, match="'pairs' needs <cls> and <sep> and <pad>"):
        run_start.check_special([layout])
    continuation.Start(config).check_special([layout])


def test_averages_without_a_run_to_take_them_from_are_refused(toy, tmp_path):
    with pytest.raises(UserError, match="init_optimizer=True takes averages from the run"):
        continuation.open_start(toy.config("clm", {"init_optimizer": True}), tmp_path)


def test_another_architecture_is_read_as_the_objective_wants_and_keeps_its_own_execution(
    toy, run, tmp_path
):
    config = toy.config("clm", {"init": str(run("plm").workdir)})
    start = continuation.open_start(config, tmp_path)
    assert (start.config.model.name, start.config.model.attention) == ("two_stream", "causal")
    other = toy.config("plm", {"init": str(run("clm").workdir)})
    with other.unlocked():
        other.objective = config.objective
        other.execution.block = 8  # of XLNet's distances
    start = continuation.open_start(other, tmp_path)
    assert "block" not in start.config.execution
    assert "execution.block: left out, this architecture has none" in start.notes
