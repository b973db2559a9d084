"""The kernels' programs, interpreted on a CPU, compute attention and its gradients.

The interpreter runs the warpgroups, their barriers and copies.  It knows no layouts of registers,
and products are plain ones there: `test_gpu_warpgroup.py` compiles what it cannot run.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import (
    attention,
    dropout_bits,
    gpu_attention,
    gpu_calls,
    gpu_exchange,
    mask_numbers,
)
from modules.kernels.distance_scores import RelativeTerms
from modules.kernels.dropout_bits import DropoutKey
from modules.masks import Mask, make_view
from tests.support.arrays import draw
from tests.support.kernel_cases import Case, assert_is_reference

KEY = DropoutKey(0.1, jnp.array([3, 2**31 + 7], jnp.uint32))
FILES = (gpu_attention, *gpu_attention.KIT, gpu_calls, gpu_exchange, mask_numbers)
RANKS_BL = np.arange(128)[None] * 37 % 128


def make_case(view, K: int, tables: str = "directions") -> Case:
    """Returns a case of one head, of the view's rows; with distances where it tells segments.

    Args:
        tables: of distances: two "directions", of which each row reads one, or "one", or "rows".
    """
    B, _, P, J = view.visible.shape
    P = P if P > 1 else J  # a mask of lengths is the same for all queries
    shapes = {"q_BPHK": (B, P, 1, K), "k_BJHK": (B, J, 1, K), "v_BJHK": (B, J, 1, K)}
    if view.segments_BJ is not None:
        shapes |= {f"{name}_HK": (1, K) for name in ("content", "position", "segment", "other")}
        first = {"directions": (2,), "one": (), "rows": (B,)}[tables]
        shapes["r_BRHK" if tables == "rows" else "r_RHK"] = (*first, J + view.L, 1, K)

    def run(f):
        def call(arrays):
            q, k, v, *terms = (arrays[name] for name in shapes)
            backward_B = np.arange(B) % 2 == 1 if tables == "directions" else None
            relative = RelativeTerms(*terms, backward_B) if terms else None
            return f(q, k, v, view, relative, KEY)

        return call

    forms = run(gpu_attention.attend), run(attention.reference)
    arrays = {name: draw(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    return Case(*forms, arrays, FILES, 1e-5)


# A row that sees nothing; documents that reach over tiles; a few queries; all other numbers of a
# mask at once.
LENGTHS = make_view(Mask(lengths_B=np.array([100, 0])), 128)
DOCUMENTS = make_view(Mask(is_causal=True, groups_BL=np.arange(256)[None] // 150), 256)
SLOTS = make_view(Mask(is_causal=True), 128, slots_BP=np.array([[100, 3, 3, 0, 127]]))
RANKS = Mask(rank_BL=RANKS_BL, sees_below_BL=RANKS_BL, window=100)
TWO_BL = np.concatenate([RANKS_BL, RANKS_BL[:, ::-1]])
ORDER = Mask(rank_BL=TWO_BL, sees_below_BL=TWO_BL, memory_BM=TWO_BL > 30, hides_slots=True)
SEGMENTS = dict(segments_BJ=np.arange(512).reshape(2, 256) % 7 > 3)
# Three blocks of queries, which leave half a tile, behind a memory of one.
THREE = Mask(is_causal=True, lengths_B=np.array([150, 192]))
CAUSAL = make_view(THREE, 192, 256, **SEGMENTS)
FEW = np.array([[100, 3, 3, 0, 127], [5, 4, 90, 1, 0]])
CASES = {
    "distances, in order": make_case(make_view(ORDER, 128, 256, sees_itself=True, **SEGMENTS), 64),
    "distances, of slots": make_case(make_view(ORDER, 128, 256, slots_BP=FEW, **SEGMENTS), 64),
    "distances, half a tile": make_case(CAUSAL, 64, tables="one"),
    "distances, a table a row": make_case(CAUSAL, 64, tables="rows"),
    "distances, wide heads": make_case(make_view(ORDER, 128, 256, **SEGMENTS), 128),
    "lengths": make_case(LENGTHS, 64),
    "documents": make_case(DOCUMENTS, 64),
    "slots": make_case(SLOTS, 64),
    "ranks": make_case(make_view(RANKS, 128, sees_itself=True), 128),
    "half hashes": make_case(LENGTHS, 64),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_the_reference_s(name, monkeypatch):
    if name == "half hashes":  # as on GPUs
        for forms in (dropout_bits.FORMS, dropout_bits.POSITION_FORMS):
            monkeypatch.setitem(forms, "cpu", forms["gpu"])
    assert_is_reference(CASES[name], "default", 1, monkeypatch)
