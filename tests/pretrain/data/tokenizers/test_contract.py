"""What holds of WordPiece and both BPEs alike: learned the same each time, saved, forked."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pretrain.data import tokenizers
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import TEXTS, V, learn

ROOT = Path(__file__).parents[4]
KINDS = sorted(V)
EVERY = {kind: {"V": V[kind]} for kind in KINDS} | {"sentencepiece": {"V": 150}, "words": {}}
FILE = {"wordpiece": "vocab.txt", "byte_bpe": "", "bpe": ""}  # in a saved folder, for `model`


@pytest.fixture(scope="module")
def learned():
    return {kind: learn(kind) for kind in KINDS}


def elsewhere(folder, hash_seed, threads):
    """The digests of what another process learned, with other hashes and other threads."""
    environment = os.environ | dict(
        PYTHONHASHSEED=hash_seed, RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="true"
    )
    words = [sys.executable, "-m", "tests.support.tokenizer_data", str(folder)]
    subprocess.run(words, cwd=ROOT, env=environment, check=True)
    return [tokenizers.digest(folder / kind) for kind in KINDS]


def test_any_process_learns_the_same_bytes(tmp_path, learned):
    for kind, tokenizer in learned.items():
        tokenizer.save(tmp_path / kind)
    here = [tokenizers.digest(tmp_path / kind) for kind in KINDS]
    assert here == elsewhere(tmp_path / "a", "1", "1") == elsewhere(tmp_path / "b", "2", "3")


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_as_many_pieces_as_asked_for(learned, kind):
    tokenizer = learned[kind]
    assert len(set(tokenizer.pieces)) == tokenizer.V == V[kind] == len(tokenizer.word_start_V)
    assert set(tokenizer.special.values()) <= set(range(tokenizer.V))


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_many_texts_is_encoding_each(learned, kind):
    for text, ids in zip(TEXTS[:20], learned[kind].encode(TEXTS[:20]), strict=True):
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids, learned[kind].encode([text])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_no_token(learned, kind):
    assert [ids.shape for ids in learned[kind].encode(["", TEXTS[0], ""])][::2] == [(0,), (0,)]
    assert learned[kind].encode([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_a_special_token(learned, kind):
    tokenizer = learned[kind]
    written = " ".join(tokenizer.pieces[i] for i in tokenizer.special.values())
    (ids,) = tokenizer.encode([written + " [mask] <|endoftext|> \n</w>"])
    special = set(tokenizer.special.values()) - {tokenizer.special.get("unk")}
    assert len(ids) > 10
    assert not special & set(ids.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_is_the_same(learned, kind, tmp_path):
    learned[kind].save(tmp_path / "a")
    loaded = tokenizers.load(tmp_path / "a")
    loaded.save(tmp_path / "b")
    assert loaded == learned[kind]
    assert loaded.special == learned[kind].special
    np.testing.assert_array_equal(loaded.encode(TEXTS[:1])[0], learned[kind].encode(TEXTS[:1])[0])
    assert tokenizers.digest(tmp_path / "a") == tokenizers.digest(tmp_path / "b")


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_can_be_published(learned, kind, tmp_path):
    learned[kind].save(tmp_path)
    fields = dict(name=kind, V=V[kind], model=str(tmp_path / FILE[kind]))
    assert tokenizers.learn(iter(()), **fields) == learned[kind]
    before = tokenizers.settings(**fields)
    for path in tmp_path.glob("*.t*"):
        path.write_text(path.read_text() + "\n")
    assert tokenizers.settings(**fields) != before


@pytest.mark.parametrize("kind", KINDS)
def test_the_wrong_size_for_a_published_vocabulary_is_refused(learned, kind, tmp_path):
    learned[kind].save(tmp_path)
    with pytest.raises(UserError, match=rf"tokens\.V=99, but .* has {V[kind]} pieces: set V="):
        learn(kind, V=99, model=str(tmp_path / FILE[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_published_vocabulary_is_named(kind, tmp_path):
    for ask in (tokenizers.settings, lambda **fields: tokenizers.learn(iter(()), **fields)):
        with pytest.raises(UserError, match=r"tokens\.model=.*gone"):
            ask(name=kind, model=str(tmp_path / "gone"))


@pytest.mark.parametrize("kind", KINDS)
def test_too_large_a_vocabulary_is_refused_with_the_limit(kind):
    with pytest.raises(UserError, match=r"tokens\.V=90000: .* it has (\d+) pieces at most") as info:
        learn(kind, V=90_000)
    most = int(str(info.value).split("it has ")[1].split()[0])
    assert len(learn(kind, V=most).pieces) == most


@pytest.mark.parametrize("kind", KINDS)
def test_too_small_a_vocabulary_is_refused(kind):
    with pytest.raises(UserError, match=r"tokens\.V=20: .*single characters"):
        learn(kind, V=20)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("error", [UserError("bad.txt, line 6"), KeyboardInterrupt()])
def test_an_error_in_the_text_stays_itself(kind, error):
    def broken():
        yield from TEXTS[:5]
        raise error

    with pytest.raises(type(error)) as info:
        tokenizers.learn(broken(), name=kind, **EVERY[kind])
    assert info.value is error


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_of_a_text_is_the_same_each_time(kind, learned):
    one = learn(kind, sample=350)
    assert one == learn(kind, sample=350)
    assert one != learned[kind]
    with pytest.raises(UserError, match=r"tokens\.sample=0: "):
        tokenizers.settings(name=kind, sample=0)


@pytest.mark.parametrize("setting", [{}, {"TOKENIZERS_PARALLELISM": "true"}])
def test_a_forked_process_encodes_in_silence(setting):
    code = (
        "import os, signal, sys; "
        "from tests.support.tokenizer_data import TEXTS, learn\n"
        "tokenizer = learn('wordpiece'); before = tokenizer.encode(TEXTS)\n"
        "if not (child := os.fork()):\n"
        "    signal.alarm(60)\n"
        "    same = all(map(lambda a, b: (a == b).all(), before, tokenizer.encode(TEXTS)))\n"
        "    os._exit(0 if same else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    clean = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    words = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(words, cwd=ROOT, env=clean | setting, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
