"""Every array of a BERT has one place in ours, and back."""

import json

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import modules
from modules.masks import Mask
from pretrain.checkpoint import integrity
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import Source, bert
from pretrain.data import tokenizers
from pretrain.formats import tensorflow
from pretrain.inference.trained_run import Run
from pretrain.runtime.errors import UserError
from tests.support import array_mapping as arranged
from tests.support import bert_release as cases
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

PUBLISHED = arranged.PUBLISHED / "bert-tf"
HF = dict(
    model_type="bert",
    vocab_size=36,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=12,
    type_vocab_size=2,
    hidden_act="gelu",
    layer_norm_eps=1e-6,
)
HEADS = [
    "cls.predictions.bias",
    "cls.seq_relationship.bias",
    "bert.pooler.dense.weight",
]


@pytest.fixture
def release(tmp_path):
    """A folder of Hugging Face's kind without weights, and its described source."""

    def make(names=HEADS, options=None, files=(), **fields):
        (tmp_path / "config.json").write_text(json.dumps(HF | fields))
        (tmp_path / "vocab.txt").write_text("".join(f"{x}\n" for x in cases.PIECES))
        for name, content in files:
            (tmp_path / name).write_text(json.dumps(content))
        arrays = {name: np.zeros(1, np.float32) for name in names}
        return cases.source(tmp_path, "hugging_face", arrays, **(options or {}))

    return make


@pytest.mark.parametrize("kind", ["tensorflow", "hugging_face"])
def test_every_number_goes_out_and_comes_back(release, kind):
    described = bert.read_release(release())
    shapes = arranged.shapes(described.model) | described.heads
    table = bert.build_table(kind, shapes)
    ours = arranged.randomly(shapes)
    made = arranged.written(table, shapes, ours)
    assert not any(np.isnan(x).any() for x in made.values())
    found = arranged.read(table, shapes, made)
    assert found.keys() == ours.keys()
    for name, x in ours.items():
        np.testing.assert_array_equal(found[name], x)


def test_google_s_arrays_are_arranged_as_the_golden_ones(tmp_path):
    weights, ours = cases.golden(tmp_path / "a")
    described = bert.read_release(cases.source(tmp_path / "a", "npz", weights))
    assert described.objective["nsp"]
    assert described.model["activation"] == "gelu"
    shapes = arranged.shapes(described.model) | described.heads
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
        table = bert.build_table("tensorflow", arranged.shapes(described.model) | described.heads)
        settled = reconcile(table, arranged.shapes(described.model) | described.heads, arrays.specs)
    assert len(settled.ignored["slots of the optimiser"]) == 92
    assert described.tokenizer.V == 15
    assert described.objective["nsp"]


@pytest.mark.parametrize("heads", ["Model", "ForMaskedLM", "ForPreTraining"])
@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_hugging_face_s_states_are_ours_and_ours_load_there(release, heads, act):
    torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(**{**HF, "hidden_act": act})
    torch.manual_seed(0)
    peer = getattr(transformers, f"Bert{heads}")(config).eval()
    for parameter in peer.parameters():
        parameter.data.normal_(0.1, 0.4)
    weights = {name: x.numpy() for name, x in peer.state_dict().items()}
    described = bert.read_release(release(names=weights, hidden_act=act))
    shapes = arranged.shapes(described.model) | described.heads
    table = bert.build_table("hugging_face", shapes, list(weights))
    ours = arranged.read(table, shapes, weights)

    backbone = modules.build(**described.model)
    tokens_BL = np.random.default_rng(0).integers(1, 36, (3, 12))
    valid_BL, segments_BL = np.arange(12) < [[12], [5], [9]], tokens_BL % 2
    params = integrity.nest({k: x for k, x in ours.items() if k.startswith("backbone/")})
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


def test_of_the_embedding_and_the_tied_head_one_is_enough(release):
    described = bert.read_release(release())
    shapes = arranged.shapes(described.model) | described.heads
    ours = arranged.randomly(shapes)
    theirs = arranged.written(bert.build_table("hugging_face", shapes), shapes, ours)
    token = "bert.embeddings.word_embeddings.weight"
    theirs["cls.predictions.decoder.weight"] = theirs.pop(token)
    found = arranged.read(bert.build_table("hugging_face", shapes, list(theirs)), shapes, theirs)
    arranged.assert_same(found, ours)


def test_the_older_names_of_norms_are_known(release):
    names = [*HEADS, "bert.embeddings.LayerNorm.gamma"]
    described = bert.read_release(release(names))
    shapes = arranged.shapes(described.model) | described.heads
    specs = bert.build_table("hugging_face", shapes, names).specs(shapes, np.float32)
    assert "bert.encoder.layer.1.output.LayerNorm.beta" in specs
    assert not any(name.endswith("LayerNorm.bias") for name in specs)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "complex64", "F8_E4M3"])
def test_weights_that_are_no_floating_point_are_named(release, dtype):
    described = bert.read_release(release())
    shapes = arranged.shapes(described.model) | described.heads
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


def test_what_a_release_has_decides_which_heads_there_are(release):
    names = ["embeddings.word_embeddings.weight", "embeddings.LayerNorm.weight"]
    bare = bert.read_release(release(names))
    assert (bare.model["head"], bare.model["pooler"], bare.heads) == ("tied", False, {})
    assert bare.batches["name"] == "windows"
    assert set(bare.missing) == {"pooler", "head", "nsp"}
    whole = bert.read_release(release())
    assert (whole.model["head"], whole.model["pooler"]) == ("transform", True)
    assert whole.heads == {"next_DC": (16, 2), "next_bias_C": (2,)}
    assert not whole.missing


def test_switches_are_as_configured(release):
    model = bert.read_release(release(hidden_act="gelu", layer_norm_eps=1e-6)).model
    assert (model["activation"], model["epsilon"]) == ("gelu_erf", 1e-6)
    assert bert.read_release(release(hidden_act="gelu_new")).model["activation"] == "gelu"


LOWER = [
    ((), None, True),
    ((("tokenizer_config.json", {"do_lower_case": False}),), None, False),
    ((("tokenizer_config.json", {"do_lower_case": False}),), True, True),
]


@pytest.mark.parametrize(("files", "asked", "lower"), LOWER)
def test_case_is_as_asked_or_as_the_files_say(release, files, asked, lower):
    tokens = bert.read_release(release(files=files, options={"lower": asked})).tokenizer
    assert tokens.lower == lower
    assert (tokens.encode(["A"])[0] == tokens.special["unk"]).all() != lower


def test_a_vocabulary_with_capitals_is_of_text_with_capitals(release):
    source = release(vocab_size=37)
    (source.folder / "vocab.txt").write_text("".join(f"{x}\n" for x in [*cases.PIECES, "A"]))
    described = bert.read_release(source)
    assert not described.tokenizer.lower
    assert "no file says whether text is lower-cased" in described.notes[0]


def test_a_vocabulary_is_found_in_the_newer_file_too(release):
    ids = {piece: i for i, piece in enumerate(cases.PIECES)}
    content = {"model": {"type": "WordPiece", "vocab": ids}}
    source = release(files=[("tokenizer.json", content)])
    (source.folder / "vocab.txt").unlink()
    assert bert.read_release(source).tokenizer.pieces == cases.PIECES


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
def test_what_cannot_be_computed_is_refused(release, reason):
    with pytest.raises(UserError, match=reason):
        bert.read_release(release(**REFUSED[reason]))


WHOLE = {  # a tokenizer.json
    "model": {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(cases.PIECES)}},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
CASES = {  # tokenizer.json's normalizer, tokenizer_config.json: what is done to text
    "of the one file": (dict(lowercase=False), {}, dict(lower=False, keep_accents=True)),
    "accents of the one file": (dict(strip_accents=False), {}, dict(keep_accents=True)),
    "no cleaning": (dict(clean_text=False), {}, dict(clean_text=False)),
    "Chinese, of the one": (dict(handle_chinese_chars=False), {}, dict(handle_chinese_chars=False)),
    "Chinese, of the other": (
        None,
        dict(tokenize_chinese_chars=False),
        dict(handle_chinese_chars=False),
    ),
    "of both, which differ": (
        dict(lowercase=True),
        dict(do_lower_case=False),
        dict(lower=False, keep_accents=True),
    ),
    "of both, under a general class": (
        dict(lowercase=False),
        dict(do_lower_case=True, tokenizer_class="PreTrainedTokenizerFast"),
        dict(lower=False),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_text_is_prepared_as_the_files_say(release, case):
    normalizer, config, expected = CASES[case]
    more = {} if normalizer is None else {"normalizer": NORMALIZER | normalizer}
    files = [("tokenizer.json", WHOLE | more), ("tokenizer_config.json", config)]
    found = bert.read_release(release(files=files)).tokenizer
    assert {name: getattr(found, name) for name in expected} == expected


LENGTHS = {"tokenizer.json": (7, 7), "tokenizer.json silent": (None, 100), "none": ("none", 100)}


@pytest.mark.parametrize("case", LENGTHS)
def test_words_longer_than_the_files_say_are_unknown(release, case, tmp_path):
    said, longest = LENGTHS[case]
    model = WHOLE["model"] | ({"max_input_chars_per_word": said} if said else {})
    source = release(files=[] if said == "none" else [("tokenizer.json", WHOLE | {"model": model})])
    tokens = bert.read_release(source).tokenizer
    tokens.save(tmp_path / "saved")
    for each in (tokens, tokenizers.load(tmp_path / "saved")):
        lengths = [len(x) for x in each.encode(["a" * longest, "a" * (longest + 1)])]
        assert lengths == [longest, 1]


def test_google_s_words_may_have_200_letters(tmp_path):
    weights, _ = cases.golden(tmp_path / "a")
    tokens = bert.read_release(cases.source(tmp_path / "a", "npz", weights)).tokenizer
    assert [len(x) for x in tokens.encode(["a" * 200, "a" * 201])] == [200, 1]


ADDED = [
    dict(id=4, content="[MASK]", special=True),
    dict(id=36, content="cab19", normalized=True),
    dict(id=37, content="[NEW]", special=True),
    dict(id=38, content="bb", single_word=True),
]
PLACES = {
    "tokenizer.json": [("tokenizer.json", WHOLE | {"added_tokens": ADDED})],
    "tokenizer_config.json": [
        ("tokenizer_config.json", {"added_tokens_decoder": {str(x["id"]): x for x in ADDED}})
    ],
}


@pytest.mark.parametrize("place", PLACES)
def test_added_pieces_are_found_in_text_unless_they_are_special(release, place, tmp_path):
    tokens = bert.read_release(release(files=PLACES[place], vocab_size=39)).tokenizer
    assert tokens.pieces[36:] == ["cab19", "[NEW]", "bb"]
    tokens.save(tmp_path / "saved")
    for each in (tokens, tokenizers.load(tmp_path / "saved")):
        assert (each.pieces, each.special) == (tokens.pieces, tokens.special)
        [ids] = each.encode(["a CAB19 bb bba [NEW]"])
        found = [tokens.pieces[i] for i in ids]
        assert found[:6] == ["a", "cab19", "bb", "b", "##b", "##a"]
        assert not {"[NEW]", "[MASK]"} & set(found)


def test_older_files_of_added_pieces_are_read_and_gaps_refused(release):
    files = [("added_tokens.json", {"cab19": 36})]
    tokens = bert.read_release(release(files=files, vocab_size=37)).tokenizer
    assert tokens.encode(["cab19"])[0].tolist() == [36]
    with pytest.raises(UserError, match=r"'cab19' is added as piece 38, and there are 36 pieces"):
        bert.read_release(release(files=[("added_tokens.json", {"cab19": 38})]))


def test_rows_beyond_the_pieces_are_padding_and_stay(release):
    described = bert.read_release(release(vocab_size=40))
    assert (described.model["V"], described.tokenizer.V) == (40, 36)
    assert described.notes == ("rows 36 to 39 of the embedding are padding, and no piece's",)


OTHER_FILES = {  # what the error says
    "normalizer is 'Sequence', and only BertNormalizer": {"normalizer": {"type": "Sequence"}},
    "normalizer is None, and only BertNormalizer": {"normalizer": None},
    "pre_tokenizer is 'Whitespace'": {"pre_tokenizer": {"type": "Whitespace"}},
    "lowercase is 'yes'": {"normalizer": NORMALIZER | {"lowercase": "yes"}},
    "max_input_chars_per_word is 0": {"model": WHOLE["model"] | {"max_input_chars_per_word": 0}},
    "unk_token is 'a'": {"model": WHOLE["model"] | {"unk_token": "a"}},
    "not the same pieces": {"model": {"type": "WordPiece", "vocab": {"a": 0}}},
    "are not as they should be": {"added_tokens": [{"content": "a"}]},
}


@pytest.mark.parametrize("reason", OTHER_FILES)
def test_a_tokenizer_that_cuts_text_otherwise_is_refused(release, reason):
    with pytest.raises(UserError, match=reason):
        bert.read_release(release(files=[("tokenizer.json", WHOLE | OTHER_FILES[reason])]))


def test_text_that_google_s_code_cuts_otherwise_does_not_go_out(release, tmp_path):
    files = [("tokenizer_config.json", {"tokenize_chinese_chars": False})]
    described = bert.read_release(release(files=files, hidden_act="gelu_new", layer_norm_eps=1e-12))
    run = Run(tmp_path, None, described.tokenizer, modules.build(**described.model))
    with pytest.raises(UserError, match=r"tokenizer\.handle_chinese_chars=False: theirs can only"):
        bert.write_config_and_tokenizer(run, tmp_path, "npz", "float32")


def test_a_line_that_is_there_twice_is_named(release):
    source = release()
    (source.folder / "vocab.txt").write_text("".join(f"{x}\n" for x in [*cases.PIECES, "a"]))
    with pytest.raises(UserError, match=r"vocab\.txt: line 37 repeats line 6: 'a'"):
        bert.read_release(source)


def test_a_release_without_a_vocabulary_is_refused(release):
    source = release()
    (source.folder / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"has no vocab\.txt"):
        bert.read_release(source)


HEADS_OF = {
    (True, True, True): "BertForPreTraining",
    (True, True, False): "BertForMaskedLM",
    (True, False, True): "BertForNextSentencePrediction",
    (True, False, False): "BertModel",
    (False, False, False): "BertModel",
}


@pytest.mark.parametrize(("pooler", "head", "nsp"), HEADS_OF)
def test_what_goes_out_is_of_the_class_that_has_its_heads(release, tmp_path, pooler, head, nsp):
    described = bert.read_release(release())
    fields = described.model | dict(pooler=pooler, head="transform" if head else "tied")
    config = ConfigDict(dict(objective=dict(name="mlm", nsp=nsp)))
    run = Run(tmp_path, config, described.tokenizer, modules.build(**fields))
    bert.write_config_and_tokenizer(run, tmp_path, "hugging_face", "float32")
    found = json.loads((tmp_path / "config.json").read_text())
    assert found["architectures"] == [HEADS_OF[pooler, head, nsp]]
    shapes = arranged.shapes(fields) | (described.heads if nsp else {})
    names = {link.theirs for link in bert.build_table("hugging_face", shapes).links}
    assert ("cls.seq_relationship.weight" in names) == nsp
    assert ("pooler.dense.weight" in names or "bert.pooler.dense.weight" in names) == pooler
    told = bert.advise(run, "hugging_face")
    assert ["add_pooling_layer=False" in line for line in told] == [True] * (not pooler)
    assert bert.advise(run, "npz") == []
