"""Fill masks in:  python -m pretrain.fill --workdir=runs/bert-mini --text="The [MASK] of war"

Of a run that reads from both sides, as BERT's and XLNet's.  Words behind the flags name files, with
a text in each line.  The same from Python: `quartet.load(...).fill`.
"""

from absl import flags

from pretrain import cli
from pretrain.cli import arguments
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.token_scorer import TokenScorer
from pretrain.inference.trained_run import load_run

flags.declare_key_flag("workdir")
flags.declare_key_flag("text")
TOP = flags.DEFINE_integer("top", 5, "Tokens that are printed for each mask.", 1)


def main(words: list[str]) -> None:
    """Prints each text, and below it the likeliest tokens of its masks."""
    texts = arguments.read_texts(words)
    scorer = TokenScorer(load_run(str(cli.WORKDIR.value)), Layout(make_mesh()))
    for text, masks in zip(texts, scorer.fill(texts, TOP.value), strict=True):
        print(text)
        for fillings in masks:
            print("    " + "  ".join(f"{x.token} {x.probability:.4f}" for x in fillings))


if __name__ == "__main__":
    cli.run(main, required=["workdir"], has_words=True)
