"""XLNet's releases are read as they are, and written so."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import tokenizers as library
from ml_collections import ConfigDict
from sentencepiece import SentencePieceProcessor
from tokenizers import decoders, models, normalizers, pre_tokenizers

import modules
from configs import xlnet as recipe
from modules.backbones import text_mask
from modules.heads import language_model
from pretrain.checkpoint import named_leaves
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import Source, xlnet, xlnet_tokenizer
from pretrain.data.tokenizers import registry, sentencepiece
from pretrain.formats import safetensors
from pretrain.inference.trained_run import build_run
from pretrain.runtime.errors import UserError
from tests.modules.backbones.test_two_stream_golden import FILES, load
from tests.support import array_mapping as cases
from tests.support import xlnet_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

HEAD = dict(bias=True)
SIZES = dict(d_model=16, n_head=2, d_head=8, n_layer=2, d_inner=24)
CONFIGS = {
    "npz": dict(n_token=31, ff_activation="gelu", untie_r=True, **SIZES),
    "hugging_face": dict(model_type="xlnet", vocab_size=31, ff_activation="gelu", **SIZES),
}


@pytest.fixture
def release(tmp_path, tokens):
    """A folder without weights, of whose configuration the test says what is not as in CONFIGS."""

    def make(kind, names=(), options=None, tokens_config=None, **fields):
        marker = tmp_path / xlnet.KINDS[kind].marker_file
        config = {name: x for name, x in (CONFIGS[kind] | fields).items() if x is not ...}
        marker.write_text(json.dumps(config))
        (tmp_path / "spiece.model").write_bytes(tokens.model)
        if tokens_config:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokens_config))
        return Source(tmp_path, kind, dict.fromkeys(names), options or {})

    return make


# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "untie_r"), [("npz", True), ("npz", False), ("hugging_face", True)]
)
def test_what_is_written_under_their_names_is_read_back_bit_for_bit(release, kind, untie_r):
    described = xlnet.read_release(release(kind, untie_r=untie_r))
    shapes = cases.shapes(described.model, described.head)
    assert not cases.assert_round_trip(xlnet.build_table, kind, shapes).absent


@pytest.mark.parametrize("name", FILES)
def test_golden_weights_are_arranged_as_the_golden_test_has_them(name):
    cfg, weights, *_ = load(name)
    assert_as_reference(weights, cfg)


def test_biases_of_all_layers_together_are_arranged_as_the_reference_has_them():
    cfg = reference.Config(untie_r=False)
    assert_as_reference(reference.random_weights(cfg, 0), cfg)


def assert_as_reference(weights, cfg):
    own = reference.ours(weights, cfg)
    expected = named_leaves.flatten({"head": {"bias_V": own.pop("bias_V")}, "backbone": own})
    shapes = {name: x.shape for name, x in expected.items()}
    found = cases.read(xlnet.build_table("npz", shapes, list(weights)), shapes, weights)
    cases.assert_same(found, expected)


def test_optimiser_slots_are_left_out_and_tuned_heads_unexpected():
    weights = reference.random_weights(cfg := reference.Config(), 0)
    model = dict(V=cfg.n_token, D=cfg.d_model, H=cfg.n_head, K=cfg.d_head, F=cfg.d_inner)
    shapes = cases.shapes(dict(name="two_stream", N=cfg.n_layer, **model), HEAD)
    slots = {f"{name}/{slot}": x for name, x in weights.items() for slot in ("Adam", "Adam_1")}
    slots |= {"model/r_w/adam_m": np.zeros(1), "global_step": np.zeros((), np.int64)}
    found = weights | slots
    settled = reconcile(xlnet.build_table("npz", shapes, found), shapes, cases.specs(found))
    assert sum(map(len, settled.ignored.values())) == len(slots)
    head = "model/sequnece_summary/summary/kernel"
    found = weights | {head: np.zeros((16, 16), np.float32)}
    table = xlnet.build_table("npz", shapes, found)
    with pytest.raises(UserError, match=rf"{head}: \(16, 16\) is unexpected"):
        reconcile(table, shapes, cases.specs(found))
    assert reconcile(table, shapes, cases.specs(found), "model/sequnece.*").ignored


def test_what_only_predictions_need_may_be_absent_and_nothing_else(release):
    shapes = cases.shapes(xlnet.read_release(release("npz")).model, HEAD)
    names = set(xlnet.build_table("npz", shapes).specs(shapes, np.float32))
    both = {"model/transformer/mask_emb/mask_emb", "model/lm_loss/bias"}
    absent = xlnet.build_table("npz", shapes, names - both).absent
    assert set(absent) == {"backbone/query_1D", "head/bias_V"}
    assert not xlnet.build_table("npz", shapes, names - {"model/transformer/seg_embed"}).absent


# --- Hugging Face's ----------------------------------------------------------------------------

PEERS = {
    "erf gelu": dict(),
    "tanh gelu": dict(ff_activation="gelu_new"),
    "left to right, clamped": dict(attn_type="uni", clamp_len=3, same_length=True),
}


@pytest.mark.parametrize("case", PEERS)
def test_hugging_face_s_states_and_scores_are_ours(torch, transformers, release, case):
    fields = CONFIGS["hugging_face"] | PEERS[case]
    peer = drawn_peer(torch, transformers.XLNetLMHeadModel(transformers.XLNetConfig(**fields)))
    theirs = {name: x.numpy() for name, x in peer.state_dict().items()}
    model = xlnet.read_release(release("hugging_face", **PEERS[case])).model
    shapes = cases.shapes(model, HEAD)
    table = xlnet.build_table("hugging_face", shapes, list(theirs))
    assert_same_outputs(torch, peer, model, cases.read(table, shapes, theirs))

    bare = {name.removeprefix("transformer."): x for name, x in theirs.items() if "lm" not in name}
    table = xlnet.build_table("hugging_face", shapes, list(bare))
    found = cases.read(table, shapes, bare)
    assert set(table.absent) == {"head/bias_V"}
    np.testing.assert_array_equal(found["backbone/token_VD"], theirs["lm_loss.weight"])


@pytest.mark.parametrize("untie_r", [True, False])
def test_their_class_reads_what_is_written(torch, transformers, release, tokens, tmp_path, untie_r):
    model = xlnet.read_release(release("npz", untie_r=untie_r)).model
    shapes = cases.shapes(model, HEAD)
    params, table = cases.randomly(shapes), xlnet.build_table("hugging_face", shapes)
    arrays = cases.written(table, shapes, params)
    safetensors.write(tmp_path / "out", cases.specs(arrays), arrays.items())
    run = build_run(tmp_path, ConfigDict(dict(head=HEAD)), tokens, modules.build(**model))
    xlnet.write_config_and_tokenizer(run, tmp_path / "out", "hugging_face", "float32")

    peer, loading = transformers.XLNetLMHeadModel.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(loading.values()), loading
    assert_same_outputs(torch, peer.eval(), model, params)
    whole = arrays | {copy: arrays[name] for copy, name in table.copies.items()}
    peer.load_state_dict({name: torch.tensor(x) for name, x in whole.items()}, strict=True)
    theirs = transformers.XLNetTokenizer.from_pretrained(tmp_path / "out")
    text = "a bad cab, dédé"
    assert theirs.encode(text, add_special_tokens=False) == tokens.encode([text])[0].tolist()


def drawn_peer(torch, peer):
    """Their model with weights so large that all of them matter."""
    torch.manual_seed(0)
    for name, parameter in peer.named_parameters():
        parameter.data.normal_(float(name.endswith("layer_norm.weight")), 0.4)
    return peer.eval()


def assert_same_outputs(torch, peer, model, params):
    """States where there is no padding, and scores of the vocabulary."""
    rng = np.random.default_rng(0)
    tokens_BL, segments_BL = rng.integers(0, 31, (3, 9)), rng.integers(0, 3, (3, 9))
    valid_BL = np.arange(9) < ([[9], [4], [7]] if model["attention"] == "bi" else [[9]] * 3)
    ours = modules.build(**model)

    @quick_jit
    def forward(params):
        bound = ours.bind({"params": params["backbone"]})
        mask = text_mask(ours, valid_BL=valid_BL)
        h_BLD = bound(tokens_BL, mask=mask, segments_BL=segments_BL, train=False).h
        head = language_model.build(ours, **HEAD).bind({"params": params["head"]})
        return h_BLD, head.logits(h_BLD, bound.table())

    given = dict(token_type_ids=segments_BL)
    if model["attention"] == "bi":  # theirs fails on a mask of several rows where it is "uni"
        given["attention_mask"] = valid_BL.astype(int)
    with torch.no_grad():
        out = peer(
            torch.tensor(tokens_BL),
            output_hidden_states=True,
            **{name: torch.tensor(x) for name, x in given.items()},
        )
    with jax.default_matmul_precision("highest"):
        h_BLD, logits_BLV = forward(named_leaves.nest(dict(params)))
    for own, other in ((h_BLD, out.hidden_states[-1]), (logits_BLV, out.logits)):
        keep_BL1 = valid_BL[..., None]
        assert off(own * keep_BL1, other.numpy() * keep_BL1) < 2e-5


# --- configurations ----------------------------------------------------------------------------


def test_the_authors_configuration_means_the_paper_s_recipe(release):
    described = xlnet.read_release(release("npz", n_head=12, d_head=64))
    base = recipe.get_config("base")
    same = "H K M reuse_len untie_r activation dropout attention_dropout init_scale"
    for name in same.split():
        assert described.model[name] == base.model[name], name
    for name in ("name", "L", "reuse_len", "bidirectional"):
        assert described.batches[name] == base.batches[name], name
    assert described.objective["name"] == base.objective.name


HF, LARGER = "hugging_face", dict(n_token=31, hidden_size=32, d_model=..., d_head=None)
REMEMBERS = dict(M=5, reuse_len=4, dropout=0.2, attention_dropout=0.2)
ONE_WAY = dict(clamp_len=3, same_length=True)
SWITCHES = {
    "the erf gelu": (HF, {}, dict(activation="gelu_erf")),
    "the tanh gelu": (HF, dict(ff_activation="gelu_new"), dict(activation="gelu")),
    "relu": ("npz", dict(ff_activation="relu"), dict(activation="relu")),
    "biases together": ("npz", dict(untie_r=False), dict(untie_r=False)),
    "biases of each layer whatever it says": (HF, dict(untie_r=False), dict(untie_r=True)),
    "older names": (HF, LARGER, dict(D=32, K=16)),
    "memory": (HF, dict(mem_len=5, reuse_len=4, dropout=0.2), REMEMBERS),
    "memory switched off": (HF, dict(mem_len=None, reuse_len=None), dict(M=384, reuse_len=256)),
    "left to right": (HF, dict(attn_type="uni") | ONE_WAY, dict(attention="causal") | ONE_WAY),
}


@pytest.mark.parametrize("case", SWITCHES)
def test_a_configuration_s_switches_become_ours(release, case):
    kind, fields, expected = SWITCHES[case]
    model = xlnet.read_release(release(kind, **fields)).model
    assert {name: model[name] for name in expected} == expected


REFUSED = [
    ("npz", {"ff_activation": "gelu_new"}, "ff_activation is 'gelu_new'"),
    ("npz", {"untie_r": None}, "untie_r is None"),
    ("npz", {"n_layer": 0}, "n_layer is 0"),
    ("npz", {"d_head": "8"}, "d_head is '8'"),
    ("npz", {"n_token": 33}, "has 31 pieces, but the weights have 33 rows"),
    ("npz", {"dropout": 1.0}, "dropout is 1.0, and should be below 1"),
    ("hugging_face", {"dropout": None}, "dropout is None, and should be a number"),
    ("hugging_face", {"initializer_range": float("inf")}, "initializer_range is inf"),
    ("hugging_face", {"bi_data": True}, "bi_data is True, and only False can be computed"),
    ("hugging_face", {"n_head": 2, "num_attention_heads": 4}, "two names of one number"),
    ("hugging_face", {"n_layer": 10**9, "names": ["a"]}, "n_layer is 1,000,000,000, and the"),
    ("hugging_face", {"ff_activation": "silu"}, "ff_activation is 'silu'"),
    ("hugging_face", {"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05, and only 1e-12"),
    ("hugging_face", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ("hugging_face", {"attn_type": "both"}, "attn_type is 'both'"),
    ("hugging_face", {"clamp_len": -2}, "clamp_len is -2"),
    ("hugging_face", {"tokens_config": {"remove_space": False}}, "remove_space is False"),
]


@pytest.mark.parametrize(("kind", "fields", "reason"), REFUSED)
def test_what_cannot_be_computed_is_refused_by_name(release, kind, fields, reason):
    with pytest.raises(UserError, match=reason):
        xlnet.read_release(release(kind, **fields))


def test_the_vocabulary_is_the_release_s_own_or_the_one_that_is_named(release, tokens, tmp_path):
    source = release("hugging_face", tokens_config={"do_lower_case": True, "keep_accents": True})
    found = xlnet.read_release(source).tokenizer
    assert (found.model, found.lower, found.keep_accents) == (tokens.model, True, True)
    source = release("hugging_face", options={"lower": False})
    assert not xlnet.read_release(source).tokenizer.lower

    (tmp_path / "spiece.model").unlink()
    with pytest.raises(UserError, match=r"has no spiece\.model"):
        xlnet.read_release(source)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "spiece.model").write_bytes(tokens.model)
    source = release("hugging_face", options={"vocabulary": str(elsewhere)})
    (tmp_path / "spiece.model").unlink()
    assert xlnet.read_release(source).tokenizer.model == tokens.model
    (elsewhere / "spiece.model").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"spiece\.model: is broken"):
        xlnet.read_release(source)


@pytest.fixture
def alone(release, tokens, tmp_path):
    """A release whose vocabulary is in a tokenizer.json alone."""
    pieces = SentencePieceProcessor(model_proto=tokens.model)
    scores = [(x, pieces.get_score(i)) for i, x in enumerate(tokens.pieces)]
    whole = library.Tokenizer(models.Unigram(scores, unk_id=0))
    whole.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    whole.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    whole.decoder = decoders.Metaspace()
    whole.add_special_tokens(["<unk>", "<s>", "</s>", *map("<{}>".format, MARKS)])
    source = release("hugging_face")
    (tmp_path / "spiece.model").unlink()
    whole.save(str(tmp_path / "tokenizer.json"))
    return source


MARKS = ("cls", "sep", "pad", "mask", "eod", "eop")
TEXTS = ["a bad cab, dédé", "abc\n  cab", ""]


def test_a_tokenizer_json_alone_cuts_text_as_its_library_does(alone, tmp_path):
    described, path = xlnet.read_release(alone), str(tmp_path / "tokenizer.json")
    assert "not XLNet's own way: for that, put spiece.model" in described.notes[0]
    assert registry.learn(iter(()), name="unigram", model=path) == described.tokenizer
    theirs = library.Tokenizer.from_file(path)
    encoded = [ids.tolist() for ids in described.tokenizer.encode(TEXTS)]
    assert encoded == [theirs.encode(text).ids for text in TEXTS]


def test_a_tokenizer_json_alone_goes_out_as_it_came(alone, tmp_path):
    described = xlnet.read_release(alone)
    model = described.model | {"activation": "gelu"}
    run = build_run(
        tmp_path, ConfigDict(dict(head=HEAD)), described.tokenizer, modules.build(**model)
    )
    for kind in ("hugging_face", "npz"):
        (tmp_path / kind).mkdir()
    xlnet.write_config_and_tokenizer(run, tmp_path / "hugging_face", "hugging_face", "float32")
    again = Source(tmp_path / "hugging_face", "hugging_face", {})
    assert xlnet.read_release(again).tokenizer == described.tokenizer
    assert "token_type_ids" in again.read_json("tokenizer_config.json")["model_input_names"]
    with pytest.raises(UserError, match="is SentencePiece: this run has another"):
        xlnet.write_config_and_tokenizer(run, tmp_path / "npz", "npz", "float32")


def test_a_tokenizer_json_that_is_none_is_refused(alone, tmp_path):
    with pytest.raises(UserError, match=r"--lower: .*tokenizer\.json says how text is prepared"):
        xlnet_tokenizer.read_tokenizer(dataclasses.replace(alone, options={"lower": True}))
    for text in ("{}", "[]", '{"model": {"type": "BPE"}}', '{"model": {"vocab": []}}', "\0"):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(UserError, match=r"tokenizer\.json: is no (tokeniz|Unigram)"):
            xlnet_tokenizer.read_tokenizer(alone)


def test_of_the_embedding_and_the_tied_head_one_is_enough(release):
    shapes = cases.shapes(xlnet.read_release(release("hugging_face")).model, HEAD)
    ours, whole = cases.randomly(shapes), xlnet.build_table("hugging_face", shapes)
    theirs = cases.written(whole, shapes, ours)
    theirs["lm_loss.weight"] = theirs.pop("transformer.word_embedding.weight")
    cases.assert_same(
        cases.read(xlnet.build_table("hugging_face", shapes, theirs), shapes, theirs), ours
    )


@pytest.mark.parametrize("kind", ["npz", "hugging_face"])
def test_what_is_written_beside_the_weights_describes_the_run(release, tokens, tmp_path, kind):
    fields = {} if kind == "npz" else {"attn_type": "uni", "clamp_len": 3, "mem_len": 5}
    described = xlnet.read_release(release(kind, ff_activation="relu", **fields))
    own = sentencepiece.Tokenizer(tokens.model, lower=kind != "npz", keep_accents=kind != "npz")
    run = build_run(tmp_path, ConfigDict(dict(head=HEAD)), own, modules.build(**described.model))
    (out := tmp_path / "out").mkdir()
    xlnet.write_config_and_tokenizer(run, out, kind, "float32")
    again = xlnet.read_release(Source(out, kind, {}))
    assert again.model == described.model
    assert (again.tokenizer.lower, again.tokenizer.keep_accents) == (kind != "npz",) * 2


UNWRITABLE = [
    ("npz", {"attention": "causal"}, "model.attention='causal': theirs can only be 'bi'"),
    ("npz", {"clamp_len": 3}, "model.clamp_len=3: theirs can only be -1"),
    ("npz", {"activation": "gelu_erf"}, "activation is 'gelu_erf'"),
    ("hugging_face", {"K": 4}, "model.K=4: theirs can only be 8"),
]


@pytest.mark.parametrize(("kind", "fields", "reason"), UNWRITABLE)
def test_a_run_that_theirs_could_not_compute_is_not_written(
    release, tokens, tmp_path, kind, fields, reason
):
    model = xlnet.read_release(release("npz")).model | fields
    run = build_run(tmp_path, ConfigDict(dict(head=HEAD)), tokens, modules.build(**model))
    (out := tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=re.escape(reason)):
        xlnet.write_config_and_tokenizer(run, out, kind, "float32")
    assert not list(out.iterdir())
