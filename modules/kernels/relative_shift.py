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
    """Cuts `x[b, h, p, start[b, p]:][:J]`: [B, H, P, R] and [B, P] -> [B, H, P, J].

    Args:
        start_BP: at least 0, and less than R - J.
    """
    forms = {name: functools.partial(cut, J=J) for name, (cut, _) in FORMS.items()}
    return jax.lax.platform_dependent(x_BHPR, start_BP, **forms)


def _forward(x_BHPR, start_BP, J: int):
    # A residual is an array: the zeros hold R.
    return cut_rows(x_BHPR, start_BP, J), (start_BP, jnp.zeros(x_BHPR.shape[-1:], jnp.bool_))


def _backward(J: int, residuals, dy_BHPJ):
    start_BP, zeros_R = residuals
    forms = {name: functools.partial(put, R=zeros_R.size) for name, (_, put) in FORMS.items()}
    return jax.lax.platform_dependent(dy_BHPJ, start_BP, **forms), None


cut_rows.defvjp(_forward, _backward)

# --- a slice of each row: autodiff of it would scatter --------------------------------------------


def _cut_by_slices(x_BHPR, start_BP, J: int):
    cut = functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=J, axis=-1)
    by_slot = jax.vmap(cut, (1, 0), 1)
    return jax.vmap(by_slot)(x_BHPR, start_BP)


def _put_by_slices(dy_BHPJ, start_BP, R: int):
    """Transposes `_cut_by_slices`."""
    room = R - dy_BHPJ.shape[-1]
    padded = jnp.pad(dy_BHPJ, ((0, 0),) * 3 + ((room, room),))
    return _cut_by_slices(padded, room - start_BP, R)


# --- one gather ---------------------------------------------------------------------------------


def _put_by_index(dy_BHPJ, start_BP, R: int):
    """Rolls each row to the right by its own number of places."""
    index_BPR = (jnp.arange(R) - start_BP[..., None]) % R
    return jnp.take_along_axis(_widen(dy_BHPJ, R), index_BPR[:, None], axis=-1)


# --- a barrel shifter: a choice between two fixed slices for each bit of the start ----------------


def _cut_by_bits(x_BHPR, start_BP, J: int):
    bits = _count_bits(x_BHPR.shape[-1], J)
    x = _widen(x_BHPR, J + (1 << bits) - 1)
    for bit in reversed(range(bits)):
        # The width shrinks to what the lower bits may still need, so that nothing wraps around.
        shift, width = 1 << bit, J + (1 << bit) - 1
        x = jnp.where(_is_set(bit, start_BP), x[..., shift : shift + width], x[..., :width])
    return x[..., :J]


def _put_by_bits(dy_BHPJ, start_BP, R: int):
    """Transposes `_cut_by_bits`."""
    x, J = dy_BHPJ, dy_BHPJ.shape[-1]
    bits = _count_bits(R, J)
    for bit in range(bits):
        # The last step widens to R at once, if that is more.
        shift, width = 1 << bit, J + (2 << bit) - 1
        width = max(width, R) if bit == bits - 1 else width
        shifted_x = jnp.pad(x, ((0, 0),) * 3 + ((shift, width - shift - x.shape[-1]),))
        x = jnp.where(_is_set(bit, start_BP), shifted_x, _widen(x, width))
    return _widen(x, R)[..., :R]


def _count_bits(R: int, J: int) -> int:
    return max(R - J - 1, 0).bit_length()


def _is_set(bit: int, start_BP):
    return (start_BP >> bit & 1).astype(bool)[:, None, :, None]


def _widen(x, width: int):
    """Adds columns of zeros behind, up to this width if there are fewer."""
    return jnp.pad(x, ((0, 0),) * 3 + ((0, max(width - x.shape[-1], 0)),))


# A TPU gathers slowly: compiled for a v5p, products that make [32, 16, 85, 1408], and their
# gradients, move 3.7 GB with the barrel, and 14.1 with rolls of whole rows by each bit.
FORMS = {
    "tpu": (_cut_by_bits, _put_by_bits),
    "cuda": (reference, _put_by_index),
    "default": (_cut_by_slices, _put_by_slices),
}
