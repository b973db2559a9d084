"""Encodes rows by the last layer of a backbone, pretrained or from scratch."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import text_mask, two_stream
from pretrain.runtime.errors import UserError


def tokens_of(batch: dict[str, Any]) -> Any:
    """Returns the tokens [B, L] of a batch, or their characters [B, L, W]."""
    return batch["tokens_BLW"] if "tokens_BLW" in batch else batch["tokens_BL"]


class Encoder(nn.Module):
    """The backbone's last states.

    Attributes:
        frozen: the backbone rests; what is learned lies above it.
        dropout: of the states.
        window: rows are read so many positions at a time, each with the memory of those before it
            (XLNet); 0: at once.
        copies: uses of the states, each with a dropout of its own.
    """

    has_backbone_states = True

    backbone: nn.Module
    frozen: bool = False
    dropout: float = 0.0
    window: int = 0
    copies: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.window and not getattr(self.backbone, "M", 0):
            raise UserError(
                "task.encoder.window is of a backbone with a memory (XLNet, model.M > 0)"
            )

    def setup(self):
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, batch: dict[str, Any], *, train: bool):
        return self.each(batch, train=train)[0]

    def each(self, batch: dict[str, Any], *, train: bool):
        tokens, valid_BL, segments_BL = (
            tokens_of(batch),
            batch["valid_BL"],
            batch.get("segments_BL"),
        )
        is_trained = train and not self.frozen
        if self.window:
            L = self._window(tokens.shape[1])
            h_BLD = two_stream.encode_windows(
                self.backbone, tokens, valid_BL, L, train=is_trained, segments_BL=segments_BL
            )
        else:
            mask = text_mask(self.backbone, valid_BL=valid_BL)
            h_BLD = self.backbone(tokens, mask=mask, segments_BL=segments_BL, train=is_trained).h
        h_BLD = jax.lax.stop_gradient(h_BLD) if self.frozen else h_BLD
        h_KBLD = jnp.broadcast_to(h_BLD, (self.copies, *h_BLD.shape))
        return self.drop(h_KBLD, deterministic=not train)

    def _window(self, L: int) -> int:
        if L % self.window:
            raise UserError(f"batches.L={L} is no multiple of task.encoder.window={self.window}")
        return self.window

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Returns the metrics as they are: there is nothing to train besides."""
        del h_BLD, rows, train
        return metrics
