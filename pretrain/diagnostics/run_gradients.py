"""Measures how far back the states of a trained run reach, by their gradients.

As of a cell at initialization (`pretrain.diagnostics.gradient_decay`), the loss L_T = v . h_T has a
random v of unit length for each row, and h_T is the last layer's state of the row's last token.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from modules.backbones import init_params, text_mask
from pretrain.data.corpus import text_files
from pretrain.diagnostics.measurements import Decay, Row, make_decay_row
from pretrain.inference.embedding_inputs import build_reader
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.runtime.errors import UserError


def study_run(config, run: Run, params: Any) -> Iterator[Row]:
    """Yields a trained run's gradients by distance, at random weights and at these.

    Keys:
        text: a file, plain, .gz or .zst, whose lines are read as one text.
        T: the largest distance.
        B: rows.

    Raises:
        UserError: the recipe names no text, or see `measure_run`.
    """
    section = config.runs.to_dict()
    if not section["text"]:
        raise UserError("--config.runs.text is to name a text, which the runs read")
    for kind, weights in (("random", init_params(run.backbone)), ("trained", params)):
        decay = measure_run(run, weights, seed=config.seed, **section)
        yield make_decay_row("runs", f"{run.workdir.name} {kind}", decay)


def measure_run(run: Run, params: Any, *, text: str, T: int, B: int, seed: int) -> Decay:
    """Measures |dL_T/dx_t| of a run's backbone on a text, x being what its first layer reads.

    Args:
        params: of the backbone.
        text: a file, plain, .gz or .zst; its lines are read as one text, B rows of it.
        T: the largest distance T - t; shorter where the model reads shorter rows.
        B: rows.
        seed: of the v.

    Raises:
        UserError: the text is too short for a row, or the backbone does not mark its inputs.
    """
    before, after, segments = load_format(format_name(run.config)).frame(run.tokenizer.special)
    marks = len(before) + len(after)
    T = min(T, getattr(run.backbone, "L", T + 1 + marks) - marks - 1)
    read = build_reader(run)
    tokens_BL, chars_VW = read_rows(read, pathlib.Path(text).expanduser(), B, T + 1)
    ends = [np.tile(read.marks(ids), (len(tokens_BL), 1)) for ids in (before, after)]
    tokens = np.concatenate([ends[0], tokens_BL, ends[1]], 1)
    segments_BL = None
    if any(segments):
        segments_BL = np.zeros(tokens.shape, np.int32)
        segments_BL[:, tokens.shape[1] - len(after) :] = segments
    if chars_VW is not None:
        tokens = chars_VW[tokens]
    # Products in bfloat16 would round what is left of a gradient after many of them.
    backbone, last = run.backbone.clone(dtype="float32"), len(before) + T
    norm_BL = measure_rows(backbone, params, tokens, segments_BL, last, jax.random.key(seed))
    return Decay(np.asarray(norm_BL).mean(0)[len(before) : last][::-1])


def read_rows(read: Any, path: pathlib.Path, B: int, L: int) -> tuple[np.ndarray, Any]:
    """Reads a text as rows of L tokens, B or as many as there are.

    Returns:
        (ids [B, L], None), or (numbers of words, their spellings) of a model of characters.

    Raises:
        UserError: the text has not L tokens.
    """
    words: list[str] = []
    for line in text_files.read_lines(path):
        words += line.split()
        if len(words) >= B * L:  # a word is a token or more
            break
    _, ids, chars_VW = read([" ".join(words)])
    if len(ids[0]) < L:
        raise UserError(f"{path} has {len(ids[0])} tokens, a row {L}: name a longer text")
    rows = min(B, len(ids[0]) // L)
    return ids[0][: rows * L].reshape(rows, L), chars_VW


def measure_rows(backbone: nn.Module, params, tokens, segments_BL, last: int, rng) -> jax.Array:
    """Returns |dL_T/dx_t|, [B, L], of the loss v . h at the position `last` of each row.

    Raises:
        UserError: the backbone does not mark its inputs.
    """
    fields = dict(mask=text_mask(backbone), segments_BL=segments_BL, train=False)

    def read(variables, **options):
        return backbone.apply(variables, jnp.asarray(tokens), **fields, **options)

    _, shapes = jax.eval_shape(lambda: read({"params": params}, mutable=["perturbations"]))
    if len(jax.tree.leaves(shapes)) != 1:
        raise UserError(
            f"{type(backbone).__module__} does not say what its first layer reads: let it pass "
            f"through modules.layers.params.mark_inputs"
        )
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    @jax.jit
    def measure(perturbations):
        h_BLD, pull_back = jax.vjp(lambda x: read({"params": params, **x}).h, perturbations)
        v_BD = jax.random.normal(rng, h_BLD[:, last].shape)
        v_BD /= jnp.linalg.norm(v_BD, axis=-1, keepdims=True)
        (gradients,) = pull_back(jnp.zeros_like(h_BLD).at[:, last].set(v_BD))
        return jnp.linalg.norm(jax.tree.leaves(gradients)[0], axis=-1)

    return measure(zeros)
