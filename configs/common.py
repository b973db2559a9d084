"""Holds what all recipes share.

A recipe holds values.  It imports nothing of ours but this and the recipe that it varies.
"""

from ml_collections import ConfigDict


def base() -> ConfigDict:
    """Returns a recipe without model, objective, data and optimiser.

    Keys:
        seed: of the parameters, of the order of the data and of all other randomness.
        init: the folder of a run or an import to go on from; "": from scratch.
        init_optimizer: with its averages of gradients, too.
        init_tokens: "run": its vocabulary; "recipe": words of the recipe's own, whose rows are
            found by word.
        init_positions: of rows longer than there: "new", or "interpolated" of the old.
        text_format: how texts are framed: a file of pretrain/inference/text_formats, or a module
            of your own; "": as in pretraining.
        profile: steps to trace for xprof, as "100-104"; "": none.
        hooks: sections of hooks between steps, by any label; `name` is the module of each.
    """
    config = ConfigDict()
    config.seed = 0
    config.init = ""
    config.init_optimizer = False
    config.init_tokens = "run"
    config.init_positions = "new"
    # Devices: -1 is all that remain; rows divide over data * fsdp, parameters over fsdp * tensor.
    config.mesh = dict(data=-1, fsdp=1, tensor=1)
    config.execution = ConfigDict()  # how a step is computed, not what: a resumed run may change it
    config.profile = ""
    config.train = dict(
        parts=1,  # microbatches of a step
        average=0.0,  # rate of the parameters' moving average, as 0.999; 0: none
        norms=False,  # of gradients, weights and updates, by layer: written with the metrics
        max_skips=10,  # steps in a row that may be skipped as not finite
        log_every=100,
        eval_every=1000,
        eval_batches=0,  # 0: all of the held-out text
        save_every=1000,
        keep=2,
        keep_every=0,  # steps between checkpoints that are kept for good; 0: none are
        best="",  # as "-held_out/loss": the weights that do best by it are kept, too
        trackers=("tensorboard",),  # and "wandb", "mlflow": metrics.jsonl is always written
        stop_after=0,  # evaluations in a row without a better one that end the run; 0: none do
    )
    return config


def corpus(tokens: dict, **fields) -> dict:
    """Returns the section `corpus`: its tokens and fields, and what all texts may need set."""
    usual = dict(text_key="text", tfds_split="train", tfds_dir="", held_out_files="", cache="data")
    return {**usual, **fields, "tokens": tokens}


def choose(preset: str, presets: dict) -> ConfigDict:
    """Returns the recipe's preset of this name."""
    if preset not in presets:
        raise ValueError(f"there is no preset {preset!r}; there are {', '.join(presets)}")
    return presets[preset]()
