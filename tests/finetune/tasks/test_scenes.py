"""Candidates are scored by text, numbers and history, each scene in its way."""

import jax
import numpy as np
import pytest

from finetune.tasks import scenes
from pretrain.runtime.errors import UserError
from tests.support import choice_data as cases
from tests.support.compiler import quick_jit

EXAMPLES = [
    {
        "query": "the dog",
        "candidates": ["home", "why", "rain"][:n],
        "relevance": [0.0, 2.0, 1.0][:n],
        "features": [[10.0 * i, 7.0] for i in range(n)],
        "scene": scene,
        "history": history,
        "where": f"row {n}",
    }
    for n, scene, history in ((3, "food", list("aab")), (2, "hotel", []))
]


def form(**fields):
    return cases.form(scenes, "bert", EXAMPLES, options=3, **{"history": 2, **fields})


def test_numbers_are_standardized_and_histories_begin_with_the_latest():
    arrays = form().arrays(EXAMPLES)
    numbers = [0, 10, 20, 0, 10]
    expected = (np.array(numbers) - np.mean(numbers)) / np.std(numbers)
    np.testing.assert_allclose(arrays["features_BOF"][0, :, 0], expected[:3], rtol=1e-6)
    np.testing.assert_allclose(arrays["features_BOF"][1, :, 0], [*expected[3:], 0], rtol=1e-6)
    assert not arrays["features_BOF"][..., 1].any()  # it never varies
    assert arrays["history_BM"].tolist() == [[3, 2], [0, 0]]  # b, a; of which a is the commoner
    assert form(min_count=2).arrays(EXAMPLES)["history_BM"].tolist() == [[1, 2], [0, 0]]
    assert arrays["scene_B"].tolist() == [0, 1]


def test_a_scene_and_numbers_that_training_lacks_are_refused():
    with pytest.raises(UserError, match="row 3: scene 'film' is none of 'food', 'hotel'"):
        form().arrays([EXAMPLES[0] | {"scene": "film"}])
    with pytest.raises(UserError, match="row 3: 1 numbers of a candidate, not 2"):
        form().arrays([EXAMPLES[0] | {"features": [[1.0]] * 3}])
    with pytest.raises(ValueError, match=r"head\.heads=4 does not divide head\.U=6"):
        cases.task(form(), head=dict(U=6))


@pytest.fixture(scope="module")
def scorer():
    """(rows, of which the last fills up, (parameters, rows) -> (gradient, scores), parameters)."""
    rows = cases.batch(form().arrays(EXAMPLES))
    rows = {name: np.concatenate([x, np.zeros_like(x[:1])]) for name, x in rows.items()}
    module = cases.task(form(), head=dict(U=8, heads=2), loss=dict(name="lambda_rank"))

    def loss(params, rows):
        total = module.apply({"params": params}, rows, train=False)["loss"].total
        return total, module.apply({"params": params}, rows, method="predict")["logits_BO"]

    return rows, quick_jit(jax.grad(loss, has_aux=True)), cases.draw_params(module, rows)


def test_every_part_is_learned_and_every_part_matters(scorer):
    rows, run, params = scorer
    grads, scores_BO = run(params, rows)
    assert grads.keys() == {"backbone", "head", "reader", "scorer"}
    assert all(any(np.asarray(x).any() for x in jax.tree.leaves(y)) for y in grads.values())
    for name in ("features_BOF", "history_BM", "scene_B"):
        changed = rows | {name: rows[name].copy()}
        changed[name][0] = rows[name][0] + 1
        assert not np.allclose(run(params, changed)[1][0], scores_BO[0])


def test_filler_rows_weigh_nothing_and_leave_no_trace(scorer):
    rows, run, params = scorer
    changed = {name: x.copy() for name, x in rows.items()}
    for name in ("tokens_BOL", "features_BOF", "relevance_BO", "history_BM", "scene_B"):
        changed[name][-1] = rows[name][0]
    (grads, scores_BO), (others, _) = run(params, rows), run(params, changed)
    jax.tree.map(np.testing.assert_array_equal, grads, others)
    assert np.isfinite(scores_BO).all()


def test_without_text_no_backbone_is_read():
    rows = cases.batch(form().arrays(EXAMPLES))
    module = cases.task(form(), head=dict(text=False, U=8, heads=2))
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), rows, train=False))
    assert shapes["params"].keys() == {"reader", "scorer"}
    assert module.flops(2, 48) == 0
