"""Pretrains what tasks share in TextRNN III (Liu, Qiu & Huang 2016, arXiv 1605.05101): a biLM.

    python -m pretrain.main --config=configs/textrnn.py --workdir=runs/textrnn-lm
    python -m finetune.main --config=configs/finetune/textrnn.py:shared --config.vectors.path= \\
        --config.init=runs/textrnn-lm

Run it where the data are, or name them: --config.corpus.data.sst1.path=... .  The shared biLSTM
learns to predict the words of all tasks' texts, without their labels, before
`configs/finetune/textrnn.py` trains it and the tasks' LSTMs.  The paper reports 0.5 more of mean
accuracy for it, and none of its settings: the sizes are those of the tasks, all else is ours.
The texts are those of SST's training set, of Subj (all folds) and of IMDB, 800,000 words; a
".reviews" has the training sets of the eight domains of reviews.
"""

from ml_collections import ConfigDict

from configs import common
from configs.finetune.textrnn import DOMAINS, REVIEWS, name_domain


def get_config(preset: str = "papers") -> ConfigDict:
    """Returns one of "papers", "reviews"."""
    presets = {"papers": lambda: build(papers()), "reviews": lambda: build(reviews(DOMAINS))}
    return common.choose(preset, presets)


def papers() -> dict[str, dict]:
    """Returns the paper's four tasks, of which SST with two classes has no texts of its own."""
    return dict(
        sst1=dict(format="trees", path="trees/train.txt"),
        subj=dict(format="table", kind="lines", encoding="latin-1", path="subj.all"),
        **reviews(["imdb"]),
    )


def reviews(domains: list[str]) -> dict[str, dict]:
    """Returns the training sets of domains of reviews, by the names that their tasks have."""
    return {name_domain(x): dict(path=f"{x}.train.gz", **REVIEWS) for x in domains}


def build(sets: dict[str, dict]) -> ConfigDict:
    """Returns the language model of these data sets' texts."""
    config = common.base()
    config.corpus = common.corpus(
        source="finetune.datasets.corpora",
        data=sets,
        documents="file",
        sentences="line",
        held_out=0.05,
        tokens=dict(name="words", split="blank", lower=True, types=20_000, extend=0),
    )
    config.batches = dict(name="bidirectional", B=64, L=20, characters=0)
    config.evals = dict(held_out=dict(split="held_out", B=64))
    config.model = dict(
        name="text_rnn",
        V=config.corpus.tokens.get_ref("types"),
        D=100,
        U=50,
        sharing="shared",
        tasks=(),  # theirs are made where they are trained
        dropout=0.0,
        init_scale=0.1,
    )
    config.head = dict(tied=False, bias=True, D=config.model.get_ref("U"))
    config.text_format = "words"
    config.execution = dict(unroll=1, loss_chunks=1)
    # Without samples the softmax takes most of a step's time.
    config.objective = dict(name="bilm", samples=1024, stateful=True, reset="document")
    config.optim = dict(
        name="adamw",
        lr=2e-3,
        steps=6000,  # about 10 epochs
        warmup=0,
        decay="constant",
        b1=0.9,
        b2=0.999,
        eps=1e-8,
        clip=5.0,
    )
    config.train.update(log_every=50, eval_every=600, save_every=600, best="-held_out/loss")
    return config
