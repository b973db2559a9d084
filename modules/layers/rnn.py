"""Recurrent layers: LSTM, GRU and plain RNN, in one direction or in both."""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from modules.activation_sharding import constrain_sharding
from modules.kernels.recurrent_cells import (
    CELLS,
    RNN_ACTIVATIONS,
    CellConfig,
    CellState,
    CellWeights,
)
from modules.kernels.recurrent_scan import scan_directions, state_dtype
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.gru import scan_reset_before


@struct.dataclass
class State:
    """State of a recurrent layer after B texts; stacked layers add a leading dimension.

    Attributes:
        h_BZD: the last output in each direction.
        c_BZU: the cell of an LSTM; None: this is another kind of layer.
    """

    h_BZD: jax.Array
    c_BZU: jax.Array | None = None


class Recurrent(nn.Module):
    """One recurrent layer.

    Attributes:
        U: units of the cell.
        cell: "lstm" (with a projection: Sak et al. 2014, no peepholes), "gru" (Cho et al. 2014;
            with `reset_gate`) or "rnn".
        D: width that an LSTM's output is projected to; 0: none, the output is U wide.
        Z: directions: 1 forwards, 2 backwards too.
        clip_cell, clip_projection: limits of an LSTM's cell and projection; 0: none.
        forget_bias: added to the forget gate where it is computed, as in TensorFlow: the
            parameter itself begins at 0.
        activation: of the plain RNN: "tanh" or "relu".
        reset_gate: of a GRU, acts "after" the state's product, as in cuDNN, or "before" it on the
            state itself, as in the paper.
        bias: False: there are none but the `forget_bias`.
        initializer: "glorot" (Glorot & Bengio 2010); or "torch", of an LSTM without projection:
            PyTorch's draws within 1 / sqrt(U), and its two biases, of the input and of the state.
            Their sum alone counts, but it learns twice as fast.
        wdrop: share of the state's weights that is dropped in training, once for all positions
            (the weight drop of Merity et al. 2017, arXiv 1708.02182).
        unroll: positions per step of the scan.
    """

    U: int
    cell: str = "lstm"
    D: int = 0
    Z: int = 1
    clip_cell: float = 0.0
    clip_projection: float = 0.0
    forget_bias: float = 1.0
    activation: str = "tanh"
    reset_gate: str = "after"
    bias: bool = True
    initializer: str = "glorot"
    wdrop: float = 0.0
    unroll: int = 1
    dtype: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "cell", CELLS)
        params.check_choice(self, "activation", RNN_ACTIVATIONS)
        params.check_choice(self, "reset_gate", ("after", "before"))
        params.check_choice(self, "initializer", ("glorot", "torch"))
        params.check_choice(self, "dtype", params.DTYPES)
        if self.Z not in (1, 2):
            raise ValueError(f"Z={self.Z} directions: there are 1 or 2")
        if self.cell != "lstm" and (self.D or self.clip_cell or self.clip_projection):
            raise ValueError(f"cell={self.cell!r} has no projection and no clips: set them to 0")
        if self.initializer == "torch" and (self.cell != "lstm" or self.D):
            raise ValueError("initializer='torch' is of LSTMs without a projection: D=0")

    @property
    def width(self) -> int:
        return self.D or self.U

    def initial_state(self, B: int) -> State:
        """Returns the state of B rows before their first word: zeros."""
        zeros = lambda width: jnp.zeros((B, self.Z, width), state_dtype(self.dtype))  # noqa: E731
        return State(zeros(self.width), zeros(self.U) if self.cell == "lstm" else None)

    @nn.compact
    def __call__(
        self, x, state: State | None = None, *, valid=None, reset=None, train: bool = False
    ):
        """Reads B rows in Z directions.

        Args:
            x: x_BLD, one text that is read in every direction, the second from its end; or
                x_BZLD, a text for each direction, in its order of reading; or a list of such, the
                pieces of a text: the next layer need not wait for the last of them.
            state: as `initial_state`, or as an earlier call returned it; None: zeros.
            valid: bool, shaped as x without D; False: no word here.  The state passes by and the
                output is 0.
            reset: likewise; True: the state is cleared before this position is read.
            train: weights are dropped.

        Returns:
            (y, state): y_BLZD for x_BLD, y_BZLD for x_BZLD, a list for a list, in the compute
            dtype.
        """
        if isinstance(x, list):
            return self._scan_pieces(x, state, valid, reset, train)
        is_text = x.ndim == 3
        if is_text:
            x, valid, reset = (
                None if y is None else to_reading_order(y, self.Z) for y in (x, valid, reset)
            )
        (y_BZLD,), state = self._scan_pieces([x], state, [valid], [reset], train)
        y = constrain_sharding(to_text_order(y_BZLD), "BLZD") if is_text else y_BZLD
        return y, state

    def _scan_pieces(self, x, state: State | None, valid, reset, train: bool):
        weights = self._weights(x[0].shape[-1])
        # Before the scan, which takes these weights as it takes any.
        weights = weights._replace(wh_DGU=Dropout(self.wdrop)(weights.wh_DGU, train=train))
        state = self.initial_state(len(x[0])) if state is None else state
        outputs = []
        for x_BZLD, valid_BZL, reset_BZL in zip(x, valid, reset, strict=True):
            y_BZLD, state = self._scan(weights, x_BZLD, state, valid_BZL, reset_BZL)
            outputs.append(y_BZLD)
        return outputs, state

    def _scan(self, weights: CellWeights, x_BZLD, state: State, valid_BZL, reset_BZL):
        """Reads a text in every direction, each in its order of reading."""
        clips = self.clip_cell, self.clip_projection
        config = CellConfig(self.cell, self.activation, *clips, self.unroll)
        # Directions in front: the kernel scans them one by one, or vmapped, by platform.
        cells = CellState(state.h_BZD, state.c_BZU)
        state_ZB = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), cells)
        not_reset_BZL = None if reset_BZL is None else ~jnp.asarray(reset_BZL)
        # Positions in front, as a scan takes them; directions before those.
        x_ZLBD, not_reset_ZLB, valid_ZLB = (
            None if x is None else jnp.moveaxis(x, 0, 2)
            for x in (x_BZLD.astype(self.dtype), not_reset_BZL, valid_BZL)
        )
        is_before = self.cell == "gru" and self.reset_gate == "before"
        scan = scan_reset_before if is_before else scan_directions
        y_ZLBD, state_ZB = scan(config, x_ZLBD, weights, state_ZB, not_reset_ZLB, valid_ZLB)
        state_BZ = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), state_ZB)
        return constrain_sharding(jnp.moveaxis(y_ZLBD, 2, 0), "BZLD"), State(*state_BZ)

    def _weights(self, X: int) -> CellWeights:
        G, U, D, Z = CELLS[self.cell].G, self.U, self.width, self.Z
        # Glorot's bound for the one product of input and state together; or PyTorch's.
        glorot, is_torch = math.sqrt(6 / (X + D + G * U)), self.initializer == "torch"
        init = params.initializer("uniform", 1 / math.sqrt(U) if is_torch else glorot)
        wx_ZDGU = params.param(self, "wx_ZDGU", init, (Z, X, G, U), decay=True, dtype=self.dtype)
        wh_ZDGU = params.param(self, "wh_ZDGU", init, (Z, D, G, U), decay=True, dtype=self.dtype)
        # Biases are added to sums in float32: they stay as they are stored.
        wide = state_dtype(self.dtype)
        b_ZGU = jnp.zeros((Z, G, U), wide)
        if self.bias:
            first = init if is_torch else params.zeros
            b_ZGU = params.param(self, "b_ZGU", first, (Z, G, U), decay=False).astype(wide)
            if is_torch:
                b_ZGU += params.param(self, "bh_ZGU", first, (Z, G, U), decay=False).astype(wide)
        bh_ZGU = wp_ZUD = None
        if self.cell == "lstm":
            b_ZGU = b_ZGU + jnp.zeros((G, 1), wide).at[2].set(self.forget_bias)
        if self.cell == "gru" and self.reset_gate == "after" and self.bias:
            # Only of the candidate does it matter on which side of the reset a bias stands.
            bh_ZU = params.param(self, "bh_ZU", params.zeros, (Z, U), decay=False).astype(wide)
            bh_ZGU = jnp.zeros((Z, G, U), wide).at[:, 2].set(bh_ZU)
        if self.D:
            init = params.initializer("uniform", math.sqrt(6 / (U + D)))
            wp_ZUD = params.param(self, "wp_ZUD", init, (Z, U, D), decay=True, dtype=self.dtype)
        return CellWeights(wx_ZDGU, wh_ZDGU, b_ZGU, bh_ZGU, wp_ZUD)


def to_reading_order(x_BL, Z: int):
    """Repeats a text [B, L, ...] for Z directions, each in its order of reading: [B, Z, L, ...]."""
    return _flip_backward_direction(jnp.stack([x_BL] * Z, 1))


def to_text_order(y_BZLD):
    """Brings what directions have read, [B, Z, L, D], to the order of the text: [B, L, Z, D]."""
    return jnp.moveaxis(_flip_backward_direction(y_BZLD), 1, 2)


def _flip_backward_direction(x_BZL):
    # Its own inverse: to the order of reading, and back.
    forward, *backward = jnp.split(x_BZL, x_BZL.shape[1], 1)
    return jnp.concatenate([forward, *(jnp.flip(y, 2) for y in backward)], 1)
