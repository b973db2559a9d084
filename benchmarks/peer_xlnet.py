"""The peer of permutation LM: transformers' XLNetLMHeadModel in PyTorch, on a recipe's shapes.

Its masks and targets are made before the clock starts; they come back with every batch, so it
learns them by heart and its loss falls faster than ours, whose targets are drawn anew each step.
Needs torch and transformers, which may live under a Python of their own.
"""

import contextlib
import itertools
from typing import Any

import numpy as np
import torch
from transformers import XLNetConfig, XLNetLMHeadModel

from benchmarks import noise, worker

BATCHES = 4  # taken in turn


class Peer:
    """Forward, backward, clipping and AdamW; the memory goes from step to step."""

    def __init__(self, settings: dict[str, Any]):
        recipe = settings["recipe"]
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(recipe["seed"])
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model(**recipe["model"]).to(self.device).train()
        self.adam, self.clip = adam(self.model, **recipe["optim"]), recipe["optim"]["clip"]
        self.batches = itertools.cycle([batch(recipe, i, self.device) for i in range(BATCHES)])
        self.mems = memory(recipe, self.device)
        self.cast = (
            torch.autocast(self.device, torch.bfloat16)
            if recipe["model"]["dtype"] == "bfloat16"
            else contextlib.nullcontext()
        )
        self.facts = {"parameters": sum(p.numel() for p in self.model.parameters())}

    def step(self) -> Any:
        self.adam.zero_grad(set_to_none=True)
        with self.cast:
            out = self.model(**next(self.batches), mems=self.mems, use_mems=bool(self.mems))
        out.loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.adam.step()
        self.mems = out.mems if self.mems else None
        return out.loss.detach()

    def finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def loss(self, begun: Any) -> float:
        return float(begun)

    def peak_bytes(self) -> int:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return worker.resident_peak()


def model(
    *, V: int, D: int, H: int, K: int, N: int, F: int, M: int, reuse: int, dropout: float, **_: Any
) -> XLNetLMHeadModel:
    """The same network; its heads are always D / H wide, and all its dropout rates are one."""
    if D != H * K:
        raise ValueError(f"the peer's heads have a width of D / H = {D / H:g}, not K={K}")
    config = XLNetConfig(
        vocab_size=V, d_model=D, n_head=H, n_layer=N, d_inner=F, dropout=dropout,
        ff_activation="gelu_new", mem_len=M or None, reuse_len=reuse, use_mems_train=bool(M),
    )  # fmt: skip
    return XLNetLMHeadModel(config)


def adam(model: torch.nn.Module, *, lr: float, b1: float, b2: float, eps: float,
         weight_decay: float, **_: Any) -> torch.optim.Optimizer:  # fmt: skip
    """PyTorch's quickest AdamW."""
    return torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(b1, b2), eps=eps, weight_decay=weight_decay, fused=True
    )


def memory(recipe: dict[str, Any], device: str) -> list[torch.Tensor] | None:
    """Empty memory of full length, [M, B, D] for each layer; None where there is none."""
    fields = recipe["model"]
    shape = fields["M"], recipe["batches"]["B"], fields["D"]
    layers = range(fields["N"] if fields["M"] else 0)
    return [torch.zeros(shape, device=device) for _ in layers] or None


def batch(recipe: dict[str, Any], seed: int, device: str) -> dict[str, torch.Tensor]:
    """Random tokens, of which random ones are predicted in a random order.

    In `perm_mask` 1 means hidden: nobody sees a target unless its own place in the order is later.
    """
    B, L = recipe["batches"]["B"], recipe["batches"]["L"]
    P = int(L / recipe["objective"]["one_in"])
    tokens_BL = noise.tokens(recipe["model"]["V"], (B, L), seed)
    order_BP = np.random.default_rng(seed).random((B, L)).argsort(1)[:, :P]
    rank_BL = np.zeros((B, L), int)
    np.put_along_axis(rank_BL, order_BP, np.arange(1, P + 1)[None], axis=1)
    arrays = {
        "input_ids": tokens_BL.astype(np.int64),
        "labels": np.take_along_axis(tokens_BL, order_BP, axis=1).astype(np.int64),
        "token_type_ids": np.zeros((B, L), np.int64),
        "perm_mask": ((rank_BL[:, None] >= rank_BL[..., None]) & (rank_BL[:, None] > 0)),
        "target_mapping": order_BP[..., None] == np.arange(L),
    }
    floats = ("perm_mask", "target_mapping")
    made = {k: x.astype(np.float32) if k in floats else x for k, x in arrays.items()}
    return {name: torch.from_numpy(x).to(device) for name, x in made.items()}


if __name__ == "__main__":
    worker.serve(Peer)
