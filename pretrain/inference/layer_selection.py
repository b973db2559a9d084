"""Parses which layers to embed with, how to mix them, and how a whole sentence is pooled."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pretrain.runtime.errors import UserError

# Averaged; 0 is what the first layer reads (Su et al. 2021; Yan et al. 2021, section 4.1).
LAYERS_OF_POOLS = {"last_two": (-2, -1), "first_last": (1, -1)}
SENTENCE_POOLS = ("mean", "first", "last", "last_two", "first_last", "pooler")


class Choice(NamedTuple):
    """Layers side by side, or added up with these weights; `flat`: the only one, by itself."""

    layers: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    flat: bool = False

    @property
    def is_one(self) -> bool:
        """Returns whether each position has one vector."""
        return self.flat or self.weights is not None

    def is_top(self, count: int) -> bool:
        """Checks for the last of `count` layers alone, as it is."""
        return self.flat and self.layers == (count - 1,) and self.weights is None

    def __call__(self, h_NBLD):
        # Taking all of them would copy them.
        if self.layers != (*range(len(h_NBLD)),):
            h_NBLD = h_NBLD[np.array(self.layers)]
        if self.weights is None:
            return h_NBLD[0] if self.flat else h_NBLD
        weights_N = np.array(self.weights, np.float32)
        # Some devices would round float32 operands of a product.
        exact = {"precision": "highest", "preferred_element_type": jnp.float32}
        return jnp.einsum("N,NBLD->BLD", weights_N, h_NBLD.astype(jnp.float32), **exact)


def parse_layers(layers: str, mix: str = "", *, count: int) -> Choice:
    """Parses "all", "top", "mean" or "0,2" for `count` layers, the tokens' own included.

    Args:
        layers: "all", "top", "mean", or numbers from 0, as "0,2".
        mix: weights of a sum of these layers, one for each, taken as they are; "": no sum.

    Raises:
        UserError: there is no such layer, or there are not as many weights as layers.
    """
    even = (1 / count,) * count if layers == "mean" else None
    named = {"all": range(count), "top": [count - 1], "mean": range(count)}
    try:
        numbers = tuple(named[layers] if layers in named else map(int, layers.split(",")))
        weights = tuple(map(float, mix.split(","))) if mix else even
    except ValueError as error:
        raise UserError(
            f"--layers={layers} --mix={mix}: say all, top, mean or numbers like 0,2; and as "
            "weights numbers like 0.2,0.8"
        ) from error
    if not set(numbers) <= set(range(count)):
        raise UserError(f"--layers={layers}: this model has layers 0 to {count - 1}")
    if even and mix:
        raise UserError("--layers=mean has its weights: leave out --mix, or take --layers=all")
    if weights and len(weights) != len(numbers):
        raise UserError(f"--mix={mix}: {len(weights)} weights for {len(numbers)} layers")
    return Choice(numbers, weights, flat=layers != "all" and len(numbers) == 1)


def parse_pool(
    pool: str, layers: str = "", mix: str = "", *, count: int, default: str = "top"
) -> tuple[Choice, str]:
    """Parses how a sentence becomes one vector, for `count` layers.

    Args:
        pool: one of SENTENCE_POOLS, or "": it does not.
        layers, mix: see `parse_layers`.
        default: layers, where neither the caller nor the pooling names any.

    Returns:
        The layers, and the `pool` of `Embedder`.

    Raises:
        UserError: there is no such pooling or layer, or the pooling has layers of its own.
    """
    if pool not in ("", *SENTENCE_POOLS):
        raise UserError(f"--pool={pool}: it is one of {', '.join(SENTENCE_POOLS)}")
    has_layers = pool in LAYERS_OF_POOLS or pool == "pooler"
    if has_layers and (layers or mix):
        raise UserError(f"--pool={pool} has layers of its own: leave out --layers and --mix")
    if pool not in LAYERS_OF_POOLS:
        layers = layers or ("top" if has_layers else default)
        return parse_layers(layers, mix, count=count), pool
    if count < 3:
        raise UserError(f"--pool={pool} is of a model of two layers or more: this has {count - 1}")
    numbers = tuple(i % count for i in LAYERS_OF_POOLS[pool])
    return Choice(numbers, (0.5, 0.5), flat=True), "mean"


def check_pooler(backbone: Any, pool: str) -> None:
    """Raises a UserError if the pooling is by a layer that a model lacks."""
    if pool == "pooler" and not getattr(backbone, "pooler", False):
        raise UserError("pool=pooler: this run's model has no layer for the first position")
