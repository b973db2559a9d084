"""Encodes rows by bidirectional RNNs of the task's own, fed with another encoder's states or none.

Peters et al. 2018 (arXiv 1802.05365), section 3.3: [x; ELMo] goes into the task's network and,
where that helps, [h; ELMo] comes out of it, each ELMo an average of the layers of its own.
Peters et al. 2017 (arXiv 1705.00108), TagLM: states join the RNN after its first layer; without
them, at no place, it is the paper's baseline.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from finetune.encoders.backbone import Encoder as Backbone
from modules.layers import params
from modules.layers.char_words import CharWords
from modules.layers.dropout import Dropout
from modules.layers.rnn import Recurrent
from pretrain.runtime.errors import UserError

PARTS = {"characters": CharWords}


class Encoder(nn.Module):
    """Runs a stack of bidirectional layers over the positions that stand for words.

    Attributes:
        backbone: None where no states join the stack.
        features: the encoder whose states feed the stack; it has as many copies as `join` has
            places.  None: the last layer of the backbone.
        U: units in each direction.
        layers: layers of the stack.
        cell: of all layers, see `Recurrent`.
        dropout: of the output of each layer.
        input_dropout: of the input of each layer, of states that join it, too.
        join: places at which states are put beside what the stack reads: 0 is its input, n the
            output of layer n.
        word_V, word_D: number and width of the task's own word vectors; 0: none.
        word_dropout: of these vectors.
        char_W: characters of a word in the batch; 0: none.
        characters: computes words' vectors from them; None: there are none.
    """

    has_backbone_states = False
    needs_backbone = False

    backbone: Any
    features: Any = None
    U: int = 200
    layers: int = 1
    cell: str = "lstm"
    dropout: float = 0.0
    input_dropout: float = 0.0
    join: tuple[int, ...] = (0,)
    word_V: int = 0
    word_D: int = 0
    word_dropout: float = 0.0
    char_W: int = 0
    characters: CharWords | None = None

    def __post_init__(self):
        if self.join and self.backbone is None:
            raise UserError(
                f"task.encoder.join={tuple(self.join)} joins the states of a backbone, and there "
                "is none: name a pretrained run in init, or set join=()"
            )
        if self.features is None and self.join:
            self.features = Backbone(self.backbone, copies=len(self.join))
        super().__post_init__()
        if bool(self.word_V) != bool(self.word_D):
            raise UserError(
                f"task.encoder.word_D={self.word_D} with {self.word_V} words of the task's own: "
                "task.min_count says which words have vectors, task.encoder.word_D how wide"
            )
        if bool(self.char_W) != bool(self.characters):
            raise UserError(
                f"task.own_characters={self.char_W} and task.encoder.characters go together: the "
                "one says how many characters of a word there are, the other how they are read"
            )
        if not all(0 <= place <= self.layers for place in self.join):
            raise UserError(
                f"task.encoder.join={tuple(self.join)}: places from 0, the input, to "
                f"{self.layers}, the output of the last layer"
            )
        if 0 not in self.join and not self.word_D and not self.characters:
            raise UserError(
                "task.encoder.join: the input is empty without 0, vectors of words, or characters"
            )

    def setup(self):
        if self.word_D:
            shape = (self.word_V, self.word_D)
            self.word_VD = params.param(self, "word_VD", params.normal(0.1), shape, decay=True)
            self.word_drop = Dropout(self.word_dropout)
        # Named by the cell: an LSTM's parameters are where they were before there were others.
        self.rnns = [
            Recurrent(self.U, self.cell, Z=2, name=f"{self.cell}_{n}") for n in range(self.layers)
        ]
        self.input_drops = [Dropout(self.input_dropout) for _ in self.rnns]
        self.drops = [Dropout(self.dropout) for _ in self.rnns]

    def __call__(self, batch: dict[str, Any], *, train: bool):
        """Computes states [B, L, D] in float32; 0 at positions that the RNN skips."""
        h_KBLD = self.features.each(batch, train=train) if self.join else ()
        states = dict(zip(self.join, h_KBLD, strict=True))
        read_BL = batch.get("word_BL", batch["valid_BL"])
        h_BLD = jnp.concatenate(self._inputs(batch, states, train=train), -1)
        # The RNN steps from word to word: pieces that stand for none are skipped.
        for n, layer in enumerate(self.rnns, 1):
            h_BLD = self.input_drops[n - 1](h_BLD, train=train)
            h_BLZD, _ = layer(h_BLD, valid=read_BL)
            h_BLD = self.drops[n - 1](h_BLZD.reshape(*read_BL.shape, -1), train=train)
            if n in states:
                # 0 where the RNN skips a position, as its own states are there.
                read_BLD = jnp.where(read_BL[..., None], states[n], 0)
                h_BLD = jnp.concatenate([h_BLD, read_BLD], -1)
        return h_BLD

    def _inputs(self, batch, states, *, train: bool) -> list:
        """Lists what the first layer reads: [characters; word; states], those that there are."""
        # The order of the rows in that layer's weights: what was saved has it.
        inputs = []
        if self.characters:
            inputs.append(self.characters(batch["own_chars_BLW"], train=train))
        if self.word_D:
            inputs.append(self.word_drop(self.word_VD[batch["own_BL"]], train=train))
        # The task's own layers compute in float32, whatever the backbone does.
        return inputs + ([states[0].astype(jnp.float32)] if 0 in states else [])

    def each(self, batch: dict[str, Any], *, train: bool):
        return self(batch, train=train)[None]

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Adds what the features train besides."""
        if not self.join:
            return metrics
        return self.features.add_losses(metrics, h_BLD, rows, train=train)
