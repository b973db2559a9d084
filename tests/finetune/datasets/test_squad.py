"""Answers are the text at their offset, or their question is named."""

import pytest

from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written


def squad(*questions, context="Café  zwölf. Zwölf Uhr."):
    return {"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}


def question(id="q1", start=13, text="Zwölf", **more):
    return {
        "id": id,
        "question": "When?",
        "answers": [{"text": text, "answer_start": start}],
    } | more


def test_an_answer_is_the_text_at_its_offset(tmp_path):
    found = read_written(tmp_path, "squad", squad(question(), question("q2", answers=[])))
    first, second = found.examples
    begin, text = first["answers"][0]["start"], first["answers"][0]["text"]
    assert first["context"][begin : begin + len(text)] == "Zwölf" == text
    assert (first["impossible"], first["id"], first["question"]) == (False, "q1", "When?")
    assert (second["answers"], second["impossible"]) == ([], False)


def test_an_impossible_question_has_no_answers(tmp_path):
    hidden = question(answers=[], is_impossible=True, plausible_answers=question()["answers"])
    example = read_written(tmp_path, "squad", squad(hidden)).examples[0]
    assert (example["answers"], example["impossible"]) == ([], True)


def test_wrong_offsets_can_be_left_out_and_are_counted(tmp_path):
    both = question("q2")
    both["answers"] = question(start=12)["answers"] + both["answers"]
    found = read_written(tmp_path, "squad", squad(question(start=14), both), strict=False)
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
        read_written(tmp_path, "squad", content)
    assert message in str(caught.value)
