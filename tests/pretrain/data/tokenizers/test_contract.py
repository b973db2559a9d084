"""Every kind that can be learned is learned the same each time, saved, loaded and forked."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import KINDS, TEXTS, V, learn

ROOT = Path(__file__).parents[4]
FILE = {"bpe": "", "byte_bpe": "", "sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}
kinds = pytest.mark.parametrize("kind", KINDS)
sized_kinds = pytest.mark.parametrize("kind", V)


def learn_elsewhere(folder, hash_seed, threads):
    """Digests what another process learned, with other hashes and other threads."""
    environment = os.environ | dict(
        PYTHONHASHSEED=hash_seed, RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="true"
    )
    words = [sys.executable, "-m", "tests.support.tokenizer_data", str(folder)]
    subprocess.run(words, cwd=ROOT, env=environment, check=True)
    return [saved_files.hash_saved(folder / kind) for kind in KINDS]


def test_any_process_learns_the_same_bytes(tmp_path, learned):
    for kind, tokenizer in learned.items():
        tokenizer.save(tmp_path / kind)
    here = [saved_files.hash_saved(tmp_path / kind) for kind in KINDS]
    assert here == learn_elsewhere(tmp_path / "a", "1", "3")


@sized_kinds
def test_there_are_as_many_pieces_as_asked_for(learned, kind):
    tokenizer = learned[kind]
    assert len(set(tokenizer.pieces)) == tokenizer.V == V[kind] == len(tokenizer.word_start_V)
    assert set(tokenizer.special.values()) <= set(range(tokenizer.V))


@kinds
def test_encoding_many_texts_is_encoding_each(learned, kind):
    texts = ["", *TEXTS[:20], ""]
    for text, ids in zip(texts, learned[kind].encode(texts), strict=True):
        assert ids.dtype == np.int32
        assert bool(len(ids)) == bool(text)
        np.testing.assert_array_equal(ids, learned[kind].encode([text])[0])
    assert learned[kind].encode([]) == []


@kinds
def test_no_text_is_a_special_token(learned, kind):
    tokenizer = learned[kind]
    written = " ".join(tokenizer.pieces[i] for i in tokenizer.special.values())
    (ids,) = tokenizer.encode([written + " [mask] <|endoftext|> \n</w>"])
    special = {i for name, i in tokenizer.special.items() if name not in ("unk", "eop")}
    assert len(ids) > 10
    assert not special & set(ids.tolist())


@kinds
def test_saved_and_loaded_it_is_the_same(learned, kind, tmp_path):
    learned[kind].save(tmp_path / "a")
    restored = registry.learn(iter(()), name="saved", folder=str(tmp_path / "a"))
    for number, loaded in enumerate((registry.load(tmp_path / "a"), restored)):
        loaded.save(tmp_path / f"{number}")
        assert loaded == learned[kind]
        assert loaded.special == learned[kind].special
        for one, other in zip(loaded.encode(TEXTS), learned[kind].encode(TEXTS), strict=True):
            np.testing.assert_array_equal(one, other)
        assert saved_files.hash_saved(tmp_path / "a") == saved_files.hash_saved(
            tmp_path / f"{number}"
        )


@sized_kinds
def test_what_was_saved_can_be_published(learned, kind, tmp_path):
    learned[kind].save(tmp_path)
    fields = dict(name=kind, V=V[kind], model=str(tmp_path / FILE[kind]))
    assert registry.learn(iter(()), **fields) == learned[kind]
    with pytest.raises(UserError, match=rf"tokens\.V=99, but .* has {V[kind]} pieces: set V="):
        registry.learn(iter(()), **fields | {"V": 99})
    before = registry.settings(**fields)
    assert registry.settings(**fields) == before
    for path in (*tmp_path.glob("*.txt"), *tmp_path.glob("*.model")):
        path.write_bytes(path.read_bytes() + b"\n")
    assert registry.settings(**fields) != before


@sized_kinds
def test_a_missing_published_vocabulary_is_named(kind, tmp_path):
    for ask in (registry.settings, lambda **fields: registry.learn(iter(()), **fields)):
        with pytest.raises(UserError, match=r"tokens\.model=.*gone"):
            ask(name=kind, model=str(tmp_path / "gone"))


@sized_kinds
def test_too_large_a_vocabulary_is_refused_with_the_limit(kind):
    with pytest.raises(UserError, match=r"tokens\.V=90000: .*(it has|value <=) \d+") as error:
        learn(kind, V=90_000)
    most = int(re.findall(r"(?:it has|value <=) (\d+)", str(error.value))[0])
    assert len(learn(kind, V=most).pieces) == most


@sized_kinds
def test_too_small_a_vocabulary_is_refused(kind):
    with pytest.raises(UserError, match=r"tokens\.V=20: .*(single characters|smaller than)"):
        learn(kind, V=20)


@kinds
@pytest.mark.parametrize("error", [UserError("bad.txt, line 6"), KeyboardInterrupt()])
def test_an_error_in_the_text_stays_itself(kind, error):
    def fail():
        yield from TEXTS[:5]
        raise error

    with pytest.raises(type(error)) as info:
        learn(kind, fail())
    assert info.value is error


@sized_kinds
def test_the_sample_of_a_text_is_the_same_each_time(kind, learned):
    one = learn(kind, sample=350)
    assert one == learn(kind, sample=350)
    assert one != learned[kind]
    with pytest.raises(UserError, match=r"tokens\.sample=0: "):
        registry.settings(name=kind, sample=0)


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
