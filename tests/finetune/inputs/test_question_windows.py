"""A question and a window of its context stand in a row as the format has them."""

import numpy as np
import pytest

from finetune.inputs.question_windows import Questions
from finetune.inputs.rows import RowBuilder
from pretrain.inference.text_format import load_format
from pretrain.runtime.errors import UserError
from tests.support import tagging_data

CONTEXT = " ".join(word for x in tagging_data.EXAMPLES for word in x["words"])
EXAMPLES = [{"question": "the mone", "context": CONTEXT, "where": "question a"}]


def build(system, L=16, stride=3, max_query=8):
    inputs = RowBuilder(load_format(system), tagging_data.tokenizer(system), L)
    return Questions(inputs, stride, max_query)


def read(questions, examples=EXAMPLES):
    """All windows, and the arrays of their rows."""
    windows = list(questions.iter_windows(examples, questions.encode_contexts(examples)))
    return windows, questions.inputs.arrays([window.row for window in windows])


@pytest.mark.parametrize("system", ["bert", "xlnet", "gpt"])
def test_windows_hold_the_context_s_tokens_at_their_first_position(system):
    questions = build(system)
    windows, arrays = read(questions)
    whole = questions.inputs.tokens([CONTEXT])[0]
    assert len(windows) > 1
    for ids, window in zip(arrays["tokens_BL"], windows, strict=True):
        part = ids[window.first : window.first + len(window.window)]
        np.testing.assert_array_equal(part, whole[window.window.start : window.window.stop])
    best = np.concatenate([np.array(x.window)[x.is_best] for x in windows])
    assert sorted(best) == list(range(len(whole)))  # each token is one window's


def test_xlnet_reads_the_context_before_the_question_and_the_mark_last():
    questions = build("xlnet", L=24)
    windows, arrays = read(questions)
    special = questions.inputs.tokenizer.special
    for i, window in enumerate(windows):
        valid_L = arrays["valid_BL"][i]
        ids, n = arrays["tokens_BL"][i, valid_L].tolist(), len(window.window)
        assert (ids[n], ids[-2], ids[-1]) == (special["sep"], special["sep"], special["cls"])
        assert ids.count(special["sep"]) == 2
        segments = [*[0] * (n + 1), *[1] * (len(ids) - n - 2), 2]
        assert arrays["segments_BL"][i, valid_L].tolist() == segments
        assert arrays["tokens_BL"][i, questions.find_null(window.row)] == special["cls"]


def test_a_long_question_loses_its_end_and_is_noted_once():
    long = [EXAMPLES[0] | {"question": CONTEXT}]
    questions = build("bert", max_query=4)
    for _ in range(2):
        windows, _ = read(questions, long)
    assert {x.first for x in windows} == {1 + 4 + 1}
    assert questions.notes == ["1 questions were longer than 4 tokens"]


def test_a_question_without_room_for_its_context_is_refused():
    with pytest.raises(UserError, match=r"question a: a row of batches\.L=5 has no room"):
        read(build("bert", L=5))
