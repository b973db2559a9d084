"""Kim's convolutional network (2014, arXiv 1408.5882): the highest value of each filter."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.encoders import Params, Words


class Encoder(nn.Module):
    """Its one state of a row holds the maxima over all windows: "max" leaves it as it is."""

    undecayed = ()

    def __init__(
        self,
        *,
        V: int,
        D: int,
        filters: Sequence[tuple[int, int]],
        activation: str,
        tables: Sequence[str],
        dropout: float,
        init_scale: float,
        **_: Any,
    ):
        super().__init__()
        self.words = Words(V, D, init_scale, dropout, tables)
        self.kernels = nn.ModuleList([nn.Conv1d(D, many, w) for w, many in filters])
        self.activation = getattr(torch, activation)
        self.width = sum(many for _, many in filters)
        for (w, many), kernel in zip(filters, self.kernels, strict=True):
            scale = 0.01 if activation == "relu" else math.sqrt(6 / (w * D + many))
            nn.init.uniform_(kernel.weight, -scale, scale)
            nn.init.zeros_(kernel.bias)

    def forward(
        self, tokens_BL: torch.Tensor, lengths_B: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x_BDL = self.words(tokens_BL).transpose(1, 2)
        features = []
        for kernel in self.kernels:
            (w,) = kernel.kernel_size
            # All but one word hang over an edge; and as the rows of the paper's code have zeros
            # at their ends, each row has a window of nothing else.
            y_BXL = kernel(functional.pad(x_BDL, (w - 1, w)))
            features.append(self.activation(y_BXL.amax(2)))
        h_B1X = torch.cat(features, 1)[:, None]
        return h_B1X, h_B1X.new_ones(h_B1X.shape[:2], dtype=torch.bool)

    def load(self, params: Params) -> None:
        self.words.load(params)
        first = 0
        for kernel in self.kernels:
            (w,), last = kernel.kernel_size, first + kernel.out_channels
            kernel.weight.data = torch.tensor(params[f"kernel{w}_DX"].transpose(2, 1, 0).copy())
            kernel.bias.data = torch.tensor(params["bias_X"][first:last])
            first = last
