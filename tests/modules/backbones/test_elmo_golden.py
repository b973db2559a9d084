"""What ELMo's training program and its published files compute, ours computes."""

import json
import os
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from modules.heads import language_model
from modules.masks import Mask
from tests.support import elmo_weights as golden
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")


def direction_losses(head, table_VD, h_BZLD, next_BZL):
    """The mean loss of each direction."""
    weights_BL = jnp.ones(next_BZL[:, 0].shape)
    sums = [
        head.cross_entropy(h_BZLD[:, z], next_BZL[:, z], weights_BL, table_VD, chunks=2)["loss"]
        for z in range(2)
    ]
    return jnp.stack([x.total / x.weight for x in sums])


@pytest.mark.parametrize("name", golden.CASES)
def test_losses_states_and_gradients_of_two_batches_are_the_original_s(name):
    fields, params, batches = golden.load(name)
    model = modules.build("elmo", **fields)

    def loss(params, state, tokens, next_BZL):
        bound = model.bind({"params": params})
        h_BZLD, state = bound(tokens, mask=Mask(is_causal=True), memory=state, train=False)
        head = language_model.build(model, **golden.HEAD).bind({"params": params})
        each = direction_losses(head, bound.table(), h_BZLD, next_BZL)
        return each.mean(), (each, state)

    run = quick_jit(jax.value_and_grad(loss, has_aux=True))
    state = model.initial_memory(3)
    for batch in batches:
        (value, (each, state)), slopes = run(params, state, batch["tokens"], batch["next"])
        assert off(value, batch["loss"]) < 2e-6
        assert off(each, batch["losses"]) < 2e-6
        for leaf in ("c_BZU", "h_BZD"):
            assert off(getattr(state, leaf), batch[leaf]) < 2e-6, leaf
        offs = jax.tree.map(off, slopes, batch["slopes"])
        assert max(jax.tree.leaves(offs)) < 1e-5, offs


# --- the published files ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def published():
    """(model, parameters, sentences [file, sentence] of words, expected [file, sentence])."""
    beside = Path(__file__).parents[4] / "shared/fixtures/published/bilm-tf/model"
    folder = Path(os.environ.get("ELMO_MODEL", beside))
    if not folder.exists():
        pytest.skip("set ELMO_MODEL to the folder of bilm-tf's tests/fixtures/model")
    fields, params = golden.published(folder)
    texts = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    expected = []
    for i in range(len(texts)):
        with h5py.File(folder / f"lm_embeddings_{i}.hdf5") as file:
            expected.append([file[str(k)][...] for k in range(len(texts[i]))])
    sentences = [[line.split() for line in file] for file in texts]
    return modules.build("elmo", **fields), params, sentences, expected


def read_in_order(model, params, sentences, carried: bool):
    """The last layer's states of every sentence, [file][sentence]; a file is a row."""

    @quick_jit
    def read(chars, valid_BL, state):
        variables = {"params": params}
        given = dict(mask=Mask(valid_BL=valid_BL), memory=state, method="layer_states")
        return model.apply(variables, chars, **given)

    longest = 2 + max(len(words) for file in sentences for words in file)
    state, out = model.initial_memory(len(sentences)), []
    for batch in zip(*sentences, strict=True):
        chars = np.full((len(batch), longest, model.W), 260)
        lengths = [2 + len(words) for words in batch]
        for b, words in enumerate(batch):
            chars[b, : lengths[b]] = golden.characters(words, model.W)
        h_NBLD, new = read(chars, np.arange(longest) < np.array(lengths)[:, None], state)
        state = new if carried else state
        out.append([h_NBLD[-1, b, 1 : n - 1] for b, n in enumerate(lengths)])
    return list(zip(*out, strict=True))


def test_published_embeddings_are_reproduced_in_the_order_of_their_sentences(published):
    """Each file was a row of the original's batches, whose states were never cleared."""
    model, params, sentences, expected = published
    for carried in (True, False):
        ours = read_in_order(model, params, sentences, carried)
        far = [
            [np.abs(x - np.concatenate(list(y), -1)).max() for x, y in zip(*files, strict=True)]
            for files in zip(ours, expected, strict=True)
        ]
        assert np.max(far, axis=0)[0] < 1e-5
        assert (np.max(far) < 1e-5) == carried
