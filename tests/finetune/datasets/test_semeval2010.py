"""Relations keep their marks and direction, or their line is named."""

import pytest

from finetune.datasets.semeval2010 import RELATIONS
from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written

MARKED = '"The <e1>cup</e1> held <e2>tea</e2>."'


def test_a_relation_keeps_its_marks_and_its_direction(tmp_path):
    content = f"1\t{MARKED}\r\nContent-Container(e2,e1)\r\nComment: x\r\n\r\n"
    content += f"2\t{MARKED}\nOther\nComment:\n"
    found = read_written(tmp_path, "semeval2010", content).examples
    assert [(e["id"], e["label"]) for e in found] == [
        ("1", "Content-Container(e2,e1)"),
        ("2", "Other"),
    ]
    assert found[0]["texts"] == [MARKED.strip('"')]
    hidden = read_written(tmp_path, "semeval2010", f"1\t{MARKED}\n2\t{MARKED}\n").examples
    assert [e["label"] for e in hidden] == [None, None]
    assert len(set(RELATIONS)) == 19


def test_other_marks_can_be_asked_for(tmp_path):
    content = f"1\t{MARKED}\nOther\n"
    found = read_written(tmp_path, "semeval2010", content, marks=("$ ", " $", "# ", " #")).examples
    assert found[0]["texts"] == ["The $ cup $ held # tea #."]
    with pytest.raises(UserError, match="marks: name four, for <e1> </e1> <e2> </e2>, and not 2"):
        read_written(tmp_path, "semeval2010", content, marks=("$", "#"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"1\t{MARKED}\nBeside(e1,e2)\n", "a.txt, line 2: the label 'Beside"),
        (f"1\t{MARKED}\nOther\nOther\n", "line 3: the relation 'Other' follows no sentence"),
        (f"1\t{MARKED}\nOther\n\n2\t{MARKED}\n", "line 4: the sentence has no relation"),
        ("1\tThe <e1>cup</e1> held tea.\n", "line 1: the sentence should have <e1>"),
        ("1\tThe </e1>cup<e1> held <e2>tea</e2>.\n", "line 1: a mark closes before it opens"),
    ],
)
def test_a_bad_relation_is_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_written(tmp_path, "semeval2010", content)
