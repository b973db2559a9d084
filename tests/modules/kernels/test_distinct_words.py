"""Words computed once each are the words computed one by one, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import distinct_words as kernel
from tests.support import kernel_cases
from tests.support.jaxpr import arrays_in
from tests.support.kernel_cases import Case, assert_is_reference, every_form

B, P, W, C, D = kernel_cases.B, 16, 5, 9, 4
RNG = np.random.default_rng(0)


def spell(distinct: int) -> np.ndarray:
    """Draws words [B, P, W], of which so many are different."""
    words = RNG.permutation(C**W)[:distinct]
    numbers_BP = RNG.permutation(np.arange(B * P) % distinct).reshape(B, P)
    return (words[numbers_BP][..., None] // C ** np.arange(W) % C).astype(np.uint16)


def embed(weights, chars_BPW):
    table_CE, w_ED = weights
    return jnp.tanh(jnp.sin(table_CE[chars_BPW] * jnp.arange(1, W + 1)[:, None]).sum(2) @ w_ED)


def by_name(compute):
    return lambda a: compute(embed, (a["table_CE"], a["w_ED"]), a["chars_BPW"])


def case(chars_BPW) -> Case:
    arrays = {"table_CE": RNG.normal(size=(C, 3)), "w_ED": RNG.normal(size=(3, D))}
    fast, slow = by_name(kernel.compute_once), by_name(kernel.reference)
    return Case(fast, slow, {**arrays, "chars_BPW": chars_BPW}, (kernel,))


# Up to 32 fit into the least room, up to 64 into the other.
CASES = {distinct: case(spell(distinct)) for distinct in (1, 32, 33, 64, 65, B * P)}


@pytest.mark.parametrize("distinct", CASES)
@every_form(CASES[1])
def test_values_and_gradients_are_the_reference_s(form, devices, distinct, monkeypatch):
    monkeypatch.setattr(kernel, "list_sizes", lambda words: [32, 64])
    assert_is_reference(CASES[distinct], form, devices, monkeypatch)


@pytest.mark.parametrize("slots", [1, 2, 16])
def test_words_that_meet_in_a_slot_stay_apart(slots, monkeypatch):
    monkeypatch.setattr(kernel, "SLOTS", slots)
    chars_NW = spell(30).reshape(-1, W)
    first_N = np.asarray(kernel.find_first(jnp.asarray(chars_NW)))
    np.testing.assert_array_equal(chars_NW[first_N], chars_NW)
    np.testing.assert_array_equal(first_N[first_N], first_N)


def test_the_first_of_equal_words_is_found():
    chars_NW = spell(30).reshape(-1, W)
    _, first, inverse = np.unique(chars_NW, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(kernel.find_first(jnp.asarray(chars_NW)), first[inverse.ravel()])


def test_characters_in_another_order_are_in_another_slot():
    """Of 100,000 words, and their anagrams, few meet in a slot."""
    chars_NW = np.random.default_rng(1).integers(97, 123, (100_000, 8)).astype(np.uint16)
    chars_NW = np.unique(np.concatenate([chars_NW, chars_NW[:, ::-1]]), axis=0)
    slots = np.asarray(kernel.find_slots(jnp.asarray(chars_NW)))
    expected = kernel.SLOTS * -np.expm1(-len(chars_NW) / kernel.SLOTS)
    assert abs(len(np.unique(slots)) / expected - 1) < 0.01


def test_the_gradient_of_a_frequent_word_is_added_up_in_float32(monkeypatch):
    monkeypatch.setattr(kernel, "list_sizes", lambda words: [8])
    chars_BPW = np.zeros((1, 4096, W), np.uint16)

    def loss(w_D):
        f = lambda w_D, chars_BPW: jnp.broadcast_to(w_D, (*chars_BPW.shape[:2], D))  # noqa: E731
        return kernel.compute_once(f, w_D, chars_BPW).astype(jnp.float32).sum()

    # In bfloat16 a sum of ones would end at 256.
    np.testing.assert_array_equal(jax.grad(loss)(jnp.ones(D, jnp.bfloat16)), np.full(D, 4096))


def test_there_is_room_for_half_as_many_again_as_messages_have():
    assert kernel.list_sizes(2560) == [1728]  # of 1,020
    assert kernel.list_sizes(15_360) == [5568, 8704]  # of 3,470
    assert kernel.list_sizes(1000) == []


def test_few_words_are_computed_as_they_are():
    weights = jnp.ones((C, 3)), jnp.ones((3, D))
    program = jax.make_jaxpr(lambda x: kernel.compute_once(embed, weights, x))(spell(3))
    plain = jax.make_jaxpr(lambda x: embed(weights, x))(spell(3))
    assert len(arrays_in(program.jaxpr)) == len(arrays_in(plain.jaxpr))
