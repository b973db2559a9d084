"""Fine-tunes on a table of yours: CSV, TSV, JSON lines or Parquet, by the names of its columns.

    python -m finetune.main --config=configs/finetune/table.py --config.init=runs/bert-base \\
        --config.data.train=mails.csv --config.data.texts="('title','body')" --config.data.label=to
    python -m finetune.predict --workdir=runs/table-classify new.csv out.jsonl
    python -m finetune.predict --workdir=runs/table-classify --text='Where is my parcel?'

The labels are those that the file has; "classify" tells the likeliest of them, with the
probabilities of all, and "regress" a number.  A text may have two columns, as question and answer.
A tenth of the rows is held out to choose the weights by; --config.data.dev=dev.csv
--config.data.dev_share=0.0 names a file in its place, --config.data.test=test.csv one to score
besides.  A file to predict need not have the labels' column.

Cells may be parted by another character, --config.data.delimiter=';', and a file have another
encoding, --config.data.encoding=latin-1.

A row with an empty text or label is left out and counted; in a file to predict its prediction is
null, and has a reason.  --config.data.empty=error refuses such a row, =keep reads an empty text as
it is, as of mails without a title.

Values of Devlin et al. 2019, appendix A.3: their rates to try are 5e-5, 3e-5 and 2e-5, their epochs
2 to 4.  `optim.lr=1e-4` suits small models.
"""

import functools

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "classify") -> ConfigDict:
    """Returns one of "classify", "regress"."""
    return shared.choose(preset, {name: functools.partial(table, name) for name in BEST})


BEST = {"classify": "dev/accuracy", "regress": "dev/spearman"}


def table(task: str) -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="table",
        kind="",  # by the file's ending
        delimiter="",  # by the kind
        encoding="utf-8",
        header=True,
        texts=("text",),
        label="label",
        empty="skip",
        number=task == "regress",
        train="train.csv",
        dev="",
        test="",
        dev_share=0.1,
    )
    config.task = common.task(task)
    config.batches = dict(B=32, L=128, eval_B=64)
    config.train.best = BEST[task]
    return config
