"""Layers that read word by word: LSTM, GRU and plain RNN, in one direction or in both.

All three are one loop: a state is cleared where a text begins, read by a product, changed by the
cell and held where a row is padding.  What the loop keeps, and what is done outside it:

- The product with the inputs is one for all positions, made before the scan.
- The scan's gradient is written out: the backward scan yields the gradients by what the gates
  add up, and the weights' gradients are one product of those after it.
- Kept for the backward pass: the activated gates, and the state that each step found.

What that is worth: a training step of a small ELMo (U=1024, D=128, 2 layers, both directions,
B=32, L=20, 10,000 words, all of them in the softmax) on one CPU core takes 1.4 times as long by
autodiff of the same scan, 1.1 times with both directions in every step, and 1.1 and 1.4 times
with 2 and 4 positions a step (`unroll`).  A quarter of the LSTMs' time is not products.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers import params

State = dict[str, Any]


class Plan(NamedTuple):
    """What is known of a layer before it is compiled."""

    cell: str
    activation: str = "tanh"  # of the plain RNN
    clip_cell: float = 0.0
    clip_projection: float = 0.0
    unroll: int = 1


class Weights(NamedTuple):
    """Of one direction; None where a layer has no such."""

    wx_DGU: Any
    wh_DGU: Any
    b_GU: Any
    bh_GU: Any
    wp_UD: Any


class Slopes(NamedTuple):
    """What a step of the backward pass finds, before its products."""

    a_BGU: Any  # by what the gates got from the input
    r_BGU: Any  # and from the state; None: the same
    out_BU: Any  # no gradient: the cell's output once more, where that may be projected
    state: State  # by the state that the step found, but for the product's part


class Cell(NamedTuple):
    """The part of a step that is no product.

    forward: (plan, a_BGU, r_BGU, state) -> (out_BU, the state beside "h", what backward needs)
    backward: (plan, kept, state, dout_BU, dstate) -> Slopes
    """

    G: int
    forward: Callable
    backward: Callable


def _lstm(plan: Plan, a_BGU, r_BGU, state: State):
    """Gates i, j, f, o as TensorFlow's LSTMCell orders them: in, candidate, forget, out."""
    z_BGU = a_BGU + r_BGU
    i, f, o = (jax.nn.sigmoid(z_BGU[:, gate]) for gate in (0, 2, 3))
    j = jnp.tanh(z_BGU[:, 1])
    c_BU = _clipped(f * state["c"] + i * j, plan.clip_cell)
    return o * jnp.tanh(c_BU), {"c": c_BU}, (i, j, f, o)


def _lstm_backward(plan: Plan, kept, state: State, dm_BU, dstate: State) -> Slopes:
    i, j, f, o = kept
    free_BU = f * state["c"] + i * j
    t_BU = jnp.tanh(_clipped(free_BU, plan.clip_cell))  # cheaper than to keep it
    dc_BU = dstate["c"] + dm_BU * o * (1 - t_BU * t_BU)
    dc_BU = _unless_clipped(dc_BU, free_BU, plan.clip_cell)
    di, dj = dc_BU * j * i * (1 - i), dc_BU * i * (1 - j * j)
    df, do = dc_BU * state["c"] * f * (1 - f), dm_BU * t_BU * o * (1 - o)
    return Slopes(_stacked(di, dj, df, do), None, o * t_BU, {"c": dc_BU * f, "h": 0.0})


def _gru(plan: Plan, a_BGU, r_BGU, state: State):
    """Gates reset, update, candidate; the reset acts on the state's product, as in cuDNN."""
    r, u = (jax.nn.sigmoid(a_BGU[:, gate] + r_BGU[:, gate]) for gate in (0, 1))
    n = jnp.tanh(a_BGU[:, 2] + r * r_BGU[:, 2])
    return (1 - u) * n + u * state["h"], {}, (r, u, n, r_BGU[:, 2])


def _gru_backward(plan: Plan, kept, state: State, dh_BU, dstate: State) -> Slopes:
    r, u, n, product = kept
    dn = dh_BU * (1 - u) * (1 - n * n)
    dr, du = dn * product * r * (1 - r), dh_BU * (state["h"] - n) * u * (1 - u)
    return Slopes(_stacked(dr, du, dn), _stacked(dr, du, dn * r), None, {"h": dh_BU * u})


def _rnn(plan: Plan, a_BGU, r_BGU, state: State):
    h_BU = RNN[plan.activation][0](a_BGU[:, 0] + r_BGU[:, 0])
    return h_BU, {}, h_BU


def _rnn_backward(plan: Plan, h_BU, state: State, dh_BU, dstate: State) -> Slopes:
    dz_BGU = (dh_BU * RNN[plan.activation][1](h_BU))[:, None]
    return Slopes(dz_BGU, None, None, {"h": 0.0})


CELLS = {
    "lstm": Cell(4, _lstm, _lstm_backward),
    "gru": Cell(3, _gru, _gru_backward),
    "rnn": Cell(1, _rnn, _rnn_backward),
}
RNN: dict[str, tuple[Callable, Callable]] = {  # and the slope, from the result
    "tanh": (jnp.tanh, lambda y: 1 - y * y),
    "relu": (jax.nn.relu, lambda y: y > 0),
}


def _clipped(x, limit: float):
    return jnp.clip(x, -limit, limit) if limit else x


def _unless_clipped(dx, x, limit: float):
    return jnp.where(jnp.abs(x) < limit, dx, 0) if limit else dx


def _wide(dtype):
    """The type of states: float32, or float64 in float64."""
    return jnp.promote_types(dtype, jnp.float32)


def _product(equation: str, x, w):
    """In the weight's dtype, summed up in the type of states."""
    x, wide = x.astype(w.dtype), _wide(w.dtype)
    return jnp.einsum(equation, x, w, preferred_element_type=wide)


def _where(mask, x, y=0.0):
    """Whole rows of a tree where the mask says so, of `y` elsewhere; no mask: all of `x`."""
    if mask is None:
        return x
    return jax.tree.map(lambda each: jnp.where(mask[..., None], each, y), x)


def _cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype), tree)


def _stacked(*gates_BU):
    """[B, G, U] of G gates."""

    def on_cpu(*gates_BU):
        # Side by side in two dimensions: a stack would be worked out anew by each of its readers.
        return jnp.concatenate(gates_BU, 1).reshape(len(gates_BU[0]), len(gates_BU), -1)

    def elsewhere(*gates_BU):
        return jnp.stack(gates_BU, 1)

    return jax.lax.platform_dependent(*gates_BU, cpu=on_cpu, default=elsewhere)


def _near(w: Weights) -> Weights:
    """The weights of the loop, gathered over D once and not in every step."""
    wp_UD = w.wp_UD if w.wp_UD is None else constrain_sharding(w.wp_UD.T, "U").T
    return w._replace(wh_DGU=constrain_sharding(w.wh_DGU, "GU"), wp_UD=wp_UD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def read(plan: Plan, x_LBD, weights: Weights, state: State, keep_LB, valid_LB):
    """One direction in its order of reading -> (y_LBD, the state at the end).

    keep_LB: False where the state is cleared first. valid_LB: False where it is only held.
    """
    return _read_forward(plan, x_LBD, weights, state, keep_LB, valid_LB)[0]


def _read_forward(plan: Plan, x_LBD, weights: Weights, state: State, keep_LB, valid_LB):
    dtype, w = x_LBD.dtype, _near(weights)

    def step(state, now):
        a_BGU, keep_B, valid_B = now
        old = _where(keep_B, state)
        r_BGU = constrain_sharding(_product("BD,DGU->BGU", old["h"], w.wh_DGU), "BGU")
        r_BGU = r_BGU if w.bh_GU is None else r_BGU + w.bh_GU
        a_BGU = a_BGU.astype(_wide(dtype)) + w.b_GU
        h_BD, new, kept = CELLS[plan.cell].forward(plan, a_BGU, r_BGU, old)
        if w.wp_UD is not None:
            h_BD = _clipped(_product("BU,UD->BD", h_BD, w.wp_UD), plan.clip_projection)
        new["h"] = constrain_sharding(h_BD, "BD")
        state = jax.tree.map(lambda x, y: _where(valid_B, x, y), new, old)
        return state, (_where(valid_B, h_BD).astype(dtype), old, _cast(kept, dtype))

    a_LBGU = constrain_sharding(jnp.einsum("LBD,DGU->LBGU", x_LBD, w.wx_DGU), "LBGU")
    given = (a_LBGU, keep_LB, valid_LB)
    state, (y_LBD, old, kept) = jax.lax.scan(step, state, given, unroll=plan.unroll)
    return (y_LBD, state), (x_LBD, y_LBD, old, kept, weights, keep_LB, valid_LB)


def _read_backward(plan: Plan, residuals, slopes):
    x_LBD, y_LBD, old, kept, weights, keep_LB, valid_LB = residuals
    (dy_LBD, dstate), dtype, w = slopes, x_LBD.dtype, _near(weights)
    wh_GUD = w.wh_DGU.transpose(1, 2, 0)  # turned once, not in every step
    wp_DU = w.wp_UD if w.wp_UD is None else w.wp_UD.T

    def step(dstate, now):
        dy_BD, y_BD, old, kept, keep_B, valid_B = now
        read, held = _where(valid_B, dstate), None if valid_B is None else _where(~valid_B, dstate)
        dh_BD = dout = read["h"] + dy_BD
        if wp_DU is not None:
            dh_BD = _unless_clipped(dh_BD, y_BD, plan.clip_projection)
            dout = constrain_sharding(_product("BD,DU->BU", dh_BD, wp_DU), "BU")
        kept = _cast(kept, _wide(dtype))
        by = CELLS[plan.cell].backward(plan, kept, old, dout, read)
        dr_BGU = by.a_BGU if by.r_BGU is None else by.r_BGU
        by.state["h"] += constrain_sharding(_product("BGU,GUD->BD", dr_BGU, wh_GUD), "BD")
        dold = by.state if held is None else jax.tree.map(jnp.add, by.state, held)
        projected = None if wp_DU is None else (by.out_BU, dh_BD)
        return _where(keep_B, dold), _cast((by.a_BGU, by.r_BGU, projected), dtype)

    given = (_where(valid_LB, dy_LBD), y_LBD, old, kept, keep_LB, valid_LB)
    dstate, out = jax.lax.scan(step, dstate, given, reverse=True, unroll=plan.unroll)
    dx_LBD = jnp.einsum("LBGU,DGU->LBD", out[0], w.wx_DGU)
    dw = _weights_slopes(weights, x_LBD, old["h"].astype(dtype), *out)
    return dx_LBD, dw, dstate, None, None


read.defvjp(_read_forward, _read_backward)


def _weights_slopes(w: Weights, x_LBD, h_LBD, a_LBGU, r_LBGU, projected) -> Weights:
    """The gradients of the weights: each a product over all positions."""
    if r_LBGU is None:  # one product for both
        both = _over_all(jnp.concatenate([x_LBD, h_LBD], -1), a_LBGU)
        wx_DGU, wh_DGU = jnp.split(both, [x_LBD.shape[-1]])
    else:
        wx_DGU, wh_DGU = _over_all(x_LBD, a_LBGU), _over_all(h_LBD, r_LBGU)
    b_GU = a_LBGU.sum((0, 1), dtype=w.b_GU.dtype)
    bh_GU = None if w.bh_GU is None else r_LBGU.sum((0, 1), dtype=w.b_GU.dtype)
    return Weights(wx_DGU, wh_DGU, b_GU, bh_GU, projected and _over_all(*projected))


def _over_all(x_LBD, dy):
    """[L, B, D] and [L, B, ...] -> [D, ...]."""

    def on_cpu(x_LBD, dy):
        # Whole operands in two dimensions: else both would be copied, and multiplied more slowly.
        whole = jax.lax.optimization_barrier
        x_RD, dy_RF = (whole(x).reshape(x.shape[0] * x.shape[1], -1) for x in (x_LBD, dy))
        return (whole(x_RD.T) @ dy_RF).reshape(-1, *dy.shape[2:])

    def elsewhere(x_LBD, dy):
        return jnp.einsum("LBD,LB...->D...", x_LBD, dy)

    return jax.lax.platform_dependent(x_LBD, dy, cpu=on_cpu, default=elsewhere)


def in_turn(plan: Plan, *operands):
    """`read` direction by direction; all operands, and the results, lead with Z."""
    Z = len(operands[0])
    each = [read(plan, *(jax.tree.map(lambda x, z=z: x[z], operands))) for z in range(Z)]
    return jax.tree.map(lambda *results: jnp.stack(results), *each)


def at_once(plan: Plan, *operands):
    """The same with both directions in every step."""
    return jax.vmap(functools.partial(read, plan))(*operands)


def flip_backward_direction(x, axis: int):
    """[..., Z, ...] at this axis, with the order of the next one turned in the second direction.

    From the order of the text to the order of reading, and back.
    """
    first, *second = jnp.split(x, x.shape[axis], axis)
    return jnp.concatenate([first, *(jnp.flip(each, axis + 1) for each in second)], axis)


class Recurrent(nn.Module):
    """One recurrent layer.

    Attributes:
        U: units of the cell.
        cell: "lstm" (with a projection: Sak et al. 2014, no peepholes), "gru" (Cho et al. 2014;
            the reset acts on the state's product, as in cuDNN) or "rnn".
        D: width that an LSTM's output is projected to; 0: none, the output is U wide.
        Z: directions: 1 forwards, 2 backwards too.
        clip_cell, clip_projection: an LSTM's cell and projection are held within this; 0: free.
        forget_bias: added to the forget gate when it is computed.
        activation: of the plain RNN: "tanh" or "relu".
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
    unroll: int = 1
    dtype: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        params.check(self, "cell", CELLS)
        params.check(self, "activation", RNN)
        params.check(self, "dtype", params.DTYPES)
        if self.Z not in (1, 2):
            raise ValueError(f"Z={self.Z} directions: there are 1 or 2")
        if self.cell != "lstm" and (self.D or self.clip_cell or self.clip_projection):
            raise ValueError(f"cell={self.cell!r} has no projection and no clips: set them to 0")

    @property
    def width(self) -> int:
        """Of the output in each direction."""
        return self.D or self.U

    def fresh_state(self, B: int) -> State:
        """What a row has before its first word: zeros."""
        widths = {"c_BZU": self.U} if self.cell == "lstm" else {}
        widths["h_BZD"] = self.width
        dtype = _wide(self.dtype)
        return {name: jnp.zeros((B, self.Z, width), dtype) for name, width in widths.items()}

    @nn.compact
    def __call__(self, x, state: State | None = None, *, valid=None, fresh=None):
        """Reads B rows in Z directions.

        Args:
            x: x_BLD, one text that is read in every direction, the second from its end; or
                x_BZLD, a text for each direction, in its order of reading.
            state: as `fresh_state`, or as returned by the reading before; None: zeros.
            valid: bool, shaped as x without D; False: no word here.  The state passes by and the
                output is 0.
            fresh: likewise; True: the state is cleared before this position is read.

        Returns:
            (y, state): y_BLZD for x_BLD, y_BZLD for x_BZLD, in the compute dtype.
        """
        if x.ndim == 4:
            return self._read(x, state, valid, fresh)
        y_BZLD, state = self._read(self._both(x), state, self._both(valid), self._both(fresh))
        return constrain_sharding(
            jnp.moveaxis(flip_backward_direction(y_BZLD, 1), 1, 2), "BLZD"
        ), state

    def _read(self, x_BZLD, state: State | None, valid_BZL, fresh_BZL):
        """Every direction in its order of reading."""
        plan = Plan(self.cell, self.activation, self.clip_cell, self.clip_projection, self.unroll)
        weights = self._weights(x_BZLD.shape[-1])
        given: State = self.fresh_state(len(x_BZLD)) if state is None else state
        own = {name[0]: jnp.moveaxis(each, 1, 0) for name, each in given.items()}
        keep_BZL = None if fresh_BZL is None else ~jnp.asarray(fresh_BZL)
        timely = [
            None if each is None else jnp.moveaxis(each, 0, 2)
            for each in (x_BZLD.astype(self.dtype), keep_BZL, valid_BZL)
        ]
        y_ZLBD, own = jax.lax.platform_dependent(
            timely[0],
            weights,
            own,
            *timely[1:],
            cpu=functools.partial(in_turn, plan),  # which wider steps would only slow down
            default=functools.partial(at_once, plan),
        )
        new = {name: jnp.moveaxis(own[name[0]], 0, 1) for name in given}
        return constrain_sharding(jnp.moveaxis(y_ZLBD, 2, 0), "BZLD"), new

    def _both(self, x_BL):
        """The same in each direction's order of reading."""
        return x_BL if x_BL is None else flip_backward_direction(jnp.stack([x_BL] * self.Z, 1), 1)

    def _weights(self, X: int):
        G, U, D, Z = CELLS[self.cell].G, self.U, self.width, self.Z
        # Glorot and Bengio 2010, of the product that input and state are one operand of.
        init = params.initializer("uniform", math.sqrt(6 / (X + D + G * U)))
        wx_ZDGU = params.weight(self, "wx_ZDGU", (Z, X, G, U), init)
        wh_ZDGU = params.weight(self, "wh_ZDGU", (Z, D, G, U), init)
        wide = _wide(self.dtype)
        b_ZGU = self.param("b_ZGU", params.zeros, (Z, G, U), jnp.float32).astype(wide)
        bh_ZGU = wp_ZUD = None
        if self.cell == "lstm":
            b_ZGU = b_ZGU + jnp.zeros((G, 1), wide).at[2].set(self.forget_bias)
        if self.cell == "gru":
            bh_ZU = self.param("bh_ZU", params.zeros, (Z, U), jnp.float32).astype(wide)
            bh_ZGU = jnp.zeros((Z, G, U), wide).at[:, 2].set(bh_ZU)
        if self.D:
            init = params.initializer("uniform", math.sqrt(6 / (U + D)))
            wp_ZUD = params.weight(self, "wp_ZUD", (Z, U, D), init)
        return Weights(wx_ZDGU, wh_ZDGU, b_ZGU, bh_ZGU, wp_ZUD)
