"""The largest answer of each character filter along a word, and its gradient.

Each device takes its own words in chunks, so that the answers of all words never exist together.
"""

import functools
import itertools

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding, num_shards

# Words of each device whose answers exist at once.  A CPU has them in its cache; elsewhere a chunk
# is worth its kernels, and 8192 words of ELMo's filters take 2 GiB forwards and 4 backwards.
WORDS_PER_CHUNK = {"cpu": 512, "default": 8192}


def reference(table_CE, kernels, chars_BPW):
    """Takes the maxima of plain convolutions, with the gradient of autodiff: [B, P, X]."""
    answers = _convolve(table_CE, kernels, chars_BPW)
    tops = [jnp.take_along_axis(x, x.argmax(2, keepdims=True), 2)[:, :, 0] for x in answers]
    return jnp.concatenate(tops, -1)


@jax.custom_vjp
def char_max_pool(table_CE, kernels, chars_BPW):
    """Takes each filter's largest answer along a word.

    Args:
        table_CE: a row for each character.
        kernels: filters of each width w, [w, E, X]; together they are X.
        chars_BPW: ids of the characters.

    Returns:
        [B, P, X], in the dtype of the table.
    """
    return _forward(table_CE, kernels, chars_BPW)[0]


def _forward(table_CE, kernels, chars_BPW):
    # Both platforms' forms are traced; the program is lowered with the one that it runs on.
    forms = {platform: forward for platform, (forward, _) in FORMS.items()}
    weights = _replicate(table_CE, kernels)
    top_BPX, at_BPX = jax.lax.platform_dependent(*weights, chars_BPW, **forms)
    # The gradient of a maximum goes to one position, the first of equal ones.  Those positions are
    # all that is kept of [B, P, W, X] answers.
    return top_BPX, (table_CE, kernels, chars_BPW, at_BPX)


def _backward(residuals, dy_BPX):
    table_CE, kernels, *rest = residuals
    forms = {platform: backward for platform, (_, backward) in FORMS.items()}
    weights = _replicate(table_CE, kernels)
    return *jax.lax.platform_dependent(*weights, *rest, dy_BPX, **forms), None


char_max_pool.defvjp(_forward, _backward)


def _replicate(table_CE, kernels):
    # The filters are small, and what they are laid over is not.
    return jax.tree.map(lambda x: constrain_sharding(x, "_" * x.ndim), (table_CE, kernels))


# --- chunks ----------------------------------------------------------------------------------


def _split_words(platform: str, *arrays):
    """Cuts each [B, P, ...] into chunks of each device's words: [chunks, devices, words, ...]."""
    B, P = arrays[0].shape[:2]
    # The smallest batch, of one row, makes the parameters and divides over no devices.
    devices = num_shards("B") if B % num_shards("B") == 0 else 1
    words = B // devices * P
    chunks = -(-words // WORDS_PER_CHUNK[platform])  # rounded up

    def split(x_BP):
        x_BP = x_BP.reshape(devices, words, *x_BP.shape[2:])
        # Words that fill up the last chunk are of character 0 and have gradient 0; `_merge_words`
        # drops what they give.
        x_BP = jnp.pad(x_BP, [(0, 0), (0, -words % chunks)] + [(0, 0)] * (x_BP.ndim - 2))
        x_cBP = jnp.moveaxis(x_BP.reshape(devices, chunks, -1, *x_BP.shape[2:]), 1, 0)
        return constrain_sharding(x_cBP, "cBP" + "_" * (x_BP.ndim - 2))

    return [split(x) for x in arrays]


def _merge_words(x_cBPX, like_BPW):
    devices, X = x_cBPX.shape[1], x_cBPX.shape[-1]
    B, P = like_BPW.shape[:2]
    x_BPX = jnp.moveaxis(x_cBPX, 0, 1).reshape(devices, -1, X)
    return x_BPX[:, : B * P // devices].reshape(B, P, X)


def _split_filters(x_BPX, kernels):
    ends = itertools.accumulate(kernel.shape[-1] for kernel in kernels)
    return jnp.split(x_BPX, list(ends)[:-1], axis=-1)


# --- on a CPU: no products but sums of a table's rows, one for each character of a filter --------


def _pool_by_rows(table_CE, kernels, chars_BPW):
    rows = [_multiply_characters(table_CE, kernel) for kernel in kernels]

    def chunk(chars_BPW):
        pairs = [_find_largest_sums(rows_wCX, chars_BPW) for rows_wCX in rows]
        return [jnp.concatenate(parts, -1) for parts in zip(*pairs, strict=True)]

    top_cBPX, at_cBPX = jax.lax.map(chunk, _split_words("cpu", chars_BPW)[0])
    return _merge_words(top_cBPX, chars_BPW).astype(table_CE.dtype), _merge_words(
        at_cBPX, chars_BPW
    )


def _multiply_characters(table_CE, kernel_wEX):
    """Multiplies every character with every place of a filter: [w, C, X], float32 at least."""
    # There are 261 characters, so each product is computed once, however many words there are.
    wide = jnp.promote_types(table_CE.dtype, jnp.float32)
    return jnp.einsum("CE,wEX->wCX", table_CE, kernel_wEX, preferred_element_type=wide)


def _count_places(chars_BPW, w: int):
    """Counts the places of a filter w wide, up to the last where any word's answer can be new."""
    W = chars_BPW.shape[-1]
    # Padding repeats one character: windows within it answer alike, and the first of equals wins.
    changes = chars_BPW[..., 1:] != chars_BPW[..., :-1]
    last = jnp.where(changes, jnp.arange(1, W), 0).max(initial=0)
    return jnp.minimum(W - w + 1, last + 1)


def _find_largest_sums(rows_wCX, chars_BPW):
    """Finds the largest sums along the words, and their places."""
    w, _, X = rows_wCX.shape

    def place(j, best):
        top_BPX, at_BPX = best
        ids_BPw = jax.lax.dynamic_slice_in_dim(chars_BPW, j, w, 2)
        x_BPX = sum(rows_wCX[i, ids_BPw[..., i]] for i in range(w))
        # `maximum` lets a NaN through; `>` keeps the first of equal ones.
        return jnp.maximum(top_BPX, x_BPX), jnp.where(x_BPX > top_BPX, j, at_BPX)

    shape = (*chars_BPW.shape[:2], X)
    lowest = jnp.full(shape, -jnp.inf, rows_wCX.dtype), jnp.zeros(shape, jnp.int32)
    return jax.lax.fori_loop(0, _count_places(chars_BPW, w), place, lowest)


def _pool_by_rows_backward(table_CE, kernels, chars_BPW, at_BPX, dy_BPX):
    wide = jnp.promote_types(table_CE.dtype, jnp.float32)
    chunks = _split_words("cpu", chars_BPW, at_BPX, dy_BPX.astype(wide))
    devices, C = chunks[0].shape[1], len(table_CE)

    def chunk(sums, inputs):
        chars_BPW, *rest = inputs
        parts = zip(sums, *(_split_filters(x, kernels) for x in rest), strict=True)
        return [_add_rows_grad(drows, chars_BPW, at, dy) for drows, at, dy in parts], None

    # Each device adds up its own words' share; the shares meet once.
    shapes = [(devices, k.shape[0], C, k.shape[-1]) for k in kernels]
    zeros = [constrain_sharding(jnp.zeros(shape, wide), "BWCX") for shape in shapes]
    sums = [x.sum(0) for x in jax.lax.scan(chunk, zeros, tuple(chunks))[0]]
    pairs = list(zip(sums, kernels, strict=True))
    dtable_CE = sum(jnp.einsum("wCX,wEX->CE", drows, kernel) for drows, kernel in pairs)
    dkernels = [jnp.einsum("wCX,CE->wEX", drows, table_CE) for drows, _ in pairs]
    return jax.tree.map(lambda x: x.astype(table_CE.dtype), (dtable_CE, dkernels))


def _add_rows_grad(drows_BwCX, chars_BPW, at_BPX, dy_BPX):
    """Adds the gradients of a chunk to the rows of the characters at each maximum's place."""
    w = drows_BwCX.shape[1]

    def place(j, drows_BwCX):
        here_BPX = jnp.where(at_BPX == j, dy_BPX, 0)  # each word's gradient goes to one place
        ids_BPw = jax.lax.dynamic_slice_in_dim(chars_BPW, j, w, 2)
        for i in range(w):
            # A scatter for each device: one over all words would bring these together first.
            add = jax.vmap(lambda drows, ids, x, i=i: drows.at[i, ids].add(x))
            drows_BwCX = add(drows_BwCX, ids_BPw[..., i], here_BPX)
        return drows_BwCX

    # The bound of the way forwards: no maximum stands behind it.
    return jax.lax.fori_loop(0, _count_places(chars_BPW, w), place, drows_BwCX)


# --- elsewhere: convolutions -----------------------------------------------------------------


def _convolve(table_CE, kernels, chars_BPW):
    """Returns all answers of each kernel, [B, P, places, X]."""
    # A character's gradients, thousands in a batch, are added up in float32 at least.
    wide_CE = table_CE.astype(jnp.promote_types(table_CE.dtype, jnp.float32))
    x_RWE = wide_CE[chars_BPW].astype(table_CE.dtype)
    x_RWE = x_RWE.reshape(-1, chars_BPW.shape[-1], table_CE.shape[-1])
    numbers = ("NWC", "WIO", "NWC")  # words, characters, width: as the arrays lie
    convolve = functools.partial(jax.lax.conv_general_dilated, dimension_numbers=numbers)
    answers = [convolve(x_RWE, kernel, (1,), "VALID") for kernel in kernels]
    answers = [x.reshape(*chars_BPW.shape[:2], *x.shape[1:]) for x in answers]
    return [constrain_sharding(x, "BP__") for x in answers]


def _pool_by_convolution(table_CE, kernels, chars_BPW):
    def chunk(chars_BPW):
        answers = _convolve(table_CE, kernels, chars_BPW)
        tops = [x.max(2) for x in answers]
        places = [x.argmax(2).astype(jnp.int32) for x in answers]
        return jnp.concatenate(tops, -1), jnp.concatenate(places, -1)

    results = jax.lax.map(chunk, _split_words("default", chars_BPW)[0])
    return tuple(_merge_words(x_cBPX, chars_BPW) for x_cBPX in results)


def _pool_by_convolution_backward(table_CE, kernels, chars_BPW, at_BPX, dy_BPX):
    def chunk(sums, inputs):
        chars_BPW, *rest = inputs
        # The answers are computed again: kept, they would be [B, P, W, X].
        answers, pull = jax.vjp(lambda t, k: _convolve(t, k, chars_BPW), table_CE, kernels)
        parts = zip(answers, *(_split_filters(x, kernels) for x in rest), strict=True)
        danswers = [_scatter_to_places(x.shape[2], at, dy) for x, at, dy in parts]
        return _replicate(*jax.tree.map(jnp.add, sums, pull(danswers))), None

    zeros = _replicate(*jax.tree.map(jnp.zeros_like, (table_CE, kernels)))
    chunks = _split_words("default", chars_BPW, at_BPX, dy_BPX)
    return jax.lax.scan(chunk, zeros, tuple(chunks))[0]


def _scatter_to_places(places: int, at_BPX, dy_BPX):
    """Puts each gradient at its place, 0 elsewhere: [B, P, places, X]."""
    is_place = jnp.arange(places)[:, None] == at_BPX[:, :, None]
    return constrain_sharding(jnp.where(is_place, dy_BPX[:, :, None], 0), "BP__")


# For 1280 words of five letters and 256 filters, forwards and backwards on one CPU core: sums of
# rows 8 ms and 6 MiB, `reference` 223 ms and 134 MiB, convolutions in chunks 2035 ms and 27 MiB.
FORMS = {
    "cpu": (_pool_by_rows, _pool_by_rows_backward),
    "default": (_pool_by_convolution, _pool_by_convolution_backward),
}
