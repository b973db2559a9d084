"""Each point of a recipe's sweep is one command, which gives it those values."""

import itertools
import shlex
import subprocess
import sys

import pytest

from launch import sweep
from tests.support.tiny_runs import ROOT

RECIPE = """
from configs import bert

def get_config(preset="mini"):
    return bert.get_config(preset)

def get_sweep():
    return [
        {
            "optim.lr": lr,
            "seed": n,
            "corpus.source": "text:it's here/*.txt",
            "objective.whole_word_mask": on,
        }
        for lr in (1e-4, 3e-3) for n, on in ((0, True), (1, False))
    ]
"""
# What a main makes of a command: its recipe after all flags, and its workdir.
READ = """
from absl import app, flags
from ml_collections import config_flags
config = config_flags.DEFINE_config_file("config")
workdir = flags.DEFINE_string("workdir", None, "")
def main(_):
    c = config.value
    whole = c.objective.whole_word_mask
    print(c.optim.lr, c.seed, c.corpus.source, whole, c.train.save_every, workdir.value)
app.run(main)
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "swept.py"
    path.write_text(RECIPE)
    return path


def broken(recipe, old, new):
    recipe.write_text(RECIPE.replace(old, new))
    with pytest.raises(ValueError, match=r".") as error:
        sweep.commands(str(recipe), ["python"])
    return str(error.value)


def test_the_lines_give_each_run_its_values(recipe, tmp_path):
    program = [sys.executable, "-c", READ, "--config.train.save_every=77"]
    command = [sys.executable, "-m", "launch.sweep", f"--config={recipe}:mini", "--runs=/r"]
    lines = subprocess.run([*command, "--", *program], cwd=ROOT, capture_output=True, text=True)
    done = subprocess.run(["sh"], input=lines.stdout, cwd=ROOT, capture_output=True, text=True)
    points = itertools.product((1e-4, 3e-3), ((0, True), (1, False)))
    name = "/r/swept-mini-lr={}-seed={}-source=text_it_s_here__.txt-whole_word_mask={}"
    assert done.stdout.splitlines() == [
        f"{lr} {seed} text:it's here/*.txt {on} 77 {name.format(lr, seed, on)}"
        for lr, (seed, on) in points
    ]


def test_a_prefix_names_each_job(recipe):
    lines = sweep.commands(str(recipe), ["python"], prefix="launch/slurm.sh --name job-{n} --")
    assert [line.split()[:4] for line in lines] == [
        ["launch/slurm.sh", "--name", f"job-{n}", "--"] for n in range(4)
    ]
    named = sweep.commands(str(recipe), ["python"], prefix="--name {run}")
    for line in named:
        words = shlex.split(line)
        assert f"--workdir=runs/{words[1]}" in words


def test_keys_that_end_alike_are_named_in_full(recipe):
    recipe.write_text(
        RECIPE[: RECIPE.index("def get_sweep")]
        + "def get_sweep():\n    return [{'batches.name': 'pairs', 'objective.name': 'mlm'}]\n"
    )
    (line,) = sweep.commands(str(recipe), ["python"])
    assert "--workdir=runs/swept-mini-batches.name=pairs-objective.name=mlm" in line


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def get_sweep", "def other", "has no get_sweep()"),
        ("optim.lr", "optim.rate", "the sweep names optim.rate, which is not in the recipe"),
        ("optim.lr", "seed.lr", "names seed.lr, which is not in the recipe"),
        ("(1e-4, 3e-3)", "(1e-4, 1e-4)", "would share the workdir swept-mini-lr=0.0001"),
        ("(1e-4, 3e-3)", "()", "get_sweep() returns no points"),
    ],
)
def test_a_wrong_sweep_is_refused(recipe, old, new, said):
    assert said in broken(recipe, old, new)


def test_values_on_the_command_line_are_combined():
    grid = ["optim.lr=1e-4,3e-4", "seed=0:2", "model.K=(1,2),(3,4)"]
    assert sweep.combine(grid)[:3] == [
        {"optim.lr": "1e-4", "seed": "0", "model.K": "(1,2)"},
        {"optim.lr": "1e-4", "seed": "0", "model.K": "(3,4)"},
        {"optim.lr": "1e-4", "seed": "1", "model.K": "(1,2)"},
    ]
    lines = sweep.commands("configs/elmo.py", ["python"], grid=grid[:2])
    assert len(lines) == 4
    assert lines[3].endswith("elmo-mini-lr=3e-4-seed=1 --config.optim.lr=3e-4 --config.seed=1")


@pytest.mark.parametrize("grid", [["seed"], ["=1"], ["seed="], ["seed=1,,2"], ["seed=1:1"]])
def test_values_that_are_none_are_refused(grid):
    with pytest.raises(ValueError, match="--set"):
        sweep.combine(grid)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("optim.lr=abc", "--set optim.lr=abc: optim.lr is a number"),
        ("optim.lr=1e-4,1e-3x", "--set optim.lr=1e-3x: optim.lr is a number"),
        ("seed=0-2", "--set seed=0-2: seed is a whole number; a range is 0:3"),
        ("seed=1e3", "--set seed=1e3: seed is a whole number"),
        ("objective.nsp=maybe", "--set objective.nsp=maybe: objective.nsp is true or false"),
        ("lr=1e-3", "names lr, which is not in the recipe; did you mean optim.lr?"),
        ("optim.speed=1", "decay, eps, join, lr, name, steps, warmup, weight_decay"),
        ("optim.warmpu=1", "did you mean optim.warmup?"),
        ("train.lr=1", "names train.lr, which is not in the recipe; did you mean optim.lr?"),
    ],
)
def test_values_and_keys_that_no_run_would_take_are_refused(word, said):
    command = [sys.executable, "-m", "launch.sweep", "--config=bert:mini", "--set", word, "--", "x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(said)


def test_a_key_that_all_runs_share_is_checked_too():
    for word in ("--config.optm.steps=3", "--noconfig.optm.steps"):
        with pytest.raises(ValueError, match=r"names optm.steps, which is not .* optim.steps\?"):
            sweep.commands("bert:mini", ["x", word], grid=["seed=0:2"])
    assert len(sweep.commands("bert:mini", ["x", "--config.optim.steps=3"], grid=["seed=0:2"])) == 2


@pytest.mark.parametrize(
    "word", ["optim.lr=3", "seed=0:2", "objective.nsp=True,false", "model.dtype=bfloat16,float32"]
)
def test_values_that_flags_take_pass(word):
    assert len(sweep.commands("bert:mini", ["x"], grid=[word])) in (1, 2)


def test_missing_recipes_and_programs_are_refused(recipe):
    for words, said in (
        (["--config=brt.py", "--", "x"], "no recipe brt.py; did you mean bert?"),
        ([], "name a program"),
    ):
        command = [sys.executable, "-m", "launch.sweep", f"--config={recipe}", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 2
        assert said in done.stderr


SWEPT = [
    path for path in sorted((ROOT / "configs").rglob("*.py")) if "get_sweep" in path.read_text()
]


@pytest.mark.parametrize("path", SWEPT, ids=lambda path: path.stem)
def test_every_recipes_sweep_is_a_command_each(path):
    lines = sweep.commands(str(path), ["python", "-m", "pretrain.main"])
    assert len({line.split("--workdir=")[1] for line in lines}) == len(lines) >= 3


def test_the_objectives_can_be_swept_over():
    assert {"bert", "elmo", "gpt", "gpt2", "xlnet"} <= {path.stem for path in SWEPT}


@pytest.mark.parametrize(
    ("named", "workdir"),
    [
        ("configs/finetune/glue.py", "runs/glue-mrpc-lr=5e-05"),
        ("configs/finetune/glue.py:rte", "runs/glue-rte-lr=5e-05"),
        ("configs/bert.py", "runs/bert-mini-lr=0.0003"),
        ("bert:mini", "runs/bert-mini-lr=0.0003"),
    ],
)
def test_a_run_is_named_after_its_preset(named, workdir):
    assert f"--workdir={workdir} " in sweep.commands(named, ["python"])[0]
