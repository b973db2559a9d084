"""Recurrent networks over words: nn.LSTM, nn.GRU and nn.RNN on packed rows."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.utils import rnn

from benchmarks.peers.encoders import Params, Words, valid_positions

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
# Places of our gates in PyTorch's order: an LSTM's are in, candidate, forget, out here.
GATES = {"lstm": (0, 2, 1, 3), "gru": (0, 1, 2), "rnn": (0,)}
MERGES = {
    "sum": lambda h_BLZU: h_BLZU.sum(2),
    "mean": lambda h_BLZU: h_BLZU.mean(2),
    "mul": lambda h_BLZU: h_BLZU.prod(2),
    "concat": lambda h_BLZU: h_BLZU.flatten(2),
}


class Encoder(nn.Module):
    """N layers, whose directions are merged after each."""

    undecayed = ()

    def __init__(
        self,
        *,
        V: int,
        D: int,
        U: int,
        N: int,
        Z: int,
        cell: str,
        merge: str,
        reset_gate: str,
        activation: str,
        dropout: float,
        rnn_dropout: float,
        rnn_dropout_at: str,
        init_scale: float,
        **_: Any,
    ):
        super().__init__()
        if rnn_dropout_at != "output" or (cell == "gru" and reset_gate != "after"):
            raise ValueError("PyTorch has rnn_dropout_at='output' and reset_gate='after' alone")
        self.words, self.merge = Words(V, D, init_scale, dropout), MERGES[merge]
        self.width = Z * U if merge == "concat" else U
        widths = [D, *[self.width] * (N - 1)]
        self.layers = nn.ModuleList([build_layer(cell, x, U, Z, activation) for x in widths])
        self.dropout = nn.Dropout(rnn_dropout)

    def forward(
        self, tokens_BL: torch.Tensor, lengths_B: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        h_BLD = self.words(tokens_BL)
        for layer in self.layers:
            h_BLD = self.dropout(self.merge(read_packed(layer, h_BLD, lengths_B)))
        return h_BLD, valid_positions(lengths_B, h_BLD.shape[1])

    def load(self, params: Params) -> None:
        self.words.load(params)
        for n, layer in enumerate(self.layers):
            load_layer(layer, {name: params[f"layer_{n}/{name}"] for name in names_of(layer)})


def build_layer(
    cell: str, D: int, U: int, Z: int, activation: str = "tanh", bias: bool = True
) -> nn.RNNBase:
    """Builds a layer with our initial values and as many numbers that learn."""
    fields = {"nonlinearity": activation} if cell == "rnn" else {}
    layer = KINDS[cell](D, U, bias=bias, bidirectional=Z == 2, batch_first=True, **fields)
    for name, w in layer.named_parameters():
        if name.startswith("weight"):
            bound = math.sqrt(6 / (D + U + len(GATES[cell]) * U))
            nn.init.uniform_(w, -bound, bound)
            continue
        nn.init.zeros_(w)
        # PyTorch adds two biases.  Of an LSTM and an RNN the second rests: it holds the forget bias
        # of 1.  Of a GRU its candidate's learns, which differs from the first.
        if name.startswith("bias_hh"):
            if cell == "lstm":
                w.data[U : 2 * U] = 1
            if cell == "gru":
                w.register_hook(lambda grad: torch.cat([0 * grad[: 2 * U], grad[2 * U :]]))
            else:
                w.requires_grad_(False)
    return layer


def read_packed(
    layer: nn.RNNBase, x_BLD: torch.Tensor, lengths_B: torch.Tensor, state: torch.Tensor = None
) -> torch.Tensor:
    """Reads rows in all directions, each from its own end: [B, L, Z, U], 0 at padding."""
    packed = rnn.pack_padded_sequence(
        x_BLD, lengths_B.cpu(), batch_first=True, enforce_sorted=False
    )
    y, _ = layer(packed, state)
    y_BLD, _ = rnn.pad_packed_sequence(y, batch_first=True, total_length=x_BLD.shape[1])
    return y_BLD.unflatten(2, (-1, layer.hidden_size))


def names_of(layer: nn.RNNBase) -> list[str]:
    """Lists our parameters of such a layer."""
    biases = ["b_ZGU", *["bh_ZU"] * isinstance(layer, nn.GRU)]
    return ["wx_ZDGU", "wh_ZDGU", *(biases if layer.bias else [])]


def load_layer(layer: nn.RNNBase, params: Params) -> None:
    gates = list(GATES[layer.mode.partition("_")[0].lower()])
    for z, end in enumerate(["", "_reverse"][: 1 + layer.bidirectional]):
        for kind, name in (("ih", "wx_ZDGU"), ("hh", "wh_ZDGU")):
            w_GUD = params[name][z][:, gates].transpose(1, 2, 0)
            w = w_GUD.reshape(-1, w_GUD.shape[-1])
            getattr(layer, f"weight_{kind}_l0{end}").data = torch.tensor(w)
        if layer.bias:
            b = params["b_ZGU"][z][gates].reshape(-1)
            getattr(layer, f"bias_ih_l0{end}").data = torch.tensor(b)
        if "bh_ZU" in params:
            getattr(layer, f"bias_hh_l0{end}").data[2 * layer.hidden_size :] = torch.tensor(
                params["bh_ZU"][z]
            )
