"""Fine-tunes on GLUE (Wang et al. 2018): nine tasks on a sentence or two, a preset each.

    python -m finetune.main --config=configs/finetune/glue.py:rte --config.init=runs/bert-base \
        --config.data.path=glue_data

data.path is the folder that holds CoLA, SST-2, MRPC and the others as the benchmark gives them
out, or "tfds:glue", which is prepared once (data.tfds_dir says where).  What the server wants:

    python -m finetune.predict --workdir=runs/glue-rte --fields='{"split": "test"}' \
        --submission=glue glue_data RTE.tsv

    preset  examples  metric     BERT base, large, GPT-1: test   XLNet base, large: dev
    cola       8,551  matthews   52.1  60.5  45.4                60.2  63.6
    sst2      67,349  accuracy   93.5  94.9  91.3                94.7  95.6
    mrpc       3,668  f1         88.9  89.3  82.3                88.2  89.2  (accuracy)
    stsb       5,749  spearman   85.8  86.5  82.0                89.5  91.8  (Pearson)
    qqp      363,846  f1         71.2  72.1  70.3                91.4  91.8  (accuracy)
    mnli     392,702  accuracy   84.6  86.7  82.1                86.8  89.8
    qnli     104,743  accuracy   90.5  92.7  88.1                91.7  93.9
    rte        2,490  accuracy   66.4  70.1  56.0                74.0  83.8
    wnli         635  accuracy   left out by BERT: 65.1 is to say 0 of every pair

Of mnli, "dev" is the matched half of the development set and "test" the mismatched one: each
evaluation tells both.  The metric named is what the best checkpoint is chosen by.

The values are those of Devlin et al. 2019, who took the best on dev of lr=5e-5, 4e-5, 3e-5, 2e-5.
The others had

                lr       B    steps           warmup  besides
    XLNet mnli  2e-5     128  10,000          1000    optim.layer_lr_decay=1.0: none learns slower
    XLNet stsb  5e-5     32   1,200           120
    GPT-1       6.25e-5  32   0 (epochs=3)    0.002   optim.join=product optim.eps=1e-8
                                                      task.language_model=0.5;
                                                      task.both=True for mrpc, stsb and qqp
"""

import functools

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common

TASKS = {  # metrics, of which the last chooses the best; steps between evaluations
    "cola": (("matthews",), 200),
    "sst2": (("accuracy",), 1000),
    "mrpc": (("accuracy", "f1"), 50),
    "stsb": (("pearson", "spearman"), 100),
    "qqp": (("accuracy", "f1"), 2000),
    "mnli": (("accuracy",), 2000),
    "qnli": (("accuracy",), 1000),
    "rte": (("accuracy",), 50),
    "wnli": (("accuracy",), 20),
}


def get_config(preset: str = "mrpc") -> ConfigDict:
    """Returns one of "cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"."""
    return shared.choose(preset, {task: functools.partial(glue, task) for task in TASKS})


def get_sweep() -> list[dict]:
    """Returns the rates that Devlin et al. chose from, by the dev set; see `launch.sweep`."""
    return [{"optim.lr": lr} for lr in (5e-5, 4e-5, 3e-5, 2e-5)]


def glue(task: str) -> ConfigDict:
    """Returns a task of `TASKS`."""
    config, (metrics, period) = common.base(), TASKS[task]
    config.data = dict(format="glue", path="glue_data", task=task, tfds_dir="")
    config.data.update(train=dict(split="train"), dev=dict(split="dev"))
    if task == "mnli":
        config.data.update(dev=dict(split="dev_matched"), test=dict(split="dev_mismatched"))
    kind = "regress" if task == "stsb" else "classify"
    config.task = common.task(kind, metrics=metrics)
    config.batches = dict(B=32, L=128, eval_B=64)
    config.train.update(best=f"dev/{metrics[-1]}", eval_every=period)
    return config
