"""Finds where a word means the same: each of its occurrences, with the nearest others.

    python -m pretrain.embed --workdir=runs/elmo-mini --layers=top sentences.txt sentences.h5
    python -m pretrain.neighbours sentences.h5 --word=state

Reads the file that `pretrain.embed` wrote, and nothing else.
"""

import json
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from absl import flags

from pretrain import cli
from pretrain.runtime.errors import UsageError, UserError

WORD = flags.DEFINE_string("word", "", "The word, in capitals or not.")
NEAREST = flags.DEFINE_integer("nearest", 2, "So many neighbours of each occurrence.", 1)
OTHERS = flags.DEFINE_bool("others", False, "Neighbours may be occurrences of other words too.")
AROUND = 4  # tokens shown on either side


class Place(NamedTuple):
    """A token of a sentence: which one, what it says with its neighbours, and its vector."""

    sentence: str
    text: str
    is_word: bool
    vector_D: np.ndarray


def main(words: list[str]) -> None:
    """Prints each occurrence of --word, and below it the nearest ones in other sentences."""
    if len(words) != 1 or not WORD.value:
        raise UsageError("name one file, which pretrain.embed wrote, and a --word")
    places = read_places(Path(words[0]), WORD.value)
    for place, near in rank_neighbours(places, NEAREST.value, others=OTHERS.value):
        print(place.text)
        for likeness, other in near:
            print(f"    {likeness:.3f}  {other.text}")


def read_places(path: Path, word: str) -> list[Place]:
    """Reads all tokens of the file's sentences, in their order.

    Raises:
        UserError: the file is none of `pretrain.embed`, or the word is not in it.
    """
    try:
        with h5py.File(path) as file:
            # By number: HDF5 lists "10" before "2"; "sentence_to_index" is no sentence.
            names = sorted((name for name in file if name.isdigit()), key=int)
            sentences = [(n, json.loads(file[n].attrs["tokens"]), file[n][()]) for n in names]
    except (OSError, KeyError) as error:
        raise UserError(f"{path}: pretrain.embed did not write this: {error}") from error
    places = [
        Place(
            name,
            _format_context(tokens, i),
            token.lower() == word.lower(),
            normalize_vector(vectors, i),
        )
        for name, tokens, vectors in sentences
        for i, token in enumerate(tokens)
    ]
    if not any(place.is_word for place in places):
        raise UserError(f"{path}: no sentence has the token {word!r}")
    return places


def normalize_vector(vectors: np.ndarray, i: int) -> np.ndarray:
    # Or the mean of its layers.
    x_D = vectors[..., i, :].reshape(-1, vectors.shape[-1]).mean(0)
    # Of length 1, so that products are cosines; a zero vector stays zero.
    return x_D / max(float(np.linalg.norm(x_D)), 1e-12)


def _format_context(tokens: list[str], i: int) -> str:
    before, after = tokens[max(0, i - AROUND) : i], tokens[i + 1 : i + 1 + AROUND]
    return " ".join([*before, f"[{tokens[i]}]", *after])


def rank_neighbours(
    places: list[Place], nearest: int, *, others: bool = False
) -> list[tuple[Place, list[tuple[float, Place]]]]:
    """Ranks the places of other sentences for each occurrence of the word, by cosine."""
    words = [place for place in places if place.is_word]
    pool = places if others else words
    vectors = np.stack([place.vector_D for place in pool])
    ranked = []
    for place in words:
        likeness = vectors @ place.vector_D  # the cosine, as all have length 1
        # In its own sentence a word's vectors share their context, whatever it means there.
        order = [i for i in np.argsort(-likeness) if pool[i].sentence != place.sentence]
        ranked.append((place, [(float(likeness[i]), pool[i]) for i in order[:nearest]]))
    return ranked


if __name__ == "__main__":
    cli.run(main, has_words=True)
