"""Score texts:  python -m pretrain.score --workdir=runs/gpt2-mini --text="The state of the Union"

Words behind the flags name files, with a text in each line.  A line of tab-separated numbers is
printed for each: its log-likelihood in nats, its tokens, its perplexity, and the text.  A model
that reads from both sides predicts each token from all others: the numbers of two kinds of models
do not compare.  The same from Python: `quartet.load(...).score`.
"""

from absl import flags

from pretrain import cli
from pretrain.cli import arguments
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.token_scorer import TokenScorer
from pretrain.inference.trained_run import load_run

flags.declare_key_flag("workdir")
flags.declare_key_flag("text")


def main(words: list[str]) -> None:
    """Prints the score of each text."""
    texts = arguments.read_texts(words)
    scorer = TokenScorer(load_run(str(cli.WORKDIR.value)), Layout(make_mesh()))
    for text, score in zip(texts, scorer.score(texts), strict=True):
        print(f"{score.total:.4f}\t{len(score.tokens)}\t{score.perplexity:.4f}\t{text}")


if __name__ == "__main__":
    cli.run(main, required=["workdir"], has_words=True)
