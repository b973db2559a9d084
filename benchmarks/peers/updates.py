"""Updates a PyTorch model as a recipe's section `optim` says."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

# Fields that the peers do not know, and what they are in a recipe that has no use for them.
UNUSED = dict(
    decay="constant",
    warmup=0,
    grad_scale=1.0,
    freeze="",
    rates=None,
    layer_lr_decay=1.0,
    unfreeze_every=0,
    chain_thaw=False,
    bias_correction=True,
    eps_hat=False,
)
HEAD = "head/w_DC"  # whose columns, the rows of PyTorch's weight, may have a limit


def adamw(decayed: list, others: list, fused: bool, *, lr, b1, b2, eps, weight_decay, **_):
    """Builds AdamW, PyTorch's default form or the one of a single kernel."""
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others}]
    # None leaves the choice to PyTorch.
    options = dict(lr=lr, betas=(b1, b2), eps=eps, weight_decay=0.0, fused=fused or None)
    return torch.optim.AdamW([x for x in groups if x["params"]], **options)


def adadelta(decayed: list, others: list, fused: bool, *, lr, rho, eps, **_):
    """Builds AdaDelta, of which there is no form of a single kernel."""
    return torch.optim.Adadelta([*decayed, *others], lr=lr, rho=rho, eps=eps, foreach=fused or None)


def sgd(decayed: list, others: list, fused: bool, *, lr, momentum, **_):
    """Builds SGD, PyTorch's default form or the one of a single kernel."""
    return torch.optim.SGD([*decayed, *others], lr=lr, momentum=momentum, fused=fused or None)


RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": adamw,
    "adadelta": adadelta,
    "sgd": sgd,
}


class Update:
    """Takes a step down the gradient of a loss, and keeps weights in their ball."""

    def __init__(self, model: nn.Module, optim: Mapping[str, Any], fused: bool):
        """
        Args:
            model: with a method `part_by_decay`, as `Classifier`.
            optim: the section `optim`, all fields set.
            fused: whether the rule is PyTorch's quickest, not its default.

        Raises:
            ValueError: a field asks for what the peers do not know.
        """
        check(optim)
        decayed, others = model.part_by_decay()
        if optim["decay_all"]:
            decayed, others = [*decayed, *others], []
        self.model, self.optim, self.decayed = model, optim, decayed
        self.parameters = [*decayed, *others]
        self.rule = RULES[optim["name"]](decayed, others, fused, **optim)

    def __call__(self, loss: torch.Tensor, tokens: float = 0.0) -> None:
        """
        Args:
            tokens: that the batch predicts, to which `lr_tokens` makes the rate proportional.
        """
        optim = self.optim
        if optim["lr_tokens"]:
            for group in self.rule.param_groups:
                group["lr"] = optim["lr"] * tokens / optim["lr_tokens"]
        self.rule.zero_grad(set_to_none=True)  # the quicker way, PyTorch's default
        loss.backward()
        if optim["clip"]:
            torch.nn.utils.clip_grad_norm_(self.parameters, optim["clip"])
        if optim["l2"]:
            grads = [w.grad for w in self.decayed]
            torch._foreach_add_(grads, [w.detach() for w in self.decayed], alpha=optim["l2"])
        if optim["clip_value"]:
            torch.nn.utils.clip_grad_value_(self.parameters, optim["clip_value"])
        self.rule.step()
        if optim["max_norm"]:
            w_CD = self.model.dense.weight.data
            limit = optim["max_norm"][HEAD]
            w_CD *= (limit / w_CD.norm(dim=1, keepdim=True)).clamp(max=1)


def check(optim: Mapping[str, Any]) -> None:
    """Raises ValueError if the section asks for what the peers do not know."""
    if optim["name"] not in RULES:
        raise ValueError(f"optim.name={optim['name']!r}: the peers know {', '.join(RULES)}")
    for name, value in UNUSED.items():
        if optim[name] != value:
            raise ValueError(f"optim.{name}={optim[name]!r}: the peers know {value!r} alone")
    if unknown := (optim["max_norm"] or {}).keys() - {HEAD}:
        raise ValueError(f"optim.max_norm: the peers limit {HEAD}, not {min(unknown)}")
