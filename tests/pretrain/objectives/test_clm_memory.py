"""A causal LM goes on from the state that the batch before left, where the row does."""

import functools

import jax
import numpy as np
import pytest

import modules
from modules.heads import language_model
from pretrain.objectives import build, clm
from pretrain.runtime.errors import UserError
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit
from tests.support.jaxpr import programs_in

B, L, V = 2, 6, 11
TEXT_BL = np.random.default_rng(0).integers(0, V, (B, 2 * L + 1)).astype(np.int32)


def batch(begin: int, end: int, continues):
    size = (B, end - begin)
    return {
        "tokens_BL": TEXT_BL[:, begin:end],
        "next_BL": TEXT_BL[:, begin + 1 : end + 1],
        "document_start_BL": np.zeros(size, bool),
        "continues_B": np.array(continues),
        "valid_BL": np.ones(size, bool),
        "loss_mask_BL": np.ones(size, bool),
        "weight_B": np.ones(B, np.float32),
    }


@pytest.fixture(scope="module")
def read():
    """(state, batch) -> (nats of each word, the new state); and the first state."""
    backbone = modules.build("recurrent", V=V, D=6, U=6, Z=1, N=2)
    fields = dict(stateful=True, attend_across_documents=True, loss_chunks=1)
    objective = clm.Objective(backbone, language_model.build(backbone), **fields)
    first = batch(0, L, [False, False])
    variables = draw_variables(
        functools.partial(objective.init, jax.random.key(0)), first, train=True, scale=0.5
    )

    @quick_jit
    def run(params, state, rows):
        given = {"params": params, "state": state}
        (nats_BL, _), new = objective.apply(given, rows, method="nats", mutable=["state"])
        return nats_BL, new["state"]

    zeros = jax.tree.map(np.zeros_like, variables["state"])
    return functools.partial(run, variables["params"]), zeros


def test_two_batches_are_read_as_one_that_is_as_long(read):
    run, state = read
    whole_BL, _ = run(state, batch(0, 2 * L, [False, False]))
    first_BL, state = run(state, batch(0, L, [False, False]))
    second_BL, _ = run(state, batch(L, 2 * L, [True, True]))
    np.testing.assert_allclose(whole_BL, np.concatenate([first_BL, second_BL], 1), rtol=1e-5)


def test_a_row_that_does_not_go_on_is_read_from_zeros(read):
    run, zeros = read
    _, state = run(zeros, batch(0, L, [False, False]))
    mixed_BL, _ = run(state, batch(L, 2 * L, [True, False]))
    alone_BL, _ = run(zeros, batch(L, 2 * L, [False, False]))
    np.testing.assert_allclose(mixed_BL[1], alone_BL[1], rtol=1e-6)
    assert np.abs(mixed_BL[0] - alone_BL[0]).max() > 1e-3


def test_a_cache_reads_the_vocabulary_s_softmax_once():
    """And leaves the loss and the accuracy as they are without one."""
    backbone = modules.build("recurrent", V=V, D=6, U=6, Z=1)
    rows = batch(0, L, [False, False]) | dict.fromkeys(("words_B", "bytes_B"), np.ones(B))

    def evaluate(cache_window):
        fields = dict(stateful=True, cache_window=cache_window, loss_chunks=2)
        objective = clm.Objective(backbone, language_model.build(backbone), **fields)
        init = functools.partial(objective.init, jax.random.key(0))
        variables = draw_variables(init, rows, train=False, scale=0.5)
        run = lambda x: objective.apply(x, rows, train=False, mutable=["state"])[0]  # noqa: E731
        programs = programs_in(jax.make_jaxpr(run)(variables).jaxpr)
        products = [e for x in programs for e in x.eqns if e.primitive.name == "dot_general"]
        return run(variables), sum(e.outvars[0].aval.shape[-1] == V for e in products)

    (plain, _), (cached, count) = evaluate(0), evaluate(3)
    assert count == 1
    assert cached.keys() - plain.keys() == {"cache_perplexity"}
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(cached[name].total, plain[name].total, rtol=1e-6)


@pytest.mark.parametrize("model", [dict(name="transformer", L=L), dict(name="two_stream", M=4)])
def test_a_model_without_a_state_to_go_on_from_is_refused(model):
    backbone = modules.build(**model, V=V, D=8, H=2, K=4, N=1, F=8, attention="causal")
    with pytest.raises(UserError, match=r"set objective\.stateful=False"):
        build("clm", backbone, stateful=True)


def test_batches_that_do_not_go_on_are_refused(read):
    backbone = modules.build("recurrent", V=V, D=6, U=6, Z=1)
    rows = batch(0, L, [False, False])
    del rows["continues_B"]
    with pytest.raises(UserError, match=r"stateful=True needs batches\.name='bptt'"):
        build("clm", backbone, stateful=True).init(jax.random.key(0), rows, train=True)
