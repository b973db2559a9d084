"""LSTMs whose gates see the cell, side by side, with candidates that gates may mix.

Graves 2013 (arXiv 1308.0850), equations 7 to 11, with full matrices for products and one weight a
unit for the peepholes; Liu, Qiu & Huang 2016 (arXiv 1605.05101), equations 2 to 7.  No biases.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.kernels.recurrent_scan import state_dtype
from modules.layers import params


class Gates(NamedTuple):
    """Holds what a scan reads of one LSTM.

    Attributes:
        a_BLGU: what gates have of the input, in the order in, forget, out, candidate, and where
            candidates are mixed the mixing gate.
        wh_DGU: of the state: in, forget, out, its share in the candidate of each LSTM, and where
            these are mixed the mixing gate.
        peep_GU: of the cell: in, forget, out.
    """

    a_BLGU: jax.Array
    wh_DGU: jax.Array
    peep_GU: jax.Array


class PeepholeLSTM(nn.Module):
    """Weights of one LSTM; `scan_lstms` runs it.

    Attributes:
        U: units.
        inputs: products of the input, the gates' and others.
        states: products of the state.
        scale: weights are drawn within this on both sides of 0.
    """

    U: int
    inputs: int = 4
    states: int = 4
    scale: float = 0.1
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x_BLD) -> Gates:
        """Computes the products of the input; more than `scan_lstms` reads, if there are more."""
        init, U = params.initializer("uniform", self.scale), self.U
        shapes = {"wx_DGU": (x_BLD.shape[-1], self.inputs, U), "wh_DGU": (U, self.states, U)}
        wx_DGU, wh_DGU = (
            params.param(self, name, init, shape, decay=True, dtype=self.dtype)
            for name, shape in shapes.items()
        )
        # Vectors, as biases and norms are, are not decayed.
        peep_GU = params.param(self, "peep_GU", init, (3, U), decay=False)
        wide = state_dtype(self.dtype)
        a_BLGU = jnp.einsum("BLD,DGU->BLGU", x_BLD, wx_DGU, preferred_element_type=wide)
        return Gates(a_BLGU, wh_DGU, peep_GU.astype(wide))


def scan_lstms(lstms: Sequence[Gates], valid_ZBL, unroll: int = 1, *, reset_ZBL=None, state=None):
    """Runs LSTMs side by side, each on its own input and order of reading.

    Where the gates have a fifth, the candidate of LSTM j is mixed of the states of all: it has the
    sum over i of sigmoid(a_j + wh_i h_i) * (wh_ij h_i).

    Args:
        valid_ZBL: False: no word here; the state passes by and the output is 0.
        reset_ZBL: True: the states are cleared before this word; None: nowhere.
        state: (h_ZBU, c_ZBU) to go on from; None: zeros.

    Returns:
        (h_ZBLU, the state behind the last word), in the dtype of the gates.
    """
    a_ZBLGU, wh_ZDGU, peep_ZGU = (jnp.stack(x) for x in zip(*lstms, strict=True))
    Z, B, _, G, U = a_ZBLGU.shape
    # Model II of Liu et al. (2016) is the one whose LSTMs mix candidates, by a fifth gate.
    mix = mix_candidates if G == 5 else lambda a_ZBGU, r_ZBGU: r_ZBGU[:, :, 3]
    in_Z1U, forget_Z1U, out_Z1U = jnp.moveaxis(peep_ZGU, 1, 0)[:, :, None]

    def step(state, inputs):
        a_ZBGU, valid_ZB1, reset_ZB1 = inputs
        # Several texts may share a row: each begins with a state of zeros.
        h_ZBU, c_ZBU = state if reset_ZB1 is None else (jnp.where(reset_ZB1, 0, x) for x in state)
        products = h_ZBU.astype(wh_ZDGU.dtype), wh_ZDGU
        r_ZBGU = jnp.einsum("ZBD,ZDGU->ZBGU", *products, preferred_element_type=a_ZBGU.dtype)
        s_GZBU = jnp.moveaxis(a_ZBGU[:, :, :3] + r_ZBGU[:, :, :3], 2, 0)
        in_ZBU = jax.nn.sigmoid(s_GZBU[0] + in_Z1U * c_ZBU)
        forget_ZBU = jax.nn.sigmoid(s_GZBU[1] + forget_Z1U * c_ZBU)
        candidate_ZBU = jnp.tanh(a_ZBGU[:, :, 3] + mix(a_ZBGU, r_ZBGU))
        new_ZBU = forget_ZBU * c_ZBU + in_ZBU * candidate_ZBU
        # The cell after the step: Graves's output gate sees the new one.
        out_ZBU = jax.nn.sigmoid(s_GZBU[2] + out_Z1U * new_ZBU) * jnp.tanh(new_ZBU)
        after = jnp.where(valid_ZB1, out_ZBU, h_ZBU), jnp.where(valid_ZB1, new_ZBU, c_ZBU)
        return after, jnp.where(valid_ZB1, out_ZBU, 0)

    if state is None:
        state = (jnp.zeros((Z, B, U), a_ZBLGU.dtype),) * 2
    # Positions in front, as a scan takes them.
    inputs = jax.tree.map(
        lambda x: jnp.moveaxis(x, 2, 0),
        (a_ZBLGU, *(x if x is None else x[..., None] for x in (valid_ZBL, reset_ZBL))),
    )
    state, h_LZBU = jax.lax.scan(step, state, inputs, unroll=unroll or 1)
    return jnp.moveaxis(h_LZBU, 0, 2), state


def mix_candidates(a_ZBGU, r_ZBGU):
    """Adds up the states' shares in each LSTM's candidate, each behind a gate of its own."""
    from_I1BU, into_1JBU = r_ZBGU[:, None, :, -1], a_ZBGU[None, :, :, 4]
    share_IJBU = jnp.moveaxis(r_ZBGU[:, :, 3:-1], 2, 1)
    return (jax.nn.sigmoid(into_1JBU + from_I1BU) * share_IJBU).sum(0)
