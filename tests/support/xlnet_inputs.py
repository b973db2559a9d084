"""XLNet's inputs as the slow reference takes them, and the same as our backbone does."""

import jax
import jax.numpy as jnp
import numpy as np

import modules
from modules.backbones.two_stream import Memory
from modules.masks import Mask
from tests.support import xlnet_reference as reference

B, P = 4, 4


def backbone(cfg: reference.Config, **fields):
    return modules.build(
        "two_stream",
        V=cfg.n_token,
        D=cfg.d_model,
        H=cfg.n_head,
        K=cfg.d_head,
        N=cfg.n_layer,
        F=cfg.d_inner,
        M=cfg.mem_len,
        reuse_len=cfg.reuse_len,
        untie_r=cfg.untie_r,
        attention={"bi": "bi", "uni": "causal"}[cfg.attn_type],
        clamp_len=cfg.clamp_len,
        activation=cfg.ff_activation,
        **fields,
    )


def draw_inputs(cfg, rng, L, *, slots=True, masked=True, mixed=False):
    """Inputs of B examples as the reference takes them, with a leading B."""
    inputs = {"inp_k": rng.integers(0, cfg.n_token, (B, L)), "seg_id": rng.integers(0, 4, (B, L))}
    if cfg.mem_len:
        shape = (B, cfg.n_layer, cfg.mem_len, cfg.d_model)
        inputs["mems"] = rng.normal(0, 1, shape).astype(np.float32)
    if masked:
        inputs["perm_mask"] = (rng.random((B, L, L)) < 0.5).astype(int)
        inputs["perm_mask"][:, :, 0] = 0  # so that everyone sees something
    if slots:
        places = np.stack([rng.permutation(L)[:P] for _ in range(B)])
        inputs["target_mapping"] = np.eye(L)[places]
        inputs["target_mapping"][:, -1] = 0  # no such prediction
    if mixed:
        inputs["inp_q"] = rng.integers(0, 2, (B, P))
    if cfg.bi_data:
        inputs["backward"] = np.array([True, False, False, True])
    return inputs


def arguments(cfg, inputs):
    """The same inputs as the backbone takes them."""
    given = {"tokens_BL": inputs["inp_k"], "segments_BL": inputs["seg_id"]}
    mask = Mask(is_causal=cfg.attn_type == "uni", same_length=cfg.same_length)
    if "mems" in inputs:
        given["memory"] = Memory(np.moveaxis(inputs["mems"], 0, 1))
    if "perm_mask" in inputs:
        mask &= Mask(visible_BLJ=inputs["perm_mask"] == 0)
    if "target_mapping" in inputs:
        given["slots_BP"] = inputs["target_mapping"].argmax(-1)
        mask &= Mask(hides_slots=True)
    given["mask"] = mask
    if "inp_q" in inputs:
        given["blind_BP"] = inputs["inp_q"] == 1
    if "backward" in inputs:
        given["backward_B"] = inputs["backward"]
    return jax.tree.map(jnp.asarray, given)


def off(ours, theirs):
    """The error's norm as a share of the expected norm."""
    return np.linalg.norm(np.asarray(ours, np.float64) - theirs) / np.linalg.norm(theirs)
