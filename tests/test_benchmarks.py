"""benchmarks: who takes turns with whom, what a ratio is, and the FLOPs behind a utilisation."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import modules
from benchmarks import contest, noise, ours, table
from configs import xlnet
from pretrain import objectives
from pretrain.errors import UserError


def build(model, **objective):
    return objectives.build("plm", backbone=modules.build("two_stream", **model), **objective)


@pytest.mark.parametrize(
    ("preset", "M", "mflop"),
    [("base", 0, 672), ("base", 384, 787), ("large", 0, 2325), ("large", 384, 2681)],
)
def test_a_token_of_the_published_models_costs_what_the_closed_form_says(preset, M, mflop):
    config = xlnet.get_config(preset)
    config.model.M = M
    model = {k: v for k, v in config.model.to_dict().items() if k != "name"}
    objective = build(model, one_in=6)
    B, L = 8, 512
    assert objective.flops(B, L) / (B * L) / 1e6 == pytest.approx(mflop, rel=1e-3)


@pytest.mark.parametrize("M", [0, 64])
def test_flops_are_those_of_the_compiled_step(M):
    model = dict(V=2000, D=128, H=2, K=64, N=2, F=512, M=M, reuse=32, unroll=2, block=16)
    objective = build(model | dict(dropout=0.0, attention_dropout=0.0), chunks=1, perm=32)
    recipe = {"model": model, "seed": 0}
    recipe["batches"] = dict(name="lanes", B=4, L=64, reuse=32, both_ways=False)
    batch = ours.layout(recipe).batch(0)
    rngs = {name: jax.random.key(0) for name in ("params", "dropout", "corrupt")}
    variables = jax.eval_shape(lambda: objective.init(rngs, batch, train=True))
    carry = {k: v for k, v in variables.items() if k != "params"}

    def loss(params, carry):
        sums, _ = objective.apply(
            {"params": params, **carry}, batch, train=True, rngs=rngs, mutable=list(carry)
        )
        return sums["loss"][0]

    compiled = jax.jit(jax.grad(loss)).lower(variables["params"], carry).compile()
    assert objective.flops(4, 64) == pytest.approx(compiled.cost_analysis()["flops"], rel=0.15)


def test_contenders_take_turns_there_and_back():
    order = []
    players = [SimpleNamespace(run=lambda steps, name=name: order.append(name)) for name in "ABC"]
    contest.play(players, rounds=3, steps=1)
    assert "".join(order) == "ABCCBAABC"


def test_a_round_that_slows_everyone_does_not_move_the_ratio():
    load = np.array([1, 1, 5, 9, 1])
    slow, quick = (SimpleNamespace(rounds=[{"wall": t * x} for x in load]) for t in (3.0, 2.0))
    assert table.ratio(slow, quick, "wall") == pytest.approx((1.5,) * 4)


def test_a_contender_that_cannot_be_built_says_why():
    with pytest.raises(UserError, match="ours: KeyError: 'recipe'"):
        contest.Player("ours", "benchmarks.ours", {"threads": 1})
    with pytest.raises(UserError, match="no-such-python does not start"):
        contest.Player("peer", "benchmarks.peer_xlnet", {"threads": 1}, "no-such-python")


def test_noise_holds_ordinary_tokens_and_common_ones_more_often():
    tokens = noise.tokens(1000, 20_000)
    assert tokens.min() > max(noise.SPECIAL.values())
    assert tokens.max() < 1000
    assert (tokens < 100).mean() > 0.5


def test_a_recipe_is_measured_and_its_loss_falls(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.step", "--config=tests/toy.py:plm"]
    options = ["--rounds=2", "--steps=3", "--threads=1", "--clock=cpu", f"--json={report}"]
    env = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}  # one device
    done = subprocess.run(
        command + options, cwd=contest.ROOT, env=env, capture_output=True, text=True, check=True
    )
    found = json.loads(report.read_text())
    assert found["ours"]["losses"][-1] < found["ours"]["losses"][0]
    assert found["ours"]["step_s"]["least"] > 0
    assert found["ours"]["peak_bytes"] > 0
    assert found["ours"]["utilisation"]["median"] > 0
    assert len(found["matmul"]["rounds"]) == 2
    assert "tokens/s" in done.stdout
