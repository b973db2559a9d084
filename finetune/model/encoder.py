"""Rows to states, whatever the backbone: what every task begins with."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import text_mask, two_stream
from modules.layers.scalar_mix import ScalarMix
from pretrain.checkpoint import integrity
from pretrain.inference.trained_run import drawn
from pretrain.runtime.errors import UserError

TABLES = ("token_VD", "position_LD", "segment_SD", "character_E", "softmax_VD")


def folded(batch: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Rows of O options each, as B * O rows, and O; 1 where a row has one form only."""
    options = batch["valid_BOL"].shape[1] if "valid_BOL" in batch else 1
    rows = {
        name.replace("_BO", "_B"): x.reshape(-1, *x.shape[2:]) if "_BO" in name else x
        for name, x in batch.items()
    }
    return rows, options


class Encoder(nn.Module):
    """A backbone read by a task.

    Attributes:
        mix: all layers, weighed as the task learns to (Peters et al. 2018); False: the last.
        frozen: the backbone rests; what is learned lies above it.
        dropout: of the states.
        lambda_: of the mix's weights, see `penalty`.
        mixes: how many averages, each for a use of its own.
        window: rows are read so many positions at a time, each with the memory of those before it
            (XLNet); 0: at once.
    """

    backbone: nn.Module
    mix: bool = False
    frozen: bool = False
    dropout: float = 0.0
    lambda_: float = 0.0
    mixes: int = 1
    window: int = 0

    def setup(self):
        if self.mix:
            self.mixed = ScalarMix(self.backbone.N + 1, self.mixes)
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, batch: dict[str, Any], *, train: bool):
        """States [B, L, D] of a batch of `Inputs.arrays`."""
        return self.each(batch, train=train)[0]

    def each(self, batch: dict[str, Any], *, train: bool):
        """The same for each use, [mixes, B, L, D]."""
        tokens = batch["tokens_BLW"] if "tokens_BLW" in batch else batch["tokens_BL"]
        valid_BL, segments_BL = batch["valid_BL"], batch.get("segments_BL")
        given = {"mask": text_mask(self.backbone, valid_BL=valid_BL), "segments_BL": segments_BL}
        if self.mix:
            # ELMo's layers are weighed as they are, without dropout between them.
            h_NBLD = self.backbone.layer_states(tokens, **given).h
            h_NBLD = jax.lax.stop_gradient(h_NBLD) if self.frozen else h_NBLD
            h_mBLD = self.mixed(h_NBLD, valid_BL)
        else:
            own = train and not self.frozen
            if self.window:
                L = self._window(tokens.shape[1])
                h_BLD = two_stream.encode_windows(
                    self.backbone, tokens, valid_BL, L, train=own, segments_BL=segments_BL
                )
            else:
                h_BLD = self.backbone(tokens, **given, train=own).h
            h_BLD = jax.lax.stop_gradient(h_BLD) if self.frozen else h_BLD
            h_mBLD = jnp.broadcast_to(h_BLD, (self.mixes, *h_BLD.shape))
        return self.drop(h_mBLD, deterministic=not train)

    def _window(self, L: int) -> int:
        if L % self.window:
            raise UserError(f"batches.L={L} is no multiple of task.window={self.window}")
        return self.window

    def penalty(self):
        """What is added to the loss for the mix's weights; 0 without one."""
        return self.mixed.penalty(self.lambda_) if self.mix else jnp.zeros(())


_weights: dict[str, int] = {}


def weights(backbone: nn.Module) -> int:
    """Numbers in a backbone's parameters that are no table's."""
    if (name := repr(backbone)) not in _weights:  # a backbone need not have a hash
        shapes = integrity.flatten(jax.eval_shape(lambda: drawn(backbone)))
        _weights[name] = sum(
            math.prod(x.shape) for name, x in shapes.items() if not name.endswith(TABLES)
        )
    return _weights[name]


def flops(backbone: nn.Module, B: int, L: int) -> float:
    """Of a training step: six for each token and each weight."""
    return 6.0 * B * L * weights(backbone)
