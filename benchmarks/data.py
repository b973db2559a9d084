"""Measures the data layer on one core:  python -m benchmarks.data

Prepares a synthetic corpus in a temporary folder, then draws batches one after another, without
prefetching.  A recipe's step must take longer than its batch: compare with its tokens/s.
"""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pretrain import cli
from pretrain.data import prepare
from pretrain.data.batches import build
from pretrain.data.batches.loader import read_batches
from pretrain.data.corpus.prepared_corpus import Corpus

# XLNet's, GPT's and BERT's rows, long and short.
LAYOUTS = [
    dict(name="lanes", B=32, L=512, reuse_len=256),
    dict(name="lanes", B=16, L=128, reuse_len=64),
    dict(name="windows", B=32, L=512),
    dict(name="pairs", B=32, L=512),
    dict(name="pairs", B=32, L=128),
]
DOCUMENTS, SENTENCES, BATCHES = 400, 300, 300


def main(_) -> None:
    """Prepares the corpus, then draws batches of every layout."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        started, spent = time.perf_counter(), time.process_time()
        corpus = prepare.prepare(
            source=f"text:{folder}/*.txt", cache=folder, tokens=dict(name="sentencepiece", V=8000)
        )
        report("prepare, learning included", corpus.manifest["tokens"], started, spent)
        encode(corpus, Path(folder))
        for fields in LAYOUTS:
            deliver(corpus, **fields)


def write(folder: Path) -> None:
    """Writes documents of invented words, whose frequencies follow Zipf's law."""
    rng = random.Random(0)  # every run measures the same text
    # Letters about as often as in English, so that pieces are learnt as from text.
    letters = "eeeeettttaaaaooooiiiinnnsssrrrhhllddccuummffppggwwyybbvvkxjqz"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(30_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    for number in range(DOCUMENTS):
        sentences = (rng.choices(words, weights, k=rng.randint(5, 40)) for _ in range(SENTENCES))
        text = "\n".join(" ".join(sentence).capitalize() + "." for sentence in sentences)
        (folder / f"{number:04}.txt").write_text(text)


def encode(corpus: Corpus, folder: Path) -> None:
    texts = [line for path in sorted(folder.glob("*.txt")) for line in path.read_text().split("\n")]
    measure("tokenise", lambda: sum(len(ids) for ids in corpus.tokenizer.encode(texts)))


def deliver(corpus: Corpus, **fields) -> None:
    """Measures a layout's batches: drawn in this thread, then through Grain's."""
    layout = build(corpus=corpus, **fields)
    layout.batch(0)  # maps the files into memory
    what = " ".join(f"{key}={value}" for key, value in fields.items())

    def alone() -> int:
        return sum(layout.batch(step)["tokens_BL"].size for step in range(BATCHES))

    def through_grain() -> int:
        batches = zip(range(BATCHES), read_batches(layout), strict=False)
        return sum(batch["tokens_BL"].size for _, (_, batch) in batches)

    # In Grain the same batches pass through queues and threads: the difference is their cost.
    measure(what, alone)
    measure(what + ", Grain", through_grain)


def measure(what: str, job: Callable[[], int]) -> None:
    """Times a job that returns its number of tokens."""
    started, spent = time.perf_counter(), time.process_time()
    report(what, job(), started, spent)


def report(what: str, tokens: int, started: float, spent: float) -> None:
    wall, cpu = time.perf_counter() - started, time.process_time() - spent
    print(f"{what:<42}{tokens / cpu:>14,.0f} tokens/CPU-s {tokens / wall:>14,.0f} tokens/s")


if __name__ == "__main__":
    cli.run(main)
