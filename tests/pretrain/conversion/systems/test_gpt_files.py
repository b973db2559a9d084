"""What is beside the weights is read, and written, and refused."""

import json

import numpy as np
import pytest

import modules
from configs import gpt as gpt1_recipe
from configs import gpt2 as gpt2_recipe
from pretrain.conversion.systems import Source, gpt
from pretrain.formats import Spec
from pretrain.runtime.errors import UserError
from tests.support.gpt_releases import backbone, run, shapes, source, vocabulary

OUT = [name for name, kind in gpt.KINDS.items() if kind.writable]

# --- what a release is -----------------------------------------------------------------------

SAME = ("V", "D", "H", "K", "N", "F", "L", "norm", "attention", "activation", "epsilon", "window")


@pytest.mark.parametrize("kind", ["tensorflow", "hugging_face", "hugging_face_gpt1", "openai_npy"])
def test_the_published_releases_are_the_recipes(kind, tmp_path):
    first = kind in gpt.GPT1
    recipe = (gpt1_recipe if first else gpt2_recipe).get_config("base" if first else "124m")
    V, L = (40478, 512) if first else (50257, 1024)
    config: dict = dict(n_embd=768, n_head=12, n_layer=12)
    config |= (
        dict(n_vocab=V, n_ctx=L) if kind == "tensorflow" else dict(vocab_size=V, n_positions=L)
    )
    sizes = shapes(modules.build(**recipe.model))
    arrays = gpt.build_table(kind, sizes).specs(sizes, np.float32)
    release = source(tmp_path, kind, arrays, vocabulary(kind, V), config)
    found = gpt.read_release(release)
    same = [field for field in SAME if field in recipe.model]
    assert {x: found.model[x] for x in same} == {x: recipe.model[x] for x in same}
    assert found.batches["L"] == L
    assert found.objective == {"name": "clm", "attend_across_documents": False}
    assert shapes(modules.build(**found.model)) == sizes


def test_what_hugging_face_s_config_does_not_say_is_what_their_code_takes(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    gpt2 = gpt.read_config_json(Source(tmp_path, "hugging_face", {}))
    assert gpt2 == dict(
        V=50257,
        D=768,
        H=12,
        N=12,
        F=3072,
        L=1024,
        activation="gelu",
        epsilon=1e-5,
        dropout=0.1,
        attention_dropout=0.1,
        init_scale=0.02,
    )
    gpt1 = gpt.read_config_json(Source(tmp_path, "hugging_face_gpt1", {}))
    assert gpt1 == gpt2 | dict(V=40478, L=512)


SIZED = dict(hidden_size=64, max_position_embeddings=9, num_attention_heads=4, num_hidden_layers=3)


@pytest.mark.parametrize("kind", ["hugging_face", "hugging_face_gpt1"])
def test_sizes_under_their_code_s_other_names_are_taken(kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SIZED))
    found = gpt.read_config_json(Source(tmp_path, kind, {}))
    assert {name: found[name] for name in "DLHN"} == dict(D=64, L=9, H=4, N=3)


def test_more_layers_than_arrays_are_refused_at_once(tmp_path):
    arrays = {"wte.weight": Spec((261, 128), np.dtype("float32"))}
    for kind in ("hugging_face", "tensorflow"):
        release = source(tmp_path, kind, arrays, config=dict(n_layer=10**9))
        with pytest.raises(UserError, match=r"n_layer is 1,000,000,000, and the weights are 1 "):
            gpt.read_release(release)


SWITCHES = [  # kind, their config, our model
    ("hugging_face", dict(activation_function="gelu"), dict(activation="gelu_erf")),
    ("hugging_face", dict(activation_function="gelu_new"), dict(activation="gelu")),
    ("hugging_face", dict(activation_function="gelu_pytorch_tanh"), dict(activation="gelu")),
    ("hugging_face", dict(activation_function="relu"), dict(activation="relu")),
    ("hugging_face", dict(n_inner=72), dict(F=72)),
    ("hugging_face", dict(n_inner=None), dict(F=512)),
    ("hugging_face", dict(layer_norm_epsilon=1e-6), dict(epsilon=1e-6)),
    ("hugging_face", dict(reorder_and_upcast_attn=True), {}),
    (
        "hugging_face",
        dict(resid_pdrop=0.2, embd_pdrop=0.2, attn_pdrop=0.3),
        dict(dropout=0.2, attention_dropout=0.3),
    ),
    ("hugging_face_gpt1", dict(afn="gelu"), dict(activation="gelu")),
    ("hugging_face_gpt1", dict(afn="relu"), dict(activation="relu")),
    ("hugging_face", dict(num_attention_heads=2), dict(H=2)),
    ("hugging_face_gpt1", dict(layer_norm_epsilon=1e-6), dict(epsilon=1e-6)),
]


@pytest.mark.parametrize(("kind", "theirs", "ours"), SWITCHES)
def test_every_switch_of_a_configuration_is_set_here(kind, theirs, ours, tmp_path):
    model = gpt.read_release(source(tmp_path, kind, config=theirs)).model
    assert {field: model[field] for field in ours} == ours
    modules.build(**model)


REFUSED = [  # kind, their config, what the error says
    ("hugging_face", dict(scale_attn_weights=False), r"config\.json: scale_attn_weights is False"),
    ("hugging_face", dict(scale_attn_by_inverse_layer_idx=True), "inverse_layer_idx is True"),
    ("hugging_face", dict(add_cross_attention=True), "add_cross_attention is True"),
    ("hugging_face", dict(tie_word_embeddings=False), "tie_word_embeddings is False"),
    ("hugging_face", dict(activation_function="silu"), "activation_function is 'silu'"),
    ("hugging_face", dict(n_inner=0), "n_inner is 0"),
    ("hugging_face", dict(n_embd="128"), "n_embd is '128'"),
    ("hugging_face", dict(n_head=3), "128 does not divide by 3"),
    ("hugging_face", dict(embd_pdrop=0.0), "embd_pdrop is 0.0 and resid_pdrop 0.1"),
    ("hugging_face", dict(vocab_size=262), "has 261 pieces, but the weights have 262"),
    ("hugging_face", dict(hidden_size=64), "hidden_size is 64 and n_embd is 128, two names of one"),
    ("hugging_face", dict(layer_norm_epsilon=None), "layer_norm_epsilon is None"),
    ("hugging_face", dict(attn_pdrop=2.0), "attn_pdrop is 2.0, and should be below 1"),
    ("hugging_face", dict(initializer_range="x"), "initializer_range is 'x'"),
    ("hugging_face_gpt1", dict(afn="silu"), "afn is 'silu'"),
    ("hugging_face_gpt1", dict(afn="gelu_new"), "afn is 'gelu_new'"),  # theirs fails on it, too
    ("tensorflow", dict(n_vocab=None), r"hparams\.json: n_vocab is None"),
    ("npz", dict(n_head=3), "128 does not divide by 3"),
]


@pytest.mark.parametrize(("kind", "config", "message"), REFUSED)
def test_a_configuration_that_cannot_be_computed_here_is_refused(kind, config, message, tmp_path):
    with pytest.raises(UserError, match=message):
        gpt.read_release(source(tmp_path, kind, config=config))


def test_arrays_that_are_not_gpt1_s_are_refused(tmp_path):
    sizes = shapes(backbone("openai_npy"))
    good = gpt.build_table("openai_npy", sizes).specs(sizes, np.float32)
    assert gpt.read_release(source(tmp_path, "openai_npy", good)).model["H"] == 2
    fewer = {name: good[name] for name in list(good)[:-1]}
    odd = {"0": Spec((12, 100), np.dtype("float32"))}
    for arrays in ({}, fewer, good | {"0": good["2"]}, good | {"8": good["9"]}, good | odd):
        with pytest.raises(UserError, match=r"params_shapes\.json: is not GPT-1's"):
            gpt.read_release(source(tmp_path, "openai_npy", arrays))


# --- vocabularies ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tensorflow", "hugging_face", "hugging_face_gpt1"])
def test_another_vocabulary_can_be_named(kind, tmp_path):
    config = dict(vocab_size=300, n_vocab=300)
    other = tmp_path / "other"
    other.mkdir()
    vocabulary(kind, 300).write(other / "vocab.json", other / "merges.txt")
    with pytest.raises(UserError, match="261 pieces"):
        gpt.read_release(source(tmp_path, kind, config=config))
    found = gpt.read_release(source(tmp_path, kind, config=config, vocabulary=str(other)))
    assert found.tokenizer.V == 300


# --- out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OUT)
def test_what_is_written_beside_the_weights_describes_the_same_run(kind, tmp_path):
    fields = dict(dropout=0.0, position_scale=0.01) if kind == "npz" else {}
    fields |= dict(F=72, activation="gelu_erf") if kind == "hugging_face" else {}
    written_run = run(kind, **fields)
    gpt.write_config_and_tokenizer(written_run, tmp_path, kind, "float32")
    model = shapes(written_run.backbone)
    release = Source(tmp_path, kind, gpt.build_table(kind, model).specs(model, np.float32))
    found = gpt.read_release(release)
    assert modules.build(**found.model) == written_run.backbone
    assert found.tokenizer.pieces == written_run.tokenizer.pieces
    assert found.tokenizer.merges == written_run.tokenizer.merges


def test_rows_beyond_the_pieces_are_padding(tmp_path):
    found = gpt.read_release(source(tmp_path, config=dict(vocab_size=264)))
    assert (found.model["V"], found.tokenizer.V) == (264, 261)
    assert found.notes == ("rows 261 to 263 of the embedding are padding, and no piece's",)


OTHERS = [  # kind, fields of a run
    ("hugging_face", dict(window=4)),
    ("hugging_face", dict(S=2)),
    ("hugging_face", dict(K=32)),
    ("hugging_face", dict(normed_embedding=True)),
    ("hugging_face", dict(pooler=True)),
    ("hugging_face", dict(norm="post")),
    ("hugging_face_gpt1", dict(norm="pre")),
    ("hugging_face_gpt1", dict(F=72)),
    ("npz", dict(F=72)),
    ("npz", dict(epsilon=1e-6)),
    ("npz", dict(activation="gelu_erf")),
]


@pytest.mark.parametrize(("kind", "fields"), OTHERS)
def test_a_run_that_their_code_cannot_compute_is_refused(kind, fields, tmp_path):
    (field,) = fields
    with pytest.raises(UserError, match=rf"model\.{field}="):
        gpt.write_config_and_tokenizer(run(kind, **fields), tmp_path, kind, "float32")
    assert not any(tmp_path.iterdir())


NONE = [  # kind, whose tokenizer, fields of a run, what the error says
    ("hugging_face", "hugging_face", dict(attention="bi"), "holds no GPT"),
    ("hugging_face", "hugging_face_gpt1", {}, "tokenizer of such a release is byte_bpe"),
    ("hugging_face_gpt1", "hugging_face_gpt1", dict(activation="gelu_erf"), "is 'gelu_erf'"),
]


@pytest.mark.parametrize(("kind", "tokens", "fields", "message"), NONE)
def test_a_run_that_is_no_gpt_is_refused(kind, tokens, fields, message, tmp_path):
    with pytest.raises(UserError, match=message):
        gpt.write_config_and_tokenizer(
            run(kind, vocabulary(tokens), **fields), tmp_path, kind, "float32"
        )


def test_where_the_norm_is_says_which_kinds_a_run_can_be_written_as():
    fits = {
        norm: [x for x in OUT if gpt.is_writable(run(x, norm=norm), x)] for norm in ("pre", "post")
    }
    assert fits == {"pre": ["npz", "hugging_face"], "post": ["hugging_face_gpt1"]}
