"""Vectors of every line of a text:  python -m pretrain.embed --workdir=runs/bert-mini in.txt out.h5

The text is plain, .gz or .zst, a sentence in each line; out.h5 is as
`pretrain.inference.embedding_file` says.  With --pool a line has one vector, and may go to an .npy
or .parquet.  A job that was stopped goes on where it was under the same command.  The same from
Python: `pretrain.inference.embedder.Embedder`.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import flags

from pretrain import cli
from pretrain.cli import arguments
from pretrain.data.corpus import text_files
from pretrain.data.tokenizers import saved_files
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference import embedding_file
from pretrain.inference.embedder import Embedder, check_layers
from pretrain.inference.layer_selection import Choice, parse_pool
from pretrain.inference.run import Run
from pretrain.inference.trained_run import hash_params, load_backbone_params, load_run
from pretrain.inference.vector_tables import is_table
from pretrain.runtime.errors import UserError
from pretrain.runtime.progress import Progress, say

flags.declare_key_flag("workdir")
flags.declare_key_flag("overwrite")
flags.declare_key_flag("pool")
flags.declare_key_flag("normalize")
LAYERS = flags.DEFINE_string(
    "layers", "", "all, top, mean, or numbers: 0,2; 0: the tokens; default: all, of a table top."
)
MIX = flags.DEFINE_string("mix", "", "Weights of a sum of these layers, as they are: 0.2,0.5,0.3.")
TOKENS = flags.DEFINE_integer("tokens", 8192, "That a device reads at once, with padding.", 8)
DTYPE = flags.DEFINE_enum(
    "dtype", None, ["float32", "bfloat16"], "The model's products; default: as in training."
)
CUT = flags.DEFINE_bool("cut", False, "Of a line longer than the model reads, take the beginning.")

LINES, CHARACTERS = 4096, 1 << 20  # of a block, at most; one more line may go beyond


def read_sentences(path: Path) -> Iterator[str]:
    """Yields the lines of a text without the blanks around them.

    Raises:
        UserError: as `text_files.read_whole_lines`.
    """
    return map(str.strip, text_files.read_whole_lines(path))


def hash_sentences(path: Path) -> tuple[str, int]:
    """Returns the sha256 of a text's sentences, and how many there are."""
    digest, count = hashlib.sha256(), 0
    for sentence in read_sentences(path):
        digest.update(sentence.encode() + b"\n")
        count += 1
    return digest.hexdigest(), count


def group_blocks(sentences: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    first, block, size = 0, [], 0
    for sentence in sentences:
        block.append(sentence)
        size += len(sentence)
        if len(block) == LINES or size > CHARACTERS:
            yield first, block
            first, block, size = first + len(block), [], 0
    if block:
        yield first, block


def embed(
    run: Run,
    source: Path,
    out: Path,
    say: Callable[[str], None] = say,
    *,
    layers: str = "",
    mix: str = "",
    tokens: int = 8192,
    cut: bool = False,
    pool: str = "",
    normalize: bool = False,
) -> None:
    """Writes the vectors of all sentences of `source` to `out`.

    Args:
        say: is told how far it is.
        layers, mix, pool: see `layer_selection.parse_pool`; by default all layers, and the top
            one in a table.
        tokens, cut, normalize: see `Embedder`.

    Raises:
        UserError: the text cannot be read, a line is too long, `out` cannot be written, or is a
            table, and a line has several vectors.
    """
    # A wrong flag ends here, before the text and the weights are read.
    default = "top" if is_table(out) else "all"
    choice, kind = parse_pool(pool, layers, mix, count=run.backbone.N + 1, default=default)
    if is_table(out) and not (kind and choice.is_one):
        raise UserError(f"{out}: holds a vector for each line: say --pool=mean --layers=top")
    check_layers(run.backbone, choice)
    # Hashed before the work: a resumed job must not join vectors of two texts.
    digest, count = hash_sentences(source)
    layout = Layout(make_mesh())
    params, step = load_backbone_params(run, layout)
    how = {"pool": pool, "normalize": normalize}
    made_from = {"step": step, **describe_inputs(run, params, choice), **how, "text": digest}
    options: dict[str, Any] = dict(tokens=tokens, cut=cut, pool=kind, normalize=normalize)
    embedder = Embedder(run, layout, choice, params=params, **options)
    with embedding_file.open_blocks(out, made_from) as blocks:
        if blocks.done:
            say(f"going on behind {blocks.done} blocks of at most {LINES:,} lines")
        write_blocks(
            blocks,
            embedder,
            group_blocks(read_sentences(source)),
            Progress("embedding", count),
        )
        blocks.join(read_sentences(source))
    report_end(embedder, say)


def describe_inputs(run: Run, params: Any, choice: Choice) -> dict[str, Any]:
    """Returns what the vectors of a sentence depend on, as JSON."""
    return {
        "weights": hash_params(params),
        "tokenizer": saved_files.hash_saved(run.workdir / "tokenizer"),
        "model": run.config.model.to_dict() | {"dtype": run.backbone.dtype},
        "choice": choice._asdict(),
        # Not for the vectors: resuming counts blocks, which must be cut at the same sentences.
        "blocks": {"lines": LINES, "characters": CHARACTERS},
    }


def write_blocks(
    blocks: embedding_file.Blocks,
    embedder: Embedder,
    every: Iterable[tuple[int, list[str]]],
    progress: Progress,
) -> None:
    """Writes the missing blocks; `progress` is told the number of sentences done."""
    missing = itertools.islice(every, blocks.done, None)
    # Sentences of a block come by length, not by number: it is whole when the next one begins.
    for first, group in itertools.groupby(embedder(missing), lambda sentence: sentence.block):
        with blocks.create_block() as file:
            for number, sentence in enumerate(group, 1):
                embedding_file.add_sentence(
                    file, sentence.number, sentence.tokens, sentence.vectors
                )
                progress(first + number, str(embedder.speed))


def report_end(embedder: Embedder, say: Callable[[str], None]) -> None:
    rows = embedder.batcher
    if rows.empty:
        given = "vectors say nothing" if embedder.pool else "arrays have no rows"
        say(f"lines without tokens: {rows.empty:,}; their {given}")
    if rows.cuts:
        say(f"{rows.cuts:,} lines were longer than {rows.longest} tokens, and cut")
    say(f"{embedder.speed}; compiling not counted")


def main(words: list[str]) -> None:
    source, out = arguments.parse_files(words, "in.txt out.h5")
    run = load_run(str(cli.WORKDIR.value))
    if DTYPE.value:
        # Only the products' type: the weights stay as they were saved.
        run = run._replace(backbone=run.backbone.clone(dtype=DTYPE.value))
    options: dict[str, Any] = dict(
        layers=LAYERS.value,
        mix=MIX.value,
        tokens=TOKENS.value,
        cut=CUT.value,
        pool=arguments.POOL.value,
    )
    embed(run, Path(source), out, say, normalize=arguments.NORMALIZE.value, **options)


if __name__ == "__main__":
    interrupted = "the same command goes on from here"
    cli.run(main, required=["workdir"], has_words=True, interrupted=interrupted)
