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
    title, top, _, ours, hf = gpu.tabulate(TWO, tmp_path)
    assert (title, "MFU is a share" in top) == ("bert", True)
    assert ours.split()[:2] == ["ours", "2000.0"]
    assert "25.0%" in ours
    assert hf.endswith("1.50   its loss does not fall")
    (tmp_path / "toy-hf.json").write_text(json.dumps({"error": "hf: out of memory"}))
    assert list(gpu.tabulate(TWO, tmp_path))[-1].split(maxsplit=1) == ["hf", "hf: out of memory"]


def test_what_differs_between_files_is_told(tmp_path):
    plain = Entry("ours_plain", changes={"execution.attention_form": "plain"})
    two = {"toy": Contest("bert", {}, (Entry("ours"), plain, Entry("hf", GPT2, "hf")))}
    cards = [["NVIDIA H100, 1", ""], ["NVIDIA H200, 2", ""]]
    files = dict(
        ours={"error": "ours: no kernel"},
        ours_plain=result(2.0, flops=1e9, cards=cards[0], jax="0.12"),
        hf=result(3.0, cards=cards[1], torch="2.13"),
    )
    for name, figures in files.items():
        (tmp_path / f"toy-{name}.json").write_text(json.dumps(figures))
    _, machines, _, ours, _, hf = gpu.tabulate(two, tmp_path)
    assert machines.startswith("NVIDIA H100, NVIDIA H200, jax 0.12, torch 2.13; figures of several")
    assert ours.endswith("no kernel")
    assert hf.endswith("1.50")  # of the first of ours that ran
    files["ours"] = result(1.0, flops=1e9) | dict(losses=[5.0, 4.0])
    (tmp_path / "toy-ours.json").write_text(json.dumps(files["ours"]))
    assert [*gpu.tabulate(two, tmp_path)][4].endswith("it begins with another loss")


def test_a_failed_contender_is_timed_again_when_asked(tmp_path):
    (tmp_path / "a.json").write_text('{"error": "no torch"}')
    (tmp_path / "b.json").write_text("{}")
    done = lambda: [gpu.is_done(tmp_path / f"{x}.json") for x in "abc"]  # noqa: E731
    assert done() == [True, True, False]
    with flagsaver.flagsaver((gpu.RETRY, True)):
        assert done() == [False, True, False]


def test_a_machine_without_a_card_or_a_peer_s_packages_is_refused(monkeypatch):
    monkeypatch.setenv(gpu.VISIBLE, "3,5")
    with pytest.raises(UserError, match="nvidia-smi names no card"):
        gpu.check_machine(TWO)
    assert os.environ[gpu.VISIBLE] == "3"
    monkeypatch.setattr(gpu, "read_card", lambda: "NVIDIA H100")
    monkeypatch.setattr(options, "has_packages", lambda *_: False)
    with pytest.raises(UserError, match="has no torch and transformers: name a Python"):
        gpu.check_machine(TWO)
    with flagsaver.flagsaver((gpu.ONLY, ["toy-ours"])):
        gpu.check_machine(TWO)


class Broken:
    """A player whose card or profile fails."""

    name, is_stopped = "ours", False

    def __init__(self, *_, **__):
        steps = dict(wall=1.0, cpu=1.0, losses=[2.0, 1.0], peak_bytes=1)
        self.facts = dict(first=steps, warm=steps, device=self.device)
        self.rounds, self.run = [steps], lambda steps: None

    def profile(self, *_):
        raise UserError("its time was over")

    def close(self):
        pass


@pytest.mark.parametrize(("device", "error"), [("cpu", "computes on the CPU"), ("H100", "")])
def test_a_cpu_is_no_card_and_a_lost_profile_costs_no_figures(device, error, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "read_card", lambda: "NVIDIA H100")
    monkeypatch.setattr(gpu, "Player", type("Player", (Broken,), {"device": device}))
    with flagsaver.flagsaver((gpu.TRACE, True)):
        result = gpu.measure(TWO["toy"], Entry("ours"), tmp_path, 0.0)
    if error:
        assert error in result["error"]
    else:
        assert result["step_s"]["median"] == 1.0
        assert result["trace_error"] == "its time was over"
        assert "error" not in result


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
