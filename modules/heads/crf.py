"""Linear-chain CRF: scores the tags of a row as one path, by emissions and transitions.

Lafferty et al. 2001; Lample et al. 2016 (arXiv 1603.01360), section 2.2.  The chain runs through
the valid positions of a row and passes over all others, bit for bit as if they were not there.
So padding may be on either side, and word pieces without a tag in between.  Everything is
computed in float32.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers import params
from modules.metrics import Sum

FORBIDDEN = -1e30  # swallows any score; a million of them are still finite


class Chain(NamedTuple):
    """Scores of a path besides the emissions'; or booleans, True where it is allowed.

    Attributes:
        start_C: scores to begin with each tag.
        end_C: scores to end with each tag.
        transition_CC: scores to go from one tag to another.
    """

    start_C: jax.Array
    end_C: jax.Array
    transition_CC: jax.Array


class CRF(nn.Module):
    """A chain whose scores are learned; it begins as an independent softmax of each position.

    Attributes:
        C: tags.
    """

    C: int

    def setup(self):
        self.start_C = params.param(self, "start_C", params.zeros, (self.C,), decay=False)
        self.end_C = params.param(self, "end_C", params.zeros, (self.C,), decay=False)
        shape = (self.C, self.C)
        self.transition_CC = params.param(self, "transition_CC", params.zeros, shape, decay=False)

    def __call__(self, emissions_BLC, tags_BL, valid_BL=None, *, weights_B=None):
        return loss(emissions_BLC, tags_BL, self.chain(), valid_BL, weights_B=weights_B)

    def chain(self) -> Chain:
        return Chain(self.start_C, self.end_C, self.transition_CC)


def forbid(chain: Chain, allowed: Chain) -> Chain:
    """Replaces scores by FORBIDDEN where a boolean is False: such a path counts in no sum."""
    return Chain(*(jnp.where(ok, x, FORBIDDEN) for x, ok in zip(chain, allowed, strict=True)))


def loss(emissions_BLC, tags_BL, chain: Chain, valid_BL=None, *, weights_B=None) -> Sum:
    """Computes the negative log-likelihood of the tags, with one weight for a whole row.

    Args:
        emissions_BLC: score of each tag at each position.
        tags_BL: 0 to C - 1 where valid, anything elsewhere.
        chain: scores of transitions.
        valid_BL: bool; None: all.
        weights_B: weight of each row; None: 1.  A row without valid positions weighs nothing.

    Returns:
        The sum in nats, with `train=True`.
    """
    log_p_B = log_likelihood(emissions_BLC, tags_BL, chain, valid_BL)
    # By row and not by tag: the likelihood is of the path as a whole.
    weights_B = jnp.ones_like(log_p_B) if weights_B is None else weights_B.astype(jnp.float32)
    if valid_BL is not None:
        weights_B = jnp.where(valid_BL.any(1), weights_B, 0)
    return Sum(-(log_p_B * weights_B).sum(), weights_B.sum(), train=True)


def log_likelihood(emissions_BLC, tags_BL, chain: Chain, valid_BL=None):
    """Computes the logarithm of the tags' share among all paths, [B]; 0 of an empty row."""
    # Tags that the chain forbids have about FORBIDDEN, which is finite, so that one wrong tag does
    # not make the parameters NaN.
    emissions_BLC, chain, valid_BL = _to_float32(emissions_BLC, chain, valid_BL)
    path_BL, end_B = _score_path(emissions_BLC, tags_BL, chain, valid_BL)
    return -_log_partition_less_path(emissions_BLC, chain, valid_BL, path_BL, end_B)


def viterbi(emissions_BLC, chain: Chain, valid_BL=None):
    """Finds the path of the highest score.

    Returns:
        (tags [B, L], int32, 0 where not valid; the path's score [B]).
    """
    emissions_BLC, chain, valid_BL = _to_float32(emissions_BLC, chain, valid_BL)
    B, _, C = emissions_BLC.shape
    stay_BC = jnp.broadcast_to(jnp.arange(C), (B, C))  # past a position that is not valid

    def step(state, inputs):
        x_BC, valid_B = inputs
        ways_BCC = state[1][:, :, None] + chain.transition_CC
        new = _advance(state, ways_BCC.max(1), x_BC, valid_B, chain, 0.0)
        return new, jnp.where(valid_B[:, None], ways_BCC.argmax(1), stay_BC)

    def trace_back(tag_B, came_from_BC):
        before_B = jnp.take_along_axis(came_from_BC, tag_B[:, None], axis=1)[:, 0]
        return before_B, tag_B

    inputs = jnp.moveaxis(emissions_BLC, 1, 0), valid_BL.T
    carry, came_from_LBC = jax.lax.scan(step, _initial_carry(B, C), inputs)
    offset_B, above_BC, has_begun_B = carry
    # A row that is not valid at its end has stayed at its last valid position.
    # Among equal paths the one with the lowest last tag wins, then the lowest before it, and so on.
    # Where every path is forbidden, one with the fewest forbidden transitions does.
    final_BC = above_BC + chain.end_C
    _, tags_LB = jax.lax.scan(trace_back, final_BC.argmax(1), came_from_LBC, reverse=True)
    score_B = jnp.where(has_begun_B, offset_B + final_BC.max(1), 0)
    return jnp.where(valid_BL, tags_LB.T, 0).astype(jnp.int32), score_B


def _to_float32(emissions_BLC, chain: Chain, valid_BL):
    """Casts to float32.  Raises a ValueError where the chain has another number of tags."""
    C = chain.start_C.shape[-1]
    if emissions_BLC.shape[-1] != C:
        raise ValueError(f"a chain of C={C} tags, emissions of {emissions_BLC.shape[-1]}")
    if valid_BL is None:
        valid_BL = jnp.ones(emissions_BLC.shape[:2], bool)
    emissions_BLC = constrain_sharding(jnp.asarray(emissions_BLC, jnp.float32), "BLC")
    chain = Chain(*(jnp.asarray(x, jnp.float32) for x in chain))
    return emissions_BLC, chain, jnp.asarray(valid_BL, bool)


def _score_path(emissions_BLC, tags_BL, chain: Chain, valid_BL):
    """Scores these tags: what each position adds, [B, L], and what the end adds, [B]."""
    place_BL = jnp.where(valid_BL, jnp.arange(valid_BL.shape[1]), -1)
    latest_BL = jax.lax.cummax(place_BL, axis=1)  # the last valid position so far; -1: none
    before_BL = jnp.pad(latest_BL, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    tags_BL = jnp.asarray(tags_BL)
    tag_at = lambda i_BL: jnp.take_along_axis(tags_BL, jnp.maximum(i_BL, 0), axis=1)  # noqa: E731
    step_BL = chain.transition_CC[tag_at(before_BL), tags_BL]
    # Wherever a row's first valid position stands, the chain begins there.
    step_BL = jnp.where(before_BL < 0, chain.start_C[tags_BL], step_BL)
    emission_BL = jnp.take_along_axis(emissions_BLC, tags_BL[..., None], axis=2)[..., 0]
    end_B = chain.end_C[tag_at(latest_BL[:, -1:])[:, 0]]
    return jnp.where(valid_BL, step_BL + emission_BL, 0), end_B


def _log_partition_less_path(emissions_BLC, chain: Chain, valid_BL, path_BL, end_B):
    """Computes the log of the sum over all paths, less one path's score."""

    # The score is subtracted position by position.  Neither of the two is ever whole, so the
    # difference keeps its digits in long rows too.
    def step(state, inputs):
        x_BC, valid_B, path_B = inputs
        ways_BC = jax.nn.logsumexp(state[1][:, :, None] + chain.transition_CC, axis=1)
        return _advance(state, ways_BC, x_BC, valid_B, chain, path_B), None

    B, _, C = emissions_BLC.shape
    inputs = jnp.moveaxis(emissions_BLC, 1, 0), valid_BL.T, path_BL.T
    # Without the checkpoint the backward pass would keep [L, B, C, C].
    step = jax.checkpoint(step, prevent_cse=False)
    (offset_B, above_BC, has_begun_B), _ = jax.lax.scan(step, _initial_carry(B, C), inputs)
    final_B = jax.nn.logsumexp(above_BC + chain.end_C, axis=1) - end_B
    return jnp.where(has_begun_B, offset_B + final_B, 0)


def _initial_carry(B: int, C: int):
    """Returns the carry before the first position: offset, scores above it, if a row has begun."""
    offset_B, above_BC = jnp.zeros(B, jnp.float32), jnp.zeros((B, C), jnp.float32)
    return (
        constrain_sharding(offset_B, "B"),
        constrain_sharding(above_BC, "BC"),
        constrain_sharding(jnp.zeros(B, bool), "B"),
    )


def _advance(state, ways_BC, x_BC, valid_B, chain: Chain, path_B):
    """Advances by one position, by the scores that lead to each tag; an invalid row stays."""
    offset_B, above_BC, has_begun_B = state
    # The highest score goes into the offset each time, so the others are small, and exact.
    new_BC = jnp.where(has_begun_B[:, None], ways_BC, chain.start_C) + x_BC
    top_B = jax.lax.stop_gradient(new_BC.max(1))  # added and subtracted: its gradients cancel
    offset_B = jnp.where(valid_B, offset_B + (top_B - path_B), offset_B)
    above_BC = jnp.where(valid_B[:, None], new_BC - top_B[:, None], above_BC)
    return offset_B, constrain_sharding(above_BC, "BC"), has_begun_B | valid_B
