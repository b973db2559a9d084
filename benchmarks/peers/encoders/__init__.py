"""Encoders of rows in PyTorch, one a file, named as the backbone of ours whose arithmetic it does.

A file defines `Encoder(nn.Module)`, whose constructor takes the fields of the recipe's `model`:

    width                           of a state
    words                           its `Words`
    forward(tokens_BL, lengths_B)   -> states [B, L, D] and where they are valid, bool [B, L]
    load(params)                    copies parameters of ours, by path, as "kernel3_DX"
    undecayed                       names of the matrices that do not decay

Rows are padded at their ends, with id 0.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

Params = Mapping[str, np.ndarray]


class Words(nn.Module):
    """The words' vectors: the sum of those of its tables, of which "fixed" ones do not learn."""

    def __init__(self, V: int, D: int, scale: float, dropout: float, tables: Sequence[str] = ()):
        super().__init__()
        self.tables = nn.ModuleDict()
        for name in tables or ("learned",):
            # Padding has zeros and no gradient.
            table = self.tables[name] = nn.Embedding(V, D, padding_idx=0)
            nn.init.uniform_(table.weight, -scale, scale).data[0] = 0
            table.weight.requires_grad_(name == "learned")
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        return self.dropout(sum(table(tokens_BL) for table in self.tables.values()))

    def place(self, rows_VD: np.ndarray) -> None:
        """Begins all tables with these rows."""
        for table in self.tables.values():
            table.weight.data[: len(rows_VD)] = torch.from_numpy(rows_VD)
            table.weight.data[0] = 0

    def load(self, params: Params) -> None:
        """Copies the tables of ours, token_VD and fixed_VD."""
        for name, table in self.tables.items():
            rows_VD = params["token_VD" if name == "learned" else "fixed_VD"]
            # Our padding is 0 whatever its row says.
            table.weight.data = torch.tensor(rows_VD)
            table.weight.data[0] = 0


def valid_positions(lengths_B: torch.Tensor, L: int) -> torch.Tensor:
    """Returns where rows of these lengths have words: bool [B, L]."""
    return torch.arange(L, device=lengths_B.device) < lengths_B[:, None]
