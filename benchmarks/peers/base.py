"""Runs a PyTorch peer: forward, backward, clipping and AdamW, on the batches that ours reads.

It needs torch, which may live under a Python of its own: nothing here or below imports JAX.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contest import synthetic_data, worker


class Peer:
    """A contender; each variant defines its `network`, `tensors` and `losses`.

    Attributes:
        fused: whether AdamW is PyTorch's quickest, not its default.
    """

    fused = True

    def __init__(self, settings: dict[str, Any]):
        recipe = settings["recipe"]
        # As many as ours has: the runner sets the same for XLA.
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(recipe["seed"])
        # Products of float32 take a GPU's TF32, as those of JAX do.
        torch.set_float32_matmul_precision("high")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = self.network(recipe).to(self.device).train()
        self.rule = RULES[recipe["optim"]["name"]](self.model, self.fused, **recipe["optim"])
        self.clip = recipe["optim"]["clip"]
        self.cast = cast(self.device, settings.get("dtype") or recipe["model"]["dtype"])
        self.batches = itertools.cycle(self.make_batches(recipe))
        mode = settings.get("compile")
        self.compute = torch.compile(self.losses, mode=mode) if mode else self.losses
        self.facts = {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
        }

    def network(self, recipe: dict[str, Any]) -> torch.nn.Module:
        """Builds the recipe's model."""
        raise NotImplementedError

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        """Returns the inputs of the network, by name, from a batch of ours."""
        raise NotImplementedError

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Computes the losses, whose sum is minimised; the first is the tokens' and is reported."""
        raise NotImplementedError

    def make_batches(self, recipe: dict[str, Any]) -> list[dict[str, torch.Tensor]]:
        """Returns the batches, on the device before the clock starts."""
        text = synthetic_data.build_layout(recipe)
        batches = [self.tensors(recipe, text.batch(i), i) for i in range(synthetic_data.BATCHES)]
        return [
            {name: torch.from_numpy(x).to(self.device) for name, x in batch.items()}
            for batch in batches
        ]

    def step(self) -> Any:
        self.rule.zero_grad(set_to_none=True)  # the quicker way, PyTorch's default
        with self.cast:
            losses = self.compute(next(self.batches))
        # Only the forward pass is cast: backward uses the types of the forward pass.
        sum(losses).backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.rule.step()
        return losses[0].detach()  # float() would wait for the device

    def finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def loss(self, result: Any) -> float:
        return float(result)

    def peak_bytes(self) -> int:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return worker.resident_peak()

    def profile(self, folder: str) -> contextlib.AbstractContextManager:
        return keep_profile(folder)


@contextlib.contextmanager
def keep_profile(folder: str) -> Iterator[None]:
    """Keeps a profile of the block in a folder, as Chrome and Perfetto show it."""
    with torch.profiler.profile() as profile:
        yield
    Path(folder).mkdir(parents=True, exist_ok=True)
    profile.export_chrome_trace(str(Path(folder) / "trace.json.gz"))


def serve(variants: dict[str, type[Peer]]) -> None:
    """Serves the variant that the settings name."""
    worker.serve(lambda settings: variants[settings["variant"]](settings))


def adam(
    model: torch.nn.Module,
    fused: bool,
    *,
    lr: float,
    b1: float,
    b2: float,
    eps: float,
    weight_decay: float,
    **_: Any,
) -> torch.optim.Optimizer:
    """Builds AdamW, PyTorch's default form or the one of a single kernel."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=lr,
        betas=(b1, b2),
        eps=eps,
        weight_decay=weight_decay,
        fused=fused or None,  # None leaves the choice to PyTorch
    )


def adagrad(
    model: torch.nn.Module, fused: bool, *, lr: float, initial_accumulator: float, **_: Any
) -> torch.optim.Optimizer:
    """Builds Adagrad (Duchi et al. 2011), of which GPUs have no form of a single kernel."""
    first = dict(initial_accumulator_value=initial_accumulator)
    return torch.optim.Adagrad(model.parameters(), lr=lr, foreach=fused or None, **first)


RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adam, "adagrad": adagrad}


def cast(device: str, dtype: str) -> contextlib.AbstractContextManager:
    """Returns the context of a compute type."""
    # Parameters stay in float32, as ours do.
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device, getattr(torch, dtype))


def check_heads(*, D: int, H: int, K: int, **_: Any) -> None:
    """Raises ValueError unless the heads are D / H wide, as the peers' always are."""
    if D != H * K:
        raise ValueError(f"the peer's heads have a width of D / H = {D / H:g}, not K={K}")
