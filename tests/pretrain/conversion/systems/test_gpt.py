"""All arrays of GPT-1 and GPT-2 have a place, and compute the same."""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from configs import gpt as gpt1_recipe
from pretrain.checkpoint.verification import flatten, nest
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import Source, gpt, gpt_tokenizer
from pretrain.formats import Spec, safetensors, tensorflow
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
from tests.support.gpt_releases import backbone, run, shapes, vocabulary
from tests.support.xlnet_inputs import off

ROOT = pathlib.Path(__file__).parents[3]
TOY = PUBLISHED / "gpt2-tf"
# The order in which OpenAI's train.py makes a layer's variables.
LAYER = [f"attn/{name}" for name in ("c_attn/w", "c_attn/b", "c_proj/w", "c_proj/b")]
LAYER += ["ln_1/g", "ln_1/b", "mlp/c_fc/w", "mlp/c_fc/b", "mlp/c_proj/w", "mlp/c_proj/b"]
LAYER += ["ln_2/g", "ln_2/b"]


# --- names -----------------------------------------------------------------------------------


def test_gpt2_s_golden_weights_are_arranged_as_the_golden_test_has_them():
    with np.load(ROOT / "fixtures/gpt2/gpt2_tiny.npz") as file:
        flags = json.loads(str(file["cfg"]))
        theirs = {x.removeprefix("w/"): file[x] for x in file.files if x.startswith("w/")}
    weights = {name.removeprefix("model/"): x for name, x in theirs.items()}
    golden = cases.gpt(weights, flags["n_head"])
    expected = flatten({"backbone": golden})
    sizes = shapes(cases.golden_gpt2(flags))
    slots = {
        "model/wte/Adam_1": Spec((2,), np.dtype("float32")),
        "beta1_power": Spec((), np.dtype("float32")),
    }
    for kind in ("tensorflow", "npz"):
        table = gpt.build_table(kind, sizes, list(theirs))
        assert len(reconcile(table, sizes, specs(theirs) | slots).ignored) == 2
        assert_same(read(table, sizes, theirs), expected)


def test_gpt1_s_numbered_arrays_are_what_its_code_makes_in_that_order():
    model = backbone("openai_npy")
    D, F, rng = model.D, model.F, np.random.default_rng(0)
    own = dict.fromkeys(LAYER, (D,)) | {"attn/c_attn/w": (1, D, 3 * D), "attn/c_attn/b": (3 * D,)}
    own |= {"attn/c_proj/w": (1, D, D), "mlp/c_fc/w": (1, D, F), "mlp/c_proj/w": (1, F, D)}
    own |= {"mlp/c_fc/b": (F,)}
    theirs = {"wpe": (model.L, D), "wte": (model.V, D)}
    theirs |= {f"h{n}/{name}": shape for n in range(model.N) for name, shape in own.items()}
    theirs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in theirs.items()}
    numbered = {str(i): x for i, x in enumerate(theirs.values())}
    table = gpt.build_table("openai_npy", shapes(model), list(numbered))
    assert not reconcile(table, shapes(model), specs(numbered)).ignored
    expected = flatten({"backbone": cases.gpt(theirs, model.H)})
    assert_same(read(table, shapes(model), numbered), expected)


def test_the_published_gpt1_has_the_published_shapes():
    sizes = shapes(modules.build(**gpt1_recipe.get_config("base").model))
    layer = [[1, 768, 2304], [2304], [1, 768, 768], [768], [768], [768]]
    layer += [[1, 768, 3072], [3072], [1, 3072, 768], [768], [768], [768]]
    theirs = gpt.build_table("openai_npy", sizes).specs(sizes, np.float32)
    found = [list(theirs[str(i)].shape) for i in range(len(theirs))]
    assert found == [[512, 768], [40478, 768], *(12 * layer)]
    assert sum(math.prod(x.shape) for x in theirs.values()) == 116_534_784


TORCH = {  # as their code names a layer's arrays, and shapes them
    "ln_1.weight": (128,),
    "ln_1.bias": (128,),
    "attn.c_attn.weight": (128, 384),
    "attn.c_attn.bias": (384,),
    "attn.c_proj.weight": (128, 128),
    "attn.c_proj.bias": (128,),
    "ln_2.weight": (128,),
    "ln_2.bias": (128,),
    "mlp.c_fc.weight": (128, 512),
    "mlp.c_fc.bias": (512,),
    "mlp.c_proj.weight": (512, 128),
    "mlp.c_proj.bias": (128,),
}
ENDS: dict[str, dict[str, tuple[int, ...]]] = {
    "hugging_face": {
        "wte.weight": (261, 128),
        "wpe.weight": (12, 128),
        "ln_f.weight": (128,),
        "ln_f.bias": (128,),
    },
    "hugging_face_gpt1": {"tokens_embed.weight": (261, 128), "positions_embed.weight": (12, 128)},
}


@pytest.mark.parametrize("kind", ENDS)
def test_hugging_face_s_names_and_shapes_are_those_of_its_code(kind):
    sizes = shapes(backbone(kind))
    theirs = gpt.build_table(kind, sizes).specs(sizes, np.float32)
    layers = {f"h.{n}.{name}": shape for n in (0, 1) for name, shape in TORCH.items()}
    expected = {f"transformer.{name}": shape for name, shape in (ENDS[kind] | layers).items()}
    assert {name: spec.shape for name, spec in theirs.items()} == expected


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_hugging_face_s_masks_are_no_parameters_but_other_arrays_are_not_overlooked(prefix):
    sizes = shapes(backbone("hugging_face"))
    theirs = gpt.build_table("hugging_face", sizes).specs(sizes, np.float32)
    theirs = {name.replace("transformer.", prefix): spec for name, spec in theirs.items()}
    masks = [f"{prefix}h.{n}.attn.{name}" for n in (0, 1) for name in ("bias", "masked_bias")]
    theirs |= dict.fromkeys(masks, Spec((1, 1, 12, 12), np.dtype("uint8")))
    theirs["lm_head.weight"] = theirs[f"{prefix}wte.weight"]
    table = gpt.build_table("hugging_face", sizes, list(theirs))
    settled = reconcile(table, sizes, theirs)
    assert {x for names in settled.ignored.values() for x in names} == {*masks}
    assert settled.copies == {"lm_head.weight": f"{prefix}wte.weight"}
    for name in ("score.weight", f"{prefix}h.2.ln_1.bias"):
        with pytest.raises(UserError, match=rf"{name}.* is unexpected"):
            reconcile(table, sizes, theirs | {name: theirs[f"{prefix}h.1.ln_1.bias"]})


@pytest.mark.parametrize("kind", ENDS)
def test_of_the_embedding_and_the_tied_head_one_is_enough(kind):
    sizes = shapes(backbone(kind))
    ours, whole = randomly(sizes), gpt.build_table(kind, sizes)
    theirs = written(whole, sizes, ours)
    theirs["lm_head.weight"] = theirs.pop(whole.copies["lm_head.weight"])
    table = gpt.build_table(kind, sizes, list(theirs))
    assert not reconcile(table, sizes, specs(theirs)).copies
    assert_same(read(table, sizes, theirs), ours)


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
