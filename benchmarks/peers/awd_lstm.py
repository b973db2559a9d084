"""Runs the peer of the AWD-LSTM in PyTorch: nn.LSTM's own kernel on dropped weights.

nnlstm  each layer is one call of PyTorch's LSTM, of windows without padding, as the released code
        reads them; AdamW in one kernel
"""

import itertools
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers import base


class NNLSTM(base.Peer):
    """The contender whose states go on from batch to batch."""

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings)
        self.states = None

    def network(self, recipe: dict[str, Any]) -> nn.Module:
        self.penalties = recipe["objective"]["ar"], recipe["objective"]["tar"]
        return AWDLSTM(output=recipe["objective"]["dropout"], **recipe["model"])

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        # Rows are equally long but for the last window of an epoch, which is none of these.
        L = int(batch["valid_BL"].sum(1).min())
        names = ("tokens_BL", "next_BL")
        return {name: batch[name][:, :L].astype(np.int64) for name in names}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        h_BLD, dropped_BLD, self.states = self.model(batch["tokens_BL"], self.states)
        logits_BLV = self.model.score(dropped_BLD)
        loss = functional.cross_entropy(logits_BLV.flatten(0, 1), batch["next_BL"].flatten())
        ar, tar = self.penalties
        changes_BLD = h_BLD[:, 1:] - h_BLD[:, :-1]
        return [loss, ar * dropped_BLD.pow(2).mean(), tar * changes_BLD.pow(2).mean()]


class AWDLSTM(nn.Module):
    """Merity et al. 2017: a tied softmax over LSTMs of unequal widths."""

    def __init__(
        self,
        *,
        V: int,
        D: int,
        U: int,
        N: int,
        dropoute: float,
        dropouti: float,
        dropouth: float,
        wdrop: float,
        output: float,
        init_scale: float,
        **_: Any,
    ):
        super().__init__()
        self.token, self.bias_V = nn.Embedding(V, D), nn.Parameter(torch.zeros(V))
        nn.init.uniform_(self.token.weight, -init_scale, init_scale)
        widths = itertools.pairwise([D, *[U] * (N - 1), D])
        self.layers = nn.ModuleList([nn.LSTM(*pair, batch_first=True) for pair in widths])
        self.word, self.wdrop = dropoute, wdrop
        # Behind the words and behind each layer.
        self.rates = [dropouti, *[dropouth] * (N - 1), output]

    def forward(self, tokens_BL: torch.Tensor, states: Any) -> tuple[torch.Tensor, ...]:
        keep_V1 = functional.dropout(torch.ones(self.token.num_embeddings, 1), self.word)
        h_BLD = functional.embedding(tokens_BL, self.token.weight * keep_V1)
        dropped_BLD, new = lock_dropout(h_BLD, self.rates[0]), []
        states = states or [self.zeros(layer, len(tokens_BL)) for layer in self.layers]
        for layer, rate, state in zip(self.layers, self.rates[1:], states, strict=True):
            weights = [layer.weight_ih_l0, functional.dropout(layer.weight_hh_l0, self.wdrop)]
            weights += [layer.bias_ih_l0, layer.bias_hh_l0]
            # nn.LSTM's own call, with these weights in place of its own.
            options = (True, 1, 0.0, True, False, True)
            h_BLD, *state = torch._VF.lstm(dropped_BLD, state, weights, *options)
            dropped_BLD = lock_dropout(h_BLD, rate)
            # Detached: gradients end at the batch, as ours do.
            new.append([x.detach() for x in state])
        return h_BLD, dropped_BLD, new

    def zeros(self, layer: nn.LSTM, B: int) -> list[torch.Tensor]:
        return [self.bias_V.new_zeros(1, B, layer.hidden_size) for _ in range(2)]

    def score(self, h_BLD: torch.Tensor) -> torch.Tensor:
        return functional.linear(h_BLD, self.token.weight, self.bias_V)


def lock_dropout(x_BLD: torch.Tensor, rate: float) -> torch.Tensor:
    """Drops the same entries at all positions of a row."""
    return x_BLD * functional.dropout(torch.ones_like(x_BLD[:, :1]), rate)


if __name__ == "__main__":
    base.serve({"nnlstm": NNLSTM})
