"""Finds where a word means the same, or which sentences do: the nearest others.

    python -m pretrain.embed --workdir=runs/elmo-mini --layers=top sentences.txt sentences.h5
    python -m pretrain.neighbours sentences.h5 --word=state

    python -m pretrain.embed --workdir=runs/bert-base --pool=mean sentences.txt sentences.parquet
    python -m pretrain.neighbours sentences.parquet --line=3
    python -m pretrain.neighbours sentences.parquet --text="Peace." --workdir=runs/bert-base

Reads the file that `pretrain.embed` wrote; an .npy has no texts, which a second file may give, a
sentence a line.  --text is read as the file's sentences were, by the run that read them.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from absl import flags

from pretrain import cli
from pretrain.cli import arguments
from pretrain.data.corpus import text_files
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import Choice, parse_pool
from pretrain.inference.trained_run import hash_params, load_backbone_params, load_run
from pretrain.inference.vector_tables import VectorTable, read_table
from pretrain.runtime.errors import UsageError, UserError

flags.declare_key_flag("workdir")  # the run that read the others, for --text
flags.declare_key_flag("text")
WORD = flags.DEFINE_string("word", "", "The word, in capitals or not.")
LINE = flags.DEFINE_integer("line", 0, "The number of a sentence, from 1.", 0)
NEAREST = flags.DEFINE_integer("nearest", 2, "Neighbours of each.", 1)
OTHERS = flags.DEFINE_bool("others", False, "Neighbours may be occurrences of other words too.")
AROUND = 4  # tokens shown on either side
ROWS = 1 << 16  # sentences that are compared at once


class Place(NamedTuple):
    """A token of a sentence: which one, what it says with its neighbours, and its vector."""

    sentence: str
    text: str
    is_word: bool
    vector_D: np.ndarray


def main(words: list[str]) -> None:
    """Prints each occurrence of --word, or the sentence, and below it the nearest others."""
    most = 1 if WORD.value else 2
    asked = [*filter(None, (WORD.value, LINE.value)), *arguments.TEXT.value]
    if len(asked) != 1 or not 0 < len(words) <= most:
        raise UsageError("name a file, which pretrain.embed wrote, and a --word, --line or --text")
    if WORD.value:
        print_places(words[0])
    else:
        print_sentences(*words)


def print_places(path: str) -> None:
    places = read_places(Path(path), WORD.value)
    for place, near in rank_neighbours(places, NEAREST.value, others=OTHERS.value):
        print(place.text)
        for likeness, other in near:
            print(f"    {likeness:.3f}  {other.text}")


def print_sentences(path: str, lines: str = "") -> None:
    table = read_table(Path(path))
    if lines:
        text = "".join(text_files.read_lines(Path(lines))).removesuffix("\n")
        table = table._replace(texts=[line.strip() for line in text.split("\n")])
    if table.texts is not None and len(table.texts) != len(table.vectors_ND):
        raise UserError(f"{lines}: {len(table.texts):,} lines of {len(table.vectors_ND):,} vectors")
    if LINE.value > len(table.vectors_ND):
        raise UserError(f"--line={LINE.value}: {path} has {len(table.vectors_ND):,} sentences")
    itself = LINE.value - 1  # -1: none of the file's
    text = next(iter(arguments.TEXT.value), "")
    query_D = embed_text(table, path, text) if text else table.vectors_ND[itself]
    print(text or _format_sentence(table, itself))
    for likeness, i in rank_sentences(table.vectors_ND, query_D, NEAREST.value, itself):
        print(f"    {likeness:.3f}  {_format_sentence(table, i)}")


def _format_sentence(table: VectorTable, i: int) -> str:
    return f"{i + 1}" if table.texts is None else f"{i + 1}: {table.texts[i]}"


def embed_text(table: VectorTable, path: str, text: str) -> np.ndarray:
    """Embeds a text as the sentences of a table were, [D], by the run in --workdir.

    Raises:
        UserError: the table does not say how they were, or another run has read them.
    """
    made_from = table.made_from
    if made_from is None:
        raise UserError(f"{path}: an .npy does not say how it was made: take .parquet, or --line")
    if not cli.WORKDIR.value:
        raise UsageError("--text is read by the run that read the others: say --workdir")
    run = load_run(cli.WORKDIR.value)
    # In the dtype that `pretrain.embed --dtype` may have chosen.
    run = run._replace(backbone=run.backbone.clone(dtype=made_from["model"]["dtype"]))
    layout = Layout(make_mesh())
    params, _ = load_backbone_params(run, layout)
    if hash_params(params) != made_from["weights"]:
        raise UserError(f"{path} was not made by the weights that {run.workdir} has now")
    choice = Choice(**{k: _freeze(x) for k, x in made_from["choice"].items()})
    _, kind = parse_pool(made_from["pool"], count=run.backbone.N + 1)
    how: dict[str, Any] = dict(params=params, pool=kind, normalize=made_from["normalize"])
    [sentence] = Embedder(run, layout, choice, **how).read([text.strip()])
    return sentence.vectors


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples


def rank_sentences(
    vectors_ND: np.ndarray, query_D: np.ndarray, nearest: int, itself: int = -1
) -> list[tuple[float, int]]:
    """Ranks sentences by the cosine of their vectors with another: (cosine, number from 0).

    Args:
        itself: the number of a sentence to leave out; -1: none.
    """
    query_D = query_D / max(float(np.linalg.norm(query_D)), 1e-12)
    parts = []
    for start in range(0, len(vectors_ND), ROWS):  # of a file that may be larger than memory
        block_ND = np.asarray(vectors_ND[start : start + ROWS], np.float32)
        parts.append(block_ND @ query_D / np.maximum(np.linalg.norm(block_ND, axis=1), 1e-12))
    likeness_N = np.concatenate(parts)
    # Stable: of equal ones the first comes first.
    order = [int(i) for i in np.argsort(-likeness_N, kind="stable") if i != itself]
    return [(float(likeness_N[i]), i) for i in order[:nearest]]


def read_places(path: Path, word: str) -> list[Place]:
    """Reads all tokens of the file's sentences, in their order.

    Raises:
        UserError: the file is absent or none of `pretrain.embed`, it has a vector for each
            sentence, or the word is not in it.
    """
    if not path.exists():  # HDF5 says so in terms of its own
        raise UserError(f"there is no {path}")
    try:
        with h5py.File(path) as file:
            # By number: HDF5 lists "10" before "2"; "sentence_to_index" is no sentence.
            names = sorted((name for name in file if name.isdigit()), key=int)
            sentences = [(n, json.loads(file[n].attrs["tokens"]), file[n][()]) for n in names]
            # Vectors of as many layers as there are tokens have the shape of tokens' vectors.
            is_pooled = bool(json.loads(file.attrs.get("made_from", "{}")).get("pool"))
    except (OSError, KeyError) as error:
        raise UserError(f"{path}: pretrain.embed did not write this: {error}") from error
    if is_pooled or any(x.ndim < 2 or x.shape[-2] != len(tokens) for _, tokens, x in sentences):
        raise UserError(f"{path}: holds a vector for each sentence: ask by --line or --text")
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
    # Vectors of length 1 have cosines as products; a zero vector stays zero.
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
