"""Vectors come out of every form alike, or the place that is wrong is named."""

import gzip

import numpy as np
import pytest

from finetune.inputs import vector_files
from pretrain.runtime.errors import UserError

WORDS = ["the", "Zoë", "a", "the"]
VECTORS_VD = np.array([[1, 2.5], [-3, 0.125], [0, 0], [9, 9]], np.float32)
GLOVE = "".join(f"{w} {x:g} {y:g}\n" for w, (x, y) in zip(WORDS, VECTORS_VD, strict=True))


def binary(words=WORDS, vectors_VD=VECTORS_VD, end=b"\n"):
    entries = zip(words, vectors_VD, strict=True)
    body = b"".join(word.encode() + b" " + x.tobytes() + end for word, x in entries)
    return f"{len(words)} 2\n".encode() + body


def write(tmp_path, name, content):
    path = tmp_path / name
    if name.endswith(".npz"):
        np.savez(path, **content)
    else:
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(path)


FORMS = {
    "a.txt": GLOVE,
    "a.txt.gz": GLOVE,
    "crlf.txt": GLOVE.replace("\n", " \r\n").rstrip(),
    "a.vec": f"4 2\n{GLOVE}",
    "a.bin": binary(),
    "no_ends.bin.gz": binary(end=b""),
    "a.npz": dict(words=np.array(WORDS), vectors=VECTORS_VD),
    "bytes.npz": dict(words=np.char.encode(WORDS, "utf-8"), vectors=VECTORS_VD.astype("f2")),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_first_vector_of_each_wanted_word(tmp_path, name):
    path = write(tmp_path, name, FORMS[name])
    vectors = vector_files.read(path, {"the", "Zoë", "unknown"})
    assert vectors.D == 2
    assert vectors.by_word.keys() == {"the", "Zoë"}
    np.testing.assert_array_equal(vectors.by_word["the"], VECTORS_VD[0])
    np.testing.assert_array_equal(vectors.by_word["Zoë"], VECTORS_VD[1])
    assert "1 words stand there twice, and the first counts: 'the'" in vectors.notes[0]


def test_a_word_may_hold_blanks(tmp_path):
    path = write(tmp_path, "a.txt", "the 1 2\n. . . 3 4\n")
    np.testing.assert_array_equal(vector_files.read(path, {". . ."}).by_word[". . ."], [3, 4])


BROKEN = [
    ("a.txt", "the 1 2\na 1\n", "a.txt, line 2: 1 numbers, and there should be 2"),
    ("a.txt", "the 1 2\na 1 2 3\n", "line 2: 3 numbers, and there should be 2"),
    ("a.txt", "the\n", "line 1: 0 numbers, and there should be some"),
    ("a.txt", "the 1 2\n\na 1 2\n", "line 2: 0 numbers"),
    ("a.txt", "the 1 2\na 1 two\n", "line 2: 'two' is no number"),
    ("a.txt", "the 1 2\na 1 nan\n", "line 2: the vector of 'a' holds numbers that are not finite"),
    ("a.vec", "3 2\nthe 1 2\na 1 2\n", "a.vec: 2 words, but its first line says 3"),
    ("a.txt", b"the 1 2\n\xff 1 2\n", "line 2: the byte at offset 8 is not UTF-8"),
    ("a.bin", binary()[:-5], "a.bin, word 4 of 4: the file ends within it"),
    ("a.bin", b"x" * 9999, "does not begin with a line of the words' number and width"),
    ("a.bin", b"2 2\n" + b"x" * 9999, "word 1 of 2: is longer than 4096 bytes"),
    ("a.bin", binary() + b"x", "something is behind its 4 words"),
    ("a.bin", binary(vectors_VD=np.full_like(VECTORS_VD, np.inf)), "not finite"),
    ("a.npz", dict(words=np.array(WORDS)), "holds no arrays words and vectors"),
    ("a.npz", dict(words=np.array(WORDS), vectors=VECTORS_VD[1:]), r"\(4,\) words with vectors"),
    ("a.npz", dict(words=np.arange(4), vectors=VECTORS_VD), "words should be text"),
    ("a.txt", "other 1 2\n", "no word of the texts has a vector there"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_what_is_wrong_with_a_file_is_named(tmp_path, name, content, message):
    with pytest.raises(UserError, match=message) as error:
        vector_files.read(write(tmp_path, name, content), set(WORDS))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.txt", "a.bin", "a.npz"])
def test_a_file_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(UserError, match=f"{name}: cannot be read: No such file"):
        vector_files.read(str(tmp_path / name), {"the"})
