"""Words are cut as a release's files say, or it is refused."""

import pytest
from ml_collections import ConfigDict

import modules
from pretrain.conversion.systems import bert
from pretrain.data.tokenizers import registry
from pretrain.inference.trained_run import build_run
from pretrain.runtime.errors import UserError
from tests.support import bert_release as cases
from tests.support.bert_release import WHOLE

LOWER = [
    ((), None, True),
    ((("tokenizer_config.json", {"do_lower_case": False}),), None, False),
    ((("tokenizer_config.json", {"do_lower_case": False}),), True, True),
]


@pytest.mark.parametrize(("files", "asked", "lower"), LOWER)
def test_case_is_as_asked_or_as_the_files_say(bare, files, asked, lower):
    tokens = bert.read_release(bare(files=files, options={"lower": asked})).tokenizer
    assert tokens.lower == lower
    assert (tokens.encode(["A"])[0] == tokens.special["unk"]).all() != lower


def test_a_vocabulary_with_capitals_is_of_text_with_capitals(bare):
    source = bare(vocab_size=37)
    (source.folder / "vocab.txt").write_text("".join(f"{x}\n" for x in [*cases.PIECES, "A"]))
    described = bert.read_release(source)
    assert not described.tokenizer.lower
    assert "no file says whether text is lower-cased" in described.notes[0]


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
def test_text_is_prepared_as_the_files_say(bare, case):
    normalizer, config, expected = CASES[case]
    more = {} if normalizer is None else {"normalizer": NORMALIZER | normalizer}
    files = [("tokenizer.json", WHOLE | more), ("tokenizer_config.json", config)]
    found = bert.read_release(bare(files=files)).tokenizer
    assert {name: getattr(found, name) for name in expected} == expected


LENGTHS = {"tokenizer.json": (7, 7), "tokenizer.json silent": (None, 100), "none": ("none", 100)}


@pytest.mark.parametrize("case", LENGTHS)
def test_words_longer_than_the_files_say_are_unknown(bare, case, tmp_path):
    said, longest = LENGTHS[case]
    model = WHOLE["model"] | ({"max_input_chars_per_word": said} if said else {})
    source = bare(files=[] if said == "none" else [("tokenizer.json", WHOLE | {"model": model})])
    tokens = bert.read_release(source).tokenizer
    tokens.save(tmp_path / "saved")
    for each in (tokens, registry.load(tmp_path / "saved")):
        lengths = [len(x) for x in each.encode(["a" * longest, "a" * (longest + 1)])]
        assert lengths == [longest, 1]


def test_google_s_words_may_have_200_letters(tmp_path):
    weights, _ = cases.golden(tmp_path / "a")
    tokens = bert.read_release(cases.source(tmp_path / "a", "npz", weights)).tokenizer
    assert [len(x) for x in tokens.encode(["a" * 200, "a" * 201])] == [200, 1]


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
def test_a_tokenizer_that_cuts_text_otherwise_is_refused(bare, reason):
    with pytest.raises(UserError, match=reason):
        bert.read_release(bare(files=[("tokenizer.json", WHOLE | OTHER_FILES[reason])]))


def test_text_that_google_s_code_cuts_otherwise_does_not_go_out(bare, tmp_path):
    files = [("tokenizer_config.json", {"tokenize_chinese_chars": False})]
    described = bert.read_release(bare(files=files, hidden_act="gelu_new", layer_norm_eps=1e-12))
    config = ConfigDict(dict(head=described.head))
    run = build_run(tmp_path, config, described.tokenizer, modules.build(**described.model))
    with pytest.raises(UserError, match=r"tokenizer\.handle_chinese_chars=False: theirs can only"):
        bert.write_config_and_tokenizer(run, tmp_path, "npz", "float32")


def test_a_line_that_is_there_twice_is_named(bare):
    source = bare()
    (source.folder / "vocab.txt").write_text("".join(f"{x}\n" for x in [*cases.PIECES, "a"]))
    with pytest.raises(UserError, match=r"vocab\.txt: line 37 repeats line 6: 'a'"):
        bert.read_release(source)


def test_a_release_without_a_vocabulary_is_refused(bare):
    source = bare()
    (source.folder / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"has no vocab\.txt"):
        bert.read_release(source)
