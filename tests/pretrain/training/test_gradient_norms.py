"""Norms of a model's parts: they add up, on any layout,and resuming knows them."""

import functools
import json

import jax
import numpy as np
import pytest

from pretrain.data.batches.loader import list_phases
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.gradient_norms import choose_norms
from tests.support import regression
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

CLIP = 0.5


class Run:
    """Two steps of GPT-2's recipe, with the mean of every metric and the states around them."""

    def __init__(self, toy, devices: int, parts: int):
        config = toy.config("clm", {"batches.B": 16, "optim.clip": CLIP})
        mesh = dict(data=2, fsdp=2, tensor=2) if devices == 8 else {}
        layout = Layout(make_mesh(**mesh, devices=jax.devices()[:devices]))
        objective, train, _ = toys.build(config)
        data, (tx, _) = list_phases(train)[0], optimizer.make(**config.optim)
        norms = choose_norms(True, config.optim)
        steps = Steps(objective, tx, layout, [data], seed=0, parts=parts, norms=norms)
        state = steps.init()
        self.states, self.metrics = [jax.device_get(state.params)], []
        for step in range(2):
            state, metrics = steps.train(state, layout.shard_batch(data.batch(step), data.B))
            self.states.append(jax.device_get(state.params))
            means = {k: float(x.total / max(x.weight, 1)) for k, x in metrics.norms.items()}
            self.metrics.append(means | {"grad_norm": float(metrics.grad_norm)})


@pytest.fixture(scope="module")
def run(toy):
    return functools.cache(lambda devices, parts: Run(toy, devices, parts))


def of_kind(metrics, kind):
    return {k.split("/")[1]: x for k, x in metrics.items() if k.endswith(f"/{kind}")}


def test_squares_of_all_parts_add_up_to_the_whole(run):
    for metrics in run(1, 2).metrics:
        grads = of_kind(metrics, "grad")
        assert {"layers_00", "layers_01", "token_VD"} < set(grads)
        np.testing.assert_allclose(
            np.linalg.norm(list(grads.values())), metrics["grad_norm"], rtol=1e-5
        )
        assert metrics["norms/clipped"] == (metrics["grad_norm"] > CLIP)


def test_weights_and_updates_are_those_of_each_layer(run):
    before, after = (run(1, 2).states[n]["backbone"]["layers"] for n in (1, 2))
    for n in range(2):
        layer = lambda tree, n=n: np.concatenate([x[n].ravel() for x in jax.tree.leaves(tree)])  # noqa: E731
        weight, update = (np.linalg.norm(x) for x in (layer(before), layer(after) - layer(before)))
        found = run(1, 2).metrics[1]
        np.testing.assert_allclose(found[f"norms/layers_0{n}/weight"], weight, rtol=1e-5)
        np.testing.assert_allclose(found[f"norms/layers_0{n}/update"], update / weight, rtol=1e-3)


@pytest.mark.slow
def test_eight_devices_change_no_norm(run):
    for one, many in zip(run(1, 2).metrics, run(8, 2).metrics, strict=True):
        for name in one:
            np.testing.assert_allclose(many[name], one[name], rtol=2e-3, atol=1e-6, err_msg=name)


def test_a_run_writes_norms_beside_its_losses(tmp_path):
    regression.run(tmp_path, train__norms=True, train__log_every=2, optim__clip=1e-9)
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    trained = [x for x in lines if "loss" in x]
    assert [x["norms/clipped"] for x in trained] == [1.0] * 3
    for line in trained:
        assert line["norms/w_D/grad"] == pytest.approx(line["grad_norm"], rel=1e-5)
        assert 0 < line["norms/w_D/update"] < 1
        assert line["norms/w_D/weight"] > 0
