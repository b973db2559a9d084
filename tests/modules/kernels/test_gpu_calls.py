"""What a program keeps fits into a Hopper GPU's shared memory, and its work is told by its name."""

import math
import types

import jax
import jax.numpy as jnp
import pytest

from modules.kernels import gpu_attention, gpu_attention_blocks, gpu_calls, gpu_warpgroup
from modules.kernels.distance_scores import RelativeTerms
from modules.kernels.dropout_bits import DropoutKey, is_kept
from modules.kernels.gpu_calls import Call, Numbers
from modules.kernels.gpu_warpgroup import GROUPS, ROWS, STAGES, Plan
from modules.masks import Mask, make_view

MEMORY = 227 * 1024  # bytes that a block of threads may have
B, H, P, J = 2, 2, 256, 512


def list_calls(K: int, terms: str, monkeypatch) -> list[Call]:
    """Lists the calls of both directions, with every number that a mask may need."""
    calls = []
    monkeypatch.setattr(Call, "run", lambda call, *_: calls.append(call) or [])
    columns = "first", "end", "below", "group", "own", "segment"
    rows = "rank", "key_group", "key_segment"
    plan = Plan(P, J, K, H, 0.1, is_kept, columns, rows, False, terms)
    wide = lambda length: jax.ShapeDtypeStruct((B, length, H, K), jnp.bfloat16)  # noqa: E731
    narrow = jax.ShapeDtypeStruct((B, H, P), jnp.float32)
    arrays = {"q": wide(P), "k": wide(J), "v": wide(J)}
    if terms == "bias":
        shape = (B, H, P // ROWS, ROWS, J)
        arrays["bias"] = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    if terms == "distances":
        arrays |= {"q_position": wide(P), "answer": narrow, "r": wide(P + J)}
    gpu_calls.run_forward(gpu_attention.KIT, plan, Numbers(*[None] * 9), arrays)
    grads = {"do": wide(P), "lse": narrow, "delta": narrow}
    gpu_calls.run_backward(gpu_attention.KIT, plan, Numbers(*[None] * 9), arrays | grads)
    return calls


@pytest.mark.parametrize(
    ("K", "terms", "programs"), [(64, "", 3), (128, "", 3), (64, "bias", 3), (64, "distances", 4)]
)
def test_what_a_program_keeps_fits_into_shared_memory(K, terms, programs, monkeypatch):
    calls = list_calls(K, terms, monkeypatch)
    assert len(calls) == programs
    for call in calls:
        parts = [(STAGES, call.ring), (GROUPS, call.own), (GROUPS, call.extra)]
        sizes = [
            count * math.prod(shape) * jnp.dtype(dtype).itemsize
            for count, x in parts
            for shape, dtype in x.values()
        ]
        assert sum(sizes) < MEMORY


def test_a_stage_waits_for_every_copy(monkeypatch):
    forward, queries, keys, distances = list_calls(64, "distances", monkeypatch)
    # Keys, values, their numbers, and three blocks of distances.
    assert (forward.copies, queries.copies) == (6, 6)
    # Queries twice, the outputs' gradient, three numbers of a query, its mask, the distances.
    assert keys.copies == 10
    # The queries' seven, and keys, values and their numbers in three blocks.
    assert distances.copies == 16
    assert set(keys.ring) == {*gpu_warpgroup.QUERIES, "columns", "distances"}


@pytest.mark.parametrize("terms", ["", "bias", "distances"])
def test_products_are_as_many_as_the_only_step_of_a_walk_multiplies(terms, monkeypatch):
    counted, multiplied = [], []
    run, multiply = Call.run, gpu_warpgroup.multiply

    def count(call, *arguments):
        multiplied.clear()
        results = run(call, *arguments)
        counted.append((call, len(multiplied)))
        return results

    once = types.SimpleNamespace(fori_loop=lambda first, end, step, start: step(0, start))
    monkeypatch.setattr(gpu_attention_blocks, "lax", once)
    monkeypatch.setattr(Call, "run", count)
    record = lambda *x, **y: multiplied.append(1) or multiply(*x, **y)  # noqa: E731
    monkeypatch.setattr(gpu_warpgroup, "multiply", record)
    q, k = (jnp.zeros((1, n, 1, 64)) for n in (128, 256))
    slots = jnp.zeros((1, 128), int) if terms == "bias" else None
    view = make_view(Mask(), 128, 256, slots_BP=slots, segments_BJ=jnp.zeros((1, 256), int))
    relative = RelativeTerms(*[q[0, 0]] * 4, jnp.zeros((384, 1, 64))) if terms else None
    dropout = DropoutKey(0.1, jnp.zeros(2, jnp.uint32))
    loss = lambda q: gpu_attention.attend(q, k, k, view, relative, dropout).sum()  # noqa: E731
    jax.eval_shape(jax.grad(loss), q)
    assert len(counted) == (4 if terms == "distances" else 3)
    walks = counted[:3]
    assert all(x.products + x.at_ends == times for x, times in walks), counted
    for call, times in counted[3:]:
        assert (call.products, call.at_ends) == (times, 2 * times)


def test_a_block_of_queries_has_two_blocks_of_distances_more_than_of_keys():
    plan = Plan(P, J, 64, H, 0.1, is_kept, (), (), False, "distances")
    spans_BT2 = gpu_attention._find_distance_blocks(plan, 1)
    # Each step of a tile multiplies a block of distances in each of its warpgroups.
    steps = GROUPS * (spans_BT2[..., 1] - spans_BT2[..., 0]).sum()
    assert steps == P // ROWS * (J // ROWS + 2)
