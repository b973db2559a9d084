"""Products of filters with the windows of words, of which padding needs none.

A batch of sentences is about half padding.  On a CPU the words of all rows are laid one after
another, with room for windows to hang over between them, and only this long row meets the filters.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding, num_shards

# Lengths of the long row, as shares of the batch's positions: the first that is enough is taken.
# A longer one would save little.
SHARES = (0.5, 0.625)


def reference(x_BLD, kernels, valid_BL):
    """Multiplies the windows of whole rows, padding included."""
    del valid_BL
    return [_convolve(x_BLD, kernel_wDX) for kernel_wDX in kernels]


def multiply_windows(x_BLD, kernels, valid_BL):
    """Multiplies each window of a row with filters, those that hang over its ends, too.

    Args:
        x_BLD: vectors of words, 0 where there is none.
        kernels: filters of each width w, [w, D, X].
        valid_BL: where there are words.

    Returns:
        [B, L + w - 1, X] of each width: entry j is of the window that ends at position j.
    """
    return jax.lax.platform_dependent(x_BLD, list(kernels), valid_BL, **FORMS)


def _convolve(x_BLD, kernel_wDX):
    edge = len(kernel_wDX) - 1
    # Padded before: a convolution that pads has a gradient four times as slow on a CPU.
    x_BLD = jnp.pad(x_BLD, ((0, 0), (edge, edge), (0, 0)))
    return jax.lax.conv_general_dilated(
        x_BLD, kernel_wDX, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
    )


# --- on a CPU: one long row of words --------------------------------------------------------------


def _multiply_words(x_BLD, kernels, valid_BL):
    """Takes long rows, one for each device, where they are short enough."""
    B, L, _ = x_BLD.shape
    # The smallest batch, of one row, makes the parameters and divides over no devices.
    devices = num_shards("B") if B % num_shards("B") == 0 else 1
    # Shapes are known before the batch is: where more words come, `switch` takes the padded rows.
    sizes = [int(share * (B // devices) * L) for share in SHARES]
    first_B = valid_BL.argmax(1)
    # Words between which there is padding keep their distance.
    spans_B = jnp.where(valid_BL.any(1), L - valid_BL[:, ::-1].argmax(1) - first_B, 0)

    def split(x_B):
        return constrain_sharding(x_B.reshape(devices, -1, *x_B.shape[1:]), "B" + "_" * x_B.ndim)

    first_dB, spans_dB = split(first_B), split(spans_B)

    def pack(words: int, x_BLD, kernels):
        gap = max(1, max(map(len, kernels)) - 1)  # at least the place that `_unpack_rows` needs
        x_dTD, start_dB = jax.vmap(_pack_rows, (0, 0, 0, None, None))(
            split(x_BLD), first_dB, spans_dB, words, gap
        )
        unpack = jax.vmap(_unpack_rows, (0, 0, 0, 0, None, None))
        answers = [_add_products(x_dTD, kernel_wDX) for kernel_wDX in kernels]
        parts = [
            unpack(y_dTX, start_dB, first_dB, spans_dB, L, len(kernel_wDX))
            for y_dTX, kernel_wDX in zip(answers, kernels, strict=True)
        ]
        return [constrain_sharding(x.reshape(B, *x.shape[2:]), "BLX") for x in parts]

    def pad(x_BLD, kernels):
        return [_add_products(x_BLD, kernel_wDX) for kernel_wDX in kernels]

    most = spans_dB.sum(1).max()
    forms: list[Callable] = [functools.partial(pack, words) for words in sizes]
    return jax.lax.switch(sum(most > words for words in sizes), [*forms, pad], x_BLD, kernels)


def _add_products(x_BLD, kernel_wDX):
    """Multiplies windows as a convolution does: one product, whose parts are added up shifted."""
    # Inside a branch XLA's convolutions take ten times as long on the way back.
    (B, L, D), (w, _, X) = x_BLD.shape, kernel_wDX.shape
    flat_DF = jnp.swapaxes(kernel_wDX, 0, 1).reshape(D, w * X)
    # Two dimensions, and parts cut from the last one: other forms take up to three times as long.
    y_BLF = (x_BLD.reshape(B * L, D) @ flat_DF).reshape(B, L, w * X)
    parts = jnp.split(y_BLF, w, axis=-1)
    # The filter's last place meets the word at which the window ends.
    shifted = (jnp.pad(x, ((0, 0), (w - 1 - i, i), (0, 0))) for i, x in enumerate(parts))
    return functools.reduce(jnp.add, shifted)


def _pack_rows(x_BLD, first_B, spans_B, words: int, gap: int):
    """Lays words one after another, `gap` zeros between rows: [T, D], and where each row begins."""
    B, L, D = x_BLD.shape
    start_B = jnp.cumsum(spans_B + gap) - spans_B
    places_T = jnp.arange(gap + words + B * gap)
    row_T = jnp.searchsorted(start_B, places_T, side="right", method="compare_all") - 1
    offset_T = places_T - start_B[row_T]
    is_word_T = (row_T >= 0) & (offset_T < spans_B[row_T])
    source_T = jnp.where(is_word_T, row_T * L + first_B[row_T] + offset_T, 0)
    return jnp.where(is_word_T[:, None], x_BLD.reshape(B * L, D)[source_T], 0), start_B


def _unpack_rows(y_TX, start_B, first_B, spans_B, L: int, w: int):
    """Takes each row's windows by the position where they end: [B, L + w - 1, X]."""
    offset_BE = jnp.arange(L + w - 1) - first_B[:, None]
    sees_words_BE = (offset_BE >= 0) & (offset_BE < spans_B[:, None] + w - 1)
    sees_words_BE &= spans_B[:, None] > 0
    # The window that ends at place 0 sees zeros alone.
    return y_TX[jnp.where(sees_words_BE, start_B[:, None] + offset_BE, 0)]


# For 50 rows of 44 positions, 1,250 words 100 wide and Kim's 300 filters, forwards and backwards on
# one core: 16 ms, `reference` 24 ms.
FORMS = {"cpu": _multiply_words, "default": reference}
