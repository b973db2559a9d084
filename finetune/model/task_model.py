"""A backbone read by a task: its states, or what the task's own LSTM makes of them as features.

Peters et al. 2018 (arXiv 1802.05365), section 3.3: [x; ELMo] goes into the task's network and,
where that helps, [h; ELMo] comes out of it, each ELMo an average of the layers of its own.
Radford et al. 2018, section 3.2: the language model may be trained along on the task's texts.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from finetune.model import encoder
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.rnn import Recurrent
from modules.metrics import Sum
from pretrain.runtime.errors import UserError


class Features(nn.Module):
    """What the modules of all tasks are: a backbone, read as the recipe says, under a head.

    Attributes:
        mix, frozen, states_dropout, lambda_, window: of `encoder.Encoder`.
        bilstm: units in each direction of the task's LSTM; 0: none.
        bilstm_layers, bilstm_dropout: of it; what comes out of each layer is dropped out.
        again: the states are put beside the LSTM's output, too.
        own_V, own_D: the task's own vectors of words, as many and as wide; 0: none.
        lm: weight of the language model's loss on the same rows (GPT-1: 0.5).
    """

    backbone: nn.Module
    mix: bool = False
    frozen: bool = False
    states_dropout: float = 0.0
    lambda_: float = 0.0
    window: int = 0
    bilstm: int = 0
    bilstm_layers: int = 1
    bilstm_dropout: float = 0.0
    again: bool = False
    own_V: int = 0
    own_D: int = 0
    lm: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        for wrong, message in self._conflicts():
            if wrong:
                raise UserError(message)

    def _conflicts(self) -> list[tuple[Any, str]]:
        """Which fields do not go together, and what is said then."""
        causal = self.backbone.is_causal
        above = self.mix or self.frozen or self.bilstm or self.states_dropout
        return [
            (
                not self.bilstm and (self.again or self.own_D),
                "task.again and task.own_D are of a task with an LSTM: set task.bilstm",
            ),
            (
                bool(self.own_V) != bool(self.own_D),
                f"task.own_D={self.own_D} with {self.own_V} words of the task's own: "
                "task.own says which words have vectors, task.own_D how wide these are",
            ),
            (
                self.lm and not causal,
                "task.lm is of a backbone that reads from left to right (GPT)",
            ),
            (
                self.lm and above,
                "task.lm trains the backbone's last states: without task.mix, task.frozen, "
                "task.states_dropout and task.bilstm",
            ),
            (
                self.window and not getattr(self.backbone, "M", 0),
                "task.window is of a backbone with a memory (XLNet, model.M > 0)",
            ),
            (
                self.window and self.mix,
                "task.window reads the last layer: without task.mix",
            ),
        ]

    def setup(self):
        self.encoder = encoder.Encoder(
            self.backbone,
            self.mix,
            self.frozen,
            self.states_dropout,
            self.lambda_,
            1 + self.again,
            self.window,
        )
        if self.own_D:
            init, shape = params.normal(0.1), (self.own_V, self.own_D)
            self.own_VD = params.param(self, "own_VD", init, shape, decay=True)
            self.own_drop = Dropout(self.states_dropout)
        if self.bilstm:
            self.lstm = [Recurrent(self.bilstm, Z=2) for _ in range(self.bilstm_layers)]
            self.drops = [Dropout(self.bilstm_dropout) for _ in self.lstm]

    def states(self, batch: dict[str, Any], read_BL=None, *, train: bool):
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

    def along(self, sums, h_BLD, rows, *, train: bool):
        """A task's sums, and what is trained along with it.

        The squares of the mixes' weights are added to the loss; the language model's loss on the
        rows (of which `weight_B` may weigh several each) is one more.
        """
        loss = sums["loss"]
        loss = loss.replace(total=loss.total + loss.weight * self.encoder.penalty())
        sums = sums | {"loss": loss}
        return sums | (self._language(h_BLD, rows, train=train) if self.lm else {})

    def _language(self, h_BLD, rows, *, train: bool):
        """The next token's loss, times `lm`."""
        tokens_BL, valid_BL = rows["tokens_BL"], rows["valid_BL"]
        real_B = jnp.repeat(rows["weight_B"], len(tokens_BL) // len(rows["weight_B"]))
        weights_BL = (valid_BL[:, 1:] * real_B[:, None]).astype(jnp.float32)
        found = self.backbone.cross_entropy(h_BLD[:, :-1], tokens_BL[:, 1:], weights_BL, chunks=4)
        loss = found["loss"]
        return {"lm_loss": Sum(self.lm * loss.total, loss.weight, train=True)}

    def flops(self, B: int, L: int) -> float:
        """Floating-point operations of one training step."""
        return encoder.flops(self.backbone, B, L)
