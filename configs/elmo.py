"""Pretrains ELMo (Peters et al. 2018, arXiv 1802.05365): a biLM over characters.

    python -m pretrain.main --config=configs/elmo.py               mini: minutes on a laptop
    python -m pretrain.main --config=configs/elmo.py:original      4096 units, projected to 512

    preset     units, projection, highways   parameters, softmax apart   SRL, parsing (published)
    mini        256,  64, 1                    0.6 million
    small      1024, 128, 1                   13.6 million                83.62, 93.12
    medium     2048, 256, 1                   28.0 million                84.04, 93.60
    original   4096, 512, 2                   93.6 million                84.63, 93.85

The paper trained `original` on the 1 billion word benchmark for 10 epochs, with three GTX 1080
for two weeks, to a perplexity of 39.7, the mean of both directions; it has to read that text as
it comes, one tokenised sentence a line.  The softmax over its 793,471 words has another 407
million parameters.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(preset: str = "mini") -> ConfigDict:
    """Returns one of "mini", "small", "medium", "original"."""
    presets = {
        "mini": mini,
        "small": lambda: original(U=1024, D=128, highways=1),
        "medium": lambda: original(U=2048, D=256, highways=1),
        "original": original,
    }
    return common.choose(preset, presets)


def get_sweep() -> list[dict]:
    """Returns learning rates about the mini's; see `launch.sweep`."""
    return [{"optim.lr": lr} for lr in (0.1, 0.2, 0.4)]


def original(**size) -> ConfigDict:
    """Returns the paper's recipe as released with its code (bilm-tf)."""
    config = common.base()
    config.corpus = common.corpus(
        source="text:corpus/*",  # theirs: training-monolingual.tokenized.shuffled
        documents="file",
        sentences="line",
        held_out=0.01,
        tokens=dict(name="words", split="blank", vocabulary="", extend=0),
    )
    config.batches = dict(name="bidirectional", B=384, L=20, characters=50)  # 128 on each of 3 GPUs
    config.evals = dict(held_out=dict(split="held_out", B=384))

    config.model = dict(
        name="elmo",
        V=793_471,  # words of the released vocabulary, <S>, </S> and <UNK> among them
        inputs="characters",
        W=config.batches.get_ref("characters"),
        E=16,
        filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        highways=2,
        activation="relu",
        D=512,
        U=4096,
        N=2,
        Z=2,
        clip_cell=3.0,
        clip_projection=3.0,
        residual=True,
        dropout=0.1,  # of every layer's input; the state from step to step has none
        dtype="bfloat16",
    )
    config.model.update(size)
    config.head = dict(tied=False, bias=True)
    config.text_format = "elmo"
    config.execution = dict(unroll=1, loss_chunks=20)
    # Theirs carries the states of a row on from sentence to sentence and batch to batch without
    # end, which makes a vector depend on the text that came before: "sentence" starts afresh at
    # every sentence, as they are mostly used.
    config.objective = dict(name="bilm", samples=8192, stateful=True, reset="never")
    config.optim = dict(
        name="adagrad",
        lr=0.2,
        steps=1_000_845,  # 10 epochs of 768,648,884 tokens
        warmup=0,
        decay="constant",
        initial_accumulator=1.0,  # of bilm-tf; in place of an epsilon
        clip=10.0,
        grad_scale=config.batches.get_ref("L"),  # their loss is per row: Adagrad notices
    )
    config.train.update(eval_every=5000, eval_batches=100, save_every=1250)
    return config


def mini() -> ConfigDict:
    """Returns a recipe for two CPU cores: presidents' messages; the loss falls within minutes."""
    config = original(
        U=256,
        D=64,
        highways=1,
        filters=((1, 16), (2, 16), (3, 32), (4, 64)),
        V=8000,
        dropout=0.0,
        dtype="float32",
        W=24,
    )
    config.corpus.update(source="sotu", sentences="split", held_out=0.05)
    config.corpus.tokens.split = "punctuation"
    config.batches.update(B=64)
    config.evals.held_out.B = 64
    config.objective.update(samples=0, reset="document")
    config.execution.loss_chunks = 1
    config.optim.update(steps=2000)
    config.train.update(log_every=50, eval_every=400, eval_batches=0, save_every=400)
    return config
