"""Tagged words, spans, choices and marked relations come out whole, or are named by place."""

import json

import pytest

from finetune import datasets
from finetune.datasets.semeval2010 import RELATIONS
from pretrain.runtime.errors import UserError


def read(folder, format, content, name="a.txt", **fields):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return datasets.read(format, str(path), **fields)


CONLL = """-DOCSTART- -X- O O

EU NNP B-NP B-ORG
rejects VBZ I-VP O
\t
# NN B-NP O

-DOCSTART- -X- O O

Peter NNP B-NP B-PER


"""


def test_sentences_end_at_blank_lines_and_document_lines_are_counted(tmp_path):
    found = read(tmp_path, "conll", CONLL)
    assert [(e["words"], e["labels"]) for e in found.examples] == [
        (["EU", "rejects"], ["B-ORG", "O"]),
        (["#"], ["O"]),
        (["Peter"], ["B-PER"]),
    ]
    assert [e["where"].rpartition(" ")[2] for e in found.examples] == ["3", "6", "10"]
    assert "-DOCSTART- lines: 2" in found.notes[0]


def test_columns_comments_and_names_of_labels_can_be_said(tmp_path):
    content = "# text\n1\tOne\tX\n# aside\n2\ttwo\tY\n\n1\tThree\tX\n"
    fields = dict(columns=(1, 2), comment="#", labels={"X": "noun", "Y": "verb"})
    found = read(tmp_path, "conll", content, **fields)
    assert [(e["words"], e["labels"]) for e in found.examples] == [
        (["One", "two"], ["noun", "verb"]),
        (["Three"], ["noun"]),
    ]
    assert "comments: 2" in found.notes[0]
    plain = read(tmp_path, "conll", "One\ntwo\n", columns=(0,))
    assert (plain.examples[0]["words"], plain.examples[0]["labels"]) == (["One", "two"], None)


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("A O\nB\n", {}, "a.txt, line 2: 1 columns, and there should be 2"),
        ("A O\nB X O\n", {}, "line 2: 3 columns"),
        ("A O\nB X\n", {"labels": ["O"]}, "line 2: the label 'X' is not one of O"),
        ("A O\n", {"columns": (0, 2)}, "line 1: 2 columns, too few"),
        ("A\nB\n", {}, "line 1: word and label in one column"),
        ("\n \n", {}, "a.txt: empty file"),
    ],
)
def test_a_bad_line_of_words_is_named(tmp_path, content, fields, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, "conll", content, **fields)


def squad(*questions, context="Café  zwölf. Zwölf Uhr."):
    return {"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}


def question(id="q1", start=13, text="Zwölf", **more):
    return {
        "id": id,
        "question": "When?",
        "answers": [{"text": text, "answer_start": start}],
    } | more


def test_an_answer_is_the_text_at_its_offset(tmp_path):
    found = read(tmp_path, "squad", squad(question(), question("q2", answers=[])))
    first, second = found.examples
    begin, text = first["answers"][0]["start"], first["answers"][0]["text"]
    assert first["context"][begin : begin + len(text)] == "Zwölf" == text
    assert (first["impossible"], first["id"], first["question"]) == (False, "q1", "When?")
    assert (second["answers"], second["impossible"]) == ([], False)


def test_an_impossible_question_has_no_answers(tmp_path):
    hidden = question(answers=[], is_impossible=True, plausible_answers=question()["answers"])
    example = read(tmp_path, "squad", squad(hidden)).examples[0]
    assert (example["answers"], example["impossible"]) == ([], True)


def test_wrong_offsets_can_be_left_out_and_are_counted(tmp_path):
    both = question("q2")
    both["answers"] = question(start=12)["answers"] + both["answers"]
    found = read(tmp_path, "squad", squad(question(start=14), both), strict=False)
    assert [(e["id"], len(e["answers"])) for e in found.examples] == [("q2", 1)]
    assert "answers at a wrong offset: 2" in found.notes[0]
    assert "questions without a right answer: 1" in found.notes[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (squad(question(start=12)), "question 'q1': the answer 'Zwölf' is not at 12: ' Zwöl' is"),
        (squad(question(start=-5)), "is not at -5"),
        (squad(question(), question()), "question 'q1': the id is there twice"),
        (squad(question(text="")), "question 'q1': an answer is empty"),
        (squad(question(start="13")), "'answer_start' should be a whole number"),
        (squad(question(is_impossible=True)), "is impossible, and has answers"),
        (squad({"question": "?"}), "article 1, paragraph 1: has no 'id', but 'question'"),
        (squad(question(), context=" "), "paragraph 1: the context is empty"),
        ({"version": "1.1"}, "a.txt: has no 'data', but 'version'"),
        ("[", "a.txt: is not JSON"),
    ],
)
def test_a_bad_question_is_named(tmp_path, content, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, "squad", content)
    assert message in str(caught.value)


RACE = {
    "id": "high1.txt",
    "article": "A passage.",
    "answers": ["B", "A"],
    "questions": ["It is _ .", "Why?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
}


def test_race_folders_read_in_the_order_of_paths(tmp_path):
    middle = {**RACE, "id": "middle2.txt", "answers": ["D", "C"]}
    read(tmp_path, "race", middle, "train/middle/2.txt")
    read(tmp_path, "race", RACE, "train/high/1.txt")
    found = datasets.read("race", str(tmp_path / "train"))
    assert [e["label"] for e in found.examples] == [1, 0, 3, 2]
    assert [e["id"] for e in found.examples][:2] == ["high1.txt-0", "high1.txt-1"]
    assert found.examples[1]["texts"] == ["A passage.", "Why?"]
    assert found.examples[1]["choices"] == ["e", "f", "g", "h"]
    hidden = {name: value for name, value in RACE.items() if name != "answers"}
    assert read(tmp_path, "race", hidden).examples[0]["label"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["B"]}, "a.txt: questions, options and answers should be as many"),
        ({"answers": ["B", "E"]}, "question 2: the right choice is 4, of 0 to 3"),
        ({"answers": ["B", "b"]}, "question 2: the answer 'b' is not a letter"),
        ({"options": [["a"], ["b", "c"]]}, "question 1: 1 choices"),
        ({"options": [["a", " "], ["b", "c"]]}, "question 1: choice 1 is empty"),
        ({"article": ""}, "a.txt: the article is empty"),
        ({"questions": None}, "'questions' should be a list"),
    ],
)
def test_a_bad_passage_is_named(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, "race", RACE | change)


def test_a_folder_without_passages_is_named(tmp_path):
    with pytest.raises(UserError, match=r"holds no \.txt files"):
        datasets.read("race", str(tmp_path))


def test_choices_keep_their_order_also_when_lettered(tmp_path):
    one = {"query": "He ran, so", "choices": ["he won.", "he sat."], "gold": 1}
    assert (
        read(tmp_path, "multiple_choice", one).examples[0].items()
        >= {
            "texts": ["He ran, so"],
            "choices": ["he won.", "he sat."],
            "label": 1,
        }.items()
    )
    assert read(tmp_path, "multiple_choice", one, gold="").examples[0]["label"] is None
    spelt = {
        "query": "Where?\nChoices:\nA. in a. b\nB. out\nAnswer:",
        "choices": ["A", "B"],
        "gold": 0,
    }
    example = read(tmp_path, "multiple_choice", spelt, lettered=True).examples[0]
    assert (example["texts"], example["choices"]) == (["Where?"], ["in a. b", "out"])


@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ({"gold": 2}, {}, "a.txt, line 1: the right choice is 2, of 0 to 1"),
        ({"gold": True}, {}, "line 1: 'gold' should be a whole number"),
        ({"choices": ["a"]}, {}, "line 1: 1 choices"),
        ({"choices": ["a", 3]}, {}, "line 1: choice 1 should be text"),
        ({"query": ""}, {}, "line 1: 'query' is empty"),
        ({}, {"lettered": True}, "line 1: lettered=True, but the text does not spell out"),
    ],
)
def test_a_bad_choice_is_named(tmp_path, change, fields, message):
    good = {"query": "Q", "choices": ["a", "b"], "gold": 0}
    with pytest.raises(UserError, match=message):
        read(tmp_path, "multiple_choice", good | change, **fields)


MARKED = '"The <e1>cup</e1> held <e2>tea</e2>."'


def test_a_relation_keeps_its_marks_and_its_direction(tmp_path):
    content = f"1\t{MARKED}\r\nContent-Container(e2,e1)\r\nComment: x\r\n\r\n"
    content += f"2\t{MARKED}\nOther\nComment:\n"
    found = read(tmp_path, "semeval2010", content).examples
    assert [(e["id"], e["label"]) for e in found] == [
        ("1", "Content-Container(e2,e1)"),
        ("2", "Other"),
    ]
    assert found[0]["texts"] == [MARKED.strip('"')]
    hidden = read(tmp_path, "semeval2010", f"1\t{MARKED}\n2\t{MARKED}\n").examples
    assert [e["label"] for e in hidden] == [None, None]
    assert len(set(RELATIONS)) == 19


def test_other_marks_can_be_asked_for(tmp_path):
    content = f"1\t{MARKED}\nOther\n"
    found = read(tmp_path, "semeval2010", content, marks=("$ ", " $", "# ", " #")).examples
    assert found[0]["texts"] == ["The $ cup $ held # tea #."]
    with pytest.raises(UserError, match="marks: name four, for <e1> </e1> <e2> </e2>, and not 2"):
        read(tmp_path, "semeval2010", content, marks=("$", "#"))


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
        read(tmp_path, "semeval2010", content)
