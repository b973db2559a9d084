"""A word from its spelling: convolutions over its characters, their maxima, and highways.

Kim et al. 2016 (arXiv 1508.06615) as ELMo has it (Peters et al. 2018; bilm-tf's training.py).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.char_max_pool import char_max_pool
from modules.kernels.dense import dense
from modules.kernels.distinct_words import compute_once
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
        weights = self._weights()
        # The first dimension is the batch, over which devices share; the others are one.
        first, *inner, W = chars_W.shape if chars_W.ndim > 1 else (1, *chars_W.shape)
        chars_BPW = constrain_sharding(chars_W.reshape(first, math.prod(inner), W), "BP_")
        x_BPD = compute_once(self._embed, weights, chars_BPW)
        return x_BPD.reshape(*chars_W.shape[:-1], self.D)

    def _embed(self, weights: dict[str, Any], chars_BPW):
        """Computes words [B, P, D] from parameters by name, each by itself."""
        kernels = [weights[f"kernel{w}_EX"] for w, _ in self.filters]
        x_BPX = char_max_pool(weights["character_E"], kernels, chars_BPW)
        # A bias moves all windows alike, so it may follow the maximum: X numbers, not W X.
        biases_X = jnp.concatenate([weights[f"bias{w}_X"] for w, _ in self.filters])
        x_BPX = ACTIVATIONS[self.activation](constrain_sharding(x_BPX, "BPX") + biases_X)
        for n in range(self.highways):
            gate_BPX = dense(x_BPX, weights["carry_XX"][n]) + weights["carry_X"][n]
            new_BPX = dense(x_BPX, weights["transform_XX"][n]) + weights["transform_X"][n]
            gate_BPX, new_BPX = jax.nn.sigmoid(gate_BPX), jax.nn.relu(new_BPX)
            x_BPX = constrain_sharding(gate_BPX * new_BPX + (1 - gate_BPX) * x_BPX, "BPX")
        # As the original: no matrix where the widths agree.
        if "projection_XD" not in weights:
            return x_BPX
        return dense(x_BPX, weights["projection_XD"]) + weights["projection_D"]

    def _check(self, W: int):
        params.check_choice(self, "activation", ACTIVATIONS)
        widest = max(w for w, _ in self.filters)
        if widest > W:
            raise ValueError(f"filters={self.filters}: one is {widest} wide, a word is W={W}")

    def _weights(self) -> dict[str, jax.Array]:
        """Makes or reads all parameters, by name, in the compute dtype."""
        weights: dict[str, jax.Array] = {}

        def add(name: str, init, *shape: int, decay: bool = True, **facts):
            value = params.param(self, name, init, shape, decay=decay, dtype=self.dtype, **facts)
            weights[name] = value

        X, many = sum(many for _, many in self.filters), self.highways
        add("character_E", params.initializer("uniform", 1), C, self.E, is_table=True)
        for w, number in self.filters:
            init = {
                # bilm-tf's initial values, which differ by the activation.
                "relu": params.initializer("uniform", 0.05),
                "tanh": params.normal(1 / math.sqrt(w * self.E)),
            }[self.activation]
            add(f"kernel{w}_EX", init, w, self.E, number)
        for w, number in self.filters:
            add(f"bias{w}_X", params.zeros, number, decay=False)
        init = params.normal(1 / math.sqrt(X))
        if many:
            # bilm-tf calls the transform gate "carry".  It begins nearly shut: words pass as they
            # are.
            closed = nn.initializers.constant(-2.0)
            add("carry_XX", init, many, X, X)
            add("carry_X", closed, many, X, decay=False)
            add("transform_XX", init, many, X, X)
            add("transform_X", params.zeros, many, X, decay=False)
        if X != self.D:
            add("projection_XD", init, X, self.D)
            add("projection_D", params.zeros, self.D, decay=False)
        return weights

    def flops(self, W: int) -> float:
        """Counts the FLOPs of the products of one word of W characters, forwards."""
        X = sum(many for _, many in self.filters)
        convolved = sum(2 * w * self.E * many * (W - w + 1) for w, many in self.filters)
        projected = 2 * X * self.D if X != self.D else 0
        return float(convolved + self.highways * 2 * 2 * X**2 + projected)
