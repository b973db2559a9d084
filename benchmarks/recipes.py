"""The recipes at the size where a comparison with their peers takes minutes on two CPU cores.

    python -m benchmarks.step --config=benchmarks/recipes.py:xlnet --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:xlnet --peer --config.model.M=128
    python -m benchmarks.step --config=benchmarks/recipes.py:bert --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:gpt2 --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:elmo --peer
    python -m benchmarks.step --config=benchmarks/recipes.py:elmo_mini --peer

Transformers of four layers, 256 wide, with the published vocabularies, dropout and initialisers: 11
to 16 million parameters; and two layers of LSTMs in either direction.
"""

from ml_collections import ConfigDict

from configs import bert, common, elmo, gpt2, xlnet


def get_config(preset: str = "xlnet") -> ConfigDict:
    """One of "xlnet", "bert", "gpt2", "elmo", "elmo_mini"."""
    presets = {
        "xlnet": permuted,
        "bert": masked,
        "gpt2": causal,
        "elmo": both,
        "elmo_mini": both_mini,
    }
    return common.choose(preset, presets)


def permuted() -> ConfigDict:
    """8 x 128 tokens, of which 21 a row are predicted; without memory and rows read backwards."""
    config = small(xlnet.get_config("mini"), V=32000)
    config.batches.update(B=8, L=128, reuse_len=64, bidirectional=False)
    config.model.M = 0
    config.objective.chunks = 2
    return config


def masked() -> ConfigDict:
    """16 x 128 tokens in pairs, of which 20 a row are predicted, and whether B follows A."""
    config = small(bert.get_config("mini"), V=30522)
    config.batches.update(B=16, L=128)
    config.model.L = 128
    return config


def causal() -> ConfigDict:
    """8 x 256 tokens, each predicted; a document sees those before it, as the peers have it."""
    config = small(gpt2.get_config("mini"), V=50257)
    config.batches.update(B=8, L=256)
    config.model.L = 256
    config.objective.across = True
    return config


def both() -> ConfigDict:
    """32 x 20 words from either end, 1024 units projected to 128, a softmax of 10,000 words."""
    config = both_mini()
    config.batches.update(B=32, characters=0)
    config.model.update(V=10_000, inputs="words", U=1024, D=128, dropout=0.1)
    return config


def both_mini() -> ConfigDict:
    """ELMo's mini, updated by AdamW as the peers are, and clearing no state."""
    config = elmo.get_config("mini")
    config.objective.reset = "never"
    config.optim = dict(
        name="adamw", lr=1e-3, steps=2000, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.0, clip=10.0
    )
    return config


def small(config: ConfigDict, V: int) -> ConfigDict:
    """What they share."""
    config.corpus.tokens.V = V
    config.model.update(D=256, H=4, K=64, N=4, F=1024, init_scale=0.02)
    config.model.update(dropout=0.1, attention_dropout=0.1)
    return config
