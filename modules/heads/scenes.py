"""Scores candidates by layers that all scenes share, and by a network of each scene's own."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.dropout import Dropout


class SceneScorer(nn.Module):
    """Maps what is known of candidates to scores.

    Of a scene's weights only those of the row's own are read: all others have no gradient.

    Attributes:
        S, U: scenes, and units of a layer.
        dropout: of the layer that is shared.
    """

    S: int
    U: int = 64
    dropout: float = 0.1

    @nn.compact
    def __call__(self, x_BOD, scene_B, *, train: bool):
        """Computes scores [B, O], float32."""
        S, U, init = self.S, self.U, nn.initializers.he_normal
        x_BOD = x_BOD.astype(jnp.float32)
        w_DU = params.param(self, "w_DU", init(), (x_BOD.shape[-1], U), decay=True)
        bias_U = params.param(self, "bias_U", params.zeros, (U,), decay=False)
        shared_BOU = jax.nn.relu(x_BOD @ w_DU + bias_U)
        shared_BOU = Dropout(self.dropout)(shared_BOU, train=train)
        # Fans are of one scene's matrix, whatever their number.
        w_SUF = params.param(self, "w_SUF", init(batch_axis=0), (S, U, U), decay=True)
        bias_SF = params.param(self, "bias_SF", params.zeros, (S, U), decay=False)
        w_SF = params.param(self, "w_SF", params.normal(0.02), (S, U), decay=True)
        scene_BOF = jnp.einsum("BOU,BUF->BOF", shared_BOU, w_SUF[scene_B])
        scene_BOF = jax.nn.relu(scene_BOF + bias_SF[scene_B][:, None])
        return jnp.einsum("BOF,BF->BO", scene_BOF, w_SF[scene_B])
