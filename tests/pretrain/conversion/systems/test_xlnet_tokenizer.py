"""A tokenizer.json has the pieces that XLNet's own code finds in any text, or is not written."""

import functools
import random

import pytest
import tokenizers as library
from ml_collections import ConfigDict

import modules
from pretrain.conversion.systems import Source, xlnet, xlnet_tokenizer
from pretrain.data.tokenizers import sentencepiece, unigram
from pretrain.inference.trained_run import build_run
from pretrain.runtime.json_files import read_json
from tests.support import tokenizer_data, tokenizer_peer

TEXTS = [*tokenizer_peer.TEXTS, *tokenizer_data.ODD, *tokenizer_data.TEXTS[:50]]
MARKED = "<a> if b < c and c > d, <b>bold</b> <<x>> Σίσυφος ΟΔΟΣ"


@functools.cache
def learn(kind):
    """A vocabulary without, and with, the letters of its special pieces."""
    if kind == "few pieces":
        return tokenizer_data.unigram()
    texts = tokenizer_data.TEXTS + ([MARKED] * 40 if kind == "with marks" else [])
    return tokenizer_data.learn("sentencepiece", texts)


def export(tokenizer, folder):
    """A run with this vocabulary, and what is written of it."""
    model = dict(D=16, H=2, K=8, N=1, F=24, M=0, V=tokenizer.V, untie_r=True, reuse_len=4)
    head = dict(bias=True, tied=True, transform=False)
    config = ConfigDict(dict(head=head, objective=dict(name="plm")))
    run = build_run(folder, config, tokenizer, modules.build("two_stream", **model))
    xlnet.write_config_and_tokenizer(run, folder, "hugging_face", "float32")
    return run


def make_texts():
    """Texts of letters that meet in unusual ways."""
    rng = random.Random(0)
    letters = "abetsTU  01,.<>()-\"'`éüß☃🙂ﬁ½\n\t한ा▁Σσ̂"
    return ["".join(rng.choices(letters, k=rng.randrange(40))) for _ in range(500)]


KINDS = ("plain", "with marks", "few pieces")


@pytest.mark.parametrize(("kind", "lower"), [*((kind, False) for kind in KINDS), ("plain", True)])
def test_the_library_finds_the_pieces_that_xlnet_does(kind, lower, tmp_path):
    ours = sentencepiece.Tokenizer(learn(kind).model, lower)
    assert xlnet_tokenizer.is_cut_by_marks(xlnet_tokenizer.read_pieces(ours)) == (
        kind == "with marks"
    )
    assert not xlnet_tokenizer.note_tokenizer(export(ours, tmp_path), "hugging_face")
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = True  # tokenizer_config.json says so to transformers
    for texts in (TEXTS, make_texts()):
        expected = [ids.tolist() for ids in ours.encode(texts)]
        found = theirs.encode_batch(texts, add_special_tokens=False)
        assert [x.ids for x in found] == expected
    marks = {x for name, x in ours.special.items() if name not in ("unk", "eop")}
    assert not marks & {i for ids in expected for i in ids}


def test_a_tokenizer_json_alone_comes_back_with_the_same_ids(tmp_path):
    ours = learn("with marks")
    export(ours, tmp_path)
    assert isinstance(
        xlnet.read_release(Source(tmp_path, "hugging_face", {})).tokenizer, sentencepiece.Tokenizer
    )
    (tmp_path / "spiece.model").unlink()
    again = xlnet.read_release(Source(tmp_path, "hugging_face", {})).tokenizer
    assert isinstance(again, unigram.Tokenizer)
    assert (again.pieces, again.special) == (ours.pieces, ours.special)
    assert [x.tolist() for x in again.encode(TEXTS)] == [x.tolist() for x in ours.encode(TEXTS)]


def test_transformers_gives_the_same_ids_and_frames_rows_as_xlnet(tmp_path):
    ours = learn("with marks")
    export(ours, tmp_path)
    encoded = [ids.tolist() for ids in ours.encode(TEXTS)]
    assert tokenizer_peer.encode(tmp_path, TEXTS, add_special_tokens=False) == encoded
    end = [ours.special["sep"], ours.special["cls"]]
    assert tokenizer_peer.encode(tmp_path, TEXTS) == [ids + end for ids in encoded]


def test_decoding_gives_the_text_back(tmp_path):
    ours = learn("with marks")
    export(ours, tmp_path)
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in tokenizer_data.TEXTS[:20]:
        ids = theirs.encode(text).ids
        assert theirs.decode(ids) == ours.decode(ids[:-2]) == " ".join(text.split())


NUMBERS = [f"in 1990, or {i}, and {i + 1}, then {i % 7}," for i in range(300)]
REFUSED = {
    "pieces of this vocabulary, as '": lambda: tokenizer_data.learn("sentencepiece", NUMBERS, V=60),
    "accents that stand apart": lambda: sentencepiece.Tokenizer(
        learn("plain").model, keep_accents=True
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_where_no_file_is_exact_none_is_written_and_a_line_says_why(reason, tmp_path):
    run = export(REFUSED[reason](), tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    (line,) = xlnet_tokenizer.note_tokenizer(run, "hugging_face")
    assert line.startswith("no tokenizer.json: ")
    assert reason in line
    assert "\n" not in line
    config = read_json(tmp_path / "tokenizer_config.json")
    assert config["tokenizer_class"] == "XLNetTokenizer"
    assert not xlnet_tokenizer.note_tokenizer(run, "npz")
