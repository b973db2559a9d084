"""A text in each direction is read as one text from both ends, and goes on where it ended."""

import jax
import numpy as np

from modules.layers.peephole_bilstm import PeepholeBiLSTM

B, L, D, U = 2, 6, 3, 4


def test_directions_read_apart_as_in_one_text_and_go_on_from_a_state():
    bilstm = PeepholeBiLSTM(U, 0.5, "float32", unroll=1)
    x_BLD = np.random.default_rng(0).normal(0, 1, (B, L, D)).astype(np.float32)
    x_BZLD = np.stack([x_BLD, x_BLD[:, ::-1]], 1)
    reset_BZL = np.zeros((B, 2, L), bool)
    reset_BZL[..., 4] = True

    @jax.jit
    def read():
        whole_BLD, params = bilstm.init_with_output(jax.random.key(0), x_BLD, np.ones((B, L), bool))

        def apart(span, state=None):
            rows = x_BZLD[:, :, span], reset_BZL[:, :, span]
            return bilstm.apply(params, *rows, state, method="read_separately")

        first, state = apart(slice(0, 2))
        return whole_BLD, first, apart(slice(2, 6), state)[0], apart(slice(4, 6))[0]

    whole_BLD, first, rest, new = read()
    whole_BZLU = np.stack([whole_BLD[..., :U], whole_BLD[:, ::-1, U:]], 1)
    until_reset = np.concatenate([first, rest[:, :, :2]], 2)
    np.testing.assert_allclose(until_reset, whole_BZLU[:, :, :4], rtol=1e-5)
    np.testing.assert_allclose(rest[:, :, 2:], new, rtol=1e-5)
    assert np.abs(new - whole_BZLU[:, :, 4:]).max() > 1e-3
