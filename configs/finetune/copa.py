"""Fine-tunes on COPA (Roemmele et al. 2011): which of two is a premise's cause, or its effect?

    python -m finetune.main --config=configs/finetune/copa.py --config.init=runs/bert-base

Lines of {"query": "The woman retired, therefore", "choices": ["she received her pension.",
"she paid off her mortgage."], "gold": 0}: files of another shape are read with data.texts,
data.choices and data.gold.  OpenBookQA, ARC and, with data.lettered=True, CommonsenseQA are read
likewise.  The training set has 400 examples, so results differ by seed: num_seeds=5 tells how much.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="multiple_choice", train="copa/train.jsonl", dev="copa/dev.jsonl", test=""
    )
    config.data.update(texts=("query",), choices="choices", gold="gold", lettered=False)
    config.task = common.task("choice", gap="", options=2)
    config.batches = dict(B=16, L=64, eval_B=32)
    config.epochs = 10.0
    config.train.update(best="dev/accuracy", eval_every=50)
    return config
