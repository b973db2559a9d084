"""Runs the peer of the AWD-LSTM in PyTorch: nn.LSTM's own kernel on dropped weights.

nnlstm  each layer is one call of PyTorch's LSTM, of windows without padding, as the released code
        reads them; AdamW in one kernel
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers import base
from benchmarks.peers.encoders import Params
from benchmarks.peers.encoders.recurrent import GATES, load_layer


class NNLSTM(base.Peer):
    """The contender whose states go on from batch to batch."""

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings)
        self.states = None

    def network(self, recipe: dict[str, Any]) -> nn.Module:
        self.objective = recipe["objective"]
        return AWDLSTM(output=self.objective["dropout"], **recipe["model"])

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        # Rows are equally long but for the last window of an epoch, which is none of these.
        L = int(batch["valid_BL"].sum(1).min())
        names = ("tokens_BL", "next_BL")
        return {name: batch[name][:, :L].astype(np.int64) for name in names}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        ones_BL = torch.ones_like(batch["tokens_BL"], dtype=torch.float32)
        losses, self.states = compute_losses(
            self.model, self.objective, **batch, weights_BL=ones_BL, states=self.states
        )
        return losses


def compute_losses(
    model: nn.Module,
    objective: Mapping[str, Any],
    *,
    tokens_BL: torch.Tensor,
    next_BL: torch.Tensor,
    weights_BL: torch.Tensor,
    states: Any,
) -> tuple[list[torch.Tensor], Any]:
    """Computes the cross entropy, AR and TAR.

    Args:
        objective: `ar` and `tar` are read.
        states: of the window before; None: there is none.

    Returns:
        (means over the positions that weigh 1, the states)
    """
    h_BLD, dropped_BLD, states = model(tokens_BL, states)
    logits_BLV, mean = model.score(dropped_BLD), weights_BL / weights_BL.sum()
    nats_BL = functional.cross_entropy(
        logits_BLV.flatten(0, 1), next_BL.flatten(), reduction="none"
    ).view_as(mean)
    both_BL = torch.minimum(weights_BL[:, 1:], weights_BL[:, :-1])
    changes_BLD = h_BLD[:, 1:] - h_BLD[:, :-1]
    ar = objective["ar"] * (dropped_BLD.pow(2).mean(-1) * mean).sum()
    tar = objective["tar"] * (changes_BLD.pow(2).mean(-1) * both_BL).sum()
    # A window of one position has no change.
    tar = tar / both_BL.sum().clamp(min=1)
    return [(nats_BL * mean).sum(), ar, tar], states


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
        keep_V1 = self.drop(torch.ones(self.token.num_embeddings, 1), self.word)
        h_BLD = functional.embedding(tokens_BL, self.token.weight * keep_V1)
        dropped_BLD, new = self.lock_dropout(h_BLD, self.rates[0]), []
        states = states or [self.zeros(layer, len(tokens_BL)) for layer in self.layers]
        for layer, rate, state in zip(self.layers, self.rates[1:], states, strict=True):
            weights = [layer.weight_ih_l0, self.drop(layer.weight_hh_l0, self.wdrop)]
            weights += [layer.bias_ih_l0, layer.bias_hh_l0]
            # nn.LSTM's own call, with these weights in place of its own.
            options = (True, 1, 0.0, True, False, True)
            h_BLD, *state = torch._VF.lstm(dropped_BLD, state, weights, *options)
            dropped_BLD = self.lock_dropout(h_BLD, rate)
            # Detached: gradients end at the batch, as ours do.
            new.append([x.detach() for x in state])
        return h_BLD, dropped_BLD, new

    def zeros(self, layer: nn.LSTM, B: int) -> list[torch.Tensor]:
        return [self.bias_V.new_zeros(1, B, layer.hidden_size) for _ in range(2)]

    def score(self, h_BLD: torch.Tensor) -> torch.Tensor:
        return functional.linear(h_BLD, self.token.weight, self.bias_V)

    def drop(self, x: torch.Tensor, rate: float) -> torch.Tensor:
        return functional.dropout(x, rate, self.training)

    def lock_dropout(self, x_BLD: torch.Tensor, rate: float) -> torch.Tensor:
        """Drops the same entries at all positions of a row."""
        return x_BLD * self.drop(torch.ones_like(x_BLD[:, :1]), rate)

    def load(self, params: Params) -> None:
        """Copies our parameters, given by path, as "backbone/token_VD"."""
        self.token.weight.data = torch.tensor(params["backbone/token_VD"])
        self.bias_V.data = torch.tensor(params["head/bias_V"])
        for n, layer in enumerate(self.layers):
            names = ("wx_ZDGU", "wh_ZDGU", "b_ZGU", "bh_ZGU")
            ours = {name: params[f"backbone/layer_{n}/{name}"] for name in names}
            load_layer(layer, ours)
            bias = ours["bh_ZGU"][0][list(GATES["lstm"])].reshape(-1)
            layer.bias_hh_l0.data = torch.tensor(bias)

    def part_by_decay(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Returns the parameters that decay, and the biases."""
        weights = [w for w in self.parameters() if w.ndim > 1]
        return weights, [w for w in self.parameters() if w.ndim == 1]


if __name__ == "__main__":
    base.serve({"nnlstm": NNLSTM})
