"""Runs the peer of permutation LM: transformers' XLNetLMHeadModel, with the fused AdamW.

Its masks and targets are drawn once, before the clock starts.  So it learns the batches by heart
and its loss falls faster than ours, whose targets are drawn anew in each step.
"""

from typing import Any

import numpy as np
import torch
from transformers import XLNetConfig, XLNetLMHeadModel

from benchmarks.contest import synthetic_data
from benchmarks.peers import base


class Shipped(base.Peer):
    """The contender whose memory goes from step to step."""

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings)
        self.mems = memory(settings["recipe"], self.device)

    def network(self, recipe: dict[str, Any]) -> torch.nn.Module:
        return model(**recipe["model"])

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        # Without memory `mems` is None, and transformers keeps none.
        out = self.model(**batch, mems=self.mems, use_mems=bool(self.mems))
        self.mems = out.mems if self.mems else None
        return [out.loss]

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        """Returns inputs in which random positions are predicted in a random order."""
        tokens_BL = batch["tokens_BL"].astype(np.int64)
        B, L = tokens_BL.shape
        P = int(L / recipe["objective"]["predict_every"])
        ordinary_BL = tokens_BL > max(synthetic_data.SPECIAL.values())
        order_BP = (np.random.default_rng(seed).random((B, L)) - ordinary_BL).argsort(1)[:, :P]
        # Rank 0: a position that is not predicted, and that all may see.
        rank_BL = np.zeros((B, L), int)
        np.put_along_axis(rank_BL, order_BP, np.arange(1, P + 1)[None], axis=1)
        # [B, query, key], 1 where hidden: a position sees a target only if its own rank is later,
        # so that a target does not see itself either.
        hidden_BLL = (rank_BL[:, None] >= rank_BL[..., None]) & (rank_BL[:, None] > 0)
        return {
            "input_ids": tokens_BL,
            "labels": np.take_along_axis(tokens_BL, order_BP, axis=1),
            # Segments differ only by being equal or not, as in ours.
            "token_type_ids": batch["segments_BL"].astype(np.int64),
            "perm_mask": hidden_BLL.astype(np.float32),
            "target_mapping": (order_BP[..., None] == np.arange(L)).astype(np.float32),
        }


def model(
    *,
    V: int,
    D: int,
    H: int,
    K: int,
    N: int,
    F: int,
    M: int,
    reuse_len: int,
    dropout: float,
    **_: Any,
) -> XLNetLMHeadModel:
    """Builds the same network; its heads are D / H wide, and its dropout rates are all equal."""
    base.check_heads(D=D, H=H, K=K)
    config = XLNetConfig(
        vocab_size=V,
        d_model=D,
        n_head=H,
        n_layer=N,
        d_inner=F,
        dropout=dropout,
        ff_activation="gelu_new",
        mem_len=M or None,
        reuse_len=reuse_len,
        use_mems_train=bool(M),
    )
    return XLNetLMHeadModel(config)


def memory(recipe: dict[str, Any], device: str) -> list[torch.Tensor] | None:
    """Returns empty memory of full length, [M, B, D] for each layer; None without memory."""
    fields = recipe["model"]
    shape = fields["M"], recipe["batches"]["B"], fields["D"]
    layers = range(fields["N"] if fields["M"] else 0)
    return [torch.zeros(shape, device=device) for _ in layers] or None


if __name__ == "__main__":
    base.serve({"hf": Shipped})
