"""A recipe's step is measured beside its peers, which must train, too."""

import json
import os
import subprocess
import sys

import pytest

import modules
from benchmarks import recipes, step
from benchmarks.contest import options, runner, synthetic_data, table
from configs import xlnet
from pretrain import objectives
from pretrain.runtime.errors import UserError

PEER_PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
TOY = {  # whatever a recipe is about, this makes it small
    "corpus.tokens.V": 300,
    "model.D": 16,
    "model.H": 2,
    "model.K": 8,
    "model.N": 2,
    "model.F": 32,
    "batches.B": 4,
    "optim.lr": 0.01,
}


def build(objective, model, **fields):
    backbone = modules.build(**model)
    return objectives.build(objective, backbone=backbone, special=synthetic_data.SPECIAL, **fields)


@pytest.mark.parametrize(
    ("preset", "M", "mflop"),
    [("base", 0, 672), ("base", 384, 787), ("large", 0, 2325), ("large", 384, 2681)],
)
def test_flops_of_published_models_are_the_closed_forms(preset, M, mflop):
    config = xlnet.get_config(preset)
    config.model.M = M
    objective = build("plm", config.model.to_dict(), predict_every=6)
    B, L = 8, 512
    assert objective.flops(B, L) / (B * L) / 1e6 == pytest.approx(mflop, rel=1e-3)


@pytest.mark.parametrize(("name", "share"), [("clm", 1.0), ("mlm", 0.15)])
def test_flops_of_one_stream_count_no_other(name, share):
    way = "causal" if name == "clm" else "bi"
    objective = build(name, xlnet.get_config("base").model.to_dict() | dict(attention=way))
    B, L, N, D, F = 8, 512, 12, 768, 3072
    P = round(share * L)
    reads = D * D + D * D + 2 * D * F + 3 * L * D  # q, o, feed-forward, three products of scores
    macs = ((N - 1) * L + P) * reads + N * L * 2 * D * D + N * 2 * L * D * D / B
    head = objective.head.flops(B * P)
    assert objective.flops(B, L) == pytest.approx(6 * B * macs + head, rel=1e-2)


def test_an_unknown_peer_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"'tlm' has none; plm, mlm, clm, bilm, text_cnn"):
        step.peers_of("tlm")


def figures(first, steps_s, utilisation=0.5):
    """A contender's part of a report."""
    return {
        "step_s": table.spread(steps_s)._asdict(),
        "losses": [first, first - 1],
        "compile_s": 1.0,
        "peak_bytes": 2**20,
        "utilisation": {"median": utilisation},
    }


def report_of(**contenders):
    ratios = {f"{name} / ours": {"median": 2.0, "low": 1.5, "high": 2.5} for name in contenders}
    about = dict(device="1 x cpu", threads=1, clock="cpu", rounds=1, steps=1, tokens=1024)
    return (
        about
        | ratios
        | contenders
        | dict(contenders=list(contenders), load=[0.0, 0.0], flops_per_s=1e9)
    )


def test_every_peer_has_a_line_and_a_ratio(capsys):
    step.show(report_of(ours=figures(9, [0.5]), hf=figures(9, [2.0]), sdpa=figures(9, [1.0])))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["ours", "hf", "sdpa"]
    assert [line.split()[1] for line in lines[2:5]] == ["500.0", "2000.0", "1000.0"]
    assert lines[6:] == [
        "hf / ours 2.00 (1.50-2.50) by round; 4.00 of the least times",
        "sdpa / ours 2.00 (1.50-2.50) by round; 2.00 of the least times",
    ]


def test_every_peer_must_begin_with_our_loss_and_learn():
    ours, same = figures(9.0, [1.0]), figures(9.3, [1.0])
    step.check(report_of(ours=ours, hf=same, sdpa=same))
    with pytest.raises(UserError, match=r"9\.000 of ours, 9\.600 of sdpa"):
        step.check(report_of(ours=ours, hf=same, sdpa=figures(9.6, [1.0])))
    with pytest.raises(UserError, match=r"hf does not train: its loss went from 9\.3"):
        step.check(report_of(ours=ours, hf=same | {"losses": [9.3, 9.1, 9.3]}, sdpa=same))


@pytest.mark.parametrize("preset", ["bert", "gpt2"])
def test_what_peers_read_needs_no_jax(preset):
    """They may live under a Python that has torch and NumPy alone."""
    batches = recipes.get_config(preset).batches.to_dict()
    code = (
        "import json, sys; sys.modules['jax'] = sys.modules['grain'] = None\n"
        "from benchmarks.contest import synthetic_data, worker\n"
        "from pretrain.data import batches\n"
        f"layout = batches.build(corpus=synthetic_data.build_corpus(3000, 16384), **{batches})\n"
        "print(json.dumps(layout.batch(0)['tokens_BL'].shape))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=runner.ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [batches["B"], batches["L"]]


def benchmark(report, recipe, *options):
    """The report of a short run of `benchmarks.step`, and what it printed."""
    command = [sys.executable, "-m", "benchmarks.step", f"--config={recipe}", f"--json={report}"]
    brief = ["--rounds=2", "--steps=3", "--threads=1", "--clock=cpu"]
    one = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    env = os.environ | {"XLA_FLAGS": one}
    done = subprocess.run(
        [*command, *brief, *options], cwd=runner.ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(report.read_text()), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["gpt2", "xlnet", "bert"])
def test_a_recipe_is_measured_and_its_loss_falls(tmp_path, preset):
    toy = [f"--config.{name}={value}" for name, value in TOY.items()]
    found, printed = benchmark(tmp_path / "report", f"benchmarks/recipes.py:{preset}", *toy)
    assert found["contenders"] == ["ours"]
    assert found["ours"]["losses"][-1] < found["ours"]["losses"][0]
    assert found["ours"]["step_s"]["least"] > 0
    assert found["ours"]["peak_bytes"] > 0
    assert found["ours"]["utilisation"]["median"] > 0
    assert len(found["matmul"]["rounds"]) == 2
    assert "tokens/s" in printed


@pytest.mark.parametrize(
    ("preset", "peers"), [("xlnet", ["hf"]), ("bert", ["hf", "gathered"]), ("gpt2", ["hf", "sdpa"])]
)
def test_peers_begin_where_ours_does_and_learn(tmp_path, preset, peers):
    if not options.has_packages(PEER_PYTHON, "torch", "transformers"):
        pytest.skip(f"no torch and transformers in {PEER_PYTHON}: name another in PEER_PYTHON")
    toy = [f"--config.{name}={value}" for name, value in TOY.items()]
    flags = ["--peer", f"--peer_python={PEER_PYTHON}", *toy]
    found, _ = benchmark(tmp_path / "report", f"benchmarks/recipes.py:{preset}", *flags)
    assert found["contenders"] == ["ours", *peers]
    for name in peers:
        assert found[name]["parameters"] > 0.9 * found["ours"]["parameters"]
        assert found[f"{name} / ours"]["median"] > 0


CLASSIFIER = {
    "model.V": 300,
    "model.D": 16,
    "batches.B": 8,
    "batches.L": 24,
    "batches.lengths": "(16,)",
    "task.head.dropout": 0.0,
}


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("textcnn", {"optim.lr": 10.0, "model.filters": "((2, 5), (3, 5))"}),
        ("blstm", {"optim.lr": 0.01, "model.U": 16}),
    ],
)
def test_peers_of_classifiers_begin_where_ours_does_and_learn(tmp_path, preset, fields):
    if not options.has_packages(PEER_PYTHON, "torch", "transformers"):
        pytest.skip(f"no torch and transformers in {PEER_PYTHON}: name another in PEER_PYTHON")
    toy = [f"--config.{name}={value}" for name, value in (CLASSIFIER | fields).items()]
    flags = ["--peer", f"--peer_python={PEER_PYTHON}", *toy]
    found, _ = benchmark(tmp_path / "report", f"benchmarks/recipes.py:{preset}", *flags)
    assert found["contenders"] == ["ours", "plain", "fast"]
    # The second biases of PyTorch's LSTM rest.
    assert found["plain"]["parameters"] == pytest.approx(found["ours"]["parameters"], rel=0.02)
