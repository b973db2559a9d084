"""Blocks that nobody sees are left out, what the kernel cannot compute is refused."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.activation_sharding import sharding_context
from modules.kernels import attention, cudnn_attention, gpu_attention, gpu_calls, mask_numbers
from modules.kernels.distance_scores import RelativeTerms
from modules.kernels.dropout_bits import DropoutKey, is_kept
from modules.kernels.gpu_warpgroup import ROWS, TILE, Plan
from modules.masks import Mask, make_view
from pretrain.distributed.sharding import Layout, make_mesh

B, L = 2, 512
RNG = np.random.default_rng(0)
MASKS = {
    "all": Mask(),
    "lengths": Mask(lengths_B=np.array([130, 0])),
    "causal": Mask(is_causal=True),
    "window": Mask(is_causal=True, window=100),
    "documents": Mask(is_causal=True, groups_BL=np.sort(RNG.integers(0, 6, (B, L)))),
    "ranks": Mask(rank_BL=np.arange(L)[None].repeat(B, 0), sees_below_BL=np.full((B, L), 200)),
}


@pytest.mark.parametrize("name", MASKS)
def test_the_blocks_hold_all_that_is_seen_and_few_others(name):
    view = make_view(MASKS[name], L)
    visible_BPJ = np.broadcast_to(view.visible[:, 0], (B, L, L))
    plan = Plan(L, L, 64, 2, 0.0, is_kept, *mask_numbers.list_needed(view), True)
    columns = mask_numbers.number_queries(view, L, B, L)
    found = gpu_attention.find_blocks(columns, mask_numbers.number_keys(view, L, B), plan)
    for spans_BT2, seen_BPJ, width in zip(
        found, (visible_BPJ, visible_BPJ.swapaxes(1, 2)), (TILE, ROWS), strict=True
    ):
        needed = seen_BPJ.reshape(B, L // TILE, TILE, L // width, width).any((2, 4))
        n = np.arange(L // width)
        first, end = np.asarray(spans_BT2)[..., :1], np.asarray(spans_BT2)[..., 1:]
        walked = (n >= first) & (n < end)
        assert not (needed & ~walked).any()
        # Of contiguous masks no block too many.
        assert name in ("documents", "window") or (walked == needed).all()
        assert walked.mean() < 1 or name == "all"


def refusal(P=128, J=128, K=64, dtype=jnp.bfloat16, mask=Mask()):  # noqa: B008
    q, k = (jnp.zeros((2, length, 2, K), dtype) for length in (P, J))
    key = DropoutKey(0.1, jnp.zeros(2, jnp.uint32))
    return gpu_attention.refusal(q, k, k, make_view(mask, P, J), None, key)


def test_other_cards_lengths_widths_and_masks_are_refused(monkeypatch):
    card = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
    monkeypatch.setattr(gpu_attention, "find_device", lambda: card)
    assert (refusal(), refusal(P=77, K=128)) == ("", "")
    others = [dict(J=192), dict(P=1), dict(K=96), dict(dtype=jnp.float32)]
    others.append(dict(mask=Mask(visible_BLJ=np.ones((1, 128, 128), bool))))
    assert all(refusal(**other) for other in others)
    for capability in ("8.0", "10.0", "gfx90a"):
        card.compute_capability = capability
        assert "Hopper" in refusal()


@pytest.mark.parametrize(
    ("P", "K", "slots", "is_bias"),
    [
        (128, 64, None, False),
        (192, 64, None, False),  # fills up half a tile
        (100, 64, None, True),
        (128, 128, None, True),
        (128, 64, np.zeros((B, 5), int), True),
    ],
)
def test_scores_of_distances_are_written_only_where_the_kernel_has_no_others(
    P, K, slots, is_bias, monkeypatch
):
    made = []
    score = RelativeTerms.score
    monkeypatch.setattr(RelativeTerms, "score", lambda *x: made.append(x) or score(*x))
    J, queries = 256, P if slots is None else slots.shape[1]
    view = make_view(Mask(), P, J, slots_BP=slots, segments_BJ=np.zeros((B, J), int))
    q, k, r = (jnp.zeros((B, n, 2, K), jnp.bfloat16) for n in (queries, J, J + P))
    terms = RelativeTerms(*[q[0, 0]] * 4, r, np.arange(B) > 0)
    o = jax.eval_shape(lambda q: gpu_attention.attend(q, k, k, view, terms, None), q)
    assert o.shape == q.shape
    assert bool(made) == is_bias


@pytest.mark.parametrize("tables", [(), (2,), (4,)])
def test_rows_and_heads_are_divided_over_devices(tables, monkeypatch):
    made = []
    run = gpu_calls.Call.run
    monkeypatch.setattr(gpu_calls.Call, "run", lambda *x: made.append(x[3]["k"].shape) or run(*x))
    q, r = (jnp.zeros((*first, n, 2, 64)) for first, n in (((4,), 128), (tables, 256)))
    view = make_view(Mask(), 128, segments_BJ=jnp.zeros((4, 128), int))
    terms = RelativeTerms(*[q[0, 0]] * 4, r, np.arange(4) > 1 if tables == (2,) else None)

    def loss(arrays):
        q, r = arrays
        return gpu_attention.attend(q, q, q, view, terms._replace(r=r), None).sum()

    with sharding_context(Layout(make_mesh(data=2, fsdp=2, tensor=2))):
        grads = jax.eval_shape(jax.grad(loss), (q, r))
    assert [x.shape for x in grads] == [q.shape, r.shape]
    assert set(made) == {(1, 128, 1, 64)}


@pytest.mark.parametrize("terms", ["", "distances", "bias"])
def test_what_a_card_runs_is_traced_by_the_installed_jax(terms, monkeypatch):
    card = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
    monkeypatch.setattr(gpu_attention, "find_device", lambda: card)
    # The interpreted programs read their blocks otherwise, so a call that JAX no longer takes would
    # be met on a card only.
    slots_BP = np.zeros((B, 5), int) if terms == "bias" else None
    view = make_view(Mask(), 128, slots_BP=slots_BP, segments_BJ=np.zeros((B, 128), int))
    q, k, r = (
        jnp.zeros((B, n, 2, 64), jnp.bfloat16) for n in (5 if terms == "bias" else 128, 128, 256)
    )
    relative = RelativeTerms(*[q[0, 0]] * 4, r, np.arange(B) > 0) if terms else None
    key = DropoutKey(0.1, jnp.zeros(2, jnp.uint32))

    def loss(arrays):
        return gpu_attention.attend(*arrays, k, view, relative, key).astype(jnp.float32).sum()

    assert "wgmma" in str(jax.make_jaxpr(jax.grad(loss))((q, k)))


def test_cudnn_is_asked_before_our_kernel():
    assert attention.FORMS["gpu"] == (cudnn_attention, gpu_attention)
