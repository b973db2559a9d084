"""`python -m pretrain.evaluate`: a run's numbers on any text are those of its own training."""

import functools
import importlib
import json
import math
import pathlib
import re
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from pretrain import evaluate
from pretrain.checkpoint import streaming_writer
from pretrain.data import prepare as preparation
from pretrain.data.batches import build
from pretrain.data.tokenizers import registry
from pretrain.distributed.sharding import make_mesh
from pretrain.inference.run import Run
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.training.reports import metrics_file
from tests.support import commands, shared_steps
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

FOLDER = toys.ROOT / "configs" / "evaluate"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
WIKITEXT = toys.ROOT.parent / "shared" / "data" / "wikitext-2" / "wiki.test.tokens"
ABOUT = {"source", "batches", "step", "tokens", "words", "bytes"}  # all that is no metric


KINDS = {"average": ("clm", {"train.average": 0.5})}  # of runs: a toy recipe and its changes


@pytest.fixture(scope="module")
def run(toy, tmp_path_factory):
    """The workdir of a toy recipe's run or one of KINDS, made at its first use; to be read only."""

    @functools.cache
    def make(kind):
        recipe, changes = KINDS.get(kind, (kind, {}))
        config = toy.config(recipe, {"train.eval_batches": 0, **changes})
        workdir = tmp_path_factory.mktemp(kind)
        run_config.write_config(workdir, json.loads(config.to_json_best_effort()))
        preparation.prepare(**config.corpus).tokenizer.save(workdir / "tokenizer")
        toys.train(config, workdir)
        return workdir

    return make


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
    """Compiles in half the time, and once; the tests of the command have two."""
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    monkeypatch.setattr(evaluate, "make_mesh", one)
    monkeypatch.setattr(evaluate, "Steps", functools.partial(shared_steps.share, "evaluate"))


@pytest.fixture(scope="module")
def held_out(toy, tmp_path_factory) -> pathlib.Path:
    """The documents that the toy runs hold out, as a text of their own."""
    return toys.write_held_out(toy.config("clm"), tmp_path_factory.mktemp("text") / "held_out.txt")


@pytest.fixture
def on(toy):
    """The recipe `text` for a text, changed."""

    def recipe(path, **changes):
        config = importlib.import_module("configs.evaluate.text").get_config()
        fields = {"corpus.source": f"text:{path}", "corpus.cache": str(toy.cache), "batches.B": 8}
        config.update_from_flattened_dict(fields | changes)
        return config

    return recipe


def told(workdir) -> dict[str, float]:
    """What the last held-out evaluation of a training run said."""
    line = [line for line in toys.written(workdir) if "held_out/loss" in line][-1]
    return {name.split("/")[1]: value for name, value in line.items() if "/" in name}


def assert_close(found: dict, expected: dict, rel: float) -> None:
    """Words and whole numbers are equal, the others nearly."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        near = pytest.approx(value, rel=rel) if isinstance(value, float) else value
        assert found[name] == near, name


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("plm", "mlm", "bilm", "awd")),
        "clm",
        "average",
    ],
)
def test_the_documents_held_out_give_the_numbers_that_training_gave(run, held_out, on, kind):
    found = evaluate.evaluate_run(on(held_out), run(kind))
    assert found["step"] == toys.STEPS
    numbers = {name: value for name, value in found.items() if name not in ABOUT}
    assert numbers == pytest.approx(told(run(kind)), rel=1e-6)


def test_a_cache_looks_back_from_batch_to_batch(run, held_out, on):
    def measure(L, share):
        config = on(held_out)
        config.batches.update(B=1, L=L, bptt=L)
        config.objective.update(cache_window=9, cache_share=share)
        return evaluate.evaluate_run(config, run("awd"))

    short, long, none = measure(5, 0.3), measure(8, 0.3), measure(8, 0.0)
    assert none["cache_perplexity"] == pytest.approx(none["perplexity"], rel=1e-6)
    assert short["cache_perplexity"] == pytest.approx(long["cache_perplexity"], rel=1e-5)
    assert short["cache_perplexity"] != pytest.approx(short["perplexity"], rel=1e-3)
    config = on(held_out)
    config.objective.cache_share = 0.3
    with pytest.raises(UserError, match=r"cache_share is of a cache: set objective\.cache_window"):
        evaluate.evaluate_run(config, run("awd"))


def test_of_a_run_that_averages_the_average_is_evaluated(run, held_out, on):
    plain, average = (evaluate.evaluate_run(on(held_out), run(kind)) for kind in ("clm", "average"))
    assert plain["loss"] != pytest.approx(average["loss"], rel=1e-3)


def test_a_model_that_knows_nothing_has_the_perplexities_that_counting_gives(
    run, toy, on, tmp_path
):
    workdir = shutil.copytree(run("clm"), tmp_path / "run")
    leaves = toys.sums(workdir, toys.STEPS).items()
    zeros = (
        (name, np.zeros(x["shape"], x["dtype"])) for name, x in leaves if name.startswith("params/")
    )
    streaming_writer.write(workdir, toys.STEPS + 1, zeros)
    V = run_config.read_config(workdir)["model"]["V"]
    corpus = preparation.prepare(**toy.config("clm").corpus)
    tokens, words, size = len(corpus.tokens), corpus.words.sum(), corpus.bytes.sum()
    assert words == len(toy.text.read_text().split())
    assert size == len(toy.text.read_bytes().replace(b"\n\n", b"\n"))
    found = evaluate.evaluate_run(on(toy.text), workdir)
    assert (found["tokens"], found["words"], found["bytes"]) == (tokens, words, size)
    assert found["perplexity"] == pytest.approx(V, rel=1e-5)
    assert found["word_perplexity"] == pytest.approx(math.exp(tokens * math.log(V) / words), 1e-4)
    assert found["byte_perplexity"] == pytest.approx(math.exp(tokens * math.log(V) / size), 1e-4)


def test_no_number_depends_on_how_many_rows_a_batch_has(run, held_out, on):
    few, many = (
        evaluate.evaluate_run(on(held_out, **{"batches.B": B}), run("clm")) for B in (8, 56)
    )
    assert (few.pop("batches")["B"], many.pop("batches")["B"]) == (8, 56)
    assert_close(many, few, rel=1e-5)


def test_every_token_counts_once_however_much_context_it_has(run, held_out, toy):
    recipe = importlib.import_module("configs.evaluate.wikitext2").get_config()
    recipe.corpus.update(source=f"text:{held_out}", cache=str(toy.cache), detokenise="")
    half = evaluate.evaluate_run(recipe, run("clm"))
    recipe.batches.overlap = 0
    none = evaluate.evaluate_run(recipe, run("clm"))
    assert (half.pop("batches")["overlap"], none.pop("batches")["overlap"]) == (16, 0)
    for name in ("tokens", "words", "bytes", "unigram"):
        assert half[name] == none[name]
    assert half["loss"] != none["loss"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_holds_a_text_and_rows_as_long_as_the_runs(name):
    recipe = importlib.import_module(f"configs.evaluate.{name}").get_config()
    assert set(recipe) == {"corpus", "batches", *(["objective"] if name == "text" else [])}
    rows = evaluate.merge_batches(toys.get_config("clm").batches, recipe.batches)
    assert (rows["name"], rows["L"], rows["B"]) == ("windows", 32, 16)
    assert rows.get("overlap") == {"wikitext2": 16}.get(name)


def test_of_another_layout_only_the_length_is_the_runs():
    own, changes = toys.get_config("mlm").batches, toys.get_config("clm").batches
    assert evaluate.merge_batches(own, changes) == {"name": "windows", "B": 8, "L": 32}


# --- at the keyboard -------------------------------------------------------------------------


def command(toy, *flags, devices: int = 1):
    words = ["-m", "pretrain.evaluate", *flags, f"--config.corpus.cache={toy.cache}"]
    return commands.run(*words, environment=toy.environment(devices))


def test_the_command_prints_the_numbers_and_adds_them_to_the_workdir(
    toy, run, held_out, on, tmp_path
):
    workdir = shutil.copytree(run("clm"), tmp_path / "run")
    flags = [f"--workdir={workdir}", f"--config={FOLDER}/text.py", "--config.batches.B=8"]
    done = command(toy, *flags, f"--config.corpus.source=text:{held_out}", devices=2)
    assert done.returncode == 0, done.stderr
    [line] = metrics_file.read_lines(workdir / "evaluations.jsonl")
    assert line.pop("recipe") == "text"
    assert_close(line, evaluate.evaluate_run(on(held_out), workdir), rel=1e-5)
    for name, value in line.items():
        shown = f"{value:.4f}" if isinstance(value, float) else value
        assert re.search(rf"^{name} +{re.escape(str(shown))}$", done.stdout, re.MULTILINE)
    assert str(workdir / "evaluations.jsonl") in done.stdout


def test_a_workdir_that_takes_no_line_is_named_behind_the_result(tmp_path, monkeypatch, capsys):
    (tmp_path / "evaluations.jsonl").mkdir()
    monkeypatch.setattr(evaluate, "evaluate_run", lambda *_: {"loss": 0.5})
    monkeypatch.setattr(evaluate.processes, "join", lambda: None)
    monkeypatch.setattr(evaluate, "flags", SimpleNamespace(FLAGS={"config": None}))
    recipe = SimpleNamespace(get_config_filename=lambda _: "text.py")
    monkeypatch.setattr(evaluate, "config_flags", recipe)
    with pytest.raises(UserError, match=r"evaluations\.jsonl: cannot be written: Is a directory"):
        evaluate.main(ConfigDict(), tmp_path)
    assert "loss             0.5000" in capsys.readouterr().out


MISTAKES = {
    "no workdir": ({"workdir": None}, "--workdir"),
    "no run": ({"workdir": "nowhere"}, "nowhere"),
    "too long": ({"config.batches.L": "33"}, "L=33: this model reads rows of at most 32"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_in_a_line(toy, run, mistake):
    changes, named = MISTAKES[mistake]
    fields = {"workdir": run("clm"), "config": FOLDER / "text.py"}
    fields |= {"config.corpus.source": f"text:{toy.text}", **changes}
    done = command(toy, *(f"--{name}={value}" for name, value in fields.items() if value))
    assert done.returncode == (2 if mistake == "no workdir" else 1)
    assert "Traceback" not in done.stderr
    assert named in done.stderr.splitlines()[-1]


def test_without_a_tokenizer_or_a_checkpoint_it_says_so(run, held_out, on, tmp_path):
    workdir = shutil.copytree(run("clm"), tmp_path / "run")
    (workdir / "checkpoints").rename(workdir / "elsewhere")
    with pytest.raises(UserError, match=f"no checkpoint in {workdir}/checkpoints"):
        evaluate.evaluate_run(on(held_out), workdir)
    (workdir / "tokenizer").rename(workdir / "gone")
    with pytest.raises(UserError, match=f"{workdir}/tokenizer: no tokenizer was saved there"):
        evaluate.evaluate_run(on(held_out), workdir)


@pytest.mark.parametrize("inputs", ["words", "characters"])
def test_a_new_word_has_an_id_where_its_characters_are_read(toy, tmp_path, inputs):
    registry.learn(iter(["a b"]), name="words").save(tmp_path / "tokenizer")
    tokenizer = registry.load(tmp_path / "tokenizer")
    run = Run(tmp_path, ConfigDict(), tokenizer, SimpleNamespace(inputs=inputs), None)
    (tmp_path / "text.txt").write_text("b zyx a\n")
    fields = {"source": f"text:{tmp_path}/text.txt", "cache": str(toy.cache)}
    corpus = evaluate.prepare_corpus(fields, run)
    expected = [4, tokenizer.V if inputs == "characters" else 2, 3, 1]
    assert corpus.tokens.tolist() == expected


def test_told_to_terminate_it_gives_no_half_result(run, held_out, on, monkeypatch):
    monkeypatch.setattr(evaluate.processes, "Stop", lambda: lambda: True)
    with pytest.raises(UserError, match="there is no result"):
        evaluate.evaluate_run(on(held_out), run("clm"))


@pytest.mark.skipif(not WIKITEXT.exists(), reason="WikiText-2 is not here")
def test_wikitext_2_has_the_words_that_its_perplexities_are_counted_in(tmp_path):
    recipe = importlib.import_module("configs.evaluate.wikitext2").get_config()
    recipe.corpus.update(source=f"text:{WIKITEXT}", cache=str(tmp_path))
    tokens = {"name": "byte_bpe", "V": 300}
    corpus = preparation.prepare(**recipe.corpus, tokens=tokens, held_out=0)
    text = build(corpus=corpus, split="all", name="windows", B=512, L=128, overlap=64)
    batches = [text.batch(step) for step in range(text.steps_per_epoch)]
    assert round(sum(np.float64(batch["words_B"]).sum() for batch in batches)) == 245_569
    assert sum(batch["loss_mask_BL"].sum() for batch in batches) == len(corpus.tokens)
