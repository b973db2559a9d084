"""The command that lets a model write: what it prints, and what it refuses."""

import pytest

from pretrain.inference.generator import Writer, join_pieces
from pretrain.inference.sampling import Sampler
from pretrain.inference.trained_run import load_run
from tests.support import commands
from tests.support.tiny_models import layout

pytest_plugins = ["tests.support.tiny_models"]


@pytest.fixture
def gpt(run):
    """The workdir of a run; not to be changed."""
    return run("clm").workdir


def generate(toy, workdir, *words, devices: int = 1):
    words = ["-m", "pretrain.generate", f"--workdir={workdir}", *words]
    return commands.run(*words, environment=toy.environment(devices))


def written(writer: Writer, prompts, tokens: int, **options) -> list[str]:
    """The whole texts, without the prompts."""
    return join_pieces(writer.generate(prompts, tokens=tokens, **options), len(prompts))


def assert_refused(done, *named) -> None:
    assert done.returncode > 0
    assert "Traceback" not in done.stdout + done.stderr
    assert all(name in done.stderr for name in named), done.stderr


def test_one_text_is_printed_behind_its_prompt(toy, gpt):
    done = generate(toy, gpt, "--prompt=Ba", "--tokens=12", "--top_k=50", "--seed=3")
    assert done.returncode == 0, done.stderr
    texts = written(Writer(load_run(gpt), layout(), Sampler(top_k=50)), ["Ba"], 12, seed=3)
    assert done.stdout == f"Ba{texts[0]}\n"
    assert "read 3 tokens at" in done.stderr
    assert "wrote 11 tokens at" in done.stderr


def test_texts_are_printed_each_under_its_number_on_any_devices(toy, gpt, tmp_path):
    (tmp_path / "prompts.txt").write_text("Ba\n\n")
    words = f"--prompts={tmp_path}/prompts.txt", "--prompt=Fe", "--samples=2", "--tokens=5"
    done = generate(toy, gpt, *words, devices=8)
    assert done.returncode == 0, done.stderr
    prompts = ["Fe", "Fe", "Ba", "Ba", "", ""]
    texts = written(Writer(load_run(gpt), layout()), prompts, 5)
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True), 1):
        assert f"--- {number} of 6\n{prompt}{text}\n" in done.stdout


def test_without_a_prompt_a_text_begins_from_nothing_and_stops_where_told(toy, gpt):
    free = generate(toy, gpt, "--tokens=8", "--greedy").stdout
    stop = free[2:4].replace("\n", "\\n")
    assert stop
    done = generate(toy, gpt, "--tokens=8", "--greedy", f"--stop={stop}")
    assert done.stdout == free[: free.index(free[2:4])] + "\n"


MISTAKES = {
    "more than fits": (["--prompt=Ba", "--tokens=40"], ["'Ba'", "32 positions", "room for 30"]),
    "no such flag": (["--promt=Ba"], ["promt"]),
    "not UTF-8": (["--prompt=\udcff"], ["not UTF-8"]),
    "no such file": (["--prompts=no/such.txt"], ["no/such.txt: cannot be read"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_in_a_line(toy, gpt, mistake):
    words, named = MISTAKES[mistake]
    assert_refused(generate(toy, gpt, *words), *named)


def test_a_folder_without_a_run_is_named(toy, tmp_path):
    assert_refused(generate(toy, tmp_path / "none"), f"{tmp_path}/none holds no run")
