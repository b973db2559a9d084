"""Contenders have a card one by one, leave their figures, and are not timed twice."""

import json
import os
import sys

import pytest
from absl.testing import flagsaver

from benchmarks import gpu, recipes
from benchmarks.contest import options, sections, table
from benchmarks.contest.published_sizes import CONTESTS, GPT2, Contest, Entry
from pretrain.runtime import recipe_files
from pretrain.runtime.errors import UserError
from tests.benchmarks.test_step import TOY

PEER_PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
gpu.flags.FLAGS.mark_as_parsed()
TWO = {"toy": Contest("bert", {}, (Entry("ours"), Entry("hf", GPT2, "hf")))}


def result(step_s, **facts):
    rounds = dict(step_s=table.spread([step_s])._asdict(), losses=[9.0, 8.0], tokens=1000)
    return rounds | dict(compile_s=1.0, peak_bytes=2**20) | facts


@pytest.mark.parametrize("name", CONTESTS)
def test_every_entry_changes_what_its_recipe_has(name):
    contest = CONTESTS[name]
    for entry in contest.entries:
        config = recipe_files.load(recipe_files.find(contest.recipe))
        for key in {**contest.changes, **entry.changes}:
            section, _, field = key.partition(".")
            assert field in config[section]
        assert sections.freeze_recipe(config)["optim"]["warmup"] == 0


def test_contests_and_contenders_are_chosen_by_name():
    assert list(gpu.list_contenders(TWO, [])) == ["toy-matmul", "toy-ours", "toy-hf"]
    assert list(gpu.list_contenders(TWO, ["toy-hf"])) == ["toy-hf"]
    with pytest.raises(UserError, match="--only=gpt: there are toy, toy-matmul"):
        gpu.list_contenders(TWO, ["gpt"])


def test_a_call_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    clock, seen = [0.0], []

    def measure(contest, entry, trace, seconds):
        seen.append((entry.name, seconds))
        clock[0] += 40
        return {"error": "out of memory"} if clock[0] % 60 else {"figures": 1}

    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    with flagsaver.flagsaver((gpu.WITHIN, 1)):
        gpu.run_contests(TWO, tmp_path)  # the second is stopped by the end of the time
        assert [path.stem for path in tmp_path.iterdir()] == ["toy-matmul"]
        gpu.run_contests(TWO, tmp_path)
    assert seen == [("matmul", 60), ("ours", 20), ("ours", 60), ("hf", 20)]
    assert json.loads((tmp_path / "toy-ours.json").read_text()) == {"figures": 1}


def test_the_table_has_rates_ratios_and_refusals(tmp_path):
    files = dict(
        matmul=result(0.5, flops=1e9),
        ours=result(2.0, flops=1e9),
        hf=result(3.0, losses=[9.0, 9.5]),
    )
    for name, figures in files.items():
        (tmp_path / f"toy-{name}.json").write_text(json.dumps(figures))
    title, _, ours, hf = gpu.tabulate(TWO, tmp_path)
    assert title == "bert"
    assert ours.split()[:2] == ["ours", "2000.0"]
    assert "25.0%" in ours
    assert hf.endswith("1.50   its loss does not fall")
    (tmp_path / "toy-hf.json").write_text(json.dumps({"error": "hf: out of memory"}))
    assert list(gpu.tabulate(TWO, tmp_path))[-1].split(maxsplit=1) == ["hf", "hf: out of memory"]


@pytest.mark.slow
def test_a_toy_contest_is_run_and_profiled(tmp_path, monkeypatch):
    peer = options.has_packages(PEER_PYTHON, "torch", "transformers")
    entries = (Entry("ours"), *([Entry("sdpa", GPT2, "sdpa")] if peer else []), Entry("no", "no"))
    monkeypatch.setattr(gpu.recipe_files, "load", lambda path: recipes.get_config("gpt2"))
    one = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    monkeypatch.setenv("XLA_FLAGS", one)
    brief = (gpu.ROUNDS, 2), (gpu.STEPS, 2), (gpu.TRACE, True), (gpu.PEER_PYTHON, PEER_PYTHON)
    with flagsaver.flagsaver(*brief):
        gpu.run_contests({"toy": Contest("gpt2", TOY, entries)}, tmp_path)
    found = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert "its process ended" in found.pop("toy-no")["error"]
    assert found.pop("toy-matmul")["flops"] > 0
    for name, figures in found.items():
        assert figures["losses"][-1] < figures["losses"][0]
        assert [*(tmp_path / name).rglob("*.gz")]
