"""Language-model heads: from states to scores of the vocabulary.

A head is apart from its backbone.  It reads the backbone's embedding where the two are tied, and
otherwise has rows of its own.  The logits of all positions never exist at once but in `logits`.

    GPT     tied, and nothing besides            XLNet   tied, with a bias per token
    BERT    tied, with a bias, above a layer     ELMo    a softmax of its own, with a bias
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.activation_sharding import constrain_sharding
from modules.kernels.dense import dense
from modules.layers import params
from modules.layers.norm import Norm
from modules.layers.row_reads import read_rows
from modules.losses import cross_entropy, sampled_softmax
from modules.metrics import Metrics


class LanguageModelHead(nn.Module):
    """Scores a vocabulary by states [..., D].

    Every method takes `table_VD`, what `Backbone.table` returns.

    Attributes:
        V, D: vocabulary, width of a state; V=0: there is no vocabulary, and nothing is scored.
        tied: a token's row is its embedding; False: a row of the head's own.
        bias: each token has a bias.
        transform: states go through another layer and a norm first (BERT).
        embedding_size: width that this layer ends in, where the backbone's embedding has it; 0: D.
        activation, epsilon: of that layer and its norm.
        initializer, init_scale: of that layer, see `params.INITIALIZERS`.
    """

    V: int
    D: int
    tied: bool = True
    bias: bool = False
    transform: bool = False
    embedding_size: int = 0
    activation: str = "gelu"
    epsilon: float = 1e-5
    initializer: str = "normal"
    init_scale: float = 0.02
    dtype: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        if self.transform:
            params.check_choice(self, "activation", params.ACTIVATIONS)
        params.check_choice(self, "initializer", params.INITIALIZERS)
        params.check_choice(self, "dtype", params.DTYPES)

    def setup(self):
        V, D = self.V, self.D
        if self.transform:
            init = params.initializer(self.initializer, self.init_scale)
            letter = "E" if self.embedding_size else "D"
            self.transform_DE = params.param(
                self, f"transform_D{letter}", init, (D, self.width), decay=True, dtype=self.dtype
            )
            self.transform_bias_E = params.param(
                self,
                f"transform_bias_{letter}",
                params.zeros,
                (self.width,),
                decay=False,
                dtype=self.dtype,
            )
            self.transform_norm = Norm(self.epsilon)
        if V and not self.tied:
            init = params.normal(1 / math.sqrt(self.width))  # as the released ELMo
            self.softmax_VE = params.param(
                self, self.softmax_name, init, (V, self.width), decay=True, by_rows=True
            )
        if V and self.bias:
            self.bias_V = params.param(
                self, "bias_V", params.zeros, (V,), decay=False, by_rows=True
            )

    @property
    def width(self) -> int:
        """Returns the width of a token's row."""
        return self.embedding_size or self.D if self.transform else self.D

    @property
    def softmax_name(self) -> str:
        """Returns the name of the parameter with a head's own rows."""
        return f"softmax_V{'D' if self.width == self.D else 'E'}"

    def __call__(self) -> None:
        # For `init` without states: `setup` makes all parameters but those of the norm.
        self._transform(jnp.zeros((1, 1, self.D), self.dtype))

    def logits(self, h_BLD, table_VD):
        """Scores the vocabulary: [B, L, V] float32."""
        h_BLD, (w_VD, bias_V) = self._transform(h_BLD), self._softmax(table_VD)
        w_VD = w_VD.astype(h_BLD.dtype)
        # Operands in the compute dtype, sums in float32, as the softmax above takes them.
        logits = jnp.einsum("BLD,VD->BLV", h_BLD, w_VD, preferred_element_type=jnp.float32)
        return logits if bias_V is None else logits + bias_V

    def cross_entropy(self, h_BPD, targets_BP, weights_BP, table_VD, *, chunks: int = 4) -> Metrics:
        """Computes `cross_entropy.softmax_cross_entropy` of these states."""
        softmax = self._softmax(table_VD)
        return cross_entropy.softmax_cross_entropy(
            self._transform(h_BPD), *softmax, targets_BP, weights_BP, chunks=chunks
        )

    def sampled_cross_entropy(
        self,
        h_BPD,
        targets_BP,
        weights_BP,
        table_VD,
        sample: sampled_softmax.Sample,
        *,
        chunks: int = 4,
    ) -> Metrics:
        """Computes `sampled_softmax.sampled_cross_entropy` of these states."""
        w_VE, bias_V = self._softmax(table_VD)

        def read(ids):
            # An embedding is its backbone's, whose gradient is of the whole.
            w = w_VE[ids] if self.tied else read_rows(self, self.softmax_name, w_VE, ids)
            return w, None if bias_V is None else read_rows(self, "bias_V", bias_V, ids)

        return sampled_softmax.sampled_cross_entropy(
            self._transform(h_BPD), self.V, read, targets_BP, weights_BP, sample, chunks=chunks
        )

    def nats(self, h_BPD, targets_BP, table_VD, *, chunks: int = 4):
        """Computes the log-likelihood of each target in nats: [B, P] float32, at most 0."""
        return self.score_targets(h_BPD, targets_BP, table_VD, chunks=chunks)[0]

    def score_targets(self, h_BPD, targets_BP, table_VD, *, chunks: int = 4):
        """Computes `cross_entropy.score_targets` of these states."""
        softmax = self._softmax(table_VD)
        return cross_entropy.score_targets(
            self._transform(h_BPD), *softmax, targets_BP, chunks=chunks
        )

    def flops(self, positions: float, candidates: int = 0) -> float:
        """Counts the operations of a training step, see `modules.backbones.Backbone.flops`.

        Args:
            positions: states that are scored, of all rows.
            candidates: tokens among which each is predicted; 0: all V.
        """
        # Forwards 2, backwards 4 operations for each entry of a matrix.
        layer = self.D * self.width if self.transform else 0
        return 6.0 * positions * (self.width * (candidates or self.V) + layer)

    def _softmax(self, table_VD) -> tuple[Any, Any]:
        """Returns (w_VD, bias_V), float32; None for no biases."""
        if not self.V:
            raise ValueError("V=0: this head has no vocabulary to score")
        if self.tied and table_VD is None:
            raise ValueError("tied=True needs the embedding of a backbone that has one")
        return table_VD if self.tied else self.softmax_VE, self.bias_V if self.bias else None

    def _transform(self, h_BLD):
        if not self.transform:
            return h_BLD
        h_BLE = dense(h_BLD, self.transform_DE) + self.transform_bias_E
        h_BLE = constrain_sharding(h_BLE, "BLE" if self.embedding_size else "BLD")
        return self.transform_norm(params.ACTIVATIONS[self.activation](h_BLE))


def build(backbone: Any, **fields: Any) -> LanguageModelHead:
    """Builds the head of a backbone: `build(backbone, bias=True)`.

    Raises:
        plugins.FieldError: the fields are not those of a head.
    """
    # Sizes, dtype, and how a layer is made, are the backbone's where the fields do not say.
    sizes = plugins.shared_fields(backbone, LanguageModelHead)
    return plugins.construct(LanguageModelHead, **{**sizes, **fields})


def param_shapes(head: nn.Module) -> Any:
    """Returns the shapes of a head's parameters; {}: it has none."""
    return jax.eval_shape(head.init, jax.random.key(0)).get("params", {})
