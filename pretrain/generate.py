"""Let a causal model write:  python -m pretrain.generate --workdir=runs/gpt2-mini --prompt="We"

The same from Python: `pretrain.inference.generator.Writer`.
"""

import itertools
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

from absl import flags

from pretrain import cli
from pretrain.data.corpus import text_files
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.generator import Piece, Writer
from pretrain.inference.sampling import Sampler
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError

flags.declare_key_flag("workdir")
PROMPT = flags.DEFINE_multi_string("prompt", [], "What to go on from; again for more than one.")
PROMPTS = flags.DEFINE_string("prompts", None, "A file with a prompt in each line.")
TOKENS = flags.DEFINE_integer("tokens", 100, "At most so many tokens are written.", 1)
TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "Below 1: likely tokens become likelier.")
TOP_K = flags.DEFINE_integer("top_k", 0, "Draw from the k likeliest tokens; 0: from all.")
TOP_P = flags.DEFINE_float("top_p", 1.0, "Draw from the fewest tokens that have this probability.")
GREEDY = flags.DEFINE_bool("greedy", False, "Take the likeliest token.")
STOP = flags.DEFINE_multi_string("stop", [], r"Where a text ends, too; \n is a line's end.")
SEED = flags.DEFINE_integer("seed", 0, "Other seeds, other texts.", 0, 2**31 - 1)
BOS = flags.DEFINE_bool(
    "bos", True, "Before a prompt read <|endoftext|>, as before a document; transformers does not."
)
SAMPLES = flags.DEFINE_integer("samples", 1, "Texts for each prompt.", 1)


def read_prompts() -> list[str]:
    """Returns the prompts of the flags, each --samples times; "" if there are none.

    Raises:
        UserError: one is not UTF-8, or the file cannot be read.
    """
    prompts = list(PROMPT.value)
    if PROMPTS.value:
        prompts += text_files.read_whole_lines(pathlib.Path(PROMPTS.value))
    for prompt in prompts:
        # Python hands undecodable bytes of the command line on as lone surrogates.
        if prompt != prompt.encode(errors="replace").decode():
            raise UserError(f"--prompt={prompt!r}: is not UTF-8")
    return [prompt for prompt in prompts or [""] for _ in range(SAMPLES.value)]


def show(prompts: list[str], pieces: Iterable[Piece]) -> None:
    """Prints one text as it comes, several each at its end, under a line with its number."""
    if len(prompts) == 1:
        for text in itertools.chain(prompts, (piece.text for piece in pieces)):
            print(text, end="", flush=True)
        print(flush=True)
        return
    texts = list(prompts)  # rows grow in turn, so printing pieces would mix them
    for row, text, last in pieces:
        texts[row] += text
        if last:
            print(f"--- {row + 1} of {len(prompts)}\n{texts[row]}", flush=True)


def main(_) -> None:
    """Restores the run in --workdir, and prints how it goes on from the prompts."""
    sampler = Sampler(0 if GREEDY.value else TEMPERATURE.value, TOP_K.value, TOP_P.value)
    rows, layout = read_prompts(), Layout(make_mesh(data=1, fsdp=-1))
    writer = Writer(load_run(str(cli.WORKDIR.value)), layout, sampler)
    # A shell passes a backslash and an n as they are.
    stops = [stop.replace("\\n", "\n") for stop in STOP.value]
    given: dict[str, Any] = dict(tokens=TOKENS.value, stops=stops, seed=SEED.value)
    show(rows, writer.generate(rows, bos=BOS.value, **given))
    # Beside the texts, so that stdout can be piped.
    print(f"{writer.speed}; compiling not counted", file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, required=["workdir"])
