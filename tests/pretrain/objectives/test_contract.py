"""What every objective of the folder keeps: see `pretrain.objectives.Objective`."""

import functools

import jax
import numpy as np
import pytest

import modules
from modules import plugins
from pretrain import objectives
from pretrain.runtime.errors import UserError
from tests.integration import test_matrix as matrix
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit

NAMES = plugins.names("pretrain.objectives", "Objective")
BACKBONE = {"mlm": "transformer", "clm": "transformer", "plm": "two_stream", "bilm": "two LSTMs"}


@functools.cache
def objective(name):
    return matrix.build(name, BACKBONE[name])


def batch(name):
    """A batch of which one row counts double and one place not at all."""
    rows = matrix.batch(name)
    mask = "loss_mask_BZL" if name == "bilm" else "loss_mask_BL"
    rows[mask] = rows[mask].copy()
    rows[mask][0, ..., 3] = False
    counts = dict(words_B=np.ones(matrix.B), bytes_B=np.ones(matrix.B))
    return rows | counts | {"weight_B": np.array([1, 2], np.float32)}


RNGS = {kind: jax.random.key(0) for kind in ("params", "corrupt", "dropout")}


@functools.cache
def program(name):
    """Compiles (variables, batch) -> (metrics, nats), and draws the variables."""
    variables = draw_variables(objective(name).init, RNGS, batch(name), train=False, scale=0.3)

    @quick_jit
    def run(variables, rows):
        given = dict(rngs=RNGS, mutable=[kind for kind in variables if kind != "params"])
        metrics, _ = objective(name).apply(variables, rows, train=False, **given)
        nats, _ = objective(name).apply(variables, rows, method="nats", **given)
        return metrics, nats

    return functools.partial(run, variables)


@pytest.mark.parametrize("name", NAMES)
def test_the_weighted_nats_are_the_loss_but_for_its_sign(name):
    metrics, (nats_BP, weights_BP) = program(name)(batch(name))
    assert nats_BP.shape == weights_BP.shape
    assert len(nats_BP) == matrix.B
    assert (nats_BP < 0).all()
    loss = metrics["loss"]
    assert (nats_BP * weights_BP).sum() == pytest.approx(-float(loss.total), rel=1e-5)
    assert weights_BP.sum() == pytest.approx(float(loss.weight))


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_weight_zero_count_for_nothing(name):
    rows = batch(name) | {"weight_B": np.array([1, 0], np.float32)}
    changed = {key: x.copy() for key, x in rows.items() if key.startswith(("tokens", "next"))}
    for array in changed.values():
        array[1] = array[1, ..., ::-1]
    sums, _ = program(name)(rows)
    other, _ = program(name)(rows | changed)
    assert 0 < sums["loss"].weight < program(name)(batch(name))[0]["loss"].weight
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    jax.tree.map(close, jax.device_get(sums), jax.device_get(other))


@pytest.mark.parametrize("name", NAMES)
def test_a_backbone_that_it_trains_is_not_refused(name):
    assert objective(name).refusal() == ""


@pytest.mark.parametrize("name", NAMES)
def test_operations_grow_with_the_rows(name):
    one, two = (objective(name).flops(B, matrix.L) for B in (2, 4))
    assert 0 < one < two


@pytest.mark.parametrize("name", NAMES)
def test_an_objective_reads_the_special_tokens_that_it_says_and_is_refused_without(name):
    needed = getattr(objective(name), "required_special", ())

    def trace(names):
        special = {x: objective(name).special[x] for x in names}
        init = functools.partial(objective(name).clone(special=special).init, train=False)
        return jax.eval_shape(init, RNGS, batch(name))

    assert trace(needed)
    for missing in needed:
        with pytest.raises(UserError, match=f"needs <{missing}>"):
            trace([x for x in needed if x != missing])


def test_what_no_part_has_a_use_for_is_refused_before_anything_is_compiled():
    backbone = modules.build("transformer", V=8, D=4, H=1, K=4, N=1, F=4, L=8, attention="causal")
    with pytest.raises(
        UserError, match=r"execution\.blocks: neither the backbone nor the objective"
    ):
        objectives.build("clm", backbone, execution=dict(blocks=4, loss_chunks=2))
    spelled = modules.build("elmo", V=8, D=4, U=4, inputs="characters")
    with pytest.raises(UserError, match=r"head\.tied=True: this model reads characters"):
        objectives.build("bilm", spelled, head=dict(tied=True))
