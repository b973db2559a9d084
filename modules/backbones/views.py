"""Reads several views of the same rows with any backbone, in one pass."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from modules.backbones import text_mask
from modules.layers.augmentations import View


def encode_views(
    backbone: Any, tokens, views: Sequence[View], *, segments_BL=None, train: bool
) -> tuple[Any, Any]:
    """Computes the last layer's states of K views of each row.

    Args:
        tokens: ids [B, L], or characters [B, L, W].
        views: of `augmentations.draw_view`.
        segments_BL: see `modules.backbones.Backbone`.

    Returns:
        (states [B * K, L, D], valid_BL [B * K, L]); the views of a row are neighbours.
    """
    K = len(views)
    valid_BL = _interleave([view.valid_BL for view in views])
    tokens = jnp.repeat(tokens, K, 0)
    segments_BL = None if segments_BL is None else jnp.repeat(segments_BL, K, 0)
    in_place_BL = jnp.broadcast_to(jnp.arange(tokens.shape[1]), views[0].valid_BL.shape)
    orders = [in_place_BL if view.order_BL is None else view.order_BL for view in views]
    order_BL = None if all(x is in_place_BL for x in orders) else _interleave(orders)

    def edit(x_BLD):
        # Row by row, so that no device needs another's rows.
        x_BKLD = x_BLD.reshape(-1, K, *x_BLD.shape[1:])
        return _interleave([view.edit(x_BKLD[:, k]) for k, view in enumerate(views)])

    is_edited = any(view.keep is not None or view.noise_BLD is not None for view in views)
    given = dict(mask=text_mask(backbone, valid_BL=valid_BL), train=train)
    given |= dict(edit=edit) if is_edited else {}
    if order_BL is None or hasattr(backbone, "L"):  # it has a table of positions
        given |= {} if order_BL is None else dict(positions_BL=order_BL)
        return backbone(tokens, segments_BL=segments_BL, **given).h, valid_BL
    # Without positions the tokens themselves move, and their states go back to their places.
    source_BL = jnp.argsort(order_BL, axis=1)
    segments_BL = None if segments_BL is None else _take(segments_BL, source_BL)
    h_BLD = backbone(_take(tokens, source_BL), segments_BL=segments_BL, **given).h
    return _take(h_BLD, order_BL), valid_BL


def _interleave(views: Sequence[Any]):
    """Puts K arrays [B, ...] together as [B * K, ...], the entries of a row side by side."""
    return jnp.stack(views, 1).reshape(-1, *views[0].shape[1:])


def _take(x, index_BL):
    """Takes positions of each row of an array [B, L, ...]."""
    return jnp.take_along_axis(x, index_BL.reshape(*index_BL.shape, *[1] * (x.ndim - 2)), axis=1)
