"""A backbone's states as features: a task's own bidirectional LSTM reads them beside its words.

Peters et al. 2018 (arXiv 1802.05365), section 3.3: [x; ELMo] goes into the task's network and,
where that helps, [h; ELMo] comes out of it, each ELMo an average of the layers of its own.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from finetune.encode import Encoder
from modules import layers
from modules.recurrent import Recurrent
from pretrain.errors import UserError


def check(fields: Any) -> None:
    """UserError where the fields of `Features`, a task's as well, do not go together."""
    if not fields.bilstm and (fields.again or fields.own_D):
        raise UserError("task.again and task.own_D are of a task with an LSTM: set task.bilstm")
    if bool(fields.own_V) != bool(fields.own_D):
        raise UserError(
            f"task.own_D={fields.own_D} with {fields.own_V} words of the task's own: "
            "task.own says which words have vectors, task.own_D how wide these are"
        )


class Features(nn.Module):
    """What a task's head reads: the backbone's states, or what the task's own LSTM makes of them.

    Attributes:
        mix, frozen, states_dropout, lambda_: of `Encoder`.
        bilstm: units in each direction of the task's LSTM; 0: none.
        bilstm_layers, bilstm_dropout: of it; what comes out of each layer is dropped out.
        again: the states are put beside the LSTM's output, too.
        own_V, own_D: the task's own vectors of words, as many and as wide; 0: none.
    """

    backbone: nn.Module
    mix: bool = False
    frozen: bool = False
    states_dropout: float = 0.0
    lambda_: float = 0.0
    bilstm: int = 0
    bilstm_layers: int = 1
    bilstm_dropout: float = 0.0
    again: bool = False
    own_V: int = 0
    own_D: int = 0

    def __post_init__(self):
        super().__post_init__()
        check(self)

    def setup(self):
        self.encoder = Encoder(
            self.backbone, self.mix, self.frozen, self.states_dropout, self.lambda_,
            mixes=1 + self.again,
        )  # fmt: skip
        if self.own_D:
            init, shape = layers.normal(0.1), (self.own_V, self.own_D)
            self.own_VD = self.param("own_VD", init, shape, jnp.float32)
            self.own_drop = layers.Dropout(self.states_dropout)
        if self.bilstm:
            self.lstm = [Recurrent(self.bilstm, Z=2) for _ in range(self.bilstm_layers)]
            self.drops = [layers.Dropout(self.bilstm_dropout) for _ in self.lstm]

    def __call__(self, batch: dict[str, Any], read_BL=None, *, train: bool):
        """States [B, L, D] of a batch of `Inputs.arrays`; 0 of an LSTM where nothing is read.

        Args:
            batch: also own_BL, ids of the task's own words, where there are any.
            read_BL: what the LSTM reads, as the first pieces of words; None: all that is valid.
        """
        states = self.encoder.each(batch, train=train)
        if not self.bilstm:
            return states[0]
        read_BL = batch["valid_BL"] if read_BL is None else read_BL
        h_BLD = states[0].astype(jnp.float32)
        if self.own_D:
            own_BLD = self.own_drop(self.own_VD[batch["own_BL"]], train=train)
            h_BLD = jnp.concatenate([own_BLD, h_BLD], -1)
        for layer, drop in zip(self.lstm, self.drops, strict=True):
            h_BLZD, _ = layer(h_BLD, valid=read_BL)
            h_BLD = drop(h_BLZD.reshape(*read_BL.shape, -1), train=train)
        if not self.again:
            return h_BLD
        return jnp.concatenate([h_BLD, jnp.where(read_BL[..., None], states[1], 0)], -1)

    def penalty(self):
        """What is added to the loss for the mixes' weights."""
        return self.encoder.penalty()
