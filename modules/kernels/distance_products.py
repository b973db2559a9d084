"""Products of queries with projected distances, of which a row reads those of its direction."""

import functools

import jax
import jax.numpy as jnp


def reference(q_BcNHK, r, backward_B=None):
    """Multiplies queries with all distances of their block: [B, H, c, N, R].

    A row meets a copy of its own distances, with the gradient of autodiff.

    Args:
        q_BcNHK: queries in c blocks.
        r: distances of each block: [c, R, H, K], [2, c, R, H, K] by direction or [B, c, R, H, K] by
            row.
        backward_B: which of the two directions a row reads; None: there is one, or a table a row.
    """
    r = choose_rows(r, backward_B)
    rows = "BcRHK" if r.ndim == 5 else "cRHK"
    return jnp.einsum(f"BcNHK,{rows}->BHcNR", q_BcNHK, r)


def choose_rows(r, backward_B):
    """Takes each row's direction of [2, ...]: [B, ...]; what is of one is left so."""
    if backward_B is None:
        return r
    return jnp.where(backward_B.reshape(-1, *(1,) * (r.ndim - 1)), r[1], r[0])


# --- a product for each direction and head -------------------------------------------------------


def multiply_by_direction(q_BcNHK, r, backward_B=None):
    """Computes `reference` without such copies, but where rows differ in no regular way."""
    if backward_B is not None:
        return _multiply_either(q_BcNHK, r, backward_B)
    if r.ndim == 5:
        return reference(q_BcNHK, r)
    return _multiply_in_turns(q_BcNHK, r[None])


@jax.custom_vjp
def _multiply_either(q_BcNHK, r_ZcRHK, backward_B):
    """Multiplies in turns where the rows read forwards and backwards in turns, as those of lanes.

    What rows read is known on the device alone: it chooses, forwards and backwards.
    """
    in_turns = lambda q, r, _: _multiply_in_turns(q, r)  # noqa: E731
    return _choose(backward_B, in_turns, reference, q_BcNHK, r_ZcRHK, backward_B)


def _choose(backward_B, in_turns, in_any_order, *inputs):
    if len(backward_B) % 2:
        return in_any_order(*inputs)
    alternates = (backward_B == (jnp.arange(len(backward_B)) % 2 == 1)).all()
    return jax.lax.cond(alternates, in_turns, in_any_order, *inputs)


def _forward_either(*inputs):
    return _multiply_either(*inputs), inputs


def _backward_either(inputs, dy_BHcNR):
    def in_turns(q_BcNHK, r_ZcRHK, _, dy_BHcNR):
        return jax.vjp(_multiply_in_turns, q_BcNHK, r_ZcRHK)[1](dy_BHcNR)

    def in_any_order(q_BcNHK, r_ZcRHK, backward_B, dy_BHcNR):
        multiply = functools.partial(reference, backward_B=backward_B)
        return jax.vjp(multiply, q_BcNHK, r_ZcRHK)[1](dy_BHcNR)

    return *_choose(inputs[-1], in_turns, in_any_order, *inputs, dy_BHcNR), None


_multiply_either.defvjp(_forward_either, _backward_either)


def _multiply_in_turns(q_BcNHK, r_ZcRHK):
    """Multiplies rows 0, Z, 2Z ... with the first table, and so on."""
    B, c, N, H, K = q_BcNHK.shape
    Z, _, R = r_ZcRHK.shape[:3]
    q_ZHcMK = q_BcNHK.reshape(B // Z, Z, c, N, H, K).transpose(1, 4, 2, 0, 3, 5)
    y_ZHcMR = _multiply_tables(q_ZHcMK.reshape(Z, H, c, -1, K), r_ZcRHK)
    y_BHcNR = y_ZHcMR.reshape(Z, H, c, B // Z, N, R).transpose(3, 0, 1, 2, 4, 5)
    return y_BHcNR.reshape(B, H, c, N, R)


@jax.custom_vjp
def _multiply_tables(q_ZHcMK, r_ZcRHK):
    return jnp.einsum("ZHcMK,ZcRHK->ZHcMR", q_ZHcMK, r_ZcRHK)


def _backward_tables(inputs, dy_ZHcMR):
    q_ZHcMK, r_ZcRHK = inputs
    dq_ZHcMK = jnp.einsum("ZHcMR,ZcRHK->ZHcMK", dy_ZHcMR, r_ZcRHK)
    # K rows of R: turned round only behind a barrier, or it would be a slower product of R rows.
    dr_ZHcKR = jax.lax.optimization_barrier(jnp.einsum("ZHcMK,ZHcMR->ZHcKR", q_ZHcMK, dy_ZHcMR))
    return dq_ZHcMK, dr_ZHcKR.transpose(0, 2, 4, 1, 3)


_multiply_tables.defvjp(
    lambda q_ZHcMK, r_ZcRHK: (_multiply_tables(q_ZHcMK, r_ZcRHK), (q_ZHcMK, r_ZcRHK)),
    _backward_tables,
)

FORMS = {"cpu": multiply_by_direction, "default": reference}
