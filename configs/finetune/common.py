"""Holds what the recipes of fine-tuning share."""

from ml_collections import ConfigDict

from configs import common


def base() -> ConfigDict:
    """Returns a recipe without data and task: AdamW at 2e-5 for three epochs, as BERT's were."""
    config = common.base()
    config.init = ""  # a pretrained run's or an import's folder; "": from scratch
    config.random_init = False  # True: without the weights of that run; what are they worth?
    config.num_seeds, config.epochs = 1, 3.0
    config.max_train_examples = 0  # drawn from all there are, alike for every seed; 0: all
    config.model = ConfigDict()  # what differs from the pretrained, as dropout; from scratch, all
    config.text_format = ""  # how texts are framed; "": as in pretraining
    config.tokens = ConfigDict()  # from scratch
    config.execution = dict(remat=None, unroll=None)  # None: as in pretraining
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
    config.train.update(best="", stop_after=0, log_every=50, eval_every=200, save_every=500, keep=1)
    return config


SUMMED: dict = dict(pool="", summary="")  # a row's states as one
KINDS: dict[str, dict] = {  # what each kind of task can besides
    "classify": SUMMED | dict(both=False, weights=()),
    "regress": SUMMED | dict(both=False),
    "choice": SUMMED,
    "rank": SUMMED,
    "tag": dict(own=0, own_D=0),
    "span": {},
}


def task(name: str, **fields) -> dict:
    """Returns the section `task`, with all that can be said of its kind: see
    `finetune.model.task_model`."""
    shared = dict(
        dropout=0.1,
        lm=0.0,
        mix=False,
        frozen=False,
        states_dropout=0.0,
        lambda_=0.0,
        window=0,
        bilstm=0,
        bilstm_layers=1,
        bilstm_dropout=0.0,
        again=False,
    )
    return dict(name=name, **{**shared, **KINDS[name], **fields})
