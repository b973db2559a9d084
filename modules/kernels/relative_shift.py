"""Cuts J entries from each row, from a place of the row's own on."""

import functools

import jax
import jax.numpy as jnp


def reference(x_BHPR, start_BP, J: int):
    """Gathers `x[b, h, p, start[b, p]:][:J]`, with the gradient of autodiff."""
    index_BPJ = start_BP[..., None] + jnp.arange(J)
    return jnp.take_along_axis(x_BHPR, index_BPJ[:, None], axis=-1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def cut_rows(x_BHPR, start_BP, J: int):
    """Cuts `x[b, h, p, start[b, p]:][:J]`: [B, H, P, R] and [B, P] -> [B, H, P, J]."""
    # A roll and a slice, so that the gradient is a roll too and never a scatter, for accelerators.
    # On one CPU core, forwards and backwards, `reference` takes 1.04 times as long for [8, 4, 21,
    # 256] and 0.82 times for [8, 12, 85, 1408]; autodiff of the same roll takes 1.9 and 1.1 times
    # as long.
    return roll_rows(x_BHPR, start_BP)[..., :J]


def _forward(x_BHPR, start_BP, J: int):
    # A residual is an array: the zeros hold R.
    return cut_rows(x_BHPR, start_BP, J), (start_BP, jnp.zeros(x_BHPR.shape[-1:], jnp.bool_))


def _backward(J: int, residuals, dy_BHPJ):
    start_BP, zeros_R = residuals
    dy_BHPR = jnp.pad(dy_BHPJ, ((0, 0), (0, 0), (0, 0), (0, zeros_R.size - J)))
    return roll_rows(dy_BHPR, -start_BP), None


cut_rows.defvjp(_forward, _backward)


def roll_rows(x_BHPR, by_BP):
    """Rolls each row to the left by its own number of places."""
    return jax.lax.platform_dependent(x_BHPR, by_BP % x_BHPR.shape[-1], **FORMS)


def _roll_by_index(x_BHPR, by_BP):
    R = x_BHPR.shape[-1]
    index_BPR = (by_BP[..., None] + jnp.arange(R)) % R
    return jnp.take_along_axis(x_BHPR, index_BPR[:, None], axis=-1)


def _roll_by_bits(x_BHPR, by_BP):
    # On a TPU a gather costs more than log2(R) rolls of everything by fixed amounts.
    for bit in range((x_BHPR.shape[-1] - 1).bit_length()):
        rolls_B1P1 = (by_BP >> bit & 1).astype(bool)[:, None, :, None]
        x_BHPR = jnp.where(rolls_B1P1, jnp.roll(x_BHPR, -(1 << bit), axis=-1), x_BHPR)
    return x_BHPR


FORMS = {"tpu": _roll_by_bits, "default": _roll_by_index}
