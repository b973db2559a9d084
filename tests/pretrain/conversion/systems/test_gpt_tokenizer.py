"""GPT's vocabularies are read from any of their files, and cut words as others' code."""

import json

import pytest
import tokenizers as library

from pretrain.conversion.systems import Source, gpt, gpt_tokenizer
from pretrain.runtime.errors import UserError
from tests.support import tokenizer_data, tokenizer_peer
from tests.support.gpt_releases import run, source, vocabulary


@pytest.mark.parametrize("kind", gpt.KINDS)
def test_the_vocabulary_is_read_from_any_of_its_files(kind, tmp_path):
    tokens = vocabulary(kind)
    ids = {piece: i for i, piece in enumerate(tokens.pieces)}
    pairs = [" ".join(pair) for pair in tokens.merges]
    for i, names in enumerate((tokens.published, ("vocab.json", "merges.txt"))):
        (tmp_path / str(i)).mkdir()
        tokens.write(*(tmp_path / str(i) / name for name in names))
    for i, merges in enumerate((pairs, [pair.split() for pair in pairs])):
        model = dict(type="BPE", vocab=ids, merges=merges)
        (tmp_path / f"json{i}").mkdir()
        (tmp_path / f"json{i}" / "tokenizer.json").write_text(json.dumps(dict(model=model)))
    (tmp_path / "saved").mkdir()
    tokens.save(tmp_path / "saved")
    for folder in tmp_path.iterdir():
        found = gpt_tokenizer.read_tokenizer(Source(folder, kind, {}))
        assert (found.pieces, found.merges) == (tokens.pieces, tokens.merges), folder


def test_added_pieces_have_their_rows(tmp_path):
    release = source(tmp_path, config=dict(vocab_size=262))
    (tmp_path / "added_tokens.json").write_text('{"[PAD]": 261}')
    found = gpt.read_release(release).tokenizer
    assert found.pieces[261] == "[PAD]"
    assert found.special == {"eod": 260}
    assert 261 not in found.encode(["[PAD] the"])[0]
    assert found.decode(found.encode(["[PAD] the"])[0]) == "[PAD] the"
    ids = {piece: i for i, piece in enumerate(vocabulary("hugging_face").pieces)}
    added = [dict(id=260, content="<|endoftext|>"), dict(id=261, content="[PAD]")]
    whole = dict(model=dict(type="BPE", vocab=ids, merges=[]), added_tokens=added)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tokenizer.json").write_text(json.dumps(whole))
    assert (
        gpt_tokenizer.read_tokenizer(Source(tmp_path / "one", "hugging_face", {})).pieces
        == found.pieces
    )


def test_a_vocabulary_with_whole_words_is_not_written(tmp_path):
    ours = run("hugging_face")
    tokens = ours.tokenizer.add_words(["a Zyxwab"], 1)
    with pytest.raises(UserError, match="the last 1 pieces of this run's vocabulary are whole"):
        gpt_tokenizer.check_tokenizer(ours._replace(tokenizer=tokens), "hugging_face")


BROKEN = [  # file, content, what the error says
    ("vocab.json", "{}", "has no vocabulary, neither encoder.json and vocab.bpe nor vocab.json"),
    ("tokenizer.json", '{"model": {"type": "Unigram"}}', "is no BPE tokenizer"),
    ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}}}', "no merges"),
    ("tokenizer.json", '{"model": {"vocab": {"a": 7}, "merges": []}}', "ids from 0 on"),
    ("tokenizer.json", '{"model": {"vocab": {"a": [0]}, "merges": []}}', "ids from 0 on"),
    ("tokenizer.json", '{"model": {"vocab": {"a": 0}, "merges": []}}', "there is no '!'"),
    ("tokenizer.json", '{"normalizer": {"type": "NFC"}}', "normalizer is"),
    ("tokenizer.json", '{"pre_tokenizer": {"type": "Metaspace"}}', "pre_tokenizer is 'Metaspace'"),
    (
        "tokenizer.json",
        '{"pre_tokenizer": {"type": "ByteLevel", "use_regex": false}}',
        "use_regex is",
    ),
    ("tokenizer_config.json", '{"add_prefix_space": true}', "add_prefix_space is True"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_files_that_are_no_vocabulary_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        gpt_tokenizer.read_tokenizer(Source(tmp_path, "hugging_face", {}))


TEXTS = [*tokenizer_peer.TEXTS, *tokenizer_data.ODD]
KINDS = ("hugging_face", "hugging_face_gpt1")


@pytest.fixture(params=KINDS)
def written(request, tmp_path):
    """What is written of a GPT of this kind, with a learned vocabulary, and its ids of texts."""
    name = gpt_tokenizer.find_class(request.param).name
    tokens = tokenizer_data.learn(name)
    ours = run(request.param, tokens, V=tokens.V)
    gpt.write_config_and_tokenizer(ours, tmp_path, request.param, "float32")
    encoded = [ids.tolist() for ids in tokens.encode(TEXTS)]
    assert not {i for ids in encoded for i in ids} & {tokens.special["eod"]}
    return request.param, tokens, encoded


def test_a_tokenizer_json_has_the_ids_of_the_run(written, tmp_path):
    kind, _, encoded = written
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = True  # tokenizer_config.json says so to transformers
    assert [theirs.encode(text).ids for text in TEXTS] == encoded
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    name = "GPT2Tokenizer" if kind == "hugging_face" else "PreTrainedTokenizerFast"
    assert config["tokenizer_class"] == name  # that of their GPT-1 would not take the file whole


def test_transformers_gives_the_ids_of_the_run(written, tmp_path):
    assert tokenizer_peer.encode(tmp_path, TEXTS) == written[2]


def test_a_tokenizer_json_alone_comes_back(written, tmp_path):
    kind, tokens, encoded = written
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).unlink()
    again = gpt_tokenizer.read_tokenizer(Source(tmp_path, kind, {}))
    assert (again.pieces, again.merges) == (tokens.pieces, tokens.merges)
    assert [ids.tolist() for ids in again.encode(TEXTS)] == encoded


def test_where_other_code_cuts_words_otherwise_it_is_said(tmp_path):
    release = source(tmp_path, "hugging_face_gpt1")
    assert "stand for ftfy and spaCy" in gpt.read_release(release).notes[0]
    gpt.write_config_and_tokenizer(
        run("hugging_face_gpt1"), tmp_path, "hugging_face_gpt1", "float32"
    )
    assert gpt.read_release(release).notes == ()
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    whole["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert "stand for ftfy and spaCy" in gpt.read_release(release).notes[0]
    (tmp_path / "tokenizer.json").unlink()
    assert gpt.read_release(source(tmp_path, "hugging_face")).notes == ()
