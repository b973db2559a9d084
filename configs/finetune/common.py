"""Holds what the recipes of fine-tuning share."""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from configs import common

# That batches of short rows are cut to, of networks whose step is compiled within seconds.
LENGTHS = (8, 12, 16, 24, 32, 40, 48, 64, 96)


def base() -> ConfigDict:
    """Returns a recipe without data and task: AdamW at 2e-5 for three epochs, as BERT's were.

    Keys:
        init_layers: of that run, from 1, for a model of fewer, as (1, 7); (): all.
        random_init: begins without the weights of `init`: what are they worth?
        num_seeds: jobs, each with another seed, whose mean and deviation are printed; with more
            seeds than before, the same workdir trains those that are new.
        epochs: readings of the training examples; may be a fraction.
        max_train_examples: drawn from all there are, alike for every seed; 0: all.
        model: what differs from the pretrained, as dropout; from scratch, all of it.
        tokens: the tokenizer of a model from scratch; empty: that of `init`.
    """
    config = common.base()
    del config.init_optimizer, config.init_positions  # of pretraining alone
    config.random_init = False
    config.init_layers = ()
    config.num_seeds, config.epochs = 1, 3.0
    config.max_train_examples = 0
    config.model = ConfigDict()
    config.text_format = ""
    config.tokens = ConfigDict()
    config.vectors = dict(  # of words, from a file, to begin with from scratch; "": they are drawn
        path="",
        scale=0.25,
        match_variance=False,
        lower=True,
        tables=("backbone/token_VD",),
    )
    config.execution = dict(remat=None, unroll=None, attention_form=None)  # None: as in pretraining
    config.optim = dict(  # warmup and unfreeze_every below 1 are shares of all steps
        name="adamw",
        lr=2e-5,
        steps=0,
        warmup=0.1,
        decay="linear",
        join="after",
        b1=0.9,
        b2=0.999,
        eps=1e-6,
        weight_decay=0.01,
        clip=1.0,
        layer_lr_decay=1.0,
        unfreeze_every=0.0,
        freeze="",
    )
    config.train.update(log_every=50, eval_every=200, save_every=500, keep=1)
    return config


def adadelta(**fields) -> dict:
    """Returns the section `optim` of AdaDelta, whose rate is 1 from the first step to the last."""
    rule = dict(name="adadelta", lr=1.0, rho=0.95, eps=1e-6, l2=0.0, clip_value=0.0)
    return constant(**{**rule, **fields})


def constant(**fields) -> dict:
    """Returns a section `optim` with a constant rate and nothing else than its fields say."""
    none = dict(warmup=0.0, weight_decay=0.0, clip=0.0, freeze="")
    return dict(steps=0, decay="constant", **{**none, **fields})


def mix(config: ConfigDict, kind: str, tasks: dict[str, dict]) -> None:
    """Gives a recipe several tasks in place of one.

    Args:
        kind: which task a step is of, see `finetune.several.mixture.KINDS`.
        tasks: by name, `data` and `task` of each; `weight` and `batches` may be left out.
    """
    config.tasks = tasks
    config.mixture = dict(kind=kind, power=0.5, only="")  # only: the one task that is trained


def encoder(name: str = "backbone", **fields) -> dict:
    """Returns the section `task.encoder`: a file of finetune/encoders, and what its fields are.

    What is None here is as the encoder has it; all can be set on the command line.
    """
    unset = dict(
        frozen=placeholder(bool),
        dropout=placeholder(float),
        window=placeholder(int),
        l2=placeholder(float),
        U=placeholder(int),
        layers=placeholder(int),
        join=placeholder(tuple),
        cell=placeholder(str),
        input_dropout=placeholder(float),
        word_D=placeholder(int),
        word_dropout=placeholder(float),
    )
    return dict(name=name, **{**unset, **fields})


def kinds() -> dict[str, dict]:
    """Returns the sections and fields that each kind of task has besides."""
    # Anew for each recipe: a placeholder that two recipes share would be set in both.
    summed: dict = dict(  # a row's states as one
        pool=placeholder(str), summary=placeholder(str), bias=placeholder(bool)
    )
    return {
        "classify": dict(head=summed, loss=dict(weights=()), both=False),
        "distil": dict(
            head=summed,
            loss=dict(weights=(), temperature=1.0, soft=0.5, hidden=0.0),
            teacher_task="",
            layers=(),
            both=False,
        ),
        "regress": dict(head=summed, both=False),
        "choice": dict(head=summed),
        "rank": dict(head=summed),
        "scenes": dict(head=summed | dict(text=True, U=64, layers=1, heads=4)),
        "tag": dict(
            head=dict(crf=False, constrained=False),
            min_count=0,
            zero_digits=False,
            own_characters=0,
        ),
        "span": dict(head={}),
        "contrast": dict(
            head=dict(dropout=0.0, pool="mean", eval_pool="", projection="", mlp_only_train=True),
            loss=dict(
                name="nt_xent",
                positives="views",
                views=("none", "none"),
                rates=(0.1, 0.1),
                noise_norm=1.0,
                temperature=0.1,
                weight=1.0,
                hard_negative_weight=0.0,
                features="",
            ),
        ),
        "joint": dict(head={}, parts={}),
    }


def task(name: str, **fields) -> dict:
    """Returns the section `task`: encoder, head, loss, and what the kind of task takes besides."""
    kind = kinds()[name]
    head = {"dropout": 0.1, **kind["head"]}
    return dict(
        name=name, language_model=0.0, encoder=encoder(), **{**kind, "head": head, **fields}
    )
