"""A word from its spelling: convolutions over its characters, their maxima, and highways.

Kim et al. 2016 (arXiv 1508.06615) as ELMo has it (Peters et al. 2018; bilm-tf's training.py).
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding, num_shards
from modules.kernels.dense import dense
from modules.layers import params

C = 261  # bytes 0-255, sentence's begin and end, word's begin and end, filling
ELMO = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
WORDS = 512  # at once, on each device: the answers of more need not exist together
ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


class CharCNN(nn.Module):
    """Characters to words.

    Attributes:
        D: width of a word.
        E: width of a character.
        filters: (characters wide, how many) each; together they are X.
        highways: layers that pass a part on as it is, before the projection to D.
        activation: "relu" or "tanh", of the filters; the highways' is relu.
    """

    D: int
    E: int = 16
    filters: tuple[tuple[int, int], ...] = ELMO
    highways: int = 2
    activation: str = "relu"
    dtype: str = "float32"

    @nn.compact
    def __call__(self, chars_W):
        """[..., W] ids below 261 -> [..., D]; filling is embedded and convolved like any other.

        Raises:
            ValueError: no such activation, or words of fewer characters than a filter is wide.
        """
        self._check(chars_W.shape[-1])
        table_CE = params.param(
            self,
            "character_E",
            params.initializer("uniform", 1),
            (C, self.E),
            decay=True,
            dtype=self.dtype,
        )
        kernels = [self._kernel(*filter) for filter in self.filters]
        first, *inner, W = chars_W.shape if chars_W.ndim > 1 else (1, *chars_W.shape)
        chars_BPW = constrain_sharding(chars_W.reshape(first, math.prod(inner), W), "BP_")
        x_BPX = constrain_sharding(pooled(table_CE, kernels, chars_BPW), "BPX")
        biases = [
            params.param(self, f"bias{w}_X", params.zeros, (many,), decay=False, dtype=self.dtype)
            for w, many in self.filters
        ]
        x_BPX = ACTIVATIONS[self.activation](x_BPX + jnp.concatenate(biases))
        x_BPD = self._project(self._highways(x_BPX))
        return x_BPD.reshape(*chars_W.shape[:-1], self.D)

    def _check(self, W: int):
        params.check_choice(self, "activation", ACTIVATIONS)
        widest = max(w for w, _ in self.filters)
        if widest > W:
            raise ValueError(f"filters={self.filters}: one is {widest} wide, a word is W={W}")

    def _kernel(self, w: int, many: int):
        init = {
            "relu": params.initializer("uniform", 0.05),
            "tanh": params.normal(1 / math.sqrt(w * self.E)),
        }[self.activation]
        return params.param(
            self, f"kernel{w}_EX", init, (w, self.E, many), decay=True, dtype=self.dtype
        )

    def _highways(self, x_BPX):
        X, many = x_BPX.shape[-1], self.highways
        if not many:
            return x_BPX
        init = params.normal(1 / math.sqrt(X))
        shut = nn.initializers.constant(-2.0)
        carry_XX = params.param(self, "carry_XX", init, (many, X, X), decay=True, dtype=self.dtype)
        carry_X = params.param(self, "carry_X", shut, (many, X), decay=False, dtype=self.dtype)
        transform_XX = params.param(
            self, "transform_XX", init, (many, X, X), decay=True, dtype=self.dtype
        )
        transform_X = params.param(
            self, "transform_X", params.zeros, (many, X), decay=False, dtype=self.dtype
        )
        for n in range(many):
            gate_BPX = jax.nn.sigmoid(dense(x_BPX, carry_XX[n]) + carry_X[n])
            new_BPX = jax.nn.relu(dense(x_BPX, transform_XX[n]) + transform_X[n])
            x_BPX = constrain_sharding(gate_BPX * new_BPX + (1 - gate_BPX) * x_BPX, "BPX")
        return x_BPX

    def _project(self, x_BPX):
        """Only where the widths differ, as in the original."""
        X = x_BPX.shape[-1]
        if X == self.D:
            return x_BPX
        init = params.normal(1 / math.sqrt(X))
        w_XD = params.param(self, "projection_XD", init, (X, self.D), decay=True, dtype=self.dtype)
        bias_D = params.param(
            self, "projection_D", params.zeros, (self.D,), decay=False, dtype=self.dtype
        )
        return dense(x_BPX, w_XD) + bias_D

    def flops(self, W: int) -> float:
        """Of the products of one word of W characters, forwards."""
        X = sum(many for _, many in self.filters)
        convolved = sum(2 * w * self.E * many * (W - w + 1) for w, many in self.filters)
        projected = 2 * X * self.D if X != self.D else 0
        return float(convolved + self.highways * 2 * 2 * X**2 + projected)


@jax.custom_vjp
def pooled(table_CE, kernels, chars_BPW):
    """Each filter's largest answer along a word: [B, P, W] -> [B, P, X].

    The gradient of a maximum goes to one position, the first of equal ones: those positions,
    [B, P, X], are all that is kept of [B, P, W, X] answers.  On a CPU these are not products but
    sums: of a table's rows, one for each character at each place of the filter, as far as words
    go on changing.  Elsewhere they are convolutions.  ELMo's filters, 640 words, forwards and
    backwards on one core: convolutions 620 ms, sums 150 ms for 50 random characters and 75 ms for
    words of five letters; beside 590 MB for a while, 50 MB.
    """
    return _forward(table_CE, kernels, chars_BPW)[0]


def _forward(table_CE, kernels, chars_BPW):
    top_BPX, at_BPX = jax.lax.platform_dependent(
        *_whole(table_CE, kernels), chars_BPW, cpu=_by_rows, default=_by_convolution
    )
    return top_BPX, (table_CE, kernels, chars_BPW, at_BPX)


def _backward(kept, dy_BPX):
    table_CE, kernels, *rest = kept
    slopes = jax.lax.platform_dependent(
        *_whole(table_CE, kernels),
        *rest,
        dy_BPX,
        cpu=_by_rows_backward,
        default=_by_convolution_backward,
    )
    return *slopes, None


def _whole(table_CE, kernels):
    """On every device: the filters are small, what they are laid over is not."""
    return jax.tree.map(lambda x: constrain_sharding(x, "_" * x.ndim), (table_CE, kernels))


pooled.defvjp(_forward, _backward)


def _deal(words: int, *arrays):
    """[B, P, ...] each -> [c, B, P, ...]: chunks of so many words, each device its own rows'."""
    B, P = arrays[0].shape[:2]
    devices = num_shards("B") if B % num_shards("B") == 0 else 1
    own = B // devices * P
    chunks = -(-own // words)

    def dealt(x_BP):
        x_BP = x_BP.reshape(devices, own, *x_BP.shape[2:])
        x_BP = jnp.pad(x_BP, [(0, 0), (0, -own % chunks)] + [(0, 0)] * (x_BP.ndim - 2))
        x_cBP = jnp.moveaxis(x_BP.reshape(devices, chunks, -1, *x_BP.shape[2:]), 1, 0)
        return constrain_sharding(x_cBP, "cBP" + "_" * (x_BP.ndim - 2))

    return [dealt(x) for x in arrays]


def _collect(x_cBPX, like_BPW):
    """`_deal`, undone."""
    devices, X = x_cBPX.shape[1], x_cBPX.shape[-1]
    B, P = like_BPW.shape[:2]
    x_BPX = jnp.moveaxis(x_cBPX, 0, 1).reshape(devices, -1, X)
    return x_BPX[:, : B * P // devices].reshape(B, P, X)


def _cut(x_BPX, kernels):
    """Each kernel's filters."""
    ends = itertools.accumulate(kernel.shape[-1] for kernel in kernels)
    return jnp.split(x_BPX, list(ends)[:-1], axis=-1)


def _places(chars_BPW, w: int):
    """Where a filter w wide begins, up to the last place where any word's answer can be new."""
    W = chars_BPW.shape[-1]
    changes = chars_BPW[..., 1:] != chars_BPW[..., :-1]
    last = jnp.where(changes, jnp.arange(1, W), 0).max(initial=0)
    return jnp.minimum(W - w + 1, last + 1)


def _by_rows(table_CE, kernels, chars_BPW):
    rows = [_rows(table_CE, kernel) for kernel in kernels]

    def chunk(chars_BPW):
        found = [_largest(each, chars_BPW) for each in rows]
        return [jnp.concatenate(each, -1) for each in zip(*found, strict=True)]

    top_cBPX, at_cBPX = jax.lax.map(chunk, _deal(WORDS, chars_BPW)[0])
    return _collect(top_cBPX, chars_BPW).astype(table_CE.dtype), _collect(at_cBPX, chars_BPW)


def _rows(table_CE, kernel_wEX):
    """What each character adds at each place of a filter: [w, C, X], float32 at least."""
    wide = jnp.promote_types(table_CE.dtype, jnp.float32)
    return jnp.einsum("CE,wEX->wCX", table_CE, kernel_wEX, preferred_element_type=wide)


def _largest(rows_wCX, chars_BPW):
    """The largest sums along the words, and where they are."""
    w, _, X = rows_wCX.shape

    def place(j, best):
        top_BPX, at_BPX = best
        ids_BPw = jax.lax.dynamic_slice_in_dim(chars_BPW, j, w, 2)
        x_BPX = sum(rows_wCX[i, ids_BPw[..., i]] for i in range(w))
        return jnp.maximum(top_BPX, x_BPX), jnp.where(x_BPX > top_BPX, j, at_BPX)

    shape = (*chars_BPW.shape[:2], X)
    none = jnp.full(shape, -jnp.inf, rows_wCX.dtype), jnp.zeros(shape, jnp.int32)
    return jax.lax.fori_loop(0, _places(chars_BPW, w), place, none)


def _by_rows_backward(table_CE, kernels, chars_BPW, at_BPX, dy_BPX):
    wide = jnp.promote_types(table_CE.dtype, jnp.float32)
    dealt = _deal(WORDS, chars_BPW, at_BPX, dy_BPX.astype(wide))
    devices = dealt[0].shape[1]

    def chunk(sums, given):
        chars_BPW, *rest = given
        cut = zip(sums, *(_cut(x, kernels) for x in rest), strict=True)
        return [_share(drows, chars_BPW, at, dy) for drows, at, dy in cut], None

    # Each device adds up its own words' share; the shares meet once.
    shapes = [(devices, k.shape[0], C, k.shape[-1]) for k in kernels]
    none = [constrain_sharding(jnp.zeros(shape, wide), "BWCX") for shape in shapes]
    sums = [x.sum(0) for x in jax.lax.scan(chunk, none, tuple(dealt))[0]]
    pairs = list(zip(sums, kernels, strict=True))
    dtable_CE = sum(jnp.einsum("wCX,wEX->CE", drows, kernel) for drows, kernel in pairs)
    dkernels = [jnp.einsum("wCX,CE->wEX", drows, table_CE) for drows, _ in pairs]
    return jax.tree.map(lambda x: x.astype(table_CE.dtype), (dtable_CE, dkernels))


def _share(drows_BwCX, chars_BPW, at_BPX, dy_BPX):
    """Gradients by the rows, added to: at each place, what has its maximum there."""
    w = drows_BwCX.shape[1]

    def place(j, drows_BwCX):
        here_BPX = jnp.where(at_BPX == j, dy_BPX, 0)
        ids_BPw = jax.lax.dynamic_slice_in_dim(chars_BPW, j, w, 2)
        for i in range(w):
            add = jax.vmap(lambda drows, ids, x, i=i: drows.at[i, ids].add(x))
            drows_BwCX = add(drows_BwCX, ids_BPw[..., i], here_BPX)
        return drows_BwCX

    return jax.lax.fori_loop(0, _places(chars_BPW, w), place, drows_BwCX)


def _convolve(table_CE, kernels, chars_BPW):
    """All answers: [B, P, places, X] of each kernel."""
    x_RWE = table_CE[chars_BPW].reshape(-1, chars_BPW.shape[-1], table_CE.shape[-1])
    form = ("NWC", "WIO", "NWC")
    convolve = functools.partial(jax.lax.conv_general_dilated, dimension_numbers=form)
    answers = [convolve(x_RWE, kernel, (1,), "VALID") for kernel in kernels]
    return [
        constrain_sharding(x.reshape(*chars_BPW.shape[:2], *x.shape[1:]), "BP__") for x in answers
    ]


def _by_convolution(table_CE, kernels, chars_BPW):
    def chunk(chars_BPW):
        answers = _convolve(table_CE, kernels, chars_BPW)
        top = [x.max(2) for x in answers]
        at = [x.argmax(2).astype(jnp.int32) for x in answers]
        return jnp.concatenate(top, -1), jnp.concatenate(at, -1)

    found = jax.lax.map(chunk, _deal(WORDS, chars_BPW)[0])
    return tuple(_collect(x_cBPX, chars_BPW) for x_cBPX in found)


def _by_convolution_backward(table_CE, kernels, chars_BPW, at_BPX, dy_BPX):
    def chunk(sums, given):
        chars_BPW, *rest = given
        answers, pull = jax.vjp(lambda t, k: _convolve(t, k, chars_BPW), table_CE, kernels)
        cut = zip(answers, *(_cut(x, kernels) for x in rest), strict=True)
        hot = [_at(x.shape[2], at, dy) for x, at, dy in cut]
        return _whole(*jax.tree.map(jnp.add, sums, pull(hot))), None

    none = _whole(*jax.tree.map(jnp.zeros_like, (table_CE, kernels)))
    return jax.lax.scan(chunk, none, tuple(_deal(WORDS, chars_BPW, at_BPX, dy_BPX)))[0]


def _at(places: int, at_BPX, dy_BPX):
    """[B, P, places, X]: each gradient at its place, 0 elsewhere."""
    is_place = jnp.arange(places)[:, None] == at_BPX[:, :, None]
    return constrain_sharding(jnp.where(is_place, dy_BPX[:, :, None], 0), "BP__")
