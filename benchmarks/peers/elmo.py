"""Runs the peers of biLM in PyTorch: ELMo's clipped LSTMs cell by cell, and PyTorch's own LSTM.

cells   a short one as AllenNLP's: each step in Python, cells and projections clipped
nnlstm  nn.LSTM with a projection for each direction and layer: quicker, and without the clips

Both carry their states from batch to batch and never clear them; AdamW in one kernel.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers import base


class Cells(base.Peer):
    """The contender whose states go from step to step."""

    layer: Any

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings)
        self.states = None

    def network(self, recipe: dict[str, Any]) -> nn.Module:
        self.samples = recipe["objective"].get("samples", 0)
        return BiLM(self.layer, **recipe["model"])

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        spelled = recipe["model"]["inputs"] == "characters"
        read = batch["chars_BZLW" if spelled else "tokens_BZL"]
        return {"read": read.astype(np.int64), "next_BZL": batch["next_BZL"].astype(np.int64)}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        h_BZLD, self.states = self.model(batch["read"], self.states)
        h_RD, next_R = h_BZLD.flatten(0, 2), batch["next_BZL"].flatten()
        if self.samples:
            return [sampled_cross_entropy(h_RD, next_R, self.model.softmax, self.samples)]
        return [functional.cross_entropy(self.model.softmax(h_RD), next_R)]


class BiLM(nn.Module):
    """Peters et al. 2018: an embedding, N layers in Z directions, and a softmax for both."""

    def __init__(
        self,
        layer: Any,
        *,
        V: int,
        D: int,
        U: int,
        N: int,
        Z: int,
        residual: bool,
        dropout: float,
        clip_cell: float,
        clip_projection: float,
        **words: Any,
    ):
        super().__init__()
        self.N, self.Z, self.residual = N, Z, residual
        self.word, self.softmax = embedding(V, D, **words), nn.Linear(D, V)
        self.dropout = nn.Dropout(dropout)
        clips = dict(clip_cell=clip_cell, clip_projection=clip_projection)
        self.layers = nn.ModuleList([layer(D, U, **clips) for _ in range(N * Z)])
        nn.init.normal_(self.softmax.weight, std=D**-0.5)
        nn.init.zeros_(self.softmax.bias)

    def forward(self, read: torch.Tensor, states: Any) -> tuple[torch.Tensor, Any]:
        x_BZLD = self.word(read)
        new: list[list[torch.Tensor]] = []
        outputs = []
        for z in range(self.Z):
            x_BLD = x_BZLD[:, z]
            for n in range(self.N):
                x_BLD = self.dropout(x_BLD)
                state = states[len(new)] if states else None
                y_BLD, state = self.layers[z * self.N + n](x_BLD, state)
                x_BLD = y_BLD + x_BLD if n and self.residual else y_BLD
                # Detached: gradients end at the batch, as ours do.
                new.append([x.detach() for x in state])
            outputs.append(x_BLD)
        return self.dropout(torch.stack(outputs, 1)), new


def sampled_cross_entropy(
    h_RD: torch.Tensor, next_R: torch.Tensor, softmax: nn.Linear, samples: int
) -> torch.Tensor:
    """Computes the loss against ids of one draw for all rows (Jean et al. 2015, section 3).

    Ids come by Zipf's law and perhaps twice, where TensorFlow draws until all differ: quicker.
    """
    size = math.log(softmax.out_features + 1)
    ids_S = torch.exp(torch.rand(samples, device=h_RD.device) * size).long() - 1
    ids_S = ids_S.clamp(max=softmax.out_features - 1)  # where rounding leads beyond
    chance_S = torch.log((ids_S + 2) / (ids_S + 1)) / size
    others_RS = h_RD @ softmax.weight[ids_S].T + softmax.bias[ids_S]
    others_RS = others_RS.float() - torch.log(samples * chance_S)
    # An id that is the answer is no wrong one.
    others_RS = others_RS.masked_fill(ids_S == next_R[:, None], -1e9)
    true_R = (h_RD * softmax.weight[next_R]).sum(1) + softmax.bias[next_R]
    return (torch.logaddexp(true_R.float(), others_RS.logsumexp(1)) - true_R).mean()


def embedding(V: int, D: int, *, inputs: str, **fields: Any) -> nn.Module:
    """Builds the embedding of words, from ids or from their characters."""
    if inputs == "characters":
        return Characters(D, **fields)
    token = nn.Embedding(V, D)
    nn.init.uniform_(token.weight, -1, 1)
    return token


class Characters(nn.Module):
    """Kim et al. 2016: convolutions, their maxima, highways."""

    def __init__(
        self,
        D: int,
        *,
        E: int,
        filters: list[tuple[int, int]],
        highways: int,
        activation: str,
        **_: Any,
    ):
        super().__init__()
        X = sum(many for _, many in filters)
        self.character = nn.Embedding(261, E)
        self.kernels = nn.ModuleList([nn.Conv1d(E, many, w) for w, many in filters])
        self.carries, self.transforms = (
            nn.ModuleList([nn.Linear(X, X) for _ in range(highways)]) for _ in range(2)
        )
        self.projection = nn.Linear(X, D)
        self.activation = getattr(torch, activation)
        nn.init.uniform_(self.character.weight, -1, 1)
        for kernel in self.kernels:
            nn.init.uniform_(kernel.weight, -0.05, 0.05)
        for carry in self.carries:  # begins as the identity, Srivastava et al. 2015
            nn.init.constant_(carry.bias, -2)
        for linear in (*self.carries, *self.transforms, self.projection):
            nn.init.normal_(linear.weight, std=X**-0.5)

    def forward(self, chars_BZLW: torch.Tensor) -> torch.Tensor:
        x_REW = self.character(chars_BZLW.flatten(0, 2)).transpose(1, 2)
        # The maximum over the places of each filter.
        x_RX = torch.cat([kernel(x_REW).amax(2) for kernel in self.kernels], 1)
        x_RX = self.activation(x_RX)
        for carry, transform in zip(self.carries, self.transforms, strict=True):
            gate_RX = torch.sigmoid(carry(x_RX))
            x_RX = gate_RX * torch.relu(transform(x_RX)) + (1 - gate_RX) * x_RX
        return self.projection(x_RX).unflatten(0, chars_BZLW.shape[:3])


class CellByCell(nn.Module):
    """TensorFlow's LSTMCell with a projection (Sak et al. 2014), a loop over positions."""

    def __init__(self, D: int, U: int, *, clip_cell: float, clip_projection: float):
        super().__init__()
        self.clips, self.sizes = (clip_cell, clip_projection), (U, D)
        self.input, self.state = nn.Linear(D, 4 * U), nn.Linear(D, 4 * U, bias=False)
        self.projection = nn.Linear(U, D, bias=False)
        glorot(self, U)

    def forward(self, x_BLD: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        c_BU, h_BD = state or [x_BLD.new_zeros(len(x_BLD), size) for size in self.sizes]
        steps = []
        # The inputs' product is taken at once, the states' step by step.
        for a_BF in self.input(x_BLD).unbind(1):
            i, f, j, o = (a_BF + self.state(h_BD)).chunk(4, 1)
            # The forget bias of 1 is TensorFlow's.
            c_BU = torch.sigmoid(f + 1) * c_BU + torch.sigmoid(i) * torch.tanh(j)
            c_BU = clip(c_BU, self.clips[0])
            h_BD = clip(self.projection(torch.sigmoid(o) * torch.tanh(c_BU)), self.clips[1])
            steps.append(h_BD)
        return torch.stack(steps, 1), (c_BU, h_BD)


def clip(x: torch.Tensor, limit: float) -> torch.Tensor:
    """Clips to -limit ... limit; 0 is no limit."""
    return x.clamp(-limit, limit) if limit else x


class Fused(nn.Module):
    """nn.LSTM with a projection: the loop is PyTorch's, the clips are left out."""

    def __init__(self, D: int, U: int, **_: float):
        super().__init__()
        self.lstm = nn.LSTM(D, U, proj_size=D, batch_first=True)
        glorot(self.lstm, U)
        # nn.LSTM adds two biases: one of them holds the forget bias of 1.
        self.lstm.bias_ih_l0.data[U : 2 * U] = 1

    def forward(self, x_BLD: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        y_BLD, (h_1BD, c_1BU) = self.lstm(x_BLD, state)
        return y_BLD, (h_1BD, c_1BU)


def glorot(module: nn.Module, U: int) -> None:
    """Initialises weights as ELMo does, biases at 0."""
    for w in module.parameters():
        if w.ndim == 1:
            nn.init.zeros_(w)
        else:
            state = w.shape[0] == 4 * U  # one of the two operands of the gates' product
            bound = (6 / (sum(w.shape) + state * w.shape[1])) ** 0.5
            nn.init.uniform_(w, -bound, bound)


class NNLSTM(Cells):
    """The contender with PyTorch's own LSTM."""

    layer = Fused


class ByCell(Cells):
    """The contender with a loop over cells."""

    layer = CellByCell


if __name__ == "__main__":
    base.serve({"cells": ByCell, "nnlstm": NNLSTM})
