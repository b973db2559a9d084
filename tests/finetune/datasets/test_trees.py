"""Trees come out as sentences or as phrases, each text once, or their line is named."""

import pytest

from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written

TREES = r"""(3 (2 It) (4 (2 is) (3 good)))
(1 (2 -LRB-) (2 (2 is) (0 and\/or)))
(2 (2 It) (2 is))
"""
WHOLE = [("It is good", "3"), ("( is and/or", "1"), ("It is", "2")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, WHOLE),
        ({"classes": 2}, [("It is good", "1"), ("( is and/or", "0")]),
        (
            {"phrases": True, "classes": 2},
            [
                ("It is good", "1"),
                ("is good", "1"),
                ("good", "1"),
                ("( is and/or", "0"),
                ("and/or", "0"),
            ],
        ),
    ],
)
def test_every_node_or_the_root_is_an_example(tmp_path, fields, expected):
    found = read_written(tmp_path, "trees", TREES, **fields)
    assert [(x["texts"][0], x["label"]) for x in found.examples] == expected
    assert bool(found.notes) == ("classes" in fields)


def test_a_phrase_that_occurs_again_is_no_example(tmp_path):
    texts = [x["texts"][0] for x in read_written(tmp_path, "trees", TREES, phrases=True).examples]
    assert len(texts) == len(set(texts)) == 10


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("(2 It)\n(2 (2 a)", {}, "line 2: brackets of the tree are not closed"),
        ("(2 It))", {}, "line 1: there is something behind the tree"),
        ("It (2 is)", {}, "line 1: 'It' stands in no brackets"),
        ("(2 (3) is)", {}, "line 1: a node of the tree has no words"),
        ("(2 It)\n\n(2 is)", {}, "line 2: no tree"),
        ("(7 It)", {}, "line 1: the label '7' is not one of 0, 1, 2, 3, 4"),
        ("(2 It)", {"classes": 3}, "classes=3: there are 5, or 2 without the neutral"),
    ],
)
def test_a_bad_tree_is_named(tmp_path, content, fields, message):
    with pytest.raises(UserError, match=message):
        read_written(tmp_path, "trees", content, **fields)
