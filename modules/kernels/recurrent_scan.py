"""The scan of a recurrent cell over the positions of a text, whose gradient is written out."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding
from modules.kernels.dense import weight_grad
from modules.kernels.recurrent_cells import (
    CELLS,
    CellConfig,
    CellState,
    CellWeights,
    clip,
    clip_grad,
)


def scan_directions(config: CellConfig, x_ZLBD, weights, state, not_reset_ZLB, valid_ZLB):
    """Scans every direction in its own order of reading.

    Args:
        x_ZLBD: inputs; D is their width.
        weights: `CellWeights`, each with a leading Z.
        state: `CellState` before the first position, with a leading Z.
        not_reset_ZLB: bool; False: the state is cleared before this position; None: never.
        valid_ZLB: bool; False: the state passes by and the output is 0; None: all are.

    Returns:
        (y_ZLBD, state): outputs in the dtype of `x_ZLBD`, and the state after the last position.
    """
    forms = {name: functools.partial(form, config) for name, form in FORMS.items()}
    operands = (x_ZLBD, weights, state, not_reset_ZLB, valid_ZLB)
    return jax.lax.platform_dependent(*operands, **forms)


def directions_sequential(config: CellConfig, *operands):
    """Scans one direction after the other."""
    Z = len(operands[0])
    results = [scan_cell(config, *(jax.tree.map(lambda x, z=z: x[z], operands))) for z in range(Z)]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *results)


def reference(config: CellConfig, x_LBD, weights, state, not_reset_LB, valid_LB):
    """Scans one direction as `scan_cell` does, with the gradient of autodiff."""
    return _forward(config, x_LBD, weights, state, not_reset_LB, valid_LB)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scan_cell(config: CellConfig, x_LBD, weights, state, not_reset_LB, valid_LB):
    """Scans one direction; the arguments and results of `scan_directions` without Z."""
    return _forward(config, x_LBD, weights, state, not_reset_LB, valid_LB)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scan_stack(config: CellConfig, x_ZLBD, weights, state, not_reset_ZLB, valid_ZLB):
    """Scans all directions in one loop of wider steps; see `scan_directions`."""
    return _forward(config, x_ZLBD, weights, state, not_reset_ZLB, valid_ZLB, is_stack=True)[0]


def _forward(
    config: CellConfig,
    x_LBD,
    weights: CellWeights,
    state,
    not_reset_LB,
    valid_LB,
    is_stack: bool = False,
):
    """Scans one direction, or a stack of them, of which every array has a leading Z."""
    dtype, lift = x_LBD.dtype, jax.vmap if is_stack else lambda f: f
    w, cell = lift(replicate_for_loop)(weights), CELLS[config.cell]
    activate = cell.activate if is_stack else None

    def step(w: CellWeights, state: CellState, inputs):
        a_BGU, not_reset_B, valid_B = inputs
        old = mask_rows(not_reset_B, state)  # a document begins with an empty state
        # In the compute dtype, as the inputs' share: together they are most of what a step moves.
        r_BGU = _product("BD,DGU->BGU", old.h_BD, w.wh_DGU, dtype)
        # In float32 from here on: a state added up in bfloat16 would lose its digits.
        r_BGU = constrain_sharding(r_BGU, "BGU").astype(state_dtype(dtype))
        r_BGU = r_BGU if w.bh_GU is None else r_BGU + w.bh_GU
        a_BGU = a_BGU.astype(state_dtype(dtype)) + w.b_GU
        h_BD, c_BU, saved = cell.forward(config, a_BGU, r_BGU, old)
        # A GPU writes each array by a kernel of its own, which reads all that it is made of.
        saved = activate(a_BGU + r_BGU) if activate else saved
        if w.wp_UD is not None:
            h_BD = _product("BU,UD->BD", h_BD, w.wp_UD, state_dtype(dtype))
            h_BD = clip(h_BD, config.clip_projection)
        new = CellState(constrain_sharding(h_BD, "BD"), c_BU)
        state = jax.tree.map(lambda x, y: mask_rows(valid_B, x, y), new, old)
        return state, (mask_rows(valid_B, h_BD).astype(dtype), old, _cast(saved, dtype))

    # The inputs' product is one for all positions; only the state's waits for the position before.
    multiply = lift(functools.partial(jnp.einsum, "LBD,DGU->LBGU"))
    a_LBGU = lift(lambda x: constrain_sharding(x, "LBGU"))(multiply(x_LBD, w.wx_DGU))
    scan = _scan_stack if is_stack else jax.lax.scan
    state, (y_LBD, old, saved) = scan(
        functools.partial(lift(step), w),
        state,
        (a_LBGU, not_reset_LB, valid_LB),
        unroll=config.unroll or 1,
    )
    # Kept for the backward pass: the gates, and the state before each step.
    return (y_LBD, state), (x_LBD, y_LBD, old, saved, weights, not_reset_LB, valid_LB)


def _backward(config: CellConfig, residuals, grads, is_stack: bool = False):
    x_LBD, y_LBD, old, saved, weights, not_reset_LB, valid_LB = residuals
    (dy_LBD, dstate), dtype = grads, x_LBD.dtype
    cell, lift = CELLS[config.cell], jax.vmap if is_stack else lambda f: f
    is_one_array = is_stack and cell.activate is not None
    w = lift(replicate_for_loop)(weights)
    transposed = lift(_transpose)(w)  # once, not in every step

    def step(transposed, dstate: CellState, inputs):
        wh_GUD, wp_DU = transposed
        dy_BD, y_BD, old, saved, not_reset_B, valid_B = inputs
        dnew = mask_rows(valid_B, dstate)
        dh_BD = dout_BU = dnew.h_BD + dy_BD
        if wp_DU is not None:
            # A clipped output stands at the limit, so the output itself says where.
            dh_BD = clip_grad(dh_BD, y_BD, config.clip_projection)
            dout_BU = constrain_sharding(_product("BD,DU->BU", dh_BD, wp_DU, dtype), "BU")
        # What was kept is in the compute dtype; the derivatives are in the states'.
        saved, dout_BU = _cast((saved, dout_BU), state_dtype(dtype))
        saved = tuple(saved[:, gate] for gate in range(cell.G)) if is_one_array else saved
        step_grads = cell.backward(config, saved, old, dout_BU, dnew.c_BU)
        da_BGU, dr_BGU = step_grads.a_BGU, step_grads.r_BGU
        shared_BGU = da_BGU if dr_BGU is None else dr_BGU
        dh_by_product_BD = _product("BGU,GUD->BD", shared_BGU, wh_GUD, state_dtype(dtype))
        dh_by_product_BD = constrain_sharding(dh_by_product_BD, "BD")
        dold = CellState(step_grads.state.h_BD + dh_by_product_BD, step_grads.state.c_BU)
        if valid_B is not None:  # the state passed by
            dold = jax.tree.map(jnp.add, dold, mask_rows(~valid_B, dstate))
        projected = None if wp_DU is None else (step_grads.out_BU, dh_BD)
        return mask_rows(not_reset_B, dold), _cast((da_BGU, dr_BGU, projected), dtype)

    scan = _scan_stack if is_stack else jax.lax.scan
    dstate, out = scan(
        functools.partial(lift(step), transposed),
        dstate,
        (mask_rows(valid_LB, dy_LBD), y_LBD, old, saved, not_reset_LB, valid_LB),
        reverse=True,
        unroll=config.unroll or 1,
    )
    dx_LBD = lift(functools.partial(jnp.einsum, "LBGU,DGU->LBD"))(out[0], w.wx_DGU)
    # One product after the scan, where autodiff would add up a gradient of the weights' size in
    # each step.
    dweights = lift(_weight_grads)(weights, x_LBD, old.h_BD.astype(dtype), *out)
    return dx_LBD, dweights, dstate, None, None


scan_cell.defvjp(_forward, _backward)
scan_stack.defvjp(
    functools.partial(_forward, is_stack=True), functools.partial(_backward, is_stack=True)
)


# A training step of a small ELMo (U=1024, D=128, 2 layers, both directions, B=32, L=20, a softmax
# of 10,000 words) takes on one CPU core 1.50 times as long by `reference`, with 1.4 times the
# memory, and 1.08 times as long with the directions stacked, which halve the steps of an
# accelerator.
FORMS: dict[str, Callable[..., Any]] = {"cpu": directions_sequential, "default": scan_stack}


def _scan_stack(step, carry, inputs, *, reverse: bool = False, unroll: int = 1):
    """Scans as `jax.lax.scan`, over the second dimension of inputs and outputs."""
    # With positions in front, a product of all directions' inputs would be transposed as a whole
    # before the scan, and what the scan keeps after it.
    L = jax.tree.leaves(inputs)[0].shape[1]

    def at_position(carry, n):
        state, outputs = carry
        here = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, n, 1, False), inputs)
        state, new = step(state, here)
        put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=n, axis=1)
        return (state, jax.tree.map(put, outputs, new)), None

    first = jax.tree.map(lambda x: x[:, 0], inputs)
    shapes = jax.eval_shape(step, carry, first)[1]
    zeros = jax.tree.map(lambda x: jnp.zeros((len(inputs[0]), L, *x.shape[1:]), x.dtype), shapes)
    begin, numbers_L = (carry, zeros), jnp.arange(L)
    return jax.lax.scan(at_position, begin, numbers_L, reverse=reverse, unroll=unroll)[0]


def _weight_grads(w: CellWeights, x_LBD, h_LBD, da_LBGU, dr_LBGU, projected) -> CellWeights:
    """Returns the gradients of the weights, each by one product over all positions."""
    if dr_LBGU is None:  # the gates' gradients are the same for both: one product
        both_DGU = weight_grad(jnp.concatenate([x_LBD, h_LBD], -1), da_LBGU)
        wx_DGU, wh_DGU = jnp.split(both_DGU, [x_LBD.shape[-1]])
    else:
        wx_DGU, wh_DGU = weight_grad(x_LBD, da_LBGU), weight_grad(h_LBD, dr_LBGU)
    b_GU = da_LBGU.sum((0, 1), dtype=w.b_GU.dtype)
    bh_GU = None if w.bh_GU is None else dr_LBGU.sum((0, 1), dtype=w.b_GU.dtype)
    return CellWeights(wx_DGU, wh_DGU, b_GU, bh_GU, projected and weight_grad(*projected))


def replicate_for_loop(w: CellWeights) -> CellWeights:
    """Gathers the weights of the loop over D once, not in every step."""
    wp_UD = w.wp_UD if w.wp_UD is None else constrain_sharding(w.wp_UD.T, "U").T
    return w._replace(wh_DGU=constrain_sharding(w.wh_DGU, "GU"), wp_UD=wp_UD)


def _transpose(w: CellWeights):
    return w.wh_DGU.transpose(1, 2, 0), w.wp_UD if w.wp_UD is None else w.wp_UD.T


def state_dtype(dtype):
    """Returns the dtype of states: float32, or float64 in float64."""
    return jnp.promote_types(dtype, jnp.float32)


def mask_rows(mask, tree, other=0.0):
    """Selects the rows of a tree where the mask is True, else of `other`; None selects all."""
    if mask is None:
        return tree
    return jax.tree.map(lambda x: jnp.where(mask[..., None], x, other), tree)


def _product(equation: str, x, w, dtype):
    # Operands in the weight's dtype; all hardware sums in float32, and rounds the sum.
    return jnp.einsum(equation, x.astype(w.dtype), w, preferred_element_type=dtype)


def _cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype), tree)
