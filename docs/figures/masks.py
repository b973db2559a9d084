"""Draws who attends to whom in each objective, as `modules.masks` says it: masks.png.

python -m docs.figures.masks
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import colors
from matplotlib import pyplot as plt

from docs.figures.drawing import BLUE, ORANGE, save_picture
from modules.masks import Mask
from pretrain.objectives.window_order import WindowOrder

WORDS = ["the", "state", "of", "the", "Union", "is", "strong", "."]
L = len(WORDS)
MASKED = (1, 6)  # positions that BERT predicts here
SEED = 6  # an order that runs against the text in either half


def permute() -> tuple[Any, Any, Any]:
    """Draws XLNet's (targets, ranks, ranks below which each position sees) of the words: [L]."""
    order = WindowOrder(
        reuse_len=L // 2,
        predict_every=2,
        perm_size=0,
        spans=False,
        max_gram=1,
        alpha=3,
        beta=1,
        faithful=False,
    )
    rows = jnp.zeros(L, bool), jnp.ones(L, bool), jnp.array(False)
    return order.draw(jax.random.key(SEED), *rows)


def compute_masks() -> dict[str, np.ndarray]:
    """Computes the masks that the objectives make of a row of L words: bool [L, L] of each.

    ELMo's backward direction reads the reversed row by a causal mask; here it is turned back.
    """
    causal_LL = np.asarray(Mask(is_causal=True).dense(L)[0])
    full_LL = np.broadcast_to(Mask().dense(L)[0], (L, L))
    _, rank_L, sees_below_L = permute()
    order = Mask(rank_BL=rank_L[None], sees_below_BL=sees_below_L[None], hides_slots=True)
    query_LL = np.asarray(order.dense(L)[0])
    return {
        "ELMo, forward LSTM": causal_LL,
        "ELMo, backward LSTM": causal_LL[::-1, ::-1],
        "BERT (masked LM)": full_LL,
        "GPT (causal LM)": causal_LL,
        # `two_stream` adds the token itself to the content stream.
        "XLNet, content stream": query_LL | np.eye(L, dtype=bool),
        "XLNet, query stream": query_LL,
    }


def draw_mask(axes: Any, title: str, mask_LL: np.ndarray, predicting: tuple, keys: list) -> None:
    """Draws a matrix whose rows attend to its columns; rows that predict are orange."""
    shade_LL = np.where(mask_LL, 1, 0)
    shade_LL[list(predicting)] *= 2
    if "query" in title:  # states of the others are not computed
        shade_LL[[i for i in range(L) if i not in predicting]] = 3
    palette = colors.ListedColormap(["white", BLUE, ORANGE, "#e4e4e4"])
    axes.imshow(shade_LL, cmap=palette, vmin=0, vmax=3)
    axes.set_title(title, fontsize=15)
    axes.set_xticks(range(L), keys, rotation=60, ha="left", rotation_mode="anchor", fontsize=12)
    axes.set_yticks(range(L), WORDS, fontsize=12)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(L + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(L + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#bbbbbb", lw=0.8)
    axes.tick_params(which="minor", length=0)


def draw_masks() -> Any:
    """Draws the masks of the four objectives, in pairs."""
    targets_L = np.flatnonzero(permute()[0])
    hidden = ["[MASK]" if i in MASKED else word for i, word in enumerate(WORDS)]
    everywhere, nowhere = range(L), ()
    predicting = [everywhere, everywhere, MASKED, everywhere, nowhere, targets_L]
    keys = [WORDS, WORDS, hidden, WORDS, WORDS, WORDS]
    figure, grid = plt.subplots(3, 2, figsize=(8.4, 13.2), layout="constrained")
    figure.get_layout_engine().set(hspace=0.06, wspace=0.06)
    for axes, (title, mask_LL), rows, words in zip(
        grid.flat, compute_masks().items(), predicting, keys, strict=True
    ):
        draw_mask(axes, title, mask_LL, tuple(rows), words)
    return figure


if __name__ == "__main__":
    print(save_picture(draw_masks(), "masks"))
