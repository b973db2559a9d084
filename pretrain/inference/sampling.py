"""Chooses the next token: the likeliest, or one drawn from the likelier ones."""

import dataclasses

import jax
import jax.numpy as jnp

from pretrain.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Chooses a token by its scores; the attributes apply in this order.

    Attributes:
        temperature: scores are divided by it: below 1 the likely become likelier; 0: greedy.
        top_k: the k best alone are drawn from; 0: all.
        top_p: of those, the fewest whose probability together reaches p (Holtzman et al. 2020,
            arXiv 1904.09751); 1: all.

    Raises:
        UserError: a number is out of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"temperature={self.temperature}: is 0, greedy, or above")
        if self.top_k < 0:
            raise UserError(f"top_k={self.top_k}: is how many tokens to draw from, or 0: all")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p}: is a share of the probability, above 0, up to 1")

    def __call__(self, logits_BV, key, places_B):
        """Returns the next tokens, int32 [B]; `places_B`, where they will stand, see `draw_ids`."""
        if self.temperature == 0:
            return logits_BV.argmax(-1).astype(jnp.int32)
        logits_BV = scale_logits(logits_BV, self.temperature)
        if not self.top_k and self.top_p == 1:
            return draw_ids(logits_BV, key, places_B)
        logits_Bk, ids_Bk = take_top_k(logits_BV, self.top_k or logits_BV.shape[-1])
        rank_B = draw_ids(keep_nucleus(logits_Bk, self.top_p), key, places_B)
        return jnp.take_along_axis(ids_Bk, rank_B[:, None], -1)[:, 0]


def scale_logits(logits_BV, temperature: float):
    """Returns scores below the row's best, divided by the temperature: finite however low it is."""
    return (logits_BV - logits_BV.max(-1, keepdims=True)) / temperature


def take_top_k(logits_BV, k: int):
    """Returns the k highest scores, the best first, and their tokens; equals by lower token."""
    return jax.lax.top_k(logits_BV, min(k, logits_BV.shape[-1]))


def keep_nucleus(logits_Bk, p: float):
    """Keeps the best scores that reach the mass p, of scores in falling order; others: -inf."""
    mass_Bk = jnp.cumsum(jax.nn.softmax(logits_Bk), -1)
    # The mass before a token decides, so that the first is kept however small p is.
    before_Bk = jnp.pad(mass_Bk[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(before_Bk < p, logits_Bk, -jnp.inf)


def draw_ids(logits_BV, key, places_B):
    """Draws an entry of each row by its probability, int32 [B]."""

    # A draw depends on the key, the row's number and the token's place in it alone: not on how many
    # rows there are, nor on what they hold.
    def one(logits_V, row, place):
        row_key = jax.random.fold_in(jax.random.fold_in(key, row), place)
        return jax.random.categorical(row_key, logits_V).astype(jnp.int32)

    return jax.vmap(one)(logits_BV, jnp.arange(len(logits_BV)), places_B)
