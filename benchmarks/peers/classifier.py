"""Classifies rows of words in PyTorch, with the arithmetic of `finetune.tasks.classify`."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn


class Classifier(nn.Module):
    """An encoder, pooling, dropout and a dense layer."""

    def __init__(self, model: Mapping[str, Any], head: Mapping[str, Any]):
        """
        Args:
            model: the section `model`, all fields set.
            head: fields of `modules.heads.classifier.Classifier`, all set.

        Raises:
            ValueError: PyTorch's has no such part.
        """
        super().__init__()
        if head["summary"] != "none":
            raise ValueError(f"summary={head['summary']!r}: the peers know none")
        if model["name"] == "text_cnn" and head["pool"] != "max":
            raise ValueError(f"pool={head['pool']!r}: the peer of a CNN takes maxima")
        self.encoder = load_encoder(model["name"])(**model)
        self.pool = Pool(head["pool"], self.encoder.width)
        self.dropout = nn.Dropout(head["dropout"])
        self.dense = nn.Linear(self.encoder.width, head["C"])
        nn.init.normal_(self.dense.weight, std=head["scale"])
        nn.init.zeros_(self.dense.bias)

    def forward(self, tokens_BL: torch.Tensor, lengths_B: torch.Tensor) -> torch.Tensor:
        """Computes logits [B, C]."""
        return self.dense(self.dropout(self.pool(*self.encoder(tokens_BL, lengths_B))))

    def load(self, params: Mapping[str, np.ndarray]) -> None:
        """Copies our parameters, given by path, as "backbone/token_VD"."""
        below = "backbone/"
        self.encoder.load(
            {name.removeprefix(below): w for name, w in params.items() if name.startswith(below)}
        )
        self.dense.weight.data = torch.tensor(params["head/w_DC"].T.copy())
        self.dense.bias.data = torch.tensor(params["head/bias_C"])
        if self.pool.query_D is not None:
            self.pool.query_D.data = torch.tensor(params["head/Pool_0/query_HD"][0])

    def part_by_decay(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Returns the parameters that decay, and the others that learn: biases and the like."""
        undecayed = {getattr(self.encoder, name) for name in self.encoder.undecayed}
        has_decay = lambda w: w not in undecayed and (w.ndim > 1 or w is self.pool.query_D)  # noqa: E731
        learned = [w for w in self.parameters() if w.requires_grad]
        return [w for w in learned if has_decay(w)], [w for w in learned if not has_decay(w)]


def load_encoder(backbone: str) -> type[nn.Module]:
    """Returns the encoder named as the backbone.  ValueError: no file has this name."""
    name = f"benchmarks.peers.encoders.{backbone}"
    try:
        return importlib.import_module(name).Encoder
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ValueError(f"there is no file benchmarks/peers/encoders/{backbone}.py") from error


class Pool(nn.Module):
    """Pools a row's valid states, as `modules.layers.pooling` does with one head."""

    def __init__(self, kind: str, D: int):
        super().__init__()
        if kind not in (*PLAIN, "attention", "tanh_attention"):
            raise ValueError(f"pool={kind!r} is none of {', '.join(PLAIN)}, (tanh_)attention")
        self.kind = kind
        self.query_D = None if kind in PLAIN else nn.Parameter(torch.zeros(D))

    def forward(self, h_BLD: torch.Tensor, valid_BL: torch.Tensor) -> torch.Tensor:
        if self.query_D is None:
            return PLAIN[self.kind](h_BLD, valid_BL)
        is_squashed = self.kind == "tanh_attention"
        scores_BL = (torch.tanh(h_BLD) if is_squashed else h_BLD) @ self.query_D
        share_BL = scores_BL.masked_fill(~valid_BL, -torch.inf).softmax(1)
        pooled_BD = (share_BL[:, None] @ h_BLD)[:, 0]
        return torch.tanh(pooled_BD) if is_squashed else pooled_BD


def take_last(h_BLD: torch.Tensor, valid_BL: torch.Tensor) -> torch.Tensor:
    return h_BLD[torch.arange(len(h_BLD), device=h_BLD.device), valid_BL.sum(1) - 1]


def take_highest(h_BLD: torch.Tensor, valid_BL: torch.Tensor) -> torch.Tensor:
    return h_BLD.masked_fill(~valid_BL[..., None], -torch.inf).amax(1)


def average(h_BLD: torch.Tensor, valid_BL: torch.Tensor) -> torch.Tensor:
    return (h_BLD * valid_BL[..., None]).sum(1) / valid_BL.sum(1, keepdim=True)


PLAIN = {
    "first": lambda h_BLD, valid_BL: h_BLD[:, 0],
    "last": take_last,
    "mean": average,
    "max": take_highest,
}
