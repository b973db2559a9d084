"""All arrays of GPT-1 and GPT-2 have a place, by the names that each release gives them."""

import json
import math
import pathlib

import numpy as np
import pytest

import modules
from configs import gpt as gpt1_recipe
from pretrain.checkpoint.verification import flatten
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import gpt_arrays
from pretrain.formats import Spec
from pretrain.runtime.errors import UserError
from tests.support import transformer_inputs as cases
from tests.support.array_mapping import assert_same, randomly, read, specs, written
from tests.support.gpt_releases import backbone, shapes

ROOT = pathlib.Path(__file__).parents[3]
# The order in which OpenAI's train.py makes a layer's variables.
LAYER = [f"attn/{name}" for name in ("c_attn/w", "c_attn/b", "c_proj/w", "c_proj/b")]
LAYER += ["ln_1/g", "ln_1/b", "mlp/c_fc/w", "mlp/c_fc/b", "mlp/c_proj/w", "mlp/c_proj/b"]
LAYER += ["ln_2/g", "ln_2/b"]


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
        table = gpt_arrays.build_table(kind, sizes, list(theirs))
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
    table = gpt_arrays.build_table("openai_npy", shapes(model), list(numbered))
    assert not reconcile(table, shapes(model), specs(numbered)).ignored
    expected = flatten({"backbone": cases.gpt(theirs, model.H)})
    assert_same(read(table, shapes(model), numbered), expected)


def test_the_published_gpt1_has_the_published_shapes():
    sizes = shapes(modules.build(**gpt1_recipe.get_config("base").model))
    layer = [[1, 768, 2304], [2304], [1, 768, 768], [768], [768], [768]]
    layer += [[1, 768, 3072], [3072], [1, 3072, 768], [768], [768], [768]]
    theirs = gpt_arrays.build_table("openai_npy", sizes).specs(sizes, np.float32)
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
    theirs = gpt_arrays.build_table(kind, sizes).specs(sizes, np.float32)
    layers = {f"h.{n}.{name}": shape for n in (0, 1) for name, shape in TORCH.items()}
    expected = {f"transformer.{name}": shape for name, shape in (ENDS[kind] | layers).items()}
    assert {name: spec.shape for name, spec in theirs.items()} == expected


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_hugging_face_s_masks_are_no_parameters_but_other_arrays_are_not_overlooked(prefix):
    sizes = shapes(backbone("hugging_face"))
    theirs = gpt_arrays.build_table("hugging_face", sizes).specs(sizes, np.float32)
    theirs = {name.replace("transformer.", prefix): spec for name, spec in theirs.items()}
    masks = [f"{prefix}h.{n}.attn.{name}" for n in (0, 1) for name in ("bias", "masked_bias")]
    theirs |= dict.fromkeys(masks, Spec((1, 1, 12, 12), np.dtype("uint8")))
    theirs["lm_head.weight"] = theirs[f"{prefix}wte.weight"]
    table = gpt_arrays.build_table("hugging_face", sizes, list(theirs))
    settled = reconcile(table, sizes, theirs)
    assert {x for names in settled.ignored.values() for x in names} == {*masks}
    assert settled.copies == {"lm_head.weight": f"{prefix}wte.weight"}
    for name in ("score.weight", f"{prefix}h.2.ln_1.bias"):
        with pytest.raises(UserError, match=rf"{name}.* is unexpected"):
            reconcile(table, sizes, theirs | {name: theirs[f"{prefix}h.1.ln_1.bias"]})


@pytest.mark.parametrize("kind", ENDS)
def test_of_the_embedding_and_the_tied_head_one_is_enough(kind):
    sizes = shapes(backbone(kind))
    ours, whole = randomly(sizes), gpt_arrays.build_table(kind, sizes)
    theirs = written(whole, sizes, ours)
    theirs["lm_head.weight"] = theirs.pop(whole.copies["lm_head.weight"])
    table = gpt_arrays.build_table(kind, sizes, list(theirs))
    assert not reconcile(table, sizes, specs(theirs)).copies
    assert_same(read(table, sizes, theirs), ours)
