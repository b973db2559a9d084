"""Encodes rows by a bidirectional LSTM of the task's own, fed with another encoder's states.

Peters et al. 2018 (arXiv 1802.05365), section 3.3: [x; ELMo] goes into the task's network and,
where that helps, [h; ELMo] comes out of it, each ELMo an average of the layers of its own.
Peters et al. 2017 (arXiv 1705.00108), TagLM: states join the LSTM after its first layer.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from finetune.encoders.backbone import Encoder as Backbone
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.rnn import Recurrent
from pretrain.runtime.errors import UserError


class Encoder(nn.Module):
    """Runs a stack of BiLSTM layers over the positions that stand for words.

    Attributes:
        features: the encoder whose states feed the stack; it has as many copies as `join` has
            places.  None: the last layer of the backbone.
        U: units in each direction.
        layers: BiLSTM layers.
        dropout: of the output of each layer.
        join: places at which states are put beside what the stack reads: 0 is its input, n the
            output of layer n.
        word_V, word_D: number and width of the task's own word vectors; 0: none.
        word_dropout: of these vectors.
    """

    has_backbone_states = False

    backbone: nn.Module
    features: Any = None
    U: int = 200
    layers: int = 1
    dropout: float = 0.0
    join: tuple[int, ...] = (0,)
    word_V: int = 0
    word_D: int = 0
    word_dropout: float = 0.0

    def __post_init__(self):
        if self.features is None:
            self.features = Backbone(self.backbone, copies=len(self.join))
        super().__post_init__()
        if bool(self.word_V) != bool(self.word_D):
            raise UserError(
                f"task.encoder.word_D={self.word_D} with {self.word_V} words of the task's own: "
                "task.own says which words have vectors, task.encoder.word_D how wide these are"
            )
        if not all(0 <= place <= self.layers for place in self.join):
            raise UserError(
                f"task.encoder.join={tuple(self.join)}: places from 0, the input, to "
                f"{self.layers}, the output of the last layer"
            )
        if 0 not in self.join and not self.word_D:
            raise UserError("task.encoder.join: the input is empty without 0, or vectors of words")

    def setup(self):
        if self.word_D:
            shape = (self.word_V, self.word_D)
            self.word_VD = params.param(self, "word_VD", params.normal(0.1), shape, decay=True)
            self.word_drop = Dropout(self.word_dropout)
        self.lstm = [Recurrent(self.U, Z=2) for _ in range(self.layers)]
        self.drops = [Dropout(self.dropout) for _ in self.lstm]

    def __call__(self, batch: dict[str, Any], *, train: bool):
        """Computes states [B, L, D] in float32; 0 at positions that the LSTM skips."""
        states = dict(zip(self.join, self.features.each(batch, train=train), strict=True))
        read_BL = batch.get("word_BL", batch["valid_BL"])
        # The LSTM steps from word to word: pieces that stand for none are skipped.
        parts = [states[0].astype(jnp.float32)] if 0 in states else []
        if self.word_D:
            parts = [self.word_drop(self.word_VD[batch["own_BL"]], train=train), *parts]
        h_BLD = jnp.concatenate(parts, -1)
        for n, (layer, drop) in enumerate(zip(self.lstm, self.drops, strict=True), 1):
            h_BLZD, _ = layer(h_BLD, valid=read_BL)
            h_BLD = drop(h_BLZD.reshape(*read_BL.shape, -1), train=train)
            if n in states:
                read_BLD = jnp.where(read_BL[..., None], states[n], 0)
                h_BLD = jnp.concatenate([h_BLD, read_BLD], -1)
        return h_BLD

    def each(self, batch: dict[str, Any], *, train: bool):
        return self(batch, train=train)[None]

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Adds what the features train besides."""
        return self.features.add_losses(metrics, h_BLD, rows, train=train)
