"""Every array of a BERT has one place in ours, and back."""

import json

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import modules
from modules.masks import Mask
from pretrain.checkpoint import named_leaves
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import Source, bert
from pretrain.formats import tensorflow
from pretrain.inference.trained_run import build_run
from pretrain.runtime.errors import UserError
from tests.support import array_mapping as arranged
from tests.support import bert_release as cases
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

PUBLISHED = arranged.PUBLISHED / "bert-tf"


def shapes_of(described):
    return arranged.shapes(described.model, described.head) | described.heads


def test_google_s_arrays_are_arranged_as_the_golden_ones(tmp_path):
    weights, ours = cases.golden(tmp_path / "a")
    described = bert.read_release(cases.source(tmp_path / "a", "npz", weights))
    assert described.objective["nsp"]
    assert described.model["activation"] == "gelu"
    shapes = shapes_of(described)
    table = bert.build_table("npz", shapes)
    assert table.specs(shapes, np.float32).keys() == weights.keys()
    found = arranged.read(table, shapes, weights)
    assert found.keys() - ours.keys() == {"next_DC", "next_bias_C"}
    for name, x in ours.items():
        np.testing.assert_array_equal(found[name], x)
    np.testing.assert_array_equal(
        found["next_DC"].T, weights["cls/seq_relationship/output_weights"]
    )


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published checkpoints are not here")
def test_all_arrays_of_a_published_checkpoint_are_accounted_for():
    with tensorflow.open_arrays(PUBLISHED) as arrays:
        source = Source(PUBLISHED, "tensorflow", arrays.specs)
        described = bert.read_release(source)
        shapes = shapes_of(described)
        table = bert.build_table("tensorflow", shapes)
        settled = reconcile(table, shapes, arrays.specs)
    assert len(settled.ignored["slots of the optimiser"]) == 92
    assert described.tokenizer.V == 15
    assert described.objective["nsp"]


@pytest.mark.parametrize("heads", ["Model", "ForMaskedLM", "ForPreTraining"])
@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_hugging_face_s_states_are_ours_and_ours_load_there(torch, transformers, bare, heads, act):
    config = transformers.BertConfig(**{**cases.CONFIG, "hidden_act": act})
    torch.manual_seed(0)
    peer = getattr(transformers, f"Bert{heads}")(config).eval()
    for parameter in peer.parameters():
        parameter.data.normal_(0.1, 0.4)
    weights = {name: x.numpy() for name, x in peer.state_dict().items()}
    described = bert.read_release(bare(names=weights, hidden_act=act))
    shapes = shapes_of(described)
    table = bert.build_table("hugging_face", shapes, list(weights))
    ours = arranged.read(table, shapes, weights)

    backbone = modules.build(**described.model)
    tokens_BL = np.random.default_rng(0).integers(1, 36, (3, 12))
    valid_BL, segments_BL = np.arange(12) < [[12], [5], [9]], tokens_BL % 2
    params = named_leaves.nest({k: x for k, x in ours.items() if k.startswith("backbone/")})
    with jax.default_matmul_precision("highest"):
        h_BLD = quick_jit(
            lambda params: (
                backbone.apply(
                    {"params": params},
                    tokens_BL,
                    mask=Mask(valid_BL=valid_BL),
                    segments_BL=segments_BL,
                    train=False,
                ).h
            )
        )(params["backbone"])
    base = peer if heads == "Model" else peer.bert
    given = dict(attention_mask=torch.tensor(valid_BL).long())
    given["token_type_ids"] = torch.tensor(segments_BL)
    theirs = base(torch.tensor(tokens_BL), **given).last_hidden_state.detach().numpy()
    assert off(h_BLD * valid_BL[..., None], theirs * valid_BL[..., None]) < 2e-5

    # What we write, their class takes whole but for tied copies.
    made = arranged.written(bert.build_table("hugging_face", shapes), shapes, ours)
    loaded = peer.load_state_dict({k: torch.tensor(x) for k, x in made.items()}, strict=False)
    assert not loaded.unexpected_keys
    assert all("decoder" in k or "position_ids" in k for k in loaded.missing_keys)


def test_of_the_embedding_and_the_tied_head_one_is_enough(bare):
    shapes = shapes_of(bert.read_release(bare()))
    ours = arranged.randomly(shapes)
    theirs = arranged.written(bert.build_table("hugging_face", shapes), shapes, ours)
    token = "bert.embeddings.word_embeddings.weight"
    theirs["cls.predictions.decoder.weight"] = theirs.pop(token)
    found = arranged.read(bert.build_table("hugging_face", shapes, list(theirs)), shapes, theirs)
    arranged.assert_same(found, ours)


def test_the_older_names_of_norms_are_known(bare):
    names = [*cases.HEADS, "bert.embeddings.LayerNorm.gamma"]
    shapes = shapes_of(bert.read_release(bare(names)))
    specs = bert.build_table("hugging_face", shapes, names).specs(shapes, np.float32)
    assert "bert.encoder.layer.1.output.LayerNorm.beta" in specs
    assert not any(name.endswith("LayerNorm.bias") for name in specs)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "complex64", "F8_E4M3"])
def test_weights_that_are_no_floating_point_are_named(bare, dtype):
    described = bert.read_release(bare())
    shapes = shapes_of(described)
    table = bert.build_table("hugging_face", shapes)
    specs = table.specs(shapes, np.float32)
    one, others = "bert.pooler.dense.bias", {}
    if dtype.startswith("F8"):
        del specs[one]
        others[one] = dtype
    else:
        specs[one] = specs[one]._replace(dtype=np.dtype(dtype))
    message = f"{one}: is {dtype}, and float32, float16 or bfloat16 belong there$"
    with pytest.raises(UserError, match=message):
        reconcile(table, shapes, specs, others=others)


NO_HEAD, HEAD = (dict(transform=there, bias=there) for there in (False, True))


def test_what_a_release_has_decides_which_heads_there_are(bare):
    names = ["embeddings.word_embeddings.weight", "embeddings.LayerNorm.weight"]
    found = bert.read_release(bare(names))
    assert (found.head, found.model["pooler"], found.heads) == (NO_HEAD, False, {})
    assert found.batches["name"] == "windows"
    assert set(found.missing) == {"pooler", "head", "nsp"}
    whole = bert.read_release(bare())
    assert (whole.head, whole.model["pooler"]) == (HEAD, True)
    assert whole.heads == {"next_DC": (16, 2), "next_bias_C": (2,)}
    assert not whole.missing


def test_switches_are_as_configured(bare):
    model = bert.read_release(bare(hidden_act="gelu", layer_norm_eps=1e-6)).model
    assert (model["activation"], model["epsilon"]) == ("gelu_erf", 1e-6)
    assert bert.read_release(bare(hidden_act="gelu_new")).model["activation"] == "gelu"


REFUSED = {
    "position_embedding_type is 'relative_key'": dict(position_embedding_type="relative_key"),
    "hidden_act is 'silu'": dict(hidden_act="silu"),
    "hidden_size=16 does not divide by num_attention_heads=3": dict(num_attention_heads=3),
    "vocab_size is None": dict(vocab_size=None),
    "has 36 pieces, but the weights have 41 rows": dict(vocab_size=41),
    "hidden_act is \\['gelu'\\]": dict(hidden_act=["gelu"]),
    "config.json: layer_norm_eps is None": dict(layer_norm_eps=None),
    "layer_norm_eps is '1e-12'": dict(layer_norm_eps="1e-12"),
    "layer_norm_eps is nan": dict(layer_norm_eps=float("nan")),
    "layer_norm_eps is -1.0": dict(layer_norm_eps=-1.0),
    "initializer_range is None": dict(initializer_range=None),
    "hidden_dropout_prob is None": dict(hidden_dropout_prob=None),
    "hidden_dropout_prob is 2.0, and should be below 1": dict(hidden_dropout_prob=2.0),
    "attention_probs_dropout_prob is 'x'": dict(attention_probs_dropout_prob="x"),
    "num_hidden_layers is 1,000,000,000, and the weights are 3": dict(num_hidden_layers=10**9),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_computed_is_refused(bare, reason):
    with pytest.raises(UserError, match=reason):
        bert.read_release(bare(**REFUSED[reason]))


def test_rows_beyond_the_pieces_are_padding_and_stay(bare):
    described = bert.read_release(bare(vocab_size=40))
    assert (described.model["V"], described.tokenizer.V) == (40, 36)
    assert described.notes == ("rows 36 to 39 of the embedding are padding, and no piece's",)


HEADS_OF = {
    (True, True, True): "BertForPreTraining",
    (True, True, False): "BertForMaskedLM",
    (True, False, True): "BertForNextSentencePrediction",
    (True, False, False): "BertModel",
    (False, False, False): "BertModel",
}


@pytest.mark.parametrize(("pooler", "head", "nsp"), HEADS_OF)
def test_what_goes_out_is_of_the_class_that_has_its_heads(bare, tmp_path, pooler, head, nsp):
    described = bert.read_release(bare())
    fields, own = described.model | dict(pooler=pooler), HEAD if head else NO_HEAD
    config = ConfigDict(dict(objective=dict(name="mlm", nsp=nsp), head=own))
    run = build_run(tmp_path, config, described.tokenizer, modules.build(**fields))
    bert.write_config_and_tokenizer(run, tmp_path, "hugging_face", "float32")
    found = json.loads((tmp_path / "config.json").read_text())
    assert found["architectures"] == [HEADS_OF[pooler, head, nsp]]
    shapes = arranged.shapes(fields, own) | (described.heads if nsp else {})
    names = {link.theirs for link in bert.build_table("hugging_face", shapes).links}
    assert ("cls.seq_relationship.weight" in names) == nsp
    assert ("pooler.dense.weight" in names or "bert.pooler.dense.weight" in names) == pooler
    told = bert.advise(run, "hugging_face")
    assert ["add_pooling_layer=False" in line for line in told] == [True] * (not pooler)
    assert bert.advise(run, "npz") == []
