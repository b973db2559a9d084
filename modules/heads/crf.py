"""Linear-chain CRF: tags scored as one path, by what each position says and by what follows what.

Lafferty et al. 2001; Lample et al. 2016 (arXiv 1603.01360), section 2.2.  The chain runs through
the valid positions of a row: whatever stands between or around them is passed over, so padding
may be on either side and word pieces without a tag may stand in between, bit for bit as if they
were not there.  Everything is in float32, whatever comes in.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers import params

FORBIDDEN = -1e30  # swallows any score; a million of them are still finite


class Chain(NamedTuple):
    """Scores of a path besides the emissions'; or, as booleans, what of it is allowed.

    start_C: to begin with a tag.  end_C: to end with one.  transition_CC: [from, to].
    """

    start_C: jax.Array
    end_C: jax.Array
    transition_CC: jax.Array


class CRF(nn.Module):
    """A chain whose scores are learned; it begins as a softmax of each position for itself.

    Every method takes emissions [B, L, C] and `valid_BL`, None: all; `allowed`, a Chain of
    booleans, None: everything, holds where it is given: often in decoding alone.

    Attributes:
        C: tags.
    """

    C: int

    def setup(self):
        self.start_C = params.param(self, "start_C", params.zeros, (self.C,), decay=False)
        self.end_C = params.param(self, "end_C", params.zeros, (self.C,), decay=False)
        shape = (self.C, self.C)
        self.transition_CC = params.param(self, "transition_CC", params.zeros, shape, decay=False)

    def __call__(self, emissions_BLC, tags_BL, valid_BL=None, *, weights_B=None, allowed=None):
        """The loss of these tags: `loss` below."""
        chain = self.chain(allowed)
        return loss(emissions_BLC, tags_BL, chain, valid_BL, weights_B=weights_B)

    def decode(self, emissions_BLC, valid_BL=None, *, allowed=None):
        """The best path and its score: `viterbi` below."""
        return viterbi(emissions_BLC, self.chain(allowed), valid_BL)

    def marginals(self, emissions_BLC, valid_BL=None, *, allowed=None):
        """[B, L, C], each tag's probability at each position: `marginals` below."""
        return marginals(emissions_BLC, self.chain(allowed), valid_BL)

    def chain(self, allowed: Chain | None = None) -> Chain:
        """The learned scores, `held` to what is allowed."""
        chain = Chain(self.start_C, self.end_C, self.transition_CC)
        return chain if allowed is None else held(chain, allowed)


def held(chain: Chain, allowed: Chain) -> Chain:
    """The chain with FORBIDDEN where a boolean is False: in all sums such a path counts nothing."""
    return Chain(*(jnp.where(ok, x, FORBIDDEN) for x, ok in zip(chain, allowed, strict=True)))


def loss(emissions_BLC, tags_BL, chain: Chain, valid_BL=None, *, weights_B=None):
    """Negative log-likelihood of the tags: (summed nats, weight), one weight for a whole row.

    `weights_B`, None: 1; a row without valid positions weighs nothing.
    """
    own_B = log_likelihood(emissions_BLC, tags_BL, chain, valid_BL)
    weights_B = jnp.ones_like(own_B) if weights_B is None else weights_B.astype(jnp.float32)
    if valid_BL is not None:
        weights_B = jnp.where(valid_BL.any(1), weights_B, 0)
    return -(own_B * weights_B).sum(), weights_B.sum()


def log_likelihood(emissions_BLC, tags_BL, chain: Chain, valid_BL=None):
    """[B]: log of the tags' share among all paths; 0 for a row without valid positions.

    Tags are 0 to C - 1 where valid, anything elsewhere.  Those that the chain forbids have
    about FORBIDDEN, loud but finite: look for them before training.
    """
    emissions_BLC, chain, valid_BL = _prepared(emissions_BLC, chain, valid_BL)
    path_BL, end_B = _path(emissions_BLC, tags_BL, chain, valid_BL)
    return -_log_partition(emissions_BLC, chain, valid_BL, path_BL, end_B)


def log_partition(emissions_BLC, chain: Chain, valid_BL=None):
    """[B]: log of the sum of exp(score) over all paths; 0 for a row without valid positions."""
    emissions_BLC, chain, valid_BL = _prepared(emissions_BLC, chain, valid_BL)
    return _log_partition(emissions_BLC, chain, valid_BL, 0.0, 0.0)


def marginals(emissions_BLC, chain: Chain, valid_BL=None):
    """[B, L, C]: each tag's probability at each position, over all paths; 0 where not valid."""
    emissions_BLC = emissions_BLC.astype(jnp.float32)
    return jax.grad(lambda x_BLC: log_partition(x_BLC, chain, valid_BL).sum())(emissions_BLC)


def viterbi(emissions_BLC, chain: Chain, valid_BL=None):
    """The path of the highest score: tags [B, L], int32, 0 where not valid; its score [B].

    Among equals the one with the lowest last tag wins, then the lowest before it, and so on.
    Where every path is forbidden, it is one with the fewest offences.
    """
    emissions_BLC, chain, valid_BL = _prepared(emissions_BLC, chain, valid_BL)
    B, _, C = emissions_BLC.shape
    stay_BC = jnp.broadcast_to(jnp.arange(C), (B, C))

    def step(state, now):
        x_BC, valid_B = now
        ways_BCC = state[1][:, :, None] + chain.transition_CC
        new = _moved(state, ways_BCC.max(1), x_BC, valid_B, chain, 0.0)
        return new, jnp.where(valid_B[:, None], ways_BCC.argmax(1), stay_BC)

    def back(tag_B, came_from_BC):
        before_B = jnp.take_along_axis(came_from_BC, tag_B[:, None], axis=1)[:, 0]
        return before_B, tag_B

    steps = _steps(emissions_BLC), valid_BL.T
    (total_B, best_BC, begun_B), came_from_LBC = jax.lax.scan(step, _nothing(B, C), steps)
    ended_BC = best_BC + chain.end_C
    _, tags_LB = jax.lax.scan(back, ended_BC.argmax(1), came_from_LBC, reverse=True)
    score_B = jnp.where(begun_B, total_B + ended_BC.max(1), 0)
    return jnp.where(valid_BL, tags_LB.T, 0).astype(jnp.int32), score_B


def _prepared(emissions_BLC, chain: Chain, valid_BL):
    """All in float32; ValueError where the chain has another number of tags."""
    C = chain.start_C.shape[-1]
    if emissions_BLC.shape[-1] != C:
        raise ValueError(f"a chain of C={C} tags, emissions of {emissions_BLC.shape[-1]}")
    if valid_BL is None:
        valid_BL = jnp.ones(emissions_BLC.shape[:2], bool)
    emissions_BLC = constrain_sharding(jnp.asarray(emissions_BLC, jnp.float32), "BLC")
    chain = Chain(*(jnp.asarray(x, jnp.float32) for x in chain))
    return emissions_BLC, chain, jnp.asarray(valid_BL, bool)


def _path(emissions_BLC, tags_BL, chain: Chain, valid_BL):
    """What each position adds to the score of these tags, [B, L], and what the end adds, [B]."""
    place_BL = jnp.where(valid_BL, jnp.arange(valid_BL.shape[1]), -1)
    latest_BL = jax.lax.cummax(place_BL, axis=1)  # the last valid position so far; -1: none
    before_BL = jnp.pad(latest_BL, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    tags_BL = jnp.asarray(tags_BL)
    at = lambda i_BL: jnp.take_along_axis(tags_BL, jnp.maximum(i_BL, 0), axis=1)  # noqa: E731
    entered_BL = chain.transition_CC[at(before_BL), tags_BL]
    entered_BL = jnp.where(before_BL < 0, chain.start_C[tags_BL], entered_BL)
    own_BL = jnp.take_along_axis(emissions_BLC, tags_BL[..., None], axis=2)[..., 0]
    end_B = chain.end_C[at(latest_BL[:, -1:])[:, 0]]
    return jnp.where(valid_BL, entered_BL + own_BL, 0), end_B


def _log_partition(emissions_BLC, chain: Chain, valid_BL, path_BL, end_B):
    """Log of the sum over all paths, less one path's score: taken off position by position.

    Neither of the two is ever whole, so the difference keeps its digits in long rows too.
    """

    def step(state, now):
        x_BC, valid_B, path_B = now
        ways_BC = jax.nn.logsumexp(state[1][:, :, None] + chain.transition_CC, axis=1)
        return _moved(state, ways_BC, x_BC, valid_B, chain, path_B), None

    B, L, C = emissions_BLC.shape
    steps = _steps(emissions_BLC), valid_BL.T, jnp.broadcast_to(path_BL, (B, L)).T
    # Without the checkpoint the backward pass would keep [L, B, C, C].
    step = jax.checkpoint(step, prevent_cse=False)
    (total_B, alpha_BC, begun_B), _ = jax.lax.scan(step, _nothing(B, C), steps)
    ended_B = jax.nn.logsumexp(alpha_BC + chain.end_C, axis=1) - end_B
    return jnp.where(begun_B, total_B + ended_B, 0)


def _steps(x_BLC):
    """Positions first, as a scan wants them."""
    return jnp.moveaxis(x_BLC, 1, 0)


def _nothing(B: int, C: int):
    """Before the first valid position: what is settled, the scores beyond that, begun or not."""
    settled_B, beyond_BC = jnp.zeros(B, jnp.float32), jnp.zeros((B, C), jnp.float32)
    return (
        constrain_sharding(settled_B, "B"),
        constrain_sharding(beyond_BC, "BC"),
        constrain_sharding(jnp.zeros(B, bool), "B"),
    )


def _moved(state, ways_BC, x_BC, valid_B, chain: Chain, path_B):
    """One position on, by the ways that lead to each tag; a row that is not valid stays.

    The highest score is settled each time, so those kept are differences: small, and exact.
    """
    total_B, kept_BC, begun_B = state
    new_BC = jnp.where(begun_B[:, None], ways_BC, chain.start_C) + x_BC
    top_B = jax.lax.stop_gradient(new_BC.max(1))  # added and taken off: its slopes cancel
    total_B = jnp.where(valid_B, total_B + (top_B - path_B), total_B)
    kept_BC = jnp.where(valid_B[:, None], new_BC - top_B[:, None], kept_BC)
    return total_B, constrain_sharding(kept_BC, "BC"), begun_B | valid_B
