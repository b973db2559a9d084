"""Packed rows are the same examples in rows of their own: losses, gradients, and who sees whom."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from modules.heads import language_model
from pretrain.objectives import mlm
from pretrain.objectives.row_examples import count_slots, find_examples
from pretrain.runtime.errors import UserError
from tests.support import corpora
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit
from tests.support.pair_corpora import build

L, PACK = 192, 4
SIZES = dict(D=16, H=2, K=8, N=2, F=24, L=L, S=2, dropout=0.0, attention_dropout=0.0)
RNGS = {kind: jax.random.key(0) for kind in ("params", "corrupt", "dropout")}


class ByContent(mlm.Objective):
    """Hides tokens by what they are, so that packing hides the same."""

    def corrupt(self, batch):
        tokens_BL = batch["tokens_BL"]
        special = jnp.array([x for name, x in self.special.items() if name != "unk"])
        plain_BL = batch["valid_BL"] & ~jnp.isin(tokens_BL, special)
        targets_BL = plain_BL & (tokens_BL % 7 == 3)
        return jnp.where(targets_BL, self.special["mask"], tokens_BL), targets_BL


def build_objective(corpus, kind=ByContent, **fields):
    tokenizer = corpus.tokenizer
    backbone = modules.build("transformer", V=len(tokenizer.word_start_V), pooler=True, **SIZES)
    head = language_model.build(backbone, transform=True, bias=True)
    return kind(backbone, head, mask_prob=0.5, special=tokenizer.special, **fields)


def read_rows(corpus, pack):
    """All held-out rows of an epoch in one batch."""
    fields = dict(L=L, short_seq_prob=1.0, split="held_out", pack=pack)
    rows = len(build(corpus, **fields).epoch(0).rows_RO)
    return build(corpus, B=rows, **fields).batch(0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    tokens = dict(name="wordpiece", V=200, model="", lower=True)  # with a <mask>
    return corpora.make(tmp_path_factory.mktemp("text"), held_out=0.2, tokens=tokens)


@pytest.fixture(scope="module")
def both(corpus):
    """(a row for each example, packed rows, the objective, parameters)."""
    plain, packed = (read_rows(corpus, pack) for pack in (0, PACK))
    assert len(packed["tokens_BL"]) < 0.9 * len(plain["tokens_BL"])
    objective = build_objective(corpus)
    init = functools.partial(objective.init, RNGS)
    variables = draw_variables(init, plain, train=False, scale=0.3)
    return plain, packed, objective, jax.tree.map(jnp.asarray, variables["params"])


def test_losses_and_gradients_are_those_of_rows_of_their_own(both):
    plain, packed, objective, params = both

    @quick_jit
    def run(params, batch):
        def loss(params):
            sums = objective.apply({"params": params}, batch, train=True, rngs=RNGS)
            means = {name: sums[name].total / sums[name].weight for name in ("loss", "nsp_loss")}
            return sum(means.values()), sums

        return jax.grad(loss, has_aux=True)(params)

    with jax.default_matmul_precision("highest"):
        (grads, sums), (packed_grads, packed_sums) = run(params, plain), run(params, packed)
    for name, x in sums.items():
        np.testing.assert_allclose(packed_sums[name].total, x.total, rtol=1e-5, err_msg=name)
        np.testing.assert_array_equal(packed_sums[name].weight, x.weight, name)
    assert float(sums["nsp_loss"].weight) == len(plain["tokens_BL"])

    def compare(path, one, other):
        scale = float(np.abs(one).max())
        assert scale > 0 or "position" in str(path) or "bk_HK" in str(path), path
        np.testing.assert_allclose(other, one, atol=1e-5 * max(scale, 1e-3), err_msg=str(path))

    jax.tree_util.tree_map_with_path(compare, grads, packed_grads)


def test_an_example_changes_no_other_s_predictions(both):
    _, packed, objective, params = both
    row = int(np.argmax((packed["starts_BO"] < L).sum(1)))
    assert (packed["starts_BO"][row] < L).sum() > 2
    begin, end = (int(x) for x in packed["starts_BO"][row, :2])
    changed = {name: x.copy() for name, x in packed.items()}
    inside = changed["tokens_BL"][row, begin + 1 : end - 1]
    inside[inside % 7 != 3] = inside.max()

    @quick_jit
    def run(batch):
        nats_BP, _ = objective.apply({"params": params}, batch, method="nats")
        return nats_BP, objective.apply({"params": params}, batch, method="corrupt")[1]

    before, targets = run(packed)
    after, again = run(changed)
    np.testing.assert_array_equal(targets, again)
    is_inside = np.flatnonzero(np.asarray(targets)[row]) < end
    assert is_inside.any()
    assert (~is_inside).any()
    count = len(is_inside)
    one, other = np.asarray(before)[row, :count], np.asarray(after)[row, :count]
    np.testing.assert_allclose(one[~is_inside], other[~is_inside], rtol=1e-6)
    assert (np.abs(one - other)[is_inside] > 1e-3).all()


def test_each_example_has_its_own_share_of_predictions(corpus):
    packed = read_rows(corpus, PACK)
    objective = build_objective(corpus, mlm.Objective).clone(mask_prob=0.15)
    examples = find_examples(packed)
    _, targets_BL = objective.apply({}, packed, rngs=RNGS, method="corrupt")
    sizes_BO, number_BL = np.asarray(examples.sizes_BO), np.asarray(examples.number_BL)
    for sizes, number, targets in zip(sizes_BO, number_BL, np.asarray(targets_BL), strict=True):
        for n, size in enumerate(sizes.tolist()):
            goal = min(max(1, round(size * 0.15)), 29) if size else 0
            assert targets[number == n].sum() == goal
    assert targets_BL.sum(1).max() <= objective.predicted(L, PACK)


def test_positions_begin_again_and_padding_is_a_group_of_its_own():
    valid_BL = np.arange(8) < np.array([[7], [5], [0]])
    starts_BO = np.array([[0, 3, 5], [0, 8, 8], [8, 8, 8]], np.int32)
    examples = find_examples({"valid_BL": valid_BL, "starts_BO": starts_BO})
    assert examples.sizes_BO.tolist() == [[3, 2, 2], [5, 0, 0], [0, 0, 0]]
    assert examples.number_BL.tolist()[0] == [0, 0, 0, 1, 1, 2, 2, 3]
    assert examples.number_BL.tolist()[2] == [3] * 8
    assert examples.positions_BL[0, :7].tolist() == [0, 1, 2, 0, 1, 0, 1]
    assert examples.mask.dense(8).any(-1).all()


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_slots_hold_what_any_examples_of_a_row_predict(share):
    rng = np.random.default_rng(0)
    for _ in range(500):
        sizes = rng.integers(3, 20, 5)
        most = count_slots(int(sizes.sum()), share, 99, 5)
        assert most >= sum(min(max(1, round(n * share)), n - 2) for n in sizes.tolist())


def test_a_model_that_reads_across_examples_is_refused(corpus):
    packed = read_rows(corpus, PACK)
    backbone = modules.build(
        "text_cnn", V=len(corpus.tokenizer.word_start_V), D=8, filters=((2, 8),)
    )
    head = language_model.build(backbone)
    objective = mlm.Objective(backbone, head, nsp=False, special=corpus.tokenizer.special)
    with pytest.raises(UserError, match=r"batches\.pack=4 does not go with .* a CNN sees"):
        jax.eval_shape(lambda: objective.init(RNGS, packed, train=False))
