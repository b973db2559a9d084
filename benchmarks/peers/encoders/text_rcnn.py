"""Recurrent convolutional network (Lai, Xu, Liu & Zhao 2015): a word between its two contexts."""

import math
from typing import Any

import torch
from torch import nn

from benchmarks.peers.encoders import Params, Words, recurrent, valid_positions


class Encoder(nn.Module):
    """States tanh(W [c_l; e; c_r] + b)."""

    undecayed = ("ends_ZU",)

    def __init__(
        self,
        *,
        V: int,
        D: int,
        U: int,
        F: int,
        cell: str,
        dropout: float,
        init_scale: float,
        **_: Any,
    ):
        super().__init__()
        self.words, self.width = Words(V, D, init_scale, dropout), F
        self.contexts = recurrent.build_layer(cell, D, U, 2, bias=cell != "rnn")
        self.ends_ZU = nn.Parameter(torch.empty(2, U).uniform_(-0.1, 0.1))
        self.dense = nn.Linear(D + 2 * U, F)
        bound = math.sqrt(6 / (D + 2 * U + F))
        nn.init.uniform_(self.dense.weight, -bound, bound)
        nn.init.zeros_(self.dense.bias)

    def forward(
        self, tokens_BL: torch.Tensor, lengths_B: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        e_BLD, (B, L) = self.words(tokens_BL), tokens_BL.shape
        h_ZBU = self.ends_ZU[:, None].expand(-1, B, -1).contiguous()
        state = (h_ZBU, torch.zeros_like(h_ZBU)) if self.contexts.mode == "LSTM" else h_ZBU
        left_BLU, right_BLU = recurrent.read_packed(self.contexts, e_BLD, lengths_B, state).unbind(
            2
        )
        # The context of a word is the state before it was read.
        left_end_BU, right_end_BU = (end_U.expand(B, 1, -1) for end_U in self.ends_ZU)
        left_BLU = torch.cat([left_end_BU, left_BLU[:, :-1]], 1)
        right_BLU = torch.cat([right_BLU[:, 1:], right_end_BU], 1)
        valid_BL = valid_positions(lengths_B, L)
        is_last_BL = torch.arange(L, device=lengths_B.device) == lengths_B[:, None] - 1
        right_BLU = torch.where(is_last_BL[..., None], right_end_BU, right_BLU)
        x_BLD = torch.cat([left_BLU, e_BLD, right_BLU], -1)
        return torch.tanh(self.dense(x_BLD)), valid_BL

    def load(self, params: Params) -> None:
        self.words.load(params)
        names = recurrent.names_of(self.contexts)
        recurrent.load_layer(self.contexts, {name: params[f"contexts/{name}"] for name in names})
        self.ends_ZU.data = torch.tensor(params["end_ZU"])
        self.dense.weight.data = torch.tensor(params["w_DF"].T.copy())
        self.dense.bias.data = torch.tensor(params["bias_F"])
