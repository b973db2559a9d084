"""GPT's vocabularies are read from any of their files, and cut words as others' code."""

import json

import pytest
import tokenizers as library

from pretrain.conversion.systems import Source, gpt, gpt_tokenizer
from pretrain.runtime.errors import UserError
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


TEXT = "Don't, Mr. Smith of the U.S.A.: 1,234.56 \u2014 it's the o'clock"


def test_gpt1_s_words_are_cut_there_as_here(tmp_path):
    written_run = run("hugging_face_gpt1")
    gpt.write_config_and_tokenizer(written_run, tmp_path, "hugging_face_gpt1", "float32")
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    [ids] = written_run.tokenizer.encode([TEXT])
    assert theirs.encode(TEXT).ids == ids.tolist()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"  # one that takes the file whole


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
