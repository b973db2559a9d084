"""Teaches a model of few layers what a fine-tuned one has learned, for serving.

    python -m finetune.main --config=configs/finetune/distil.py \
        --config.init=runs/search-relevance --config.task.teacher=runs/search-relevance \
        --workdir=runs/search-small
    python -m benchmarks.predict --workdir=runs/search-relevance --against=runs/search-small \
        test_public.json

Run it where the data of `search.py:relevance` are, or name those that the teacher learned.  The
student has two layers, which begin as the teacher's first and third.  Beside the labels it learns
the teacher's soft labels at a temperature (Hinton et al. 2015, arXiv 1503.02531) and the state of
[CLS] behind some layers, each of length 1 (Sun et al. 2019, PKD, arXiv 1908.09355), which are
computed once, before the first step, and without dropout.

    config.init_layers    the teacher's layers that the student begins with, from 1; a teacher of 12
                          layers: (1, 7), and 6 for a first step as Meituan's, with 12 to 6 to 2
    config.task.layers    the teacher's layers whose states the student's first ones learn: (2, 4)
                          of both; (): none, which a student of another width needs
    task.loss.soft        share of the soft labels, of the labels the rest
    task.loss.hidden      weight of the states' distance

Meituan's search serves two layers "without a significant loss", and gives no number.  A job that
resumes asks the teacher again: on other devices the last bits may differ, and --accept_changes goes
on.
"""

from ml_collections import ConfigDict

from configs.finetune import common, search


def get_config() -> ConfigDict:
    config = search.get_config("relevance")
    config.init_layers = (1, 3)
    fields = {**search.RELEVANCE, "name": "distil"}
    config.task = common.task(**fields, teacher="runs/search-relevance")
    config.task.layers = (2,)
    config.task.loss.update(temperature=5.0, soft=0.5, hidden=10.0)
    config.optim.lr = 5e-5
    config.epochs = 4.0
    return config
