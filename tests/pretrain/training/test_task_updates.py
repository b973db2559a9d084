"""A task's parameters are updated as if the steps of other tasks had not been."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.params import ParamInfo
from pretrain.training import optimizer, task_updates
from tests.support.compiler import quick_jit

INFOS = {name: ParamInfo(decay=True, task=name.strip("_")) for name in ("a", "b", "_")}
ORDER = "abbbab"
RULES = [dict(name="adamw", clip=0.0), dict(name="adagrad", max_norm={"a": 0.5})]


def learn(tx, places):
    """Yields what is learned at these places, from gradients that follow from the place alone."""
    params = {name: jnp.full((2, 3), 0.3) for name in INFOS}
    opt, update = tx.init(params), quick_jit(tx.update, static_argnames="present")
    for place in places:
        grads = {name: jnp.sin(jnp.arange(6.0) + place).reshape(2, 3) for name in INFOS}
        known = dict(norm=1.0, weight=1.0, present=(ORDER[place],))
        updates, opt = update(grads, opt, params, **known)
        params = jax.tree.map(jnp.add, params, updates)
        yield params


@pytest.mark.parametrize("rule", RULES, ids=lambda x: x["name"])
def test_a_task_learns_as_if_the_others_steps_had_not_been(rule):
    tx, _ = optimizer.make(lr=0.1, steps=9, decay="constant", weight_decay=0.1, l2=0.1, **rule)
    plain = optimizer.with_infos(tx, INFOS)
    mixed = optimizer.with_infos(task_updates.by_task(tx, ["a", "b"]), INFOS)
    places = range(len(ORDER))
    together = list(learn(mixed, places))
    for name in "ab":
        steps = [place for place in places if ORDER[place] == name]
        for place, params in zip(steps, learn(plain, steps), strict=True):
            np.testing.assert_allclose(together[place][name], params[name], rtol=1e-6)
        for place in set(places) - {0, *steps}:
            np.testing.assert_array_equal(together[place][name], together[place - 1][name])
    *_, shared = learn(plain, places)
    np.testing.assert_allclose(together[-1]["_"], shared["_"], rtol=1e-6)
