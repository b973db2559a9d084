"""The second model's rows differ in the direction alone."""

import dataclasses

from pretrain.inference.text_formats import ulmfit, ulmfit_backward


def test_rows_are_those_of_the_first_model_read_from_the_end():
    assert dataclasses.replace(ulmfit_backward.FORMAT, backward=False) == ulmfit.FORMAT
    assert ulmfit_backward.FORMAT.backward
