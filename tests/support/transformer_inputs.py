"""Tiny transformers with weights so large that all of them matter, and the originals' weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import modules
from modules.backbones import text_mask
from modules.heads import language_model
from modules.masks import Mask, count_lengths
from tests.support.xlnet_inputs import off

SIZES: dict[str, Any] = dict(
    V=40, D=16, H=2, K=8, N=3, F=24, L=16, dropout=0.0, attention_dropout=0.0
)

# What the recipes say of each system.
BERT = dict(attention="bi", norm="post", S=2, normed_embedding=True, pooler=True, epsilon=1e-12)
GPT1 = dict(attention="causal", norm="post")
GPT2 = dict(attention="causal", norm="pre")


def tiny(**fields):
    return modules.build("transformer", **(SIZES | fields))


DECODERS = {"pre": tiny(**GPT2), "post": tiny(**GPT1), "banded": tiny(**GPT2, window=3)}


def golden_gpt2(flags):
    """A model of the sizes that the fixture of GPT-2's original code was made with."""
    D, H = flags["n_embd"], flags["n_head"]
    sizes = dict(V=flags["n_vocab"], D=D, H=H, K=D // H, N=flags["n_layer"], F=4 * D)
    return tiny(**sizes, L=flags["n_ctx"], **GPT2)


BERT_HEAD = dict(transform=True, bias=True)


def shapes(model, **head):
    """The tree of all parameters; with fields of a head those of it, too, beside the others."""
    own = language_model.build(model, **head)

    def everything(model):
        h_BLD = model(jnp.zeros((1, 1), jnp.int32), mask=Mask(), train=False).h
        return model.pool(h_BLD[:, 0]) if model.pooler else None

    tree = jax.eval_shape(nn.init(everything, model), jax.random.key(0))["params"]
    return tree | jax.eval_shape(own.init, jax.random.key(0)).get("params", {})


def read_by_head(model, params, method, *args, **fields):
    """What a head on these weights, which stand beside the model's, makes of states."""
    chunks = dict(chunks=2) if method == "cross_entropy" else {}
    head = language_model.build(model, **fields)
    return head.apply({"params": params}, *args, params["token_VD"], **chunks, method=method)


def draw(model, seed: int = 0, scale: float = 0.4, **head):
    """Float32 parameters of this deviation, the norms' scales around 1."""
    rng = np.random.default_rng(seed)

    def one(path, leaf):
        around = 1 if path[-1].key == "scale_D" else 0
        return jnp.asarray(around + rng.normal(0, scale, leaf.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(one, shapes(model, **head))


def tokens(B: int, L: int, seed: int = 0):
    return np.random.default_rng(seed).integers(0, SIZES["V"], (B, L))


def seen(model, valid_BL=None, groups_BL=None):
    """The mask of texts as the model reads them; rows are padded at their end."""
    lengths_B = None if valid_BL is None else count_lengths(valid_BL)
    return text_mask(model, lengths_B=lengths_B, groups_BL=groups_BL)


def forward(model, tokens_BL, *, valid_BL=None, groups_BL=None, **given):
    """params -> states."""
    mask = seen(model, valid_BL, groups_BL)
    return lambda params: (
        model.apply({"params": params}, tokens_BL, mask=mask, **given, train=False).h
    )


def slopes_off(ours, theirs):
    """The largest distance of a gradient from theirs, as a share of theirs.

    A key's bias moves all scores of a query alike, so its gradient is 0 but for rounding: the
    biases of queries, keys and values are taken as one.
    """

    def joined(tree):
        attention = dict(tree["layers"]["attention"])
        biases = np.stack([attention.pop(f"b{name}_HK") for name in "qkv"])
        layers = tree["layers"] | {"attention": attention | {"biases": biases}}
        return tree | {"layers": layers}

    offs = jax.tree.map(off, joined(ours), joined(theirs))
    return max(jax.tree.leaves(offs))


def gpt(w: dict[str, np.ndarray], H: int) -> dict:
    """Weights under the names of the released GPT-2, and of GPT-1, as ours are arranged."""
    N = sum(name.endswith("c_fc/w") for name in w)

    def stack(name: str, *shape: int):
        layers = np.stack([w[f"h{i}/{name}"] for i in range(N)])
        return layers.reshape(N, *shape) if shape else layers

    def norm(scope: str, get=stack):
        return {"scale_D": get(f"{scope}/g"), "bias_D": get(f"{scope}/b")}

    D = w["wte"].shape[1]
    joined = stack("attn/c_attn/w", D, 3, H, D // H), stack("attn/c_attn/b", 3, H, D // H)
    attention = {f"w{name}_DHK": joined[0][:, :, i] for i, name in enumerate("qkv")}
    attention |= {f"b{name}_HK": joined[1][:, i] for i, name in enumerate("qkv")}
    attention["wo_HKD"] = stack("attn/c_proj/w", H, D // H, D)
    attention["bo_D"] = stack("attn/c_proj/b")
    ffn = {"wi_DF": stack("mlp/c_fc/w", D, -1), "bi_F": stack("mlp/c_fc/b")}
    ffn |= {
        "wo_FD": stack("mlp/c_proj/w", ffn["wi_DF"].shape[-1], D),
        "bo_D": stack("mlp/c_proj/b"),
    }
    block = {"attention": attention, "ffn": ffn}
    block |= {"attention_norm": norm("ln_1"), "ffn_norm": norm("ln_2")}
    tree = {"token_VD": w["wte"], "position_LD": w["wpe"], "layers": block}
    return tree | ({"final_norm": norm("ln_f", w.get)} if "ln_f/g" in w else {})


def bert(w: dict[str, np.ndarray], H: int) -> dict:
    """Weights under the names of the released BERT as ours are arranged."""
    N = sum(name.endswith("intermediate/dense/kernel") for name in w)
    D = w["bert/embeddings/word_embeddings"].shape[1]

    def stack(name: str, *shape: int):
        layers = np.stack([w[f"bert/encoder/layer_{i}/{name}"] for i in range(N)])
        return layers.reshape(N, *shape) if shape else layers

    def norm(scope: str, get=stack):
        return {
            "scale_D": get(f"{scope}/LayerNorm/gamma"),
            "bias_D": get(f"{scope}/LayerNorm/beta"),
        }

    attention = {}
    for name in ("query", "key", "value"):
        attention[f"w{name[0]}_DHK"] = stack(f"attention/self/{name}/kernel", D, H, D // H)
        attention[f"b{name[0]}_HK"] = stack(f"attention/self/{name}/bias", H, D // H)
    attention["wo_HKD"] = stack("attention/output/dense/kernel", H, D // H, D)
    attention["bo_D"] = stack("attention/output/dense/bias")
    ffn = {"wi_DF": stack("intermediate/dense/kernel"), "bi_F": stack("intermediate/dense/bias")}
    ffn |= {"wo_FD": stack("output/dense/kernel"), "bo_D": stack("output/dense/bias")}
    block = {"attention": attention, "ffn": ffn}
    block |= {"attention_norm": norm("attention/output"), "ffn_norm": norm("output")}
    tables = {"token_VD": "word", "position_LD": "position", "segment_SD": "token_type"}
    tree: dict = {name: w[f"bert/embeddings/{kind}_embeddings"] for name, kind in tables.items()}
    tree |= {"embedding_norm": norm("bert/embeddings", w.get), "layers": block}
    tree |= {"pool_DD": w["bert/pooler/dense/kernel"], "pool_bias_D": w["bert/pooler/dense/bias"]}
    head, scope = "cls/predictions/transform", "cls/predictions"
    if f"{scope}/output_bias" in w:
        tree |= {"transform_DD": w[f"{head}/dense/kernel"]}
        tree |= {"transform_bias_D": w[f"{head}/dense/bias"]}
        tree |= {"transform_norm": norm(head, w.get), "bias_V": w[f"{scope}/output_bias"]}
    return tree
