"""A job begins with a run's model: of the same size, with the text format's new tokens."""

from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from finetune.starting_point import start_from
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError

SECTIONS: dict[str, Any] = dict(
    model=dict(name="transformer", V=10, D=8, dropout=0.1),
    execution=dict(remat="none", block=4),
    head=dict(tied=True),
    text_format="bert",
)
RUN = Run(Path("runs/toy"), ConfigDict(SECTIONS), "tokenizer", None, None)  # type: ignore[arg-type]


def test_a_run_s_sections_are_taken_with_the_changes_that_they_allow():
    start = start_from(RUN, dict(dropout=0.2), dict(remat="full"))
    assert start.model == SECTIONS["model"] | dict(dropout=0.2)
    assert start.execution == dict(remat="full", block=4)
    assert (start.head, start.text_format) == (SECTIONS["head"], "bert")
    assert (start.tokenizer, start.run) == ("tokenizer", RUN)


def test_the_vocabulary_grows_by_the_marks_that_pretraining_never_showed():
    assert start_from(RUN, text_format="gpt").model["V"] == 13


def test_a_student_has_as_many_layers_as_are_chosen():
    sections = SECTIONS | {"model": SECTIONS["model"] | {"N": 12}}
    run = Run(Path("runs/toy"), ConfigDict(sections), "tokenizer", None, None)  # type: ignore[arg-type]
    start = start_from(run, layers=(1, 7))
    assert (start.model["N"], start.layers) == (2, (1, 7))
    with pytest.raises(UserError, match="runs/toy has 12 layers, and no number 13"):
        start_from(run, layers=(13,))


def test_a_model_of_another_size_is_refused():
    with pytest.raises(UserError, match=r"runs/toy was pretrained with another: D=16 instead of 8"):
        start_from(RUN, dict(D=16))


def test_a_recipe_for_another_architecture_is_refused():
    with pytest.raises(UserError, match=r"model\.dropoute: the recipe is for another architecture"):
        start_from(RUN, dict(D=8, dropoute=0.1))


def test_a_field_that_the_run_left_out_has_its_default_there():
    assert start_from(RUN, dict(norm="post")).model["norm"] == "post"
    with pytest.raises(UserError, match="norm='pre' instead of 'post'"):
        start_from(RUN, dict(norm="pre"))
