"""LSTMs side by side read their own rows, and padding passes by."""

import jax
import numpy as np
import pytest

from modules.layers.peephole_lstm import Gates, scan_lstms

B, L, U = 2, 5, 3


@pytest.mark.parametrize("G", [4, 5])
def test_words_between_padding_are_read_as_if_it_were_not_there(G):
    rng = np.random.default_rng(G)
    draw = lambda *shape: rng.normal(0, 0.5, shape).astype(np.float32)  # noqa: E731
    lstms = [Gates(draw(B, L, G, U), draw(U, 2 * G - 4, U), draw(3, U)) for _ in range(2)]
    places, valid_ZBL = np.array([1, 3, 4]), np.zeros((len(lstms), B, L), bool)
    valid_ZBL[..., places] = True
    words = [x._replace(a_BLGU=x.a_BLGU[:, places]) for x in lstms]
    h_ZBLU, alone_ZBLU = jax.jit(
        lambda: (scan_lstms(lstms, valid_ZBL)[0], scan_lstms(words, valid_ZBL[..., places])[0])
    )()
    np.testing.assert_allclose(h_ZBLU[:, :, places], alone_ZBLU, rtol=1e-5)
    assert np.abs(np.delete(h_ZBLU, places, 2)).max() == 0
    if G == 4:  # without mixing an LSTM does not know of the others
        one, _ = scan_lstms(lstms[:1], valid_ZBL[:1])
        np.testing.assert_allclose(h_ZBLU[:1], one, rtol=1e-5)
