"""Heads of extractive question answering, which score where in a row an answer starts and ends.

Both score the positions that may hold an answer, and one, `null_B`, that stands for no answer.
Scores are in float32.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.norm import Norm

FORBIDDEN = -1e30  # and not -inf, whose differences are NaN


class SpanLogProbs(NamedTuple):
    """Log-probabilities of a row's positions.

    Attributes:
        start_BL, end_BL: each sums to one; positions that are not allowed have FORBIDDEN or less.
        no_answer_logit_B: logit that there is no answer, or None.
    """

    start_BL: jax.Array
    end_BL: jax.Array
    no_answer_logit_B: jax.Array | None = None


class Candidates(NamedTuple):
    """Top-O candidate spans per row, ordered by start score, and the no-answer score.

    Attributes:
        start_BO, end_BO: positions, also of spans that end before they start.
        score_BO: higher is likelier.
        none_B: of no answer; a span's score for `IndependentHead`, a logit for `ConditionalHead`.
    """

    start_BO: jax.Array
    end_BO: jax.Array
    score_BO: jax.Array
    none_B: jax.Array


class Linear(nn.Module):
    """Projects [..., D] to [..., F], in the dtype of its input."""

    F: int
    bias: bool = True
    scale: float = 0.02

    @nn.compact
    def __call__(self, x):
        shape = (x.shape[-1], self.F)
        w_DF = params.param(self, "w_DF", params.normal(self.scale), shape, decay=True)
        y = x @ w_DF.astype(x.dtype)
        if not self.bias:
            return y
        return y + params.param(self, "bias_F", params.zeros, (self.F,), decay=False).astype(
            x.dtype
        )


class IndependentHead(nn.Module):
    """Scores start and end each by itself, no answer as the span of `null_B`: BERT's."""

    dropout: float = 0.0  # not used: BERT has none here

    def setup(self):
        # Devlin et al. 2019, sections 4.2 and 4.3: a vector S for the start, and E for the end.
        self.ends = Linear(2)

    def _logits(self, h_BLD):
        logits_BLC = constrain_sharding(self.ends(h_BLD.astype(jnp.float32)), "BLC")
        return logits_BLC[..., 0], logits_BLC[..., 1]

    def __call__(self, h_BLD, context_BL, null_B, start_B, *, train: bool) -> SpanLogProbs:
        """Scores starts and ends; `start_B` is for heads that need it."""
        del start_B, train
        allowed_BL = context_BL | _mark_position(null_B, context_BL)
        return SpanLogProbs(
            *(_masked_log_softmax(x_BL, allowed_BL) for x_BL in self._logits(h_BLD))
        )

    def candidates(self, h_BLD, context_BL, null_B, top: int) -> Candidates:
        """Pairs the `top` starts with the `top` ends: top^2 spans of each row."""
        both = self._logits(h_BLD)
        # As BERT's code: no answer is the span that starts and ends at the null position.
        none_B = sum(jnp.take_along_axis(x_BL, null_B[:, None], axis=1)[:, 0] for x_BL in both)
        (start_BK, at_BK), (end_BK, to_BK) = (_top(x_BL, context_BL, top) for x_BL in both)
        # Ends do not depend on the start, so every start has the same ones.
        to_BKK, end_BKK = (jnp.repeat(x[:, None], x.shape[1], 1) for x in (to_BK, end_BK))
        return _pair(at_BK, to_BKK, start_BK, end_BKK, none_B)


class ConditionalHead(nn.Module):
    """Scores the end given the start, and no answer by a logit (XLNet's run_squad.py).

    Attributes:
        dropout: before the logit.
    """

    dropout: float = 0.1

    def __call__(self, h_BLD, context_BL, null_B, start_B, *, train: bool) -> SpanLogProbs:
        """Scores starts, and ends given the right start, `start_B`."""
        # Ends are trained on the right start; `candidates` searches for starts by itself.
        start_BL, end_BOL, _, none_B = self._read(
            h_BLD, context_BL, null_B, start_B[:, None], 1, train
        )
        return SpanLogProbs(start_BL, end_BOL[:, 0], none_B)

    def candidates(self, h_BLD, context_BL, null_B, top: int) -> Candidates:
        """Pairs the `top` starts, each with its own `top` ends."""
        start_BL, end_BOL, at_BO, none_B = self._read(h_BLD, context_BL, null_B, None, top, False)
        allowed_BL = jnp.where(context_BL, start_BL, FORBIDDEN)
        start_log_p_BO = jnp.take_along_axis(allowed_BL, at_BO, axis=1)
        end_BOK, to_BOK = _top(end_BOL, context_BL[:, None], top)
        return _pair(at_BO, to_BOK, start_log_p_BO, end_BOK, none_B)

    @nn.compact
    def _read(self, h_BLD, context_BL, null_B, at_BO, top: int, train: bool):
        """Returns starts [B, L], ends [B, O, L] given O starts, these, and no-answer logits [B]."""
        D, allowed_BL = h_BLD.shape[-1], context_BL | _mark_position(null_B, context_BL)
        # Logits are float32, whatever the backbone computes in.
        start_BL = Linear(1, name="start")(h_BLD.astype(jnp.float32))[..., 0]
        start_BL = _masked_log_softmax(start_BL, allowed_BL)
        if at_BO is None:  # in predicting: the likeliest starts
            _, at_BO = _top(start_BL, context_BL, top)
        start_BOD = jnp.take_along_axis(h_BLD, at_BO[..., None], axis=1)
        # A dense layer of [state; start state], as two products: L + O rows and not L O.
        state_BOLD = Linear(D, name="end_state")(h_BLD)[:, None]
        end_BOLD = jnp.tanh(
            state_BOLD + Linear(D, bias=False, name="end_start")(start_BOD)[:, :, None]
        )
        end_BOLD = Norm(name="end_norm")(end_BOLD).astype(jnp.float32)
        end_BOL = _masked_log_softmax(Linear(1, name="end")(end_BOLD)[..., 0], allowed_BL[:, None])
        # As XLNet's code: whether there is an answer is read from the expected start and <cls>.
        likely_BD = jnp.einsum("BL,BLD->BD", jnp.exp(start_BL).astype(h_BLD.dtype), h_BLD)
        null_BD = jnp.take_along_axis(h_BLD, null_B[:, None, None], axis=1)[:, 0]
        none_BD = Linear(D, name="none_start")(likely_BD)
        none_BD = jnp.tanh(none_BD + Linear(D, bias=False, name="none_null")(null_BD))
        none_BD = Dropout(self.dropout)(none_BD, train=train)
        none_B = Linear(1, bias=False, name="none")(none_BD.astype(jnp.float32))[..., 0]
        return start_BL, end_BOL, at_BO, none_B


HEADS: dict[bool, type[IndependentHead] | type[ConditionalHead]] = {
    False: IndependentHead,
    True: ConditionalHead,
}


def _mark_position(place_B, like_BL):
    return jnp.arange(like_BL.shape[1]) == place_B[:, None]


def _masked_log_softmax(logits, allowed):
    return jax.nn.log_softmax(jnp.where(allowed, logits.astype(jnp.float32), FORBIDDEN))


def _top(scores, allowed, top: int):
    return jax.lax.top_k(jnp.where(allowed, scores, FORBIDDEN), min(top, scores.shape[-1]))


def _pair(at_BO, to_BOK, start_BO, end_BOK, none_B) -> Candidates:
    """Pairs every start with its ends, whose log-probabilities or logits are added."""
    B = len(at_BO)
    at_BOK = jnp.broadcast_to(at_BO[..., None], to_BOK.shape)
    score_BOK = start_BO[..., None] + end_BOK
    start_BO, end_BO, score_BO = (x.reshape(B, -1) for x in (at_BOK, to_BOK, score_BOK))
    return Candidates(start_BO, end_BO, score_BO, none_B)
