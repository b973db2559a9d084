"""The kernel's blocks, interpreted on a CPU, compute attention and its gradients."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention, tpu_attention, tpu_attention_blocks
from modules.kernels.distance_scores import RelativeTerms
from modules.kernels.dropout_bits import DropoutKey
from modules.masks import Mask, make_view
from tests.support.arrays import draw
from tests.support.kernel_cases import Case, assert_is_reference

B, L, M = 4, 128, 128
J = M + L
RNG = np.random.default_rng(0)
KEY = DropoutKey(0.1, jnp.array([3, 2**31 + 7], jnp.uint32))
BACKWARD_B = np.array([False, True, True, False])
ORDER = Mask(
    rank_BL=RNG.integers(-1, 50, (B, L)),
    sees_below_BL=RNG.integers(-1, 50, (B, L)),
    memory_BM=RNG.random((B, M)) < 0.6,
    sees_memory_BL=RNG.random((B, L)) < 0.6,
    hides_slots=True,
)
SEGMENTS_BJ = RNG.integers(0, 2, (B, J))
SLOTS_BP = np.stack([RNG.permutation(L)[:5] for _ in range(B)])
CONTENT = make_view(ORDER, L, J, segments_BJ=SEGMENTS_BJ, sees_itself=True)
QUERIES = make_view(ORDER, L, J, segments_BJ=SEGMENTS_BJ, slots_BP=SLOTS_BP)
# Three registers of positions: distances begin in any of them.
FAR_BP = np.stack([RNG.permutation(384)[:16] for _ in range(B)])
FAR = make_view(
    Mask(rank_BL=RNG.integers(0, 50, (B, 384)), sees_below_BL=RNG.integers(0, 50, (B, 384))),
    384,
    segments_BJ=RNG.integers(0, 2, (B, 384)),
    slots_BP=FAR_BP,
    sees_itself=True,
)
# A row of one position, one of none, and heads without distances.
CAUSAL = make_view(Mask(is_causal=True, lengths_B=np.array([128, 70, 0, 1])), L)


def make_case(view, H: int, K: int) -> Case:
    """A kernel's case of these heads; with distances where segments are looked at."""
    P, J_ = view.visible.shape[2], view.visible.shape[3]
    shapes = {"q_BLHK": (B, P, H, K), "k_BJHK": (B, J_, H, K), "v_BJHK": (B, J_, H, K)}
    if view.segments_BJ is not None:
        shapes |= {f"{name}_HK": (H, K) for name in ("content", "position", "segment", "other")}
        shapes |= {"r_ZRHK": (2, J_ + view.L, H, K)}

    def run(f):
        def call(arrays):
            q, k, v, *terms = (arrays[name] for name in shapes)
            relative = RelativeTerms(*terms, BACKWARD_B) if terms else None
            return f(q, k, v, view, relative, KEY)

        return call

    arrays = {name: draw(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    files = (tpu_attention, tpu_attention_blocks)
    return Case(run(tpu_attention.attend), run(attention.reference), arrays, files, 1e-5)


# Six heads over two devices are three: one and a half blocks.
CASES = {
    "distances, in order": make_case(CONTENT, 2, 128),
    "distances, of slots": make_case(QUERIES, 4, 64),
    "distances, of slots far apart": make_case(FAR, 2, 64),
    "no distances": make_case(CAUSAL, 6, 64),
}


@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_the_reference_s(name, devices, monkeypatch):
    assert_is_reference(CASES[name], "default", devices, monkeypatch)
