"""Layers begin to learn in turn; a stack's do one by one."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.params import ParamInfo
from pretrain.training import layer_rules
from tests.support.compiler import quick_jit

# Layers above: an embedding under a stack of three layers, whose first is the lowest, and a head.
INFOS = {
    "token_VD": ParamInfo(decay=True, layers_above=3),
    "w_DF": ParamInfo(decay=True, layers_above=(2, 1, 0)),
    "w_DC": ParamInfo(decay=True),
}
ONES = {"token_VD": jnp.ones((4, 2)), "w_DF": jnp.ones((3, 2, 5)), "w_DC": jnp.ones((2, 2))}
EMBEDDING, LOW, MIDDLE, TOP, HEAD = 4, 3, 2, 1, 0  # layers from the top, and what is around


def list_learning(rule, steps):
    """The parts that learn in each step."""
    state, learning = rule.init(ONES), []
    update = quick_jit(lambda state: rule.update(ONES, state, ONES, infos=INFOS))
    for _ in range(steps):
        updates, state = update(state)
        parts = [updates["w_DC"], *updates["w_DF"][::-1], updates["token_VD"]]
        assert all(np.ptp(x) == 0 for x in parts)
        learning.append({number for number, x in enumerate(parts) if x.any()})
    return learning


def test_a_layer_more_learns_after_each_period_from_the_top():
    learning = list_learning(layer_rules.gradual_unfreezing(2), 9)
    assert learning == [set(range(1 + step // 2)) for step in range(9)]


def test_a_layer_more_learns_in_each_stage_and_all_in_the_last():
    head, top, everything = {HEAD}, {HEAD, TOP}, {HEAD, TOP, MIDDLE, LOW, EMBEDDING}
    rule = layer_rules.stage_unfreezing([0, 2, 5], chain_thaw=False)
    assert list_learning(rule, 7) == [head] * 2 + [top] * 3 + [everything] * 2


def test_chain_thaw_trains_single_layers_from_the_bottom():
    rule = layer_rules.stage_unfreezing([0, 1, 2, 3, 4, 5], chain_thaw=True)
    everything = {HEAD, TOP, MIDDLE, LOW, EMBEDDING}
    single = [{HEAD}, {EMBEDDING}, {LOW}, {MIDDLE}, {TOP}]
    assert list_learning(rule, 7) == [*single, everything, everything]


@pytest.mark.parametrize("rule", [layer_rules.layer_decay(0.5), layer_rules.gradual_unfreezing(2)])
def test_a_model_without_depths_is_refused(rule):
    flat = {name: ParamInfo(decay=True) for name in ONES}
    with pytest.raises(layer_rules.UserError, match="say how deep they lie"):
        rule.update(ONES, rule.init(ONES), ONES, infos=flat)
