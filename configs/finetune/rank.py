"""Ranks candidates: which of a query's candidates answer it?

    python -m finetune.main --config=configs/finetune/rank.py --config.init=runs/bert-base \
        --config.data.train=mine/train.tsv --config.data.dev=mine/dev.tsv

Rows of a query, a document and its relevance, a number; or lines of {"query": "...",
"candidates": [...], "relevance": [...]} (.jsonl).  In training each row of the batch is a query
with 8 of its candidates, one of them relevant at least; evaluation ranks all candidates of a query.
Losses: squared (pointwise: the relevance itself), softmax, listnet (listwise), hinge, logistic
(pairwise; RankNet's), and those that weigh a pair by what its order is worth in NDCG: lambda_rank,
ndcg_loss2, ndcg_loss2_plus (LambdaLoss).
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(format="ranking", train="train.tsv", dev="dev.tsv", test="")
    config.task = common.task(
        "rank",
        options=8,
        rows=0,
        loss=dict(name="softmax", margin=1.0, sigma=1.0, mu=10.0),
        ks=(1, 10),
        gain="exponential",
    )
    config.batches = dict(B=8, L=128, eval_B=8)
    config.train.best = "dev/ndcg@10"
    return config
