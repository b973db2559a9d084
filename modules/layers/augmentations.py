"""Augmentations of a text's embeddings, pure functions of a key (Yan et al. 2021, section 3.2).

They act on what the first layer reads, after the embedding's norm and dropout.  Counts are exact:
`int(n * rate)` of n, so that of 9 tokens at a rate of .1 none is cut, as in the released code.
Nothing is scaled up for what is cut, and padding is left as it is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from modules.sampling import sample_positions


class View(NamedTuple):
    """One way of reading rows.

    Attributes:
        valid_BL: where there is text for this view.
        order_BL: int32, where the tokens stand; None: in their order.
        keep: bool, [B, L, 1], [B, 1, D] or [B, L, D]: what is not cut off; None: nothing is.
        noise_BLD: added to the embeddings; None: nothing.
    """

    valid_BL: jax.Array
    order_BL: jax.Array | None = None
    keep: jax.Array | None = None
    noise_BLD: jax.Array | None = None

    def edit(self, x_BLD):
        """Applies cuts and noise to embeddings [B, L, D]."""
        if self.keep is not None:
            x_BLD = jnp.where(self.keep, x_BLD, 0)
        return x_BLD if self.noise_BLD is None else x_BLD + self.noise_BLD.astype(x_BLD.dtype)


def shuffle_positions(rng, valid_L):
    """Permutes the positions of a row's tokens: int32 [L]; padding stays where it is."""
    lot_L = jnp.where(valid_L, jax.random.uniform(rng, valid_L.shape), 2.0)
    # Both sorts are stable and begin with the tokens, so padding comes last in its own order.
    places_L, drawn_L = jnp.argsort(~valid_L, stable=True), jnp.argsort(lot_L, stable=True)
    return jnp.zeros(valid_L.shape, jnp.int32).at[places_L].set(drawn_L.astype(jnp.int32))


def cut_tokens(rng, valid_L, D: int, rate: float):
    """Draws the tokens that are left, marks among them: bool [L, 1]."""
    del D
    return ~sample_positions(rng, valid_L, count_share(valid_L, rate))[:, None]


def cut_features(rng, valid_L, D: int, rate: float):
    """Draws the dimensions that are left to all tokens of a row: bool [1, D]."""
    del valid_L
    return ~sample_positions(rng, jnp.ones(D, bool), int(D * rate))[None]


def cut_entries(rng, valid_L, D: int, rate: float):
    """Draws the entries of the tokens' vectors that are left: bool [L, D]."""
    eligible_LD = jnp.broadcast_to(valid_L[:, None], (len(valid_L), D))
    goal = count_share(valid_L, rate, D)
    return ~sample_positions(rng, eligible_LD.reshape(-1), goal).reshape(eligible_LD.shape)


def sample_span(rng, valid_L, rate: float):
    """Draws a run of max(int(n * (1 - rate)), 1) tokens, which alone are read: bool [L]."""
    size = jnp.maximum(count_share(valid_L, 1 - rate), 1)
    begin = jax.random.randint(rng, (), 0, jnp.maximum(valid_L.sum() - size, 0) + 1)
    rank_L = jnp.cumsum(valid_L) - 1
    return valid_L & (rank_L >= begin) & (rank_L < begin + size)


def count_share(valid_L, rate: float, D: int = 1):
    """Counts int(n * D * rate) for a row of n tokens."""
    # Looked up in a table made by Python: float32 on a device could round a count either way.
    counts = [int(n * D * rate) for n in range(len(valid_L) + 1)]
    return jnp.asarray(counts, jnp.int32)[valid_L.sum()]


def normalize_noise(grads_BLD, noise_norm: float):
    """Scales each token's gradient to the length `noise_norm`; 0 stays 0 (Miyato et al. 2017)."""
    grads_BLD = grads_BLD.astype(jnp.float32)
    # Before the root: a gradient of 1e-20 would square to 0.
    grads_BLD /= jnp.maximum(jnp.abs(grads_BLD).max(-1, keepdims=True), 1e-30)
    length_BL1 = jnp.sqrt(jnp.square(grads_BLD).sum(-1, keepdims=True))
    return noise_norm * grads_BLD / jnp.maximum(length_BL1, 1e-30)


CUTS = {"token_cutoff": cut_tokens, "feature_cutoff": cut_features, "dropout": cut_entries}
ADVERSARIAL = "adversarial"
KINDS = ("none", "shuffle", *CUTS, "span", ADVERSARIAL)


def draw_view(kind: str, rng, valid_BL, D: int, rate: float) -> View:
    """Draws a view of rows, each row with a key of its own.

    Args:
        kind: of `KINDS`; of "adversarial" the caller adds the noise.
        rate: share that is cut off; of "span", that is left out.
    """
    rngs = jax.random.split(rng, len(valid_BL))
    if kind == "shuffle":
        return View(valid_BL, order_BL=jax.vmap(shuffle_positions)(rngs, valid_BL))
    if kind == "span":
        return View(jax.vmap(lambda rng, row: sample_span(rng, row, rate))(rngs, valid_BL))
    if kind in CUTS:
        keep = jax.vmap(lambda rng, row: CUTS[kind](rng, row, D, rate))(rngs, valid_BL)
        return View(valid_BL, keep=keep)
    return View(valid_BL)
