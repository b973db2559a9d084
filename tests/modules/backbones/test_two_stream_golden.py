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


PEER_CASES = {
    "two streams, memory, both directions": dict(bi_data=True, mem_len=6, reuse_len=5),
    "clamped, one bias for all layers": dict(clamp_len=3, mem_len=6, untie_r=False),
    "left to right, same length": dict(attn_type="uni", same_length=True, mem_len=12),
}


@pytest.mark.parametrize("case", PEER_CASES)
def test_outputs_and_gradients_are_hugging_face_s(torch, transformers, case):
    cfg = reference.Config(n_token=30, d_model=16, n_head=2, d_head=8, **PEER_CASES[case])
    weights = reference.random_weights(cfg, 4)
    inputs = peer_inputs(cfg, np.random.default_rng(5))
    weigh = np.random.default_rng(6).normal(0, 1, (4, 11 if cfg.attn_type == "uni" else 3, 16))
    states, slopes = peer(torch, transformers, cfg, weights, inputs, weigh)

    _, forward = run(cfg, inputs)

    def loss(params):
        own = forward(params).h
        return (own * weigh).sum(), own

    (_, own), ours = quick_jit(jax.value_and_grad(loss, has_aux=True))(reference.ours(weights, cfg))
    assert off(own, states) < 3e-6
    theirs = reference.ours(slopes, cfg)
    scale = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(theirs)))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.linalg.norm(a - b) < 1e-5 * max(np.linalg.norm(b), 1e-2 * scale)


def peer_inputs(cfg, rng):
    B, L, P = 4, 11, 3
    inputs = {
        "inp_k": rng.integers(0, cfg.n_token, (B, L)),
        "seg_id": rng.integers(0, 3, (B, L)),
        "mems": rng.normal(0, 1, (B, cfg.n_layer, cfg.mem_len, 16)).astype(np.float32),
    }
    if cfg.attn_type == "bi":
        inputs["perm_mask"] = (rng.random((B, L, L)) < 0.5).astype(int)
        inputs["target_mapping"] = np.eye(L)[np.stack([rng.permutation(L)[:P] for _ in range(B)])]
    if cfg.bi_data:
        inputs["backward"] = np.arange(B) >= B // 2
    return inputs


SAME_NAMES = ("n_layer", "n_head", "d_inner", "untie_r", "attn_type", "mem_len", "reuse_len")
SAME_NAMES += ("bi_data", "clamp_len", "same_length")


def peer(torch, transformers, cfg, weights, inputs, weigh):
    """Hugging Face's outputs, and its gradients under the original's names."""
    names = {name: getattr(cfg, name) for name in SAME_NAMES}
    names |= dict(vocab_size=cfg.n_token, d_model=16, ff_activation="gelu_new", dropout=0.0)
    names |= dict(layer_norm_eps=1e-12)
    model = transformers.XLNetModel(transformers.XLNetConfig(**names)).eval()
    theirs = list(peer_parameters(model, cfg))
    for name, index, parameter in theirs:
        parameter.data.copy_(torch.tensor(as_peer(name, weights[name][index])))
    tensor = {k: torch.tensor(x) for k, x in inputs.items()}
    mapped = {
        name: tensor[name].float() for name in ("perm_mask", "target_mapping") if name in tensor
    }
    out = model(
        tensor["inp_k"],
        token_type_ids=tensor["seg_id"],
        use_mems=True,
        mems=list(tensor["mems"].permute(1, 2, 0, 3)),
        **mapped,
    ).last_hidden_state
    (out * torch.tensor(weigh, dtype=out.dtype)).sum().backward()
    slopes = {name: np.zeros(w.shape) for name, w in weights.items()}
    for name, index, parameter in theirs:
        if parameter.grad is not None:
            slopes[name][index] += as_peer(name, parameter.grad.numpy())
    return out.detach().numpy(), slopes


def as_peer(name, w):
    """A dense layer's kernel is the other way round there."""
    return w.T if "ff/layer" in name and name.endswith("kernel") else w


def peer_parameters(model, cfg):
    """(the original's name, which part of it, the parameter): theirs keeps biases per layer."""
    root = reference.ROOT
    yield root + "word_embedding/lookup_table", ..., model.word_embedding.weight
    yield root + "mask_emb/mask_emb", ..., model.mask_emb
    for i, layer in enumerate(model.layer):
        attention, ff, own = layer.rel_attn, layer.ff, f"{root}layer_{i}/"
        for kind in "wrs":
            index = i if cfg.untie_r else ...
            yield f"{root}r_{kind}_bias", index, getattr(attention, f"r_{kind}_bias")
        yield root + "seg_embed", i, attention.seg_embed
        for name in "qkvro":
            yield f"{own}rel_attn/{name}/kernel", ..., getattr(attention, name)
        for scope, norm in (("rel_attn", attention.layer_norm), ("ff", ff.layer_norm)):
            yield f"{own}{scope}/LayerNorm/gamma", ..., norm.weight
            yield f"{own}{scope}/LayerNorm/beta", ..., norm.bias
        for n, dense in ((1, ff.layer_1), (2, ff.layer_2)):
            yield f"{own}ff/layer_{n}/kernel", ..., dense.weight
            yield f"{own}ff/layer_{n}/bias", ..., dense.bias
