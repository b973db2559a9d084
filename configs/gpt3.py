"""Pretrains GPT-3 (Brown et al. 2020, arXiv 2005.14165): GPT-2, larger, every second layer banded.

    python -m pretrain.main --config=configs/gpt3.py             mini: minutes on a laptop
    python -m pretrain.main --config=configs/gpt3.py:small       12 layers, 125M parameters
    python -m pretrain.main --config=configs/gpt3.py:175b        96 layers: a pod

Sizes, batches and rates are those of its table 2.1, 300 billion tokens each, on V100 GPUs; the
batch is full from the first step, where theirs grew over the first 4 to 12 billion.
Compiled, not run, for TPU v5p: `175b` with --config.mesh.fsdp=128 --config.mesh.tensor=4 takes 34
GiB on each of 512 chips.  5140, the width of `13b`, divides by few meshes: data=2, fsdp=4, tensor=8
takes at most 75 GiB on each of 64 chips for a batch of 512; fsdp=64 would leave every chip all
weights.
"""

from ml_collections import ConfigDict

from configs import common, gpt2

# Layers, width, heads, width of a head, rows of 2048 tokens in a batch, learning rate.
SIZES = {  # petaflop/s-days they took, and LAMBADA's accuracy without an example
    "small": (12, 768, 12, 64, 256, 6.0e-4),  # 2.6, 42.7%
    "medium": (24, 1024, 16, 64, 256, 3.0e-4),  # 7.4, 54.3%
    "large": (24, 1536, 16, 96, 256, 2.5e-4),  # 16, 60.4%
    # As in the table: 24 heads of 128 come to 1.5 billion parameters instead of the 1.3 it states.
    "xl": (24, 2048, 24, 128, 512, 2.0e-4),  # 28, 63.6%
    "2.7b": (32, 2560, 32, 80, 512, 1.6e-4),  # 55, 67.1%
    "6.7b": (32, 4096, 32, 128, 1024, 1.2e-4),  # 139, 70.3%
    "13b": (40, 5140, 40, 128, 1024, 1.0e-4),  # 268, 72.5%
    "175b": (96, 12288, 96, 128, 1536, 0.6e-4),  # 3640, 76.2%
}


def get_config(preset: str = "mini") -> ConfigDict:
    """Returns one of "mini", "small", "medium", "large", "xl", "2.7b", "6.7b", "13b", "175b"."""
    presets = {name: lambda name=name: sized(*SIZES[name]) for name in SIZES}
    return common.choose(preset, {"mini": mini} | presets)


def sized(N: int, D: int, H: int, K: int, B: int, lr: float) -> ConfigDict:
    """Returns a size of table 2.1, trained on 300 billion tokens."""
    # The paper does not say how far the banded layers see: 256 is ours.
    config = gpt2.base(lr, D=D, H=H, K=K, N=N, F=4 * D, L=2048, window=256)
    config.execution.remat = "full"
    config.batches.update(B=B, L=2048)
    config.objective.attend_across_documents = True  # as theirs (appendix B)
    tokens = B * 2048
    # The rate rises over 375 million tokens, and is a tenth of the peak from 260 billion on.
    config.optim.update(
        steps=300_000_000_000 // tokens,
        warmup=375_000_000 // tokens,
        decay_steps=260_000_000_000 // tokens,
    )
    return config


def mini() -> ConfigDict:
    """Returns GPT-2's mini with bands of 32 tokens."""
    config = gpt2.mini()
    config.model.window = 32
    config.objective.attend_across_documents = True
    return config
