"""Every file of the folder keeps the contract of a batch layout."""

import functools
import itertools
import json

import numpy as np
import pytest

from modules import plugins
from pretrain.data import batches
from pretrain.data.batches.loader import stream
from pretrain.runtime.errors import UserError
from tests.support import corpora

LAYOUTS = {
    "windows": ("windows", {"L": 24}),
    "windows, overlap": ("windows", {"L": 24, "overlap": 7}),
    "windows, framed": ("windows", {"L": 24, "framed": True}),
    "lanes": ("lanes", {"L": 24, "reuse_len": 7}),
    "lanes, one direction": ("lanes", {"L": 24, "reuse_len": 6, "bidirectional": False}),
    "pairs": ("pairs", {"L": 32}),
    "pairs, alone": ("pairs", {"L": 32, "next_sentence": False, "short_seq_prob": 0.3}),
    "pairs, faithful": ("pairs", {"L": 32, "faithful": True}),
    "bidirectional": ("bidirectional", {"L": 7, "characters": 12}),
    "bidirectional, words": ("bidirectional", {"L": 7, "characters": 0}),
}
SPLITS = ("train", "held_out")
cases = pytest.mark.parametrize("case", LAYOUTS)
splits = pytest.mark.parametrize("split", SPLITS)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """(case, **changes) -> the layout, built anew."""

    @functools.cache
    def corpus(tokens: str):
        folder = tmp_path_factory.mktemp("corpus")
        kind = {"name": "words"} if tokens == "words" else corpora.TOKENS
        return corpora.make(folder, tokens=kind, held_out=0.2)

    def build(case, **changes):
        name, fields = LAYOUTS[case]
        text = corpus("words" if name == "bidirectional" else "pieces")
        return batches.build(name, text, **{"B": 8, **fields, **changes})

    return build


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], name)


def steps_of(layout):
    """Steps worth a look: the first, the last of an epoch and, if there are, of later ones."""
    last = layout.steps_per_epoch - 1
    return [0, last, last + 1, 3 * last + 2] if layout.shuffle else [0, last]


def test_every_layout_of_the_folder_is_tested():
    names = plugins.names("pretrain.data.batches", "BatchLayout")
    assert {name for name, _ in LAYOUTS.values()} == set(names)


@cases
def test_shapes_are_known_without_a_text(case, build):
    name, fields = LAYOUTS[case]
    shapes = batches.configure(name, B=8, **fields).shapes()
    for split in SPLITS:
        layout = build(case, split=split)
        assert layout.shapes() == shapes
        batch = layout.batch(0)
        assert {k: (x.shape, x.dtype) for k, x in batch.items()} == {
            k: (x.shape, x.dtype) for k, x in shapes.items()
        }


@cases
@splits
def test_a_batch_depends_on_its_step_alone(case, split, build):
    one, other = (build(case, split=split, seed=1) for _ in range(2))
    steps = steps_of(one)
    first = {step: one.batch(step) for step in steps}
    for step in reversed(steps):
        assert_equal(other.batch(step), first[step])


@cases
@splits
@pytest.mark.parametrize("hosts", [2, 4])
def test_rows_of_all_hosts_together_are_the_batch(case, split, hosts, build):
    whole, size = build(case, split=split), 8 // hosts
    own = [build(case, split=split) for _ in range(hosts)]
    for step in steps_of(whole):
        parts = [
            layout.batch(step, slice(h * size, (h + 1) * size)) for h, layout in enumerate(own)
        ]
        joint = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        assert_equal(joint, whole.batch(step))


@cases
def test_held_out_rows_count_once_whatever_the_batch(case, build):
    weights = []
    for B in (4, 8, 20):
        layout = build(case, split="held_out", B=B)
        read = [batch["weight_B"] for _, batch in stream(layout)]
        assert len(read) == layout.steps_per_epoch
        weights.append(np.concatenate(read))
    assert len({weight.sum() for weight in weights}) == 1
    assert any((weight == 0).any() for weight in weights), "this test wants filler"


@cases
def test_epochs_and_seeds_are_read_in_other_orders(case, build):
    layout = build(case)
    name = next(name for name in layout.shapes() if name.startswith("tokens_"))
    batches = [layout.batch(0), layout.batch(layout.steps_per_epoch), build(case, seed=1).batch(0)]
    assert len({batch[name].tobytes() for batch in batches}) == 3


@cases
def test_the_fingerprint_is_json_and_tells_what_a_position_depends_on(case, build):
    changes = ({}, {"seed": 1}, {"B": 4}, {"L": LAYOUTS[case][1]["L"] + 1}, {"split": "held_out"})
    prints = [json.dumps(build(case, **fields).fingerprint(), sort_keys=True) for fields in changes]
    assert len(set(prints)) == len(changes)
    assert json.dumps(build(case).fingerprint(), sort_keys=True) == prints[0]


def test_fingerprints_tell_layouts_and_their_fields_apart(build):
    prints = [build(case, L=40).fingerprint() for case in LAYOUTS]
    assert all(one != other for one, other in itertools.combinations(prints, 2))


@cases
def test_an_empty_split_is_refused(case, build):
    name, fields = LAYOUTS[case]
    layout, corpus = batches.configure(name, B=8, **fields), build(case).corpus
    with pytest.raises(UserError, match=r"has 0 (windows|documents)"):
        layout.bind(corpus, np.array([], np.int64), shuffle=False)


def test_an_unknown_layout_is_refused_with_those_there_are():
    with pytest.raises(plugins.FieldError, match=r"name='loader'.* has bidirectional, lanes"):
        batches.configure("loader", B=8, L=32)
