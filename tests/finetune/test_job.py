"""A job begins with another's backbone, learns its task, and keeps its best."""

import contextlib
import functools
import itertools
import os
import pathlib
import shutil
import threading
import time
from unittest import mock

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from ml_collections import ConfigDict

from configs.finetune import common
from finetune import initialize, main, results
from finetune import job as jobs
from finetune.prediction.predictor import TerminatedError
from pretrain.checkpoint import integrity
from pretrain.checkpoint.errors import DamagedError
from pretrain.checkpoint.paths import list_steps
from pretrain.distributed import processes
from pretrain.distributed.sharding import make_mesh
from pretrain.inference.trained_run import opened
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.training import hooks, logging, loop
from pretrain.training.logging import Writer
from tests.support.tiny_models import KINDS, drawn, run, save
from tests.support.tiny_runs import ROOT, assert_same, written

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run"]

L = 24


@pytest.fixture
def lines(tmp_path):
    """Short texts; those with a certain word are "yes"."""
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn"]
    rng = np.random.default_rng(0)
    rows = []
    for number in range(24):
        chosen = list(rng.choice(words[1:], 4))
        label = ("no", "yes")[number % 2]
        chosen[number % 4] = words[0] if number % 2 else chosen[0]
        rows.append(f"{' '.join(chosen)}\t{label}\t{number % 2 * 2.5}\n")
    path = tmp_path / "rows.tsv"
    path.write_text("".join(rows))
    return path


def config(path, init="", **changes) -> ConfigDict:
    made = common.base()
    made.init = str(init)
    made.data = dict(
        format="table", header=False, texts=(0,), label=1, train=str(path), dev=str(path), test=""
    )
    made.task = dict(name="classify", metrics=("accuracy", "f1"), head=dict(dropout=0.0))
    made.batches = dict(B=8, L=L, eval_B=8)
    made.optim.update(lr=3e-3, steps=0, warmup=0.0)
    made.epochs = 2
    made.train.update(log_every=1, eval_every=3, save_every=2)
    made.update_from_flattened_dict(changes)
    return made


def quiet(*_):
    pass


def train(config, workdir, say=quiet):
    """One job in this process, on one device."""
    made = jobs.build_job(config, say)
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    with mock.patch.object(loop, "make_mesh", one), mock.patch.object(initialize, "make_mesh", one):
        workdir.mkdir(exist_ok=True)
        run_config.write_config(workdir, jobs.resolve_recipe(made, config).to_dict())
        jobs.save_job(made, workdir)
        return loop.run(
            config,
            workdir,
            made.task,
            made.train,
            made.evals,
            initialize.restore_backbone(made.start, say, config.random_init),
            False,
            made.score,
        ).state


def gentle(backbone):
    """Parameters that one can learn from."""
    rng = np.random.default_rng(0)

    def one(path, x):
        name = path[-1].key
        if name.startswith(("scale", "bias", "b")):
            return np.full(x.shape, name.startswith("scale"), np.float32)
        return rng.normal(0, 0.3, x.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(one, drawn(backbone))


@pytest.mark.parametrize("kind", KINDS)
def test_every_backbone_is_restored_and_learns_a_task(run, lines, tmp_path, kind):
    said = []
    settings = {
        "optim.steps": 200,
        "optim.lr": 0.01,
        "train.eval_every": 200,
        "train.log_every": 200,
        "train.save_every": 200,
    }
    init = shutil.copytree(run(kind).workdir, tmp_path / "init")
    save(init, gentle(run(kind).backbone), step=4)
    recipe = config(lines, init, **settings)
    recipe.task.head.update(pool="max", summary="none")
    train(recipe, tmp_path / "run", said.append)
    last = logging.read_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["dev/accuracy"] > 0.9
    assert last["dev/f1"] > 0.9
    rows = "restored, and 3 new rows" if kind == "clm" else "restored"
    assert any(line.endswith(f": {rows}") for line in said)
    assert "  head/w_DC" in "\n".join(said)


def test_what_is_restored_is_the_pretrained_backbone_to_the_bit(run, lines):
    made = jobs.build_job(config(lines, run("clm").workdir), quiet)
    prepare = initialize.restore_backbone(made.start, quiet)
    tx, _ = loop.optimizer.make(name="adamw", lr=1.0, steps=1)
    layout = loop.Layout(make_mesh(devices=jax.devices()[:1]))
    steps = loop.Steps(made.task, tx, layout, [made.train], seed=0)
    fresh = steps.init().params
    found, expected = prepare(fresh), drawn(run("clm").backbone)
    V = expected["token_VD"].shape[0]
    np.testing.assert_array_equal(found["backbone"]["token_VD"][:V], expected["token_VD"])
    np.testing.assert_array_equal(
        found["backbone"]["token_VD"][V:], fresh["backbone"]["token_VD"][V:]
    )
    for name in ("layers", "position_LD", "final_norm"):
        assert_same(found["backbone"][name], expected[name])
    assert_same(found["head"], fresh["head"])


def test_from_scratch_nothing_is_restored(lines, tmp_path):
    model = dict(
        name="transformer",
        V=None,
        D=16,
        H=2,
        K=8,
        N=1,
        F=16,
        L=L,
        S=2,
        pooler=True,
        attention="bi",
        norm="post",
        normed_embedding=True,
        init_scale=0.2,
        dropout=0.0,
        attention_dropout=0.0,
    )
    settings = {"optim.steps": 80, "optim.lr": 0.01}
    recipe = config(lines, "", **settings)
    recipe.train.update(eval_every=80, log_every=80, save_every=80)
    recipe.text_format, recipe.model = "bert", ConfigDict(model)
    recipe.tokens = ConfigDict(dict(name="wordpiece", V=30))
    said = []
    train(recipe, tmp_path / "run", said.append)
    assert "all parameters are new: init is ''" in said
    assert logging.read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["dev/accuracy"] > 0.9


def test_what_pretraining_is_worth_is_told_beside_the_same_from_random_weights(
    run, lines, tmp_path, capsys
):
    settings = {"train.best": "dev/accuracy", "optim.steps": 2, "train.eval_every": 1}
    for name, fresh in (("tuned", False), ("random", True)):
        said = []
        recipe = config(lines, run("mlm").workdir, **settings, random_init=fresh)
        train(recipe, tmp_path / name, said.append)
        assert any("all parameters are new" in line for line in said) == fresh
    (tmp_path / "none").mkdir()
    run_config.write_config(tmp_path / "none", {"init": "", "train": {"best": ""}})
    results.main([*(str(tmp_path / name) for name in ("tuned", "random", "none"))])
    head, *rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [x.strip() for x in head if x] == ["run", "begun with", "step", "dev/accuracy", "dev/f1"]
    init = str(run("mlm").workdir)
    for row, begun in zip(
        rows, (init, f"random weights, {init}", "not evaluated yet"), strict=True
    ):
        assert begun in [x.strip() for x in row]
    found = logging.read_lines(tmp_path / "tuned" / "metrics.jsonl")
    best = max((x for x in found if "dev/accuracy" in x), key=lambda x: x["dev/accuracy"])
    values = {k: v for k, v in best.items() if "/" in k}
    since = sum("dev/accuracy" in x and x["step"] > best["step"] for x in found)
    assert results.result(tmp_path / "tuned") == (init, best["step"], values, since)
    with pytest.raises(UserError, match="not fine-tuned"):
        results.result(run("mlm").workdir)


def test_a_job_that_broke_off_goes_on_bit_for_bit(run, lines, tmp_path, monkeypatch):
    settings = {"train.best": "-dev/loss", "optim.steps": 8, "model.dropout": 0.1}
    recipe = config(lines, run("mlm").workdir, **settings)
    whole = train(recipe, tmp_path / "whole")
    save = hooks.SaveCheckpoint.__call__

    def breaks(self, step, *arguments):
        save(self, step, *arguments)
        if step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hooks.SaveCheckpoint, "__call__", breaks)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "broken")
    assert_same(train(recipe, tmp_path / "broken"), whole)
    one, other = (best(tmp_path / name) for name in ("whole", "broken"))
    assert one == other


@contextlib.contextmanager
def between_operations(workdir, call):
    """Calls `call(path)` before each change of a folder of checkpoints in `workdir`.

    Those of the best are slow: left to themselves, they would be the last.
    """
    lock = threading.Lock()

    def wrapped(operation, path, *args, **kwargs):
        if "checkpoints" in str(path) and str(workdir) in str(path):
            time.sleep(0.2 * ("best" in pathlib.Path(path).parts))  # without the lock
            with lock:
                call(pathlib.Path(path))
        return operation(path, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        for name in ("mkdir", "rename", "replace", "rmdir", "unlink"):
            own = functools.partial(wrapped, getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, own))
        yield


EACH = {"train.best": "-dev/loss", "optim.steps": 8, "train.eval_every": 2}  # betters the last


def test_the_best_is_on_disk_before_a_checkpoint_names_it(run, lines, tmp_path):
    checkpoints, seen = tmp_path / "run" / "checkpoints", []

    def look(path):
        names = os.listdir(checkpoints) if checkpoints.is_dir() else []
        for name in filter(str.isdigit, names):
            with contextlib.suppress(DamagedError):  # just being deleted
                position = integrity.read_record(checkpoints / name)["position"]
                named = position["step"]  # each betters the last
                seen.append((tmp_path / "run" / "best" / "checkpoints" / str(named)).exists())

    with between_operations(tmp_path / "run", look):
        train(config(lines, run("mlm").workdir, **EACH), tmp_path / "run")
    assert seen
    assert all(seen)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_any_operation_on_checkpoints_a_job_keeps_the_same_best(run, lines, tmp_path):
    recipe, whole = config(lines, run("mlm").workdir, **EACH), tmp_path / "whole"
    count = itertools.count()

    def snap(path):
        """What a kill at this moment leaves."""
        with contextlib.suppress(shutil.Error):  # a file has gone meanwhile
            shutil.copytree(whole, tmp_path / f"killed-{next(count)}")

    with between_operations(whole, snap):
        state = train(recipe, whole)
    for number in np.linspace(0, next(count) - 1, 20).astype(int):
        killed = tmp_path / f"killed-{number}"
        assert_same(train(recipe, killed), state)
        assert best(killed) == best(whole)
        assert written(killed) == written(whole)


@pytest.mark.slow
def test_a_best_that_is_lost_is_looked_for_anew(run, lines, tmp_path):
    recipe = config(lines, run("mlm").workdir, **EACH)
    train(recipe, tmp_path / "run")
    before = best(tmp_path / "run"), written(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    train(recipe, tmp_path / "run")
    assert (best(tmp_path / "run"), written(tmp_path / "run")) == before


def best(workdir):
    """Step and content of the best checkpoint."""
    folder = workdir / "best" / "checkpoints"
    step, *_ = list_steps(folder)
    return step, integrity.read_record(folder / str(step))


def test_the_best_is_what_a_later_job_uses_and_training_ends_without_progress(run, lines, tmp_path):
    settings = {
        "train.best": "dev/accuracy",
        "train.stop_after": 2,
        "train.eval_every": 2,
        "optim.steps": 60,
        "optim.lr": 0.0,
        "epochs": 60,
        "train.save_every": 100,
    }
    recipe = config(lines, run("mlm").workdir, **settings)
    state = train(recipe, tmp_path / "run")
    assert int(state.step) == 6  # the first evaluation is the best for ever
    assert best(tmp_path / "run")[0] == 2
    assert opened(tmp_path / "run").folder == tmp_path / "run" / "best"
    assert int(train(recipe, tmp_path / "run").step) == 6


WRONG = {
    "model: .* was pretrained with another: D=32 instead of 16": {"model.D": 32},
    "batches.L=64: this model reads rows of at most 32": {"batches.L": 64},
    "batches.L=2: a row has 2 marks": {"batches.L": 2},
    "data.train is to name": {"data.train": ""},
    "task.metrics|metric 'bleu'|'bleu'": {"task.metrics": ("bleu",)},
    "task.name='sing'": {"task.name": "sing"},
    "positiv": {"task.positiv": "x"},
    "task.loss.weights: 3 weights for 2 classes": {"task.loss": {"weights": (1.0, 1.0, 1.0)}},
    "task.language_model is of": {"task.language_model": 0.5},
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_cannot_be_is_refused_at_the_door(run, lines, reason):
    recipe = config(lines, run("mlm").workdir)
    recipe.model = ConfigDict(
        {k.split(".")[1]: v for k, v in WRONG[reason].items() if k.startswith("model.")}
    )
    for name, value in WRONG[reason].items():
        section, field = name.split(".")
        with recipe[section].unlocked():
            recipe[section][field] = value
    with pytest.raises(UserError, match=reason):
        jobs.build_job(recipe, quiet)


def with_splits(run, lines, folder, rows: dict[str, str], **changes) -> ConfigDict:
    """A recipe whose held-out splits have these labels."""
    for split, labels in rows.items():
        text = "".join(f"ab cd\t{label}\t0\n" for label in labels.split())
        (folder / f"{split}.tsv").write_text(text)
    paths = {f"data.{split}": str(folder / f"{split}.tsv") for split in rows}
    return config(lines, run("mlm").workdir, **paths, **changes)


def test_a_label_that_training_has_not_seen_is_named_once(run, lines, tmp_path):
    rows, said = {"dev": "yes perhaps perhaps", "test": "no perhaps never"}, []
    made = jobs.build_job(with_splits(run, lines, tmp_path, rows), said.append)
    assert [made.evals[split].size for split in rows] == [3, 3]
    told = "\n".join(said)
    assert told.count("'perhaps' (") == told.count("'never' (") == 1
    assert f"not in the loss: 'perhaps' ({tmp_path / 'dev.tsv'}, line 2)" in told
    outputs = {"logits_BC": np.array([[0.0, 1.0]] * 3)}
    assert made.score("dev", outputs)["accuracy"] == pytest.approx(1 / 3)


def test_a_label_beyond_those_listed_by_hand_is_refused(run, lines, tmp_path):
    recipe = with_splits(run, lines, tmp_path, {"dev": "yes perhaps"})
    recipe.task.labels = ("no", "yes")
    with pytest.raises(UserError, match=r"dev\.tsv, line 2: label 'perhaps' is none of no, yes"):
        jobs.build_job(recipe, quiet)
    recipe.task.closed = False
    jobs.build_job(recipe, quiet)


def test_a_split_of_unseen_labels_alone_is_refused(run, lines, tmp_path):
    recipe = with_splits(run, lines, tmp_path, {"dev": "0 1"})
    with pytest.raises(UserError, match=r"data\.dev: training shows none of its labels: .*'0' \("):
        jobs.build_job(recipe, quiet)


@contextlib.contextmanager
def alone():
    """`main.main` may be called: on one device, as if from the command line."""
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    with (
        mock.patch.object(loop, "make_mesh", one),
        mock.patch.object(initialize, "make_mesh", one),
        mock.patch.object(processes, "join"),
        flagsaver.flagsaver(),
    ):
        flags.FLAGS(["main", f"--config={ROOT / 'configs' / 'finetune' / 'sst2.py'}"])
        yield


def test_an_evaluation_that_was_not_finite_is_never_the_best(tmp_path):
    run_config.write_config(tmp_path, {"init": "x", "train": {"best": "-dev/loss"}})
    writer = Writer(tmp_path, 0)
    writer.write(1, **{"dev/loss": float("nan"), "dev/f1": 0.25})
    assert results.result(tmp_path) == ("x", 1, {"dev/loss": None, "dev/f1": 0.25}, 0)
    assert "0.2500" in results.table([tmp_path])
    for step, loss in ((2, 4.0), (3, 3.0), (4, float("inf"))):
        writer.write(step, **{"dev/loss": loss})
    writer.close()
    assert results.result(tmp_path) == ("x", 3, {"dev/loss": 3.0}, 1)


def test_a_job_whose_steps_were_all_skipped_is_no_success(run, lines, tmp_path):
    recipe = config(lines, run("mlm").workdir, **{"optim.steps": 2})

    def finished(*arguments, keep, **hooks):
        keep()
        return loop.Result(mock.Mock(step=2, skipped=2), finished=True, best=None)

    with (
        alone(),
        mock.patch.object(loop, "run", side_effect=finished),
        pytest.raises(UserError, match="all 2 steps were skipped"),
    ):
        main.main(recipe, tmp_path / "run")


def test_several_seeds_are_told_with_mean_and_deviation(capsys):
    main.spread([{"dev/accuracy": 0.5}, {"dev/accuracy": 0.7}])
    assert capsys.readouterr().out == "dev/accuracy: 0.6000 +- 0.1414 of 2 seeds\n"


def test_seeds_are_runs_of_their_own(run, lines, tmp_path, capsys):
    recipe = config(lines, run("mlm").workdir, **{"num_seeds": 2, "optim.steps": 2})
    with alone():
        main.main(recipe, tmp_path / "runs")
        recipe.train.log_every = 2  # of what may change
        main.main(recipe, tmp_path / "runs")
    assert (tmp_path / "runs" / "seed-0" / "checkpoints" / "2").exists()
    assert (tmp_path / "runs" / "seed-1" / "checkpoints" / "2").exists()
    assert capsys.readouterr().out.count("of 2 seeds") == 3 * 2 * 1
    predicted = (tmp_path / "runs" / "seed-1" / "predictions" / "dev.jsonl").read_text()
    assert len(predicted.splitlines()) == 24


def test_predictions_that_were_broken_off_are_still_to_be_made(tmp_path):
    broken = mock.Mock()
    broken.return_value.lines.side_effect = TerminatedError("told to terminate")
    made = mock.Mock(evals={"dev": None}, examples={"dev": []})
    with mock.patch.object(main, "Predictor", broken), mock.patch.object(jobs, "load_job"):
        assert not main.predictions(made, tmp_path, {})
    assert not list((tmp_path / "predictions").iterdir())


def test_the_last_words_say_whether_there_is_more_to_do(tmp_path, capsys):
    recipe = config(tmp_path, "", **{"optim.steps": 9, "train.best": "-dev/loss"})
    found = hooks.Evaluation(2, {"dev/loss": 0.25}, 3)
    for step, done in ((9, True), (6, True), (6, False)):
        main.told(recipe, tmp_path, step, found, done)
    first, early, stopped = capsys.readouterr().out.split("step 2 (best by -dev/loss)")[:3]
    assert first.startswith("Finished at step 9 of 9.\n")
    assert "\nFinished at step 6 of 9: 3 evaluations did not better the best.\n" in early
    assert "dev/loss 0.2500" in early
    assert "\nStopped at step 6 of 9.\n" in stopped
