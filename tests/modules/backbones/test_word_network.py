"""Networks over words: what a state and a memory depend on, whichever network it is."""

import jax
import numpy as np
import pytest

import modules
from modules.backbones import text_mask
from tests.support import tiny_models
from tests.support.compiler import quick_jit

SMALL = {
    "awd_lstm": dict(N=2, U=8),
    "recurrent": dict(N=2, U=8),
    "text_cnn": dict(filters=((2, 4), (3, 4))),
    "text_rcnn": dict(U=4, F=8),
}


@pytest.mark.parametrize("name", SMALL)
def test_states_of_a_text_do_not_depend_on_padding_or_on_its_neighbours(name):
    backbone = modules.build(name, V=13, D=8, **SMALL[name])
    params = tiny_models.draw_params(backbone)
    valid_BL = np.arange(11) < [[11], [7], [7]]
    tokens_BL = np.random.default_rng(0).integers(0, 13, valid_BL.shape)

    @quick_jit
    def read(tokens_BL, valid_BL):
        mask = text_mask(backbone, valid_BL=valid_BL)
        return backbone.apply({"params": params}, tokens_BL, mask=mask, train=False).h

    def check(tokens_BL, valid_BL):
        h_BLD = read(tokens_BL, valid_BL)
        for row in (1, 2):
            valid_L = valid_BL[row]
            alone_LD = read(tokens_BL[row : row + 1, valid_L], np.ones((1, 7), bool))[0]
            np.testing.assert_allclose(h_BLD[row, valid_L], alone_LD, rtol=2e-5, atol=2e-6)
            assert not h_BLD[row, ~valid_L].any()

    check(tokens_BL, valid_BL)
    check(tokens_BL[:, ::-1], valid_BL[:, ::-1])  # padded in front


@pytest.mark.parametrize("name", SMALL)
def test_layers_of_unequal_widths_are_not_read_together(name):
    backbone = modules.build(name, V=13, D=7, **SMALL[name])
    given = dict(mask=text_mask(backbone), method="layer_states")
    with pytest.raises(ValueError, match="words are 7 wide and states 8"):
        backbone.apply(
            {"params": tiny_models.draw_params(backbone)}, np.zeros((2, 5), int), **given
        )


@pytest.mark.parametrize("name", [name for name in SMALL if name != "awd_lstm"])
def test_a_network_that_reads_both_ways_takes_no_memory(name):
    backbone = modules.build(name, V=13, D=8, **SMALL[name])
    assert backbone.initial_memory(2) is None
    given = dict(mask=text_mask(backbone), memory=(), train=False)
    with pytest.raises(ValueError, match="has no use for memory"):
        backbone.init(jax.random.key(0), np.zeros((2, 5), int), **given)
