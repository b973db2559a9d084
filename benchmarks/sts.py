"""Scores sentence vectors on STS-B:  python -m benchmarks.sts --workdir=runs/x sts-test.csv

Rows of STS-B (Cer et al. 2017, arXiv 1708.00055) are two sentences and a human score of their
similarity.  It prints Spearman's rank correlation of the scores with the cosines of the sentences'
vectors, the means of all positions of the last layer; nothing is tuned on STS-B.
"""

import csv
from pathlib import Path

import numpy as np
from absl import flags
from scipy.stats import spearmanr

from pretrain import cli
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference import trained_run
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import parse_layers
from pretrain.runtime.errors import UsageError, UserError

flags.declare_key_flag("workdir")


def read_rows(path: Path) -> tuple[list[str], list[str], list[float]]:
    """Reads first sentences, second sentences and scores; UserError names a malformed row."""
    firsts, seconds, scores = [], [], []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                first, second, score = row
                scores.append(float(score))
            except ValueError as error:
                raise UserError(f"{path}, row {number}: want sentence,sentence,score") from error
            firsts.append(first)
            seconds.append(second)
    return firsts, seconds, scores


def embed(workdir: str, texts: list[str], pool: str = "mean") -> np.ndarray:
    """Embeds texts as vectors of length 1, [texts, D]."""
    run = trained_run.load_run(workdir)
    top = parse_layers("top", count=run.config.model.N + 1)
    embedder = Embedder(run, Layout(make_mesh()), top, cut=True, pool=pool)
    # Batches are of similar length: sentences come in another order.
    sentences = sorted(embedder([(0, texts)]), key=lambda sentence: sentence.number)
    vectors = np.stack([sentence.vectors for sentence in sentences]).astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def spearman(workdir: str, path: Path, pool: str = "mean") -> float:
    """Returns the rank correlation of cosines and scores, times 100."""
    firsts, seconds, scores = read_rows(path)
    # In one call, so that both are padded and batched alike.
    first, second = np.split(embed(workdir, firsts + seconds, pool), 2)
    return 100 * float(spearmanr((first * second).sum(-1), scores).statistic)


def main(words: list[str]) -> None:
    if not words:
        raise UsageError("name the files: python -m benchmarks.sts --workdir=... sts-test.csv")
    if missing := [name for name in words if not Path(name).is_file()]:
        raise UserError(f"{missing[0]}: there is no such file")
    for name in words:
        result = spearman(str(cli.WORKDIR.value), Path(name))
        print(f"{name}: Spearman {result:.2f}")


if __name__ == "__main__":
    cli.run(main, required=["workdir"], has_words=True)
