"""What the recipes share.  Recipes hold values; they import nothing of ours but this."""

from ml_collections import ConfigDict


def base() -> ConfigDict:
    """A recipe without model, objective, data and optimiser."""
    config = ConfigDict()
    config.seed = 0
    config.mesh = dict(data=-1, fsdp=1, tensor=1)
    config.execution = ConfigDict()  # how a step is computed; the results are the same
    config.profile = ""  # steps to trace for xprof, as "100-104"
    config.train = dict(
        parts=1,
        average=0.0,
        patience=10,
        log_every=100,
        eval_every=1000,
        eval_batches=0,
        save_every=1000,
        keep=2,
        keep_every=0,
    )
    return config


def choose(preset: str, presets: dict) -> ConfigDict:
    """The recipe's preset of this name."""
    if preset not in presets:
        raise ValueError(f"there is no preset {preset!r}; there are {', '.join(presets)}")
    return presets[preset]()
