"""XLNet at the size where a comparison with its peer takes minutes on two CPU cores.

    python -m benchmarks.step --config=benchmarks/small.py --peer
    python -m benchmarks.step --config=benchmarks/small.py --peer --config.model.M=128

12 million parameters; 21 of 128 tokens are predicted; no rows are read backwards.
"""

from ml_collections import ConfigDict

from configs import xlnet


def get_config() -> ConfigDict:
    """The mini recipe, wider, with dropout and the published vocabulary; without memory."""
    config = xlnet.get_config("mini")
    config.corpus.tokens.V = 32000
    config.batches.update(B=8, L=128, reuse=64, both_ways=False)
    config.model.update(D=256, H=4, F=1024, M=0, init_scale=0.02)
    config.model.update(dropout=0.1, attention_dropout=0.1)
    config.objective.chunks = 2
    return config
