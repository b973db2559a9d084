"""All arrays of GPT-1 and GPT-2 have a place, and compute the same."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from pretrain.checkpoint.verification import flatten, nest
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import Source, gpt, gpt_tokenizer
from pretrain.formats import safetensors, tensorflow
from pretrain.runtime.errors import UserError
from tests.support import transformer_inputs as cases
from tests.support.array_mapping import (
    PUBLISHED,
    assert_same,
    randomly,
    read,
    specs,
    written,
)
from tests.support.compiler import quick_jit
from tests.support.gpt_releases import run, shapes, vocabulary
from tests.support.xlnet_inputs import off

ROOT = pathlib.Path(__file__).parents[3]
TOY = PUBLISHED / "gpt2-tf"

# --- Hugging Face's code ---------------------------------------------------------------------

PEERS = {"hugging_face": "GPT2", "hugging_face_gpt1": "OpenAIGPT"}


def states(model, ours, tokens_BL):
    tree = nest({name: jnp.asarray(x) for name, x in ours.items()})["backbone"]
    with jax.default_matmul_precision("highest"):
        return quick_jit(cases.forward(model, tokens_BL))(tree)


@pytest.mark.parametrize("kind", PEERS)
def test_hugging_face_s_code_opens_what_is_written_and_computes_the_same(
    torch, transformers, kind, tmp_path
):
    written_run = run(kind, activation="relu", epsilon=1e-3)
    sizes = shapes(written_run.backbone)
    ours = randomly(sizes)
    theirs = written(gpt.build_table(kind, sizes), sizes, ours)
    gpt.write_config_and_tokenizer(written_run, tmp_path, kind, "float32")
    safetensors.write(tmp_path, specs(theirs), theirs.items())
    name = PEERS[kind]
    peer, told = getattr(transformers, f"{name}LMHeadModel").from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    bare = {name.removeprefix("transformer."): torch.tensor(x) for name, x in theirs.items()}
    peer.transformer.load_state_dict(bare, strict=True)
    tokens_BL = np.random.default_rng(0).integers(0, 261, (2, 12))
    expected = peer.eval().transformer(torch.tensor(tokens_BL)).last_hidden_state.detach().numpy()
    assert off(states(written_run.backbone, ours, tokens_BL), expected) < 2e-5
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the thin cat", "that is it", "don't, Mr. U.S.A.: 1,234.56"):
        (ids,) = written_run.tokenizer.encode([text])
        assert tokenizer(text)["input_ids"] == ids.tolist()
    tokenizer.save_pretrained(tmp_path / "again")  # as one tokenizer.json
    again = Source(tmp_path / "again", kind, {})
    assert gpt_tokenizer.read_tokenizer(again).pieces == written_run.tokenizer.pieces
    assert gpt_tokenizer.read_tokenizer(again).merges == written_run.tokenizer.merges


# --- a published checkpoint ------------------------------------------------------------------


@pytest.fixture
def toy():
    if not TOY.exists():
        pytest.skip(f"there is no {TOY}")
    with tensorflow.open_arrays(TOY) as arrays:
        yield arrays


def test_a_vocabulary_that_is_none_is_refused(toy):
    with pytest.raises(UserError, match=r"encoder\.json: is not a table of pieces"):
        gpt.read_release(Source(TOY, "tensorflow", toy.specs))


def test_all_of_a_published_checkpoint_has_its_place(toy, tmp_path):
    vocabulary("tensorflow", 356).save(tmp_path)
    options = dict(vocabulary=str(tmp_path))
    model = modules.build(**gpt.read_release(Source(TOY, "tensorflow", toy.specs, options)).model)
    table = gpt.build_table("tensorflow", shapes(model), list(toy.specs))
    settled = reconcile(table, shapes(model), toy.specs)
    assert not settled.ignored
    arrays = {name: toy.read(name) for name in toy.specs}
    golden = cases.gpt({name.removeprefix("model/"): x for name, x in arrays.items()}, H=5)
    assert_same(read(table, shapes(model), arrays), flatten({"backbone": golden}))
