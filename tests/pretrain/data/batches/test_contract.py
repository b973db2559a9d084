"""Every file of the folder keeps the contract of a batch layout."""

import copy
import itertools
import json

import numpy as np
import pytest

from modules import plugins
from pretrain.data import batches
from pretrain.data.batches.loader import read_batches
from pretrain.runtime.errors import UserError
from tests.support.batch_text import assert_same_batch

LAYOUTS = {
    "windows": ("windows", {"L": 24}),
    "windows, overlap": ("windows", {"L": 24, "overlap": 7}),
    "windows, framed": ("windows", {"L": 24, "framed": True}),
    "lanes": ("lanes", {"L": 24, "reuse_len": 7}),
    "lanes, one direction": ("lanes", {"L": 24, "reuse_len": 6, "bidirectional": False}),
    "pairs": ("pairs", {"L": 32}),
    "pairs, alone": ("pairs", {"L": 32, "next_sentence": False, "short_seq_prob": 0.3}),
    "pairs, faithful": ("pairs", {"L": 32, "faithful": True}),
    "pairs, packed": ("pairs", {"L": 64, "pack": 4, "short_seq_prob": 0.5}),
    "bptt": ("bptt", {"L": 24, "bptt": 20}),
    "bptt, cut": ("bptt", {"L": 24, "bptt": 20, "lengths": (20, 22)}),
    "bptt, backward": ("bptt", {"L": 24, "bptt": 24, "std": 0.0, "backward": True}),
    "clicks": ("clicks", {"L": 24, "texts": 2}),
    "bidirectional": ("bidirectional", {"L": 7, "characters": 12}),
    "bidirectional, words": ("bidirectional", {"L": 7, "characters": 0}),
}
SPLITS = ("train", "held_out")
cases = pytest.mark.parametrize("case", LAYOUTS)
splits = pytest.mark.parametrize("split", SPLITS)


@pytest.fixture
def build(corpus, corpus_of_words, corpus_of_clicks):
    """Returns a function of (case, **changes) that builds the layout anew."""
    texts = {"bidirectional": corpus_of_words, "clicks": corpus_of_clicks}

    def build(case, **changes):
        name, fields = LAYOUTS[case]
        return batches.build(name, texts.get(name, corpus), **{"B": 8, **fields, **changes})

    return build


def steps_of(layout):
    """Lists the first step, the last of an epoch and, if there are, some of later ones."""
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
        assert_same_batch(other.batch(step), first[step])


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
        assert_same_batch(joint, whole.batch(step))


@cases
def test_held_out_rows_count_once_whatever_the_batch(case, build):
    weights = []
    for B in (4, 8, 20):
        layout = build(case, split="held_out", B=B)
        read = [batch["weight_B"] for _, batch in read_batches(layout)]
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


REFUSED = [
    ("windows", {"B": 0}, "B=0, L=24, overlap=0, framed=False: a batch needs a row"),
    (
        "windows",
        {"overlap": 24},
        "L=24, overlap=24, framed=False: .* one token besides its overlap",
    ),
    ("windows", {"overlap": -1}, "overlap=-1"),
    ("windows", {"L": 2, "framed": True}, "L=2, overlap=0, framed=True: .* or its frame"),
    ("windows", {"framed": True, "overlap": 2}, "overlap=2: framed rows have none"),
    ("windows", {"B": 4000}, r"training split has \d+ windows of 24 tokens but batch has 4000"),
    ("windows", {"L": 10**6}, "training split has 0 windows of 1000000 tokens"),
    ("bptt", {"B": 0}, "B=0, L=24, bptt=20, short=0.05: a batch needs a row"),
    ("bptt", {"bptt": 25}, "bptt=25, .* lies between 5 and L"),
    ("bptt", {"B": 10**5}, r"training split has \d+ windows of 1 tokens but batch has 100000"),
    ("lanes", {"B": 5}, "B=5 with bidirectional"),
    ("lanes", {"B": 0}, "B=0"),
    ("lanes", {"reuse_len": 21}, r"reuse_len=21 does not fit L=24.*between 1 and L - 5"),
    ("lanes", {"reuse_len": 0}, "reuse_len=0 does not fit"),
    ("lanes", {"split": "held_out", "B": 4000}, r"held-out split has \d+ windows of 7 tokens"),
    ("lanes", {"B": 10**5}, r"training split has \d+ windows .* has 100000 rows: use a smaller B"),
    ("lanes", {"split": "test"}, "split='test': this corpus has train, held_out"),
    ("pairs", {"B": 0}, "B=0"),
    ("pairs", {"L": 4}, "L=4: a row is two segments and 3 special tokens"),
    ("pairs", {"short_seq_prob": 1.5}, "short_seq_prob=1.5: it is a share"),
    ("pairs", {"short_seq_prob": -0.1}, "short_seq_prob=-0.1"),
    ("pairs", {"pack": -1}, "pack=-1: it is the most examples of a row"),
    ("pairs", {"pack": True}, "pack=True: it is the most examples of a row, as pack=8"),
    ("pairs", {"B": 10**5}, r"training split makes \d+ rows of L=32 but batch has 100000: use a"),
    ("clicks", {"B": 0}, "B=0"),
    ("clicks", {"L": 4}, "L=4, texts=2: a row has <cls>, and of each text a token and a <sep>"),
    ("clicks", {"B": 1000}, r"training split has \d+ documents but batch has 1000 rows"),
    ("clicks", {"texts": 3}, "document 1 is not to be read as clicks: it needs 3 texts"),
    ("bidirectional", {"B": 0}, "B=0, L=7: a batch needs a row"),
    ("bidirectional", {"L": 0}, "B=8, L=0: a batch needs a row"),
    ("bidirectional", {"characters": 2}, "characters=2: "),
    ("bidirectional", {"B": 9000}, r"training split has \d+ windows of 7 tokens but batch has 90"),
]


@pytest.mark.parametrize(("case", "fields", "message"), REFUSED)
def test_what_does_not_fit_is_refused_at_the_door(build, case, fields, message):
    with pytest.raises(UserError, match=message):
        build(case, **fields)


@cases
def test_a_layout_reads_the_special_tokens_that_it_says_and_is_refused_without(case, build):
    layout = build(case)
    whole, needed = layout.corpus.tokenizer, layout.required_special

    def bind(names):
        tokenizer = copy.copy(whole)
        tokenizer.special = {name: whole.special[name] for name in ("eod", *names)}
        corpus = copy.copy(layout.corpus)
        vars(corpus)["tokenizer"] = tokenizer  # which is cached there
        return layout.bind(corpus, layout.documents, shuffle=True)

    # "eod" ends every document of a prepared text.
    assert_same_batch(bind(needed).batch(3), layout.batch(3))
    for name in needed:
        others = [x for x in needed if x != name]
        with pytest.raises(UserError, match=f"'{layout.name}' needs <{name}>, but .* <eod>"):
            bind(others)


@cases
def test_words_start_where_the_tokenizer_says(case, build):
    layout = build(case)
    batch, word_start_V = layout.batch(3), layout.corpus.tokenizer.word_start_V
    if "word_starts_BL" in batch:
        np.testing.assert_array_equal(batch["word_starts_BL"], word_start_V[batch["tokens_BL"]])


def test_unknown_layouts_and_misspelt_fields_are_refused():
    with pytest.raises(plugins.FieldError, match="reuze"):
        batches.configure("lanes", B=8, L=32, reuse_len=3, reuze=3)
    with pytest.raises(plugins.FieldError, match=r"name=.loader.: .* bptt, clicks, lanes"):
        batches.configure("loader", B=8, L=32)
