"""Encodes rows by the last layer of a backbone, pretrained or from scratch."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import text_mask, windows
from modules.losses.activation_regularization import penalize_change, penalize_size
from pretrain.runtime.errors import UserError


def get_tokens(batch: dict[str, Any]) -> Any:
    """Returns the tokens [B, L] of a batch, or their characters [B, L, W]."""
    return batch["tokens_BLW"] if "tokens_BLW" in batch else batch["tokens_BL"]


def weigh_positions(rows: dict[str, Any]):
    """Weighs the positions of rows, [B, L]: 0 at padding and of rows that fill up a batch."""
    # A weight is of an example, which may have several rows: orders of a pair, or options.
    rows_of_one = len(rows["valid_BL"]) // len(rows["weight_B"])
    real_B = jnp.repeat(rows["weight_B"], rows_of_one)
    return (rows["valid_BL"] * real_B[:, None]).astype(jnp.float32)


class BackboneReader(nn.Module):
    """Reads rows with a backbone, frozen or trained along; an encoder says which of its layers.

    Attributes:
        frozen: the backbone has no gradient and no dropout of its own.
        dropout: of the states.
        copies: uses of the states, each with a dropout of its own.
        network: the task whose network of the backbone's reads; "": the backbone has one for all.
    """

    has_backbone_states = True

    backbone: nn.Module
    frozen: bool = False
    dropout: float = 0.0
    copies: int = 1
    network: str = ""

    def setup(self):
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, batch: dict[str, Any], *, train: bool):
        return self.each(batch, train=train)[0]

    def each(self, batch: dict[str, Any], *, train: bool):
        h = self.read(batch, train=train and not self.frozen)
        # Here, before what the encoder itself learns, which is trained all the same.
        h = jax.lax.stop_gradient(h) if self.frozen else h
        return self.drop(self.combine(h), deterministic=not train)

    def choose_network(self) -> dict[str, str]:
        """Returns the argument that names the task, of a backbone that takes it."""
        return {"network": self.network} if self.network else {}

    def read(self, batch: dict[str, Any], *, train: bool):
        """Computes the backbone's states, of one layer or of all."""
        raise NotImplementedError

    def combine(self, h):
        """Turns what was read into states [K, B, L, D], one for each use."""
        raise NotImplementedError

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        # There is nothing to train besides.
        del h_BLD, rows, train
        return metrics


class Encoder(BackboneReader):
    """Computes the backbone's last states.

    Attributes:
        window: rows are read so many positions at a time, each with the memory of those before it
            (XLNet) or from the state that these left (an RNN: BPT3C); 0: at once.  No gradient goes
            from one to the next.
        ar, tar: weights of the penalties of the states' size and change, as the objective `clm`
            has them; 0: none.
    """

    window: int = 0
    ar: float = 0.0
    tar: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        has_memory = getattr(self.backbone, "M", 0) or windows.carries_state(self.backbone)
        if self.window and not has_memory:
            raise UserError(
                "task.encoder.window is of a backbone with a memory: XLNet's with model.M > 0, or "
                "the state of an RNN that reads one way, model.Z=1"
            )

    def read(self, batch: dict[str, Any], *, train: bool):
        """Computes the states [B, L, D] of the last layer."""
        tokens, valid_BL = get_tokens(batch), batch["valid_BL"]
        segments_BL = batch.get("segments_BL")
        if self.window and windows.carries_state(self.backbone):
            return windows.encode_chunks(self.backbone, tokens, valid_BL, self.window, train=train)
        if self.window:
            L = self._check_window(tokens.shape[1])
            return windows.encode_windows(
                self.backbone, tokens, valid_BL, L, train=train, segments_BL=segments_BL
            )
        mask = text_mask(self.backbone, valid_BL=valid_BL)
        fields = dict(segments_BL=segments_BL, train=train, **self.choose_network())
        return self.backbone(tokens, mask=mask, **fields).h

    def combine(self, h):
        return jnp.broadcast_to(h, (self.copies, *h.shape))

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Adds "ar" and "tar" in training."""
        if train and (self.ar or self.tar):
            weights_BL = weigh_positions(rows)
            metrics |= {"ar": penalize_size(h_BLD, weights_BL, self.ar)}
            metrics |= {"tar": penalize_change(h_BLD, weights_BL, self.tar)}
        return metrics

    def _check_window(self, L: int) -> int:
        if L % self.window:
            raise UserError(f"batches.L={L} is no multiple of task.encoder.window={self.window}")
        return self.window
