"""Runs the peers of causal LM: transformers' GPT-2 in PyTorch, and a short GPT-2 at its quickest.

hf      GPT2LMHeadModel as it comes; the default AdamW
sdpa    a short one of PyTorch's own parts: attention, GELU and AdamW in one kernel each;
        freed memory is kept, as we keep it
"""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.peers import base

ACTIVATIONS: dict[str, tuple[str, nn.Module]] = {  # in transformers, and quicker in PyTorch
    "gelu": ("gelu_new", nn.GELU("tanh")),
    "gelu_erf": ("gelu", nn.GELU()),
    "relu": ("relu", nn.ReLU()),
}


class Shipped(base.Peer):
    """The contender of transformers; it shifts the labels, so it predicts one token a row less."""

    fused = False

    def network(self, recipe: dict[str, Any]) -> nn.Module:
        return build_shipped(**check_fields(**recipe["model"]))

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        tokens_BL = batch["tokens_BL"].astype(np.int64)
        return {"input_ids": tokens_BL, "labels": tokens_BL}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        # A cache would keep keys and values of every layer.
        return [self.model(**batch, use_cache=False).loss]


class Short(base.Peer):
    """The contender of `GPT`, on the recipe's shapes."""

    def network(self, recipe: dict[str, Any]) -> nn.Module:
        return GPT(**check_fields(**recipe["model"]))

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        names = ("tokens_BL", "next_BL")
        return {name: batch[name].astype(np.int64) for name in names}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        # All L targets, which ours predicts, too.
        logits_BLV = self.model(batch["tokens_BL"])
        return [functional.cross_entropy(logits_BLV.flatten(0, 1), batch["next_BL"].flatten())]


def check_fields(*, norm: str, window: int = 0, **fields: Any) -> dict[str, Any]:
    """Returns the fields; ValueError if the peers cannot be this model."""
    base.check_heads(**fields)
    if norm != "pre" or window:
        raise ValueError(f"the peer is GPT-2: norm='pre', window=0, not {norm!r}, {window}")
    return fields


def build_shipped(
    *,
    V: int,
    D: int,
    H: int,
    N: int,
    F: int,
    L: int,
    activation: str,
    dropout: float,
    attention_dropout: float,
    **_: Any,
) -> GPT2LMHeadModel:
    """Builds the same network; no token has a special role in it."""
    config = GPT2Config(
        vocab_size=V,
        n_embd=D,
        n_head=H,
        n_layer=N,
        n_inner=F,
        n_positions=L,
        activation_function=ACTIVATIONS[activation][0],
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=attention_dropout,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


class GPT(nn.Module):
    """Radford et al. 2019: embeddings, blocks, a last norm, and the embeddings once more."""

    def __init__(self, *, V: int, D: int, N: int, L: int, dropout: float, **fields: Any):
        super().__init__()
        self.token, self.position = nn.Embedding(V, D), nn.Embedding(L, D)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(D)
        self.blocks = nn.Sequential(*[Block(D=D, dropout=dropout, **fields) for _ in range(N)])
        for name, w in self.named_parameters():
            if w.ndim == 2:
                # GPT-2 scales the layers that add to the residual stream by their number.
                outwards = name.endswith("out.weight")
                nn.init.normal_(w, std=0.02 / (2 * N) ** 0.5 if outwards else 0.02)

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        x_BLD = self.token(tokens_BL) + self.position.weight[: tokens_BL.shape[1]]
        # The embeddings are the weights of the softmax, too (Radford et al. 2019).
        h_BLD = self.norm(self.blocks(self.dropout(x_BLD)))
        return functional.linear(h_BLD, self.token.weight)


class Block(nn.Module):
    """Attention and feed-forward, each normed before and added after."""

    def __init__(self, *, D: int, F: int, dropout: float, activation: str, **fields: Any):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(D), nn.LayerNorm(D)])
        self.attention = Attention(D=D, **fields)
        self.inwards, self.out = nn.Linear(D, F), nn.Linear(F, D)
        self.activation = ACTIVATIONS[activation][1]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        x_BLD = x_BLD + self.dropout(self.attention(self.norms[0](x_BLD)))
        h_BLF = self.activation(self.inwards(self.norms[1](x_BLD)))
        return x_BLD + self.dropout(self.out(h_BLF))


class Attention(nn.Module):
    """Each position sees itself and those before it."""

    def __init__(self, *, D: int, H: int, attention_dropout: float, **_: Any):
        super().__init__()
        self.H, self.rate = H, attention_dropout
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        # One product for all three.
        q, k, v = self.qkv(x_BLD).unflatten(-1, (3, self.H, -1)).permute(2, 0, 3, 1, 4)
        y_BHLK = functional.scaled_dot_product_attention(
            q, k, v, dropout_p=self.rate, is_causal=True
        )
        return self.out(y_BHLK.transpose(1, 2).flatten(2))


if __name__ == "__main__":
    base.serve({"hf": Shipped, "sdpa": Short})
