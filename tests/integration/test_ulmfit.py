"""ULMFiT's three stages by their recipes and commands: a language model, tuned, classifies."""

import contextlib
import functools
import json
from unittest import mock

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from ml_collections import ConfigDict

from configs import ulmfit
from configs.finetune import ulmfit as classifier
from finetune import initialize, predict
from finetune import main as finetune
from pretrain import main as pretrain
from pretrain.distributed import processes
from pretrain.distributed.sharding import make_mesh
from pretrain.inference import continuation
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from tests.support import corpora, shared_steps
from tests.support import tiny_runs as toys

pytestmark = pytest.mark.slow

B, L, STEPS = 8, 12, 4
SIZES = dict(D=8, U=8, N=1)
FORMATS = {"forward": "ulmfit", "backward": "ulmfit_backward"}


def write_questions(folder) -> str:
    """Lines as TREC's, whose class is told by their last word."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["cab", "dog", "bee"], 4 + n % 9)) for n in range(32)]
    lines = [f"{('HUM', 'NUM')[n % 2]}:x {x} {('who', 'when')[n % 2]}" for n, x in enumerate(texts)]
    (folder / "TREC.train").write_text("\n".join(lines) + "\n")
    return str(folder / "TREC.train")


def language_model(folder, init="", direction="forward") -> ConfigDict:
    """The recipe of the second stage, shrunk; that of the first reads another text."""
    config = ulmfit.get_config("trec")
    config.init, config.corpus.cache = str(init), str(folder / "data")
    config.text_format = FORMATS[direction]
    config.corpus.data.path = write_questions(folder)
    if not init and direction == "forward":
        prose = corpora.write(folder / "text", documents=4, sentences=6)
        config.corpus.update(source=prose, held_out=0.3)
    config.model.update(SIZES)
    config.corpus.tokens.types = 9  # of all models, so that they share what is compiled
    config.batches.update(B=B, L=L, bptt=10, backward=direction == "backward")
    config.optim.steps = STEPS
    config.train.update(eval_every=STEPS, save_every=STEPS)
    return config


def classify(folder, init, direction="forward") -> ConfigDict:
    """The recipe of the third stage, shrunk: its rows are read in chunks."""
    config = classifier.get_config("trec")
    config.init, config.text_format = str(init), FORMATS[direction]
    config.data.update(train=write_questions(folder), test=write_questions(folder))
    config.batches.update(B=B, L=L, eval_B=B, lengths=())
    config.task.encoder.window, config.task.head.pool_last = 5, 9
    config.optim.update(steps=STEPS, stages=(1, 1, 2))
    config.train.update(eval_every=STEPS, save_every=STEPS)
    return config


@contextlib.contextmanager
def as_commands():
    """The commands' mains may be called, on one device."""
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    with contextlib.ExitStack() as stack:
        for module in (continuation, initialize, predict):
            stack.enter_context(mock.patch.object(module, "make_mesh", one))
        stack.enter_context(shared_steps.train_on(1))
        stack.enter_context(mock.patch.object(processes, "join"))
        stack.enter_context(flagsaver.flagsaver())
        flags.FLAGS(["main", "--config=configs/ulmfit.py"])
        yield


def train(folder, name, init) -> None:
    """The last two stages of a direction."""
    tuned, last = folder / f"{name}-tuned", folder / name
    assert pretrain.main(language_model(folder, init, name), tuned) == 0
    assert finetune.main(classify(folder, tuned, name), last) == 0


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """The folder of the runs of all stages."""
    folder = tmp_path_factory.mktemp("ulmfit")
    with as_commands():
        assert pretrain.main(language_model(folder), folder / "general") == 0
        train(folder, "forward", folder / "general")
        yield folder


def test_every_stage_goes_on_from_the_one_before(stages):
    one, two = (toys.written(stages / name) for name in ("general", "forward-tuned"))
    assert (one[0]["step"], two[0]["step"]) == (STEPS, 0)  # evaluated before its first step
    names = ("general", "forward-tuned", "forward")
    general, tuned, last = (load_run(stages / name).tokenizer.pieces for name in names)
    assert tuned == last  # the questions' words, as those of the text before were not
    assert {"who", "when", "cab", "dog", "bee"} <= set(tuned) - set(general)
    [last] = [x for x in toys.written(stages / "forward") if "test/accuracy" in x]
    assert last["step"] == STEPS


def test_the_average_of_both_directions_is_predicted_and_scored(stages, capsys):
    train(stages, "backward", "")
    folders, out = [stages / name for name in FORMATS], stages / "out.jsonl"
    capsys.readouterr()
    with flagsaver.flagsaver(workdir=str(folders[0])):
        flags.FLAGS["with"].value = [str(folders[1])]
        predict.main([write_questions(stages), str(out)])
    printed = float(capsys.readouterr().out.removeprefix("accuracy "))
    alone = [read_shares(folder / "predictions" / "test.jsonl") for folder in folders]
    average = read_shares(out)
    np.testing.assert_allclose(average, np.mean(alone, 0), atol=2e-6)
    assert np.ptp(np.subtract(*alone)) > 0
    hits = (np.array(average) > 0.5) == (np.arange(len(average)) % 2 == 0)
    assert printed == pytest.approx(hits.mean(), abs=1e-4)


def read_shares(path) -> list[float]:
    """The probability of "HUM" in each line."""
    return [json.loads(line)["probabilities"]["HUM"] for line in path.open()]


def test_a_model_of_the_other_direction_is_refused(stages):
    config = classify(stages, stages / "forward-tuned", "backward")
    with pytest.raises(UserError, match=r"trained with batches\.backward=False: take 'ulmfit'"):
        finetune.main(config, stages / "wrong")
