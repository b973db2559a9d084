"""Evaluates on XQuAD (Artetxe et al. 2020): learnt in English, asked in another language.

    python -m finetune.main --config=configs/finetune/xquad.py --config.init=runs/multilingual \
        --config.data.test=xquad.zh.json

Trains on SQuAD 1.1; the languages are of a backbone that was pretrained on several.  XQuAD is
scored by SQuAD 1.1's script for every language.  MiniLM, six layers, trained on 40 of XQuAD's own
English articles (992 questions), optim.lr=2e-4 batches.B=8 batches.L=256: 52.4% F1 on the other 8.
"""

from ml_collections import ConfigDict

from configs.finetune import squad


def get_config() -> ConfigDict:
    config = squad.get_config()
    config.data.test = "xquad.en.json"
    return config
