"""Fine-tunes on RTE (Dagan et al. 2006 and on): does a text imply what a sentence says?

    python -m finetune.main --config=configs/finetune/rte.py --config.init=runs/bert-base \
        --config.data.train=rte/train.csv --config.data.dev=rte/dev.csv

Tables with the columns premise, hypothesis and label, "entailment" or "not_entailment": CSV, TSV,
or JSON lines as SuperGLUE has them; GLUE's own files are of glue.py:rte.  Values of Devlin et al.
2019; the large model came to 70.4% on the development set (Yang et al. 2019).  The training set
has 2,490 examples, so results differ by seed: num_seeds=5 tells how much.  MiniLM, six layers,
optim.lr=1e-4 epochs=2 batches.L=96: 55.6%, where the commoner answer is right of 52.7%.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="table",
        texts=("premise", "hypothesis"),
        label="label",
        labels=("entailment", "not_entailment"),
        train="train.csv",
        dev="dev.csv",
        test="",
    )
    config.task = common.task("classify", metrics=("accuracy",))
    config.batches = dict(B=32, L=128, eval_B=64)
    config.train.update(best="dev/accuracy", eval_every=50)
    return config
