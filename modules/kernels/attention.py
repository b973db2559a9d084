"""Attention over what a mask shows: in plain products, by kernels, and which is used where."""

import contextlib
import contextvars
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import jax.numpy as jnp

from modules import plugins
from modules.activation_sharding import choose_form, find_device
from modules.kernels import (
    cudnn_attention,
    dropout_bits,
    gpu_attention,
    splash_attention,
    tpu_attention,
)
from modules.kernels.distance_scores import RelativeTerms
from modules.kernels.dropout_bits import DropoutKey
from modules.kernels.softmax import softmax
from modules.masks import AttentionView

# What a recipe may ask for: the first form that takes what there is, plain products, or a kernel.
CHOICES = ("auto", "plain", "kernel")
Say = Callable[[str], None]


class Form(Protocol):
    """A fast form of `attend`, with its arguments; a file of this folder is one.

    Attributes:
        NAME: what a user calls it.
    """

    NAME: str

    def refusal(self, q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout) -> str:
        """Says why this form cannot compute it; "": it can."""
        ...

    def attend(self, q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout):
        """Computes what is not refused."""
        ...


_say: contextvars.ContextVar[Say | None] = contextvars.ContextVar("say", default=None)


@contextlib.contextmanager
def training_step(say: Say) -> Iterator[None]:
    """Says how attention is computed in what is traced inside, and lets no kernel be replaced.

    Outside, a kernel that is asked for gives way to plain products where it cannot be used: what
    was trained with it is read on any machine.
    """
    token = _say.set(say)
    try:
        yield
    finally:
        _say.reset(token)


def attend(
    q_BLHK,
    k_BJHK,
    v_BJHK,
    view: AttentionView,
    relative: RelativeTerms | None = None,
    dropout: DropoutKey | None = None,
    form: str = "auto",
):
    """Computes softmax(scores) v over the visible keys: [B, L, H, K].

    Args:
        q_BLHK: queries; [B, P, H, K] of the view's slots.
        view: which keys a query sees.
        relative: terms of distances and segments; None: the scores are q k / sqrt K.
        dropout: of the probabilities; None: none.
        form: one of `CHOICES`.

    Raises:
        plugins.FieldError: a training step is to take a kernel, and none can be used.
    """
    inputs = (q_BLHK, k_BJHK, v_BJHK, view, relative, dropout)
    refusals = []
    say = _say.get()
    for kernel in choose_form(FORMS) if form != "plain" else ():
        if not (why := kernel.refusal(*inputs)):
            if say:
                say(f"attention by {kernel.NAME}")
            return kernel.attend(*inputs)
        refusals.append(why)
    # One query makes parameters, or reads on token by token: nobody expects a kernel.
    if q_BLHK.shape[1] > 1:
        reason = "; ".join(refusals) or f"there is none for a {find_device().platform}"
        if form == "kernel" and say:
            raise plugins.FieldError(f"attention_form='kernel': {reason}; take 'auto' or 'plain'")
        if refusals:
            # The same words are shown once.
            (say or _warn)(f"attention by plain products: {reason}")
    return reference(*inputs)


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)


def reference(q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative=None, dropout=None):
    """Computes it by products around a softmax in float32."""
    if relative is None:
        scale = q_BLHK.shape[-1] ** -0.5  # of the queries: the scores are more numbers
        a_BHLJ = jnp.einsum("BLHK,BJHK->BHLJ", q_BLHK * scale, k_BJHK)
    else:
        a_BHLJ = score_relatively(q_BLHK, k_BJHK, view, relative)
    p_BHLJ = softmax(a_BHLJ, view.visible, v_BJHK.dtype)
    if dropout is not None:
        decide = choose_form(dropout_bits.FORMS)
        p_BHLJ = dropout_bits.apply_dropout(dropout.rate, p_BHLJ, dropout.words, decide)
    return jnp.einsum("BHLJ,BJHK->BLHK", p_BHLJ, v_BJHK)


def score_relatively(q_BLHK, k_BJHK, view: AttentionView, relative: RelativeTerms):
    """Scores queries with keys, the distances to them, and their segments: [B, H, L, J]."""
    q_content_BLHK = (q_BLHK + relative.content_HK) * q_BLHK.shape[-1] ** -0.5
    a_BHLJ = jnp.einsum("BLHK,BJHK->BHLJ", q_content_BLHK, k_BJHK)
    return a_BHLJ + relative.score(q_BLHK, view)


# The forms to ask, in this order; what all refuse is for `reference`.
FORMS: Mapping[str, tuple[Form, ...]] = {
    "gpu": (cudnn_attention, gpu_attention),
    "tpu": (tpu_attention, splash_attention),
    "default": (),
}
