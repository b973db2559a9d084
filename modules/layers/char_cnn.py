"""A word from its spelling: convolutions over its characters, their maxima, and highways.

Kim et al. 2016 (arXiv 1508.06615) as ELMo has it (Peters et al. 2018; bilm-tf's training.py).
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.char_max_pool import char_max_pool
from modules.kernels.dense import dense
from modules.layers import params

C = 261  # bytes 0-255, sentence's begin and end, word's begin and end, padding
ELMO = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


class CharCNN(nn.Module):
    """Computes a word's vector from its characters.

    Attributes:
        D: width of a word.
        E: width of a character.
        filters: (characters wide, number of filters) of each width; together they are X.
        highways: highway layers before the projection to D (Srivastava et al. 2015).
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
        """Maps ids below 261, [..., W], to words, [..., D]; padding is a character like any other.
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
            is_table=True,
            dtype=self.dtype,
        )
        kernels = [self._kernel(*filter) for filter in self.filters]
        # The first dimension is the batch, over which devices share; the others are one.
        first, *inner, W = chars_W.shape if chars_W.ndim > 1 else (1, *chars_W.shape)
        chars_BPW = constrain_sharding(chars_W.reshape(first, math.prod(inner), W), "BP_")
        x_BPX = constrain_sharding(char_max_pool(table_CE, kernels, chars_BPW), "BPX")
        # A bias moves all windows alike, so it may follow the maximum: X numbers, not W X.
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
            # bilm-tf's initial values, which differ by the activation.
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
        # bilm-tf calls the transform gate "carry".  It begins nearly shut: words pass as they are.
        closed = nn.initializers.constant(-2.0)
        carry_XX = params.param(self, "carry_XX", init, (many, X, X), decay=True, dtype=self.dtype)
        carry_X = params.param(self, "carry_X", closed, (many, X), decay=False, dtype=self.dtype)
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
        X = x_BPX.shape[-1]
        if X == self.D:  # as the original: no matrix where the widths agree
            return x_BPX
        init = params.normal(1 / math.sqrt(X))
        w_XD = params.param(self, "projection_XD", init, (X, self.D), decay=True, dtype=self.dtype)
        bias_D = params.param(
            self, "projection_D", params.zeros, (self.D,), decay=False, dtype=self.dtype
        )
        return dense(x_BPX, w_XD) + bias_D

    def flops(self, W: int) -> float:
        """Counts the FLOPs of the products of one word of W characters, forwards."""
        X = sum(many for _, many in self.filters)
        convolved = sum(2 * w * self.E * many * (W - w + 1) for w, many in self.filters)
        projected = 2 * X * self.D if X != self.D else 0
        return float(convolved + self.highways * 2 * 2 * X**2 + projected)
