"""What is said of a command line that is not as it should be."""

import re
import sys

import pytest
from absl import app, flags
from absl.testing import flagsaver

from pretrain import cli
from pretrain.cli import arguments
from pretrain.runtime.errors import UsageError, UserError
from tests.support import commands
from tests.support.tiny_runs import ROOT

# Mains by the words that they want besides flags; those of launch/ have Python's own parser.
MAINS = {
    "benchmarks.data": 0,
    "benchmarks.embed": 0,
    "benchmarks.gpu": 1,
    "benchmarks.language_model_twin": 0,
    "benchmarks.predict": 1,
    "benchmarks.step": 0,
    "benchmarks.twin": 0,
    "finetune.main": 0,
    "finetune.predict": 2,
    "finetune.results": 1,
    "finetune.similarity": 0,
    "pretrain.compile": 0,
    "pretrain.convert": 0,
    "pretrain.data.prepare": 0,
    "pretrain.embed": 2,
    "pretrain.evaluate": 0,
    "pretrain.fill": 1,
    "pretrain.generate": 0,
    "pretrain.gradients": 0,
    "pretrain.main": 0,
    "pretrain.neighbours": 1,
    "pretrain.plot": 1,
    "pretrain.score": 1,
}
LAUNCH = ("launch.attempt", "launch.check", "launch.local", "launch.sweep")
FOLDERS = ("benchmarks", "finetune", "launch", "pretrain")
CONFIG = cli.CONFIG.name  # that defines the flags


@pytest.fixture
def read(monkeypatch):
    """Reads a command line, as a main does."""
    monkeypatch.chdir(ROOT)
    app.define_help_flags()

    def read(*words: str, has_words: bool = False) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["main", *words])
        return arguments.read(sys.argv, has_words)[1:]

    with flagsaver.flagsaver():
        yield read


@pytest.fixture
def refused(read, capsys):
    """What is said of a command line, in one line, and the exit code."""

    def refused(*words: str, **options) -> tuple[str, int]:
        with pytest.raises(SystemExit) as ended:
            read(*words, **options)
        out, said = capsys.readouterr()
        assert not out
        assert said.startswith("error: ")
        assert said.count("\n") == 1
        return said, ended.value.code

    return refused


BERT = f"--{CONFIG}=configs/bert.py"


def test_the_rows_of_a_batch_have_their_usual_name_too(read):
    read("--batch=48")
    assert arguments.ROWS.value == 48


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("config.optim.lr=1e-9", "write --config.optim.lr=1e-9"),
        ("config.optim.lr", "write --config.optim.lr=..."),
        ("workdir=runs/x", "write --workdir=runs/x"),
    ],
)
@pytest.mark.parametrize("has_words", [False, True])
def test_a_flag_without_its_dashes_is_refused(refused, word, named, has_words):
    said, code = refused(BERT, word, has_words=has_words)
    assert named in said
    assert code == 2


@pytest.mark.parametrize(
    ("words", "has_words", "named"),
    [
        ([BERT, "stray"], False, "stray is no flag"),
        ([BERT, "--explain", "seed"], False, "write --explain=seed"),
        (["--workdr=x", "help"], True, "Did you mean: workdir"),
        (["--config.seed=1"], False, "--config=configs/"),  # values without a recipe ask for one
        ([BERT, "--lr=3"], False, "did you mean --config.optim.lr?"),
        ([BERT, "--optim.lr=3"], False, "did you mean --config.optim.lr?"),
        (["--learning_rate=3"], False, "did you mean --config.optim.lr?"),
        ([BERT, "--zzz=3"], False, "flag 'zzz'\n"),
        ([BERT, "--config.optim", "--workdir=x"], False, "--config.optim: optim is a section;"),
        ([BERT, "--config.optim.steps=1e3"], False, "a whole number, as 1000\n"),
        ([BERT, "--config.optim.steps", "1e3"], False, "a whole number, as 1000\n"),
    ],
)
def test_what_is_no_command_line_is_refused(refused, words, has_words, named):
    said, code = refused(*words, has_words=has_words)
    assert named in said
    assert code == 2


def test_a_flag_that_is_not_given_is_asked_for(refused):
    flags.mark_flag_as_required("workdir")
    said, code = refused(BERT)
    assert "--workdir=... is to be given" in said
    assert code == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "as --config=bert:mini; --list names the recipes"),
        (["--explain=optim"], "as --config=bert:mini; --list names the recipes"),
        (["bert:mini"], "did you mean --config=bert:mini?"),
        (["--accept_changes", "configs/bert.py"], "did you mean --config=configs/bert.py?"),
    ],
)
def test_a_recipe_that_is_not_given_is_asked_for_by_name(refused, words, named):
    flags.mark_flag_as_required(CONFIG)
    said, code = refused(*words)
    assert said == f"error: --config=... is to be given{':' * (named[0] == 'd') or ','} {named}\n"
    assert code == 2


def test_a_command_that_takes_words_has_them(read):
    assert read("a.txt", "--workdir=x", "b=c.h5", has_words=True) == ["a.txt", "b=c.h5"]
    assert flags.FLAGS.workdir == "x"


@pytest.mark.parametrize("named", [[BERT], ["--config", "configs/bert.py"]])
def test_values_may_stand_before_the_recipe(read, named):
    assert read("--config.optim.steps=4", *named, "--config.seed=3") == []
    assert (flags.FLAGS.config.optim.steps, flags.FLAGS.config.seed) == (4, 3)


def test_names_of_other_libraries_stand_for_keys_of_the_same_meaning(read, capsys):
    words = "train.grad_accum=4", "ema=0.9", "train.early_stopping=3", "optim.learning_rate=1e-3"
    assert read(BERT, *(f"--config.{word}" for word in words), "--config.train.keep=5") == []
    config = flags.FLAGS.config
    assert (config.train.parts, config.train.average, config.train.stop_after) == (4, 0.9, 3)
    assert (config.optim.lr, config.train.keep) == (1e-3, 5)
    assert "train.grad_accum: here it is called train.parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["optim.lr_schedule=x"], ["here it is called optim.decay;", "optim has b1, b2, "]),
        (["train.patience=3"], ["here it is called train.stop_after;"]),
        (["depth=2"], ["here it is called model.N;"]),
        (["lr=1"], ["did you mean optim.lr?"]),
        (["optim.stesp=1"], ["did you mean optim.steps?"]),
        (["optimizer.lr=1"], ["did you mean optim.lr?"]),
        (["data.path=x"], ["here it is called corpus.source;"]),
        (["optim.l2=1"], ["no such key; recipes with this key: awd_lstm, ulmfit; optim has"]),
        (["batches.eval_B=1"], ["recipes with this key: finetune/author, "]),
        (["optimm.lr=1"], ["did you mean optim.lr?", "the recipe has batches, corpus"]),
        (["model.zzz=1"], ["no such key; model has D, F, H"]),
        (["seed.x=1"], ["seed is a value, not a section"]),
        (["optim.lr=2", "evals.held_out_32.bee=1"], ["evals.held_out_32 has B, L, split"]),
        (["optim.lr=abc"], ["config.optim.lr=abc"]),
        (["batches.B=1.5"], ["config.batches.B=1.5"]),
    ],
)
def test_a_key_that_is_not_there_is_named_with_those_that_are(refused, words, named):
    said, code = refused(BERT, *(f"--config.{word}" for word in words))
    assert code == 2
    for part in named:
        assert part in said


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("brt:base", ["--config=brt:base: did you mean configs/bert.py:base? "]),
        ("configs/trec.py", ["did you mean configs/finetune/trec.py? "]),
        ("zz/nope.py:mini", [str(ROOT / "zz" / "nope.py")]),
        ("configs", [str(ROOT / "configs")]),
    ],
)
@pytest.mark.parametrize("more", [[], ["--config.seed=1"]])
def test_a_recipe_that_is_not_there_is_named_with_where_recipes_are(refused, path, named, more):
    said, code = refused(f"--config={path}", *more)
    assert code == 2
    for part in (path, "configs/*.py", *named):
        assert part in said


def test_a_recipe_that_fails_ends_the_command_with_1(refused, tmp_path):
    (tmp_path / "recipe.py").write_text("def get_config():\n    return 1\n")
    said, code = refused(f"--config={tmp_path / 'recipe.py'}")
    assert "is to return a ConfigDict" in said
    assert code == 1


def test_a_recipe_is_named_without_its_folder_from_anywhere(read, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read("--config.seed=3", "--config", "bert:base") == []
    assert (flags.FLAGS.config.model.N, flags.FLAGS.config.seed) == (12, 3)


def test_help_lists_the_flags_of_a_job_and_ends_well():
    done = command("finetune.main", "--help")
    assert done.returncode == 0, done.stderr
    flags = ["--config: ", "--config.optim.lr=", "--workdir: ", "--explain: ", "--[no]list: "]
    for flag in [*flags, "--[no]accept_changes: "]:
        assert flag in done.stdout


def test_every_main_reads_its_command_line_so():
    files = [x for x in ROOT.glob("*/**/*.py") if x.relative_to(ROOT).parts[0] in FOLDERS]
    mains = {x: x.read_text() for x in files if re.search(r"^def main\(", x.read_text(), re.M)}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in mains}
    assert names == {*MAINS, *LAUNCH}
    for path, text in mains.items():
        own = r"argparse" if path.parent.name == "launch" else r"    cli\.run\("
        assert re.search(own, text), path


def test_a_preset_that_is_not_there_is_named_with_those_that_are(refused):
    said, code = refused("--config=xlnet:nope")
    assert said.startswith("error: --config=configs/xlnet.py:nope: there is no preset 'nope'; ")
    assert "mini" in said
    assert code == 2


def command(name: str, *words: str):
    return commands.run("-m", name, *words)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MAINS, *LAUNCH])
def test_every_main_helps_and_shows_an_example(name):
    done = command(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"python -m {name}" in done.stdout
    assert "--help" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", MAINS)
def test_every_main_refuses_a_flag_without_its_dashes(name):
    there = command(name, "--helpfull").stdout
    given = {"config": "configs/bert.py", "workdir": "no-run", "topology": "v5e:2x2", "word": "a"}
    words = [
        f"--{flag}={x}" for flag, x in given.items() if re.search(rf"^  --{flag}:", there, re.M)
    ]
    done = command(name, *words, *["none"] * MAINS[name], "config.optim.lr=1e-9")
    assert done.returncode == 2, done.stderr
    assert "write --config.optim.lr=1e-9" in done.stderr


def test_a_file_that_is_there_is_replaced_only_when_said(tmp_path):
    words = ["in.txt", str(tmp_path / "out.h5")]
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(overwrite=False):
        with pytest.raises(UsageError, match=r"name two files, .*: in\.txt out\.h5"):
            arguments.parse_files(words[:1], "in.txt out.h5")
        assert arguments.parse_files(words, "") == ("in.txt", tmp_path / "out.h5")
        (tmp_path / "out.h5").touch()
        with pytest.raises(UserError, match=r"out\.h5 is there already: .* or --overwrite"):
            arguments.parse_files(words, "")
    with flagsaver.flagsaver(overwrite=True):
        assert arguments.parse_files(words, "")[1] == tmp_path / "out.h5"
