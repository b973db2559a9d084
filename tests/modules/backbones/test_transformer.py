"""Every switch gives the slow reference's numbers; who reaches whom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from modules.masks import Mask
from tests.support import transformer_inputs as cases
from tests.support import transformer_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

B, L = 3, 11
RAGGED = np.arange(L) < [[L], [7], [4]]
GROUPS = np.array([[0] * 4 + [1] * 7, [2] * 6 + [0] * 5, [1] * 11])
SLOTS = np.array([[10, 0, 3, 3], [5, 6, 0, 1], [0, 1, 2, 3]])

BANDED = dict(attention="causal", window=3)

PADDED, APART, SOME = dict(valid_BL=RAGGED), dict(groups_BL=GROUPS), dict(slots_BP=SLOTS)

# name: (fields, arguments besides the tokens)
CASES = {
    "both sides, normed before, groups, padded, slots": (dict(norm="pre"), PADDED | APART | SOME),
    "left to right, normed after": (cases.GPT1, PADDED),
    "banded": (dict(norm="pre", N=4, **BANDED), {}),
    "one layer, slots": (cases.GPT2 | dict(N=1), SOME),
    "BERT, padded, slots": (cases.BERT, PADDED | SOME | dict(segments_BL=GROUPS % 2)),
    "left to right, groups, padded": (cases.GPT2, PADDED | APART),
    "banded, groups, padded": (dict(norm="pre", **BANDED), PADDED | APART),
    "banded, slots of a banded layer": (dict(norm="post", N=2, **BANDED), SOME),
}


def expected(
    model, params, tokens_BL, segments_BL=None, valid_BL=None, groups_BL=None, slots_BP=None
):
    """The reference's states of all rows."""
    rows = []
    for b in range(B):
        own = dict(segments_L=segments_BL, groups_L=groups_BL)
        own = {k: x if x is None else x[b] for k, x in own.items()}
        length = None if valid_BL is None else valid_BL[b].sum()
        h_LD = reference.states(
            params,
            tokens_BL[b],
            pre=model.norm == "pre",
            causal=model.attention == "causal",
            window=model.window,
            epsilon=model.epsilon,
            length=length,
            **own,
        )
        rows.append(h_LD if slots_BP is None else h_LD[slots_BP[b]])
    return np.stack(rows)


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_reference_s(case):
    model, params, tokens_BL, given, real = draw_case(*CASES[case])
    own = quick_jit(cases.forward(model, tokens_BL, **given))(params)
    theirs = expected(model, params, tokens_BL, **given)
    assert off(own * real[..., None], theirs * real[..., None]) < 2e-6


def draw_case(fields, given):
    """(model, parameters, tokens, other arguments, which of the states are of real tokens)."""
    model = cases.tiny(**fields)
    real = given.get("valid_BL", np.ones((B, L), bool))
    real = np.take_along_axis(real, given["slots_BP"], 1) if "slots_BP" in given else real
    return model, cases.draw(model), cases.tokens(B, L), given, real


# --- who reaches whom ------------------------------------------------------------------------


def reached(model, params, L, **given):
    """[L, L]: by whose position, and so by whose embedding, a state of one row can be moved."""
    tokens_BL, mask = cases.tokens(1, L), cases.seen(model, **given)

    def projected(position_LD):
        h_BLD = model.apply(
            {"params": params | {"position_LD": position_LD}}, tokens_BL, mask=mask, train=False
        ).h
        return h_BLD[0] @ jnp.arange(1.0, model.D + 1)

    slope_LLD = quick_jit(jax.jacrev(projected))(params["position_LD"])
    return np.any(slope_LLD[:, :L] != 0, axis=-1)


GROUPS_8, i_L1, j_L = np.array([0, 0, 0, 1, 1, 2, 1, 2]), np.arange(8)[:, None], np.arange(8)
SAME = GROUPS_8[:, None] == GROUPS_8
REACH = {
    "causal, normed after": (cases.GPT1, {}, j_L <= i_L1),
    "causal groups": (cases.GPT2, dict(groups_BL=GROUPS_8[None]), SAME & (j_L <= i_L1)),
    "groups, padding": (
        dict(norm="post"),
        dict(groups_BL=GROUPS_8[None], valid_BL=j_L[None] < 5),
        (SAME & (j_L < 5)) | (i_L1 == j_L),
    ),
}


@pytest.mark.parametrize("case", REACH)
def test_the_gradient_from_what_is_not_seen_is_exactly_zero(case):
    fields, given, visible_LL = REACH[case]
    model = cases.tiny(**fields)
    np.testing.assert_array_equal(reached(model, cases.draw(model), 8, **given), visible_LL)


@pytest.mark.parametrize(("norm", "silent"), [("pre", 0), ("post", 1)])
def test_every_second_layer_sees_its_window_alone(norm, silent):
    model = cases.tiny(norm=norm, N=2, **BANDED)
    params = cases.draw(model)
    attention = params["layers"]["attention"]
    attention |= {name: attention[name].at[silent].set(0) for name in ("wo_HKD", "bo_D")}
    band_LL = (j_L <= i_L1) & (j_L > i_L1 - 3)
    np.testing.assert_array_equal(reached(model, params, 8), j_L <= i_L1 if silent else band_LL)


# --- at the door -----------------------------------------------------------------------------


def test_a_row_longer_than_the_positions_is_refused():
    model = cases.tiny(L=8)
    with pytest.raises(ValueError, match=r"9 tokens .* L=8"):
        jax.eval_shape(cases.forward(model, cases.tokens(1, 9)), cases.shapes(model))


def test_positions_of_a_caller_are_refused_where_a_memory_says_them():
    model = cases.tiny(attention="causal")
    tokens = cases.tokens(1, 3)
    fields = dict(mask=Mask(is_causal=True), positions_BL=tokens, memory=model.initial_memory(1))
    with pytest.raises(ValueError, match="has no use for positions_BL"):
        jax.eval_shape(lambda: model.init(jax.random.key(0), tokens, train=False, **fields))


@pytest.mark.parametrize(
    "field",
    ["activation", "remat", "dtype", "initializer", "attention", "norm", "attention_form"],
)
def test_a_word_that_means_nothing_is_refused(field):
    with pytest.raises(ValueError, match=f"{field}='no such' is none of"):
        modules.build("transformer", V=8, **{field: "no such"})
