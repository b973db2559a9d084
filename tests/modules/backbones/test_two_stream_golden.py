"""What the released XLNet and Hugging Face's compute, ours computes."""

import json
import pathlib

import jax
import numpy as np
import pytest

from modules.heads import language_model
from tests.support import xlnet_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import arguments, backbone, off

pytestmark = pytest.mark.usefixtures("exactly")

FOLDER = pathlib.Path(__file__).parents[2] / "fixtures" / "xlnet"
FILES = sorted(path.stem for path in FOLDER.glob("*.npz"))
TRAINED = [name for name in FILES if name.startswith("bi_pretrain")]


def load(name):
    """(flags, weights, inputs, targets, outputs); all inputs with a leading B."""
    with np.load(FOLDER / f"{name}.npz") as file:
        flags = json.loads(str(file["cfg"]))
        groups = {
            part: {k.removeprefix(part): file[k] for k in file.files if k.startswith(part)}
            for part in ("w/", "in/", "out/")
        }
    cfg = reference.Config(**{k: x or 0 for k, x in flags.items() if hasattr(reference.Config, k)})
    axes = {"inp_k": 1, "seg_id": 1, "mems": 2, "perm_mask": 2, "target_mapping": 2}
    inputs = {
        k: np.moveaxis(groups["in/"][k], axis, 0) for k, axis in axes.items() if k in groups["in/"]
    }
    if cfg.bi_data:
        B = len(inputs["inp_k"])
        inputs["backward"] = np.arange(B) >= B // 2
    targets = {k: x.T for k, x in groups["in/"].items() if k in ("tgt", "tgt_mask")}
    return cfg, groups["w/"], inputs, targets, groups["out/"]


def run(cfg, inputs):
    model, given = backbone(cfg), arguments(cfg, inputs)
    return model, lambda params: model.apply({"params": params}, **given, train=False)


def check_outputs(cfg, out, golden):
    assert off(out.h, golden["out"].swapaxes(0, 1)) < 2e-6
    for i in range(cfg.n_layer if cfg.mem_len else 0):
        assert off(out.memory.h_NBMD[i], golden[f"new_mems_{i}"].swapaxes(0, 1)) < 2e-6


def test_there_are_five_goldens():
    assert (len(FILES), len(TRAINED)) == (5, 3)


@pytest.mark.parametrize("name", sorted({*FILES} - {*TRAINED}))
def test_outputs_and_memory_are_the_original_s(name):
    cfg, weights, inputs, _, golden = load(name)
    _, forward = run(cfg, inputs)
    check_outputs(cfg, quick_jit(forward)(reference.ours(weights, cfg)), golden)


@pytest.mark.parametrize("name", TRAINED)
def test_outputs_loss_and_gradients_are_the_original_s(name):
    cfg, weights, inputs, targets, golden = load(name)
    model, forward = run(cfg, inputs)

    def loss(params):
        out = forward(params)
        head = language_model.build(model, bias=True).bind({"params": params})
        args = out.h, targets["tgt"], targets["tgt_mask"], params["token_VD"]
        total, weight = jax.tree.leaves(head.cross_entropy(*args, chunks=2)["loss"])
        return total / weight, out

    ours = quick_jit(jax.value_and_grad(loss, has_aux=True))(reference.ours(weights, cfg))
    (value, out), grads = ours
    check_outputs(cfg, out, golden)
    assert abs(value - golden["total_loss"]) < 2e-6 * golden["total_loss"]
    given = {k.removeprefix("grad/"): x for k, x in golden.items() if k.startswith("grad/")}
    assert given.keys() == weights.keys()
    offs = jax.tree.map(off, grads, reference.ours(given, cfg))
    assert max(jax.tree.leaves(offs)) < 1e-5, offs


def test_the_slow_reference_agrees_with_the_original_too():
    for name in FILES:
        cfg, weights, inputs, _, golden = load(name)
        expected = golden["out"].swapaxes(0, 1)
        for b in range(len(expected)):
            out, _ = reference.transformer(cfg, weights, **{k: x[b] for k, x in inputs.items()})
            assert off(out, expected[b]) < 3e-6
