"""Makes one vector of a text's states, in training and in evaluation each in its own way."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.backbones import has_unequal_layers
from modules.layers import params, pooling

POOLER = "pooler"  # the backbone's own layer, of its first state (BERT)
PROJECTIONS = ("", "mlp")


class SentenceVector(nn.Module):
    """Pools states, and projects what is pooled.

    Attributes:
        backbone: whose `pool` is called; its parameters stay its own.
        pool: in training, of the last layer: a kind of `pooling.PLAIN`, or "pooler".
        eval_pool: in evaluation: one of these, or of `pooling.LAYERED`; "": as in training.
        projection: "mlp", a dense layer and tanh, as SimCSE's; "": none.
        mlp_only_train: evaluation reads the vectors before the projection (SimCSE, unsupervised).
    """

    backbone: Any
    pool: str = "mean"
    eval_pool: str = ""
    projection: str = ""
    mlp_only_train: bool = True

    def __post_init__(self):
        super().__post_init__()
        last = (*pooling.PLAIN, POOLER)
        params.check_choices(self, pool=last, eval_pool=("", *last, *pooling.LAYERED))
        params.check_choice(self, "projection", PROJECTIONS)
        if POOLER in (self.pool, self.eval_pool) and not getattr(self.backbone, "pooler", False):
            raise plugins.FieldError("pool='pooler' is the backbone's own: this one has none")
        if self.reads_layers and has_unequal_layers(self.backbone):
            raise plugins.FieldError(
                f"eval_pool={self.eval_pool!r}: this backbone's layers are not equally wide: take "
                "eval_pool='mean', of its last"
            )

    @property
    def reads_layers(self) -> bool:
        """Reads every layer in evaluation, as `layer_states` gives them."""
        return self.eval_pool in pooling.LAYERED

    @nn.compact
    def __call__(self, h_NBLD, valid_BL, *, train: bool):
        """Computes vectors [B, D]; [B, 3 D] where last, highest and mean stand side by side.

        Args:
            h_NBLD: every layer's states, or the last one's with a leading 1.
        """
        kind = self.pool if train else self.eval_pool or self.pool
        if kind == POOLER:
            z_BD = self.backbone.pool(pooling.first(h_NBLD[-1], valid_BL))
        else:
            z_BD = pooling.pool_layers(kind, h_NBLD, valid_BL)
        if self.projection and (train or not self.mlp_only_train):
            init = params.normal(0.02)
            z_BD = jnp.tanh(nn.Dense(z_BD.shape[-1], kernel_init=init, name="mlp")(z_BD))
        return z_BD
