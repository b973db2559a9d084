"""Shrinks the recipes to a size that is compared with their peers within minutes on two cores.

    python -m benchmarks.step --config=benchmarks/recipes.py:xlnet --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:xlnet --peer --config.model.M=128
    python -m benchmarks.step --config=benchmarks/recipes.py:bert --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:gpt2 --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:elmo --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:elmo_mini --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:awd_lstm --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:textcnn --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:blstm --peer

Transformers of four layers, 256 wide, with the published vocabularies, dropout and initialisers: 11
to 16 million parameters; and two layers of LSTMs in either direction.  Classifiers have their
published sizes, and rows of 20 words on average.
"""

from ml_collections import ConfigDict

from configs import awd_lstm, bert, common, elmo, gpt2, xlnet
from configs.finetune import recurrent, semeval2010, textcnn


def get_config(preset: str = "xlnet") -> ConfigDict:
    """Returns one of the `presets`."""
    presets = {
        "xlnet": xlnet_small,
        "bert": bert_small,
        "gpt2": gpt2_small,
        "elmo": elmo_words,
        "elmo_mini": elmo_characters,
        "awd_lstm": awd_lstm_small,
        "textcnn": lambda: classifier(textcnn.get_config("mr.nonstatic"), classes=2),
        "blstm": lambda: classifier(recurrent.get_config("blstm"), classes=19),
        "att_blstm": lambda: classifier(semeval2010.get_config("att_blstm"), classes=19),
    }
    return common.choose(preset, presets)


def xlnet_small() -> ConfigDict:
    """Returns XLNet on 8 x 128 tokens, 21 predicted per row, without memory and backward rows."""
    config = shrink(xlnet.get_config("mini"), V=32000)
    config.batches.update(B=8, L=128, reuse_len=64, bidirectional=False)
    # Memory and backward rows are no part of the peer's default; --config.model.M adds the one.
    config.model.M = 0
    config.execution.update(block=32, loss_chunks=1)
    return config


def bert_small() -> ConfigDict:
    """Returns BERT on 16 x 128 tokens in pairs, 20 predicted per row, and the next sentence."""
    config = shrink(bert.get_config("mini"), V=30522)
    config.batches.update(B=16, L=128)
    config.model.L = 128
    return config


def gpt2_small() -> ConfigDict:
    """Returns GPT-2 on 8 x 256 tokens; attention crosses documents, as the peers' does."""
    config = shrink(gpt2.get_config("mini"), V=50257)
    config.batches.update(B=8, L=256)
    config.model.L = 256
    # transformers' GPT-2 knows no documents.
    config.objective.attend_across_documents = True
    return config


def elmo_words() -> ConfigDict:
    """Returns biLM on 32 x 20 words, 1024 units projected to 128, a softmax of 10,000 words."""
    config = elmo_characters()
    config.batches.update(B=32, characters=0)
    config.model.update(V=10_000, inputs="words", U=1024, D=128, dropout=0.1)
    return config


def elmo_characters() -> ConfigDict:
    """Returns ELMo's mini with the AdamW of the peers, and states that are never reset."""
    config = elmo.get_config("mini")
    # The peers carry their states through the ends of documents.
    config.objective.reset = "never"
    config.optim = dict(
        name="adamw", lr=1e-3, steps=2000, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.0, clip=10.0
    )
    return config


def awd_lstm_small() -> ConfigDict:
    """Returns the AWD-LSTM on 20 rows of about 70 words, 400 units, 10,000 words.

    Ours pads the windows to a few lengths; the peer reads them as long as they are.
    """
    config = awd_lstm.get_config("ptb")
    config.corpus.tokens.types = 10_000
    config.model.update(D=200, U=400)
    config.execution.pieces = 4
    config.optim = dict(
        name="adamw", lr=1e-3, steps=2000, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.0, clip=0.25
    )
    return config


def classifier(config: ConfigDict, classes: int) -> ConfigDict:
    """Sets what follows from the data: 20,000 words, vectors 100 wide."""
    config.model.update(V=20_000, D=100)
    if config.model.name == "text_cnn":
        config.model.filters = ((3, 100), (4, 100), (5, 100))
    config.task.labels = tuple(map(str, range(classes)))
    return config


def shrink(config: ConfigDict, V: int) -> ConfigDict:
    """Sets the width, depth and dropout that the transformers share."""
    config.corpus.tokens.V = V
    config.model.update(D=256, H=4, K=64, N=4, F=1024, init_scale=0.02)
    config.model.update(dropout=0.1, attention_dropout=0.1)
    return config
