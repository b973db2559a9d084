"""Relative positions (Transformer-XL): the score of a query with the distance to its key.

A distance is query minus key: how far back the key lies.  Tables of distances run from the
furthest back, M + L - 1 (the last query and the first of M + L keys), down to -L, which no pair
has but which rounds R to M + 2L and lets every shift be a change of row length.
"""

import functools

import jax
import jax.numpy as jnp


def sinusoids(L: int, M: int, D: int, *, clamp: int = -1, backward: bool = False):
    """[R, D] float32, R = M + 2L: sines, then cosines, of every distance.

    `backward` is the table of rows read from right to left, where distances change sign;
    `clamp` > 0 limits the distances first (Transformer-XL, section 3.3 and its code).
    """
    distance_R = jnp.arange(M + L - 1, -L - 1, -1.0)
    distance_R = -distance_R if backward else distance_R
    if clamp > 0:
        distance_R = jnp.clip(distance_R, -clamp, clamp)
    frequency_D = 10000.0 ** -(jnp.arange(0, D, 2) / D)
    angle_RD = distance_R[:, None] * frequency_D
    return jnp.concatenate([jnp.sin(angle_RD), jnp.cos(angle_RD)], axis=-1)


def scores(q_BLHK, r_RHK, block: int = 128):
    """Every query with its distance to each of the J = R - L keys: [B, H, L, J].

    Row i of the L queries needs the J distances from R - J - 1 - i on, so all rows together
    need scores with all R.  Taken in blocks, b rows need only J + b of them; within a block
    the shift is a change of row length.

    Args:
        q_BLHK: queries, whose positions are those of the last L keys.
        r_RHK: distances, projected; or r_BRHK where they differ by example.
        block: rows taken together, if that divides L.
    """
    B, L, H, K = q_BLHK.shape
    axis = r_RHK.ndim - 3
    J, b = r_RHK.shape[axis] - L, block if L % block == 0 else L
    windows = [jax.lax.slice_in_dim(r_RHK, s, s + J + b, axis=axis) for s in range(L - b, -1, -b)]
    rows = "BcWHK" if axis else "cWHK"
    q = q_BLHK.reshape(B, L // b, b, H, K)
    raw = jnp.einsum(f"BcbHK,{rows}->BHcbW", q, jnp.stack(windows, axis))
    flat = raw.reshape(B, H, L // b, b * (J + b))[..., b - 1 : b - 1 + b * (J + b - 1)]
    return flat.reshape(B, H, L, J + b - 1)[..., :J]


def scores_at(q_BPHK, r_RHK, slots_BP, L: int):
    """The rows of `scores` at these positions of a sequence of L: [B, H, P, J]."""
    rows = "BRHK" if r_RHK.ndim == 4 else "RHK"
    raw_BHPR = jnp.einsum(f"BPHK,{rows}->BHPR", q_BPHK, r_RHK)
    return cut(raw_BHPR, L - 1 - slots_BP, raw_BHPR.shape[-1] - L)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def cut(x_BHPR, start_BP, J: int):
    """`x[b, h, p, start[b, p]:][:J]`; its gradient is a shift too, never a scatter."""
    return _rolled(x_BHPR, start_BP)[..., :J]


def _cut_forward(x_BHPR, start_BP, J: int):
    return cut(x_BHPR, start_BP, J), (start_BP, jnp.zeros(x_BHPR.shape[-1:], jnp.bool_))


def _cut_backward(J: int, kept, dy_BHPJ):
    start_BP, like_R = kept
    dy_BHPR = jnp.pad(dy_BHPJ, ((0, 0), (0, 0), (0, 0), (0, like_R.size - J)))
    return _rolled(dy_BHPR, -start_BP), None


cut.defvjp(_cut_forward, _cut_backward)


def _rolled(x_BHPR, by_BP):
    """Each row rolled to the left by its own number of places."""
    by_BP = by_BP % x_BHPR.shape[-1]
    return jax.lax.platform_dependent(x_BHPR, by_BP, tpu=_by_bits, default=_by_index)


def _by_index(x_BHPR, by_BP):
    R = x_BHPR.shape[-1]
    index_BPR = (by_BP[..., None] + jnp.arange(R)) % R
    return jnp.take_along_axis(x_BHPR, index_BPR[:, None], axis=-1)


def _by_bits(x_BHPR, by_BP):
    """For a TPU, where a gather costs more than log2(R) rolls of everything by fixed amounts."""
    for bit in range((x_BHPR.shape[-1] - 1).bit_length()):
        rolls_B1P1 = (by_BP >> bit & 1).astype(bool)[:, None, :, None]
        x_BHPR = jnp.where(rolls_B1P1, jnp.roll(x_BHPR, -(1 << bit), axis=-1), x_BHPR)
    return x_BHPR
