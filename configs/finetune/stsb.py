"""Fine-tunes on STS-B (Cer et al. 2017): how alike are two sentences, from 0 to 5?

    python -m finetune.main --config=configs/finetune/stsb.py --config.init=runs/bert-base

Run it where the data are, or name them: --config.data.train=... .  Rows of sentence, sentence,
score in CSV without a header, as in stsb-multi-mt (github.com/PhilipMay), which has the scores of
the test set, too, and other languages; GLUE's own files are of glue.py:stsb.  Values of Devlin et
al. 2019, whose models came to a Spearman correlation of 85.8 and 86.5 on the test set.  MiniLM, six
layers, optim.lr=2e-4 epochs=4 batches.L=64: 86.5 on dev, 81.8 on test, no more than the 82.0 that
the cosines of its own sentence embeddings come to.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="table",
        header=False,
        texts=(0, 1),
        label=2,
        number=True,
        train="stsb-en-train.csv",
        dev="stsb-en-dev.csv",
        test="stsb-en-test.csv",
    )
    config.task = common.task("regress", metrics=("pearson", "spearman"))
    config.batches = dict(B=32, L=128, eval_B=64)
    config.train.update(best="dev/spearman", eval_every=100)
    return config
