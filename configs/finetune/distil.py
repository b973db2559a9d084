"""Teaches a model of few layers what a fine-tuned one has learned, for serving.

    python -m finetune.main --config=configs/finetune/distil.py \\
        --config.init=runs/search-relevance --config.task.teacher=runs/search-relevance \\
        --workdir=runs/search-small
    python -m benchmarks.predict --workdir=runs/search-relevance --against=runs/search-small \\
        test_public.json

Run it where the data of `search.py:relevance` are, or name those that the teacher learned.  The
student has two layers, which begin as the teacher's first and third.  Beside the labels it learns
the teacher's soft labels at a temperature (Hinton et al. 2015, arXiv 1503.02531) and the state of
[CLS] behind some layers, each of length 1 (Sun et al. 2019, PKD, arXiv 1908.09355).  The teacher is
asked once, before the first step; the student's states are compared without its dropout.

    init_layers        layers of the teacher, from 1, that the student begins with: of twelve,
                       perhaps (1, 7); Meituan goes from 12 to 6 layers, and from these to 2
    task.layers        layers of the teacher whose states the student's first ones are to have; ():
                       none, as where the student is of another width
    task.loss.soft     share of the soft labels in the loss; that of the labels is the rest
    task.loss.hidden   weight of the states' distance

Meituan's search serves two layers "without a significant loss", and gives no number.  Here, from
"search.py:relevance.scratch" (four layers, 128 wide, no pretraining), with epochs=2 optim.lr=3e-4,
one seed, on test_public.json; speed by the command above on 1,000 rows of a CPU that others used:

                      accuracy   macro F1   ms a query: p50, p99   examples a second
    the teacher       64.6       32.2       13.4, 40.5             194
    two layers of it  65.8       39.4        9.9, 37.2             392

The student learned on where its teacher's best weights, after one epoch, were taken.  A job that
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
