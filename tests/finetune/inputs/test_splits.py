"""Folds part the examples, and development sets are drawn of what is trained on."""

import pytest

from finetune.inputs.splits import draw_splits
from pretrain.runtime.errors import UserError

EXAMPLES = [{"number": n} for n in range(103)]


def draw(**fields):
    splits = draw_splits({"train": EXAMPLES}, **fields)
    return {split: [x["number"] for x in examples] for split, examples in splits.items()}


def test_every_example_is_tested_in_one_fold_and_never_trained_on_there():
    folds = [draw(folds=10, fold=k, dev_share=0.1, split_seed=3) for k in range(10)]
    assert sorted(n for fold in folds for n in fold["test"]) == list(range(103))
    for fold in folds:
        assert sorted(n for split in fold.values() for n in split) == list(range(103))
        assert all(numbers == sorted(numbers) for numbers in fold.values())
        assert len(fold["test"]) in (10, 11)
        assert len(fold["dev"]) == 9
    assert len({tuple(fold["dev"]) for fold in folds}) == 10


def test_splits_are_drawn_of_the_seed_alone():
    fields = dict(folds=5, fold=2, dev_share=0.2)
    assert draw(**fields, split_seed=1) == draw(**fields, split_seed=1)
    assert draw(**fields, split_seed=1)["test"] != draw(**fields, split_seed=2)["test"]
    assert draw(dev_share=0.1)["dev"] != draw(dev_share=0.1, split_seed=1)["dev"]


def test_without_a_wish_all_stays_as_it_is():
    splits = {"train": EXAMPLES, "dev": EXAMPLES[:3]}
    assert draw_splits(splits) == splits


@pytest.mark.parametrize(
    ("splits", "fields", "message"),
    [
        (("train", "test"), dict(folds=3), "leave out data.test"),
        (("train", "dev"), dict(dev_share=0.1), "drop data.dev"),
        (("train",), dict(folds=3, fold=3), "data.fold=3: the folds are 0 to 2"),
        (("train",), dict(dev_share=0.1), "1 examples are too few"),
    ],
)
def test_an_impossible_wish_is_refused(splits, fields, message):
    with pytest.raises(UserError, match=message):
        draw_splits(dict.fromkeys(splits, EXAMPLES[:1] if "few" in message else EXAMPLES), **fields)
