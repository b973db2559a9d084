"""Who sees whom, as one value: objectives make it, backbones honour it, kernels read it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

_static = functools.partial(flax.struct.field, pytree_node=False)


@flax.struct.dataclass
class Mask:
    """The conjunction of its fields; `Mask()` hides nothing, and `a & b` joins two.

    L positions of a sequence see some of J = M + L keys: the M of a memory, then their own.
    Kernels read the fields; `dense` writes them out as booleans.

    Attributes:
        is_causal: a position sees itself, what came before it, and the memory.
        window: a key lies less than `window` positions before its query; 0: at any distance.
        same_length: all positions see equally many keys, as many as the first (Transformer-XL's
            evaluation; for a causal mask over a memory).
        hides_slots: states of the slots are computed without the tokens that stand there (the
            query stream of Yang et al. 2019).
        lengths_B: number of positions of a row, from the first, that are text; see
            `count_lengths`.
        valid_BL: True where there is text, wherever a row is padded.
        groups_BL: ids of documents; a position sees its own document.  The memory is of group 0.
        prefix_B: number of positions, from the first, that all positions see, causal or not
            (prefix LM).
        rank_BL, sees_below_BL: a position sees the ranks below its `sees_below` (permutation LM).
        memory_BM: True where the memory holds text.
        sees_memory_BL: True for the positions that see the memory.
        visible_BLJ: anything else, written out; [B, L, L] says nothing of the memory.
    """

    lengths_B: Any = None
    valid_BL: Any = None
    groups_BL: Any = None
    prefix_B: Any = None
    rank_BL: Any = None
    sees_below_BL: Any = None
    memory_BM: Any = None
    sees_memory_BL: Any = None
    visible_BLJ: Any = None
    is_causal: bool = _static(default=False)
    window: int = _static(default=0)
    same_length: bool = _static(default=False)
    hides_slots: bool = _static(default=False)

    def dense(self, L: int, J: int = 0, slots_BP=None):
        """Writes the mask out: bool, broadcasts to [B, L, J], or [B, P, J] of the slots.

        Args:
            L, J: positions of the sequence, and keys with the memory; 0: no memory.
            slots_BP: positions of the sequence that look; None: all L in order.
        """
        J = J or L
        # Joined only here: what does not depend on the query stays [B, 1, J] until then.
        seen = self._seen_by_position(L, J, slots_BP) + self._seen_by_all(L, J)
        return functools.reduce(jnp.logical_and, seen or [jnp.ones((1, 1, J), bool)])

    def kernel_arguments(self, is_in_order: bool = True) -> tuple[dict[str, Any], bool]:
        """Translates to arguments of `jax.nn.dot_product_attention`.

        Args:
            is_in_order: the queries are those of all keys in order: no slots, no memory.

        Returns:
            (arguments, whether they say all of the mask: what they do not, is to be written out).
        """
        is_causal = self.is_causal and is_in_order and self.prefix_B is None
        arguments: dict[str, Any] = {"is_causal": True} if is_causal else {}
        # `hides_slots` says whose states are computed, for the backbone: it hides no key.
        if set(self.fields()) - {"lengths_B", "hides_slots", *arguments}:
            # Causality is worth saying beside a mask that is written out: it spares half the
            # work.  cuDNN takes it beside a bias, as Transformer Engine's tests have it.
            return arguments, False
        if self.lengths_B is not None:  # a row of filler has length 0: no 0 / 0
            arguments["key_value_seq_lengths"] = jnp.maximum(self.lengths_B, 1)
        return arguments, True

    def fields(self) -> list[str]:
        """Lists the fields that hide anything."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        off = (None, False, 0)  # by identity: a field may be an array, or its tracer
        return [name for name, x in values.items() if not any(x is value for value in off)]

    def __and__(self, other: "Mask") -> "Mask":
        both = set(self.fields()) & set(other.fields())
        joined = {name: getattr(other, name) for name in other.fields() if name not in both}
        joined |= {
            name: join(getattr(self, name), getattr(other, name))
            for name, join in JOIN.items()
            if name in both
        }
        # A prefix shows what causality hides: both masks must show it, or not be causal.
        prefixes = [mask.prefix_B for mask in (self, other) if mask.is_causal]
        shown = bool(prefixes) and all(prefix_B is not None for prefix_B in prefixes)
        joined["prefix_B"] = functools.reduce(jnp.minimum, prefixes) if shown else None
        mask = dataclasses.replace(self, **joined)
        # Two sets of documents, or of ranks, are no third such set: the second is written out.
        if "groups_BL" in both:
            mask &= Mask(
                sees_memory_BL=other.groups_BL == 0,
                visible_BLJ=_write_out(other, "groups_BL"),
            )
        if "rank_BL" in both:
            mask &= Mask(visible_BLJ=_write_out(other, "rank_BL", "sees_below_BL"))
        return mask

    def _seen_by_position(self, L: int, J: int, slots_BP) -> list:
        """Lists what depends on the query, each broadcasting to [B, L, J]."""
        # The memory's M keys come first: position i of the sequence is key M + i.
        M, key_J = J - L, jnp.arange(J)
        position_BL1 = (jnp.arange(L)[None] if slots_BP is None else slots_BP)[..., None] + M
        seen = []
        if self.is_causal:
            before = key_J <= position_BL1
            if self.prefix_B is not None:
                before |= key_J < self.prefix_B[:, None, None] + M
            seen.append(before)
        if self.window:
            # The position itself is one of the `window`.
            seen.append(key_J > position_BL1 - self.window)
        if self.same_length:
            # Position i sees from key i on: M + 1 keys under a causal mask, as the first position.
            seen.append(key_J >= position_BL1 - M)
        if self.groups_BL is not None:
            group_BL1 = at(self.groups_BL, slots_BP)[..., None]
            seen.append(group_BL1 == _pad(self.groups_BL, M, 0)[:, None])
        if self.rank_BL is not None:
            below_BL1 = at(self.sees_below_BL, slots_BP)[..., None]
            # The memory was read before any rank of this sequence, so its keys are padded with
            # True.
            seen.append(_pad(self.rank_BL[:, None] < below_BL1, M))
        if self.sees_memory_BL is not None:
            seen.append(at(self.sees_memory_BL, slots_BP)[..., None] | (key_J >= M))
        if self.visible_BLJ is not None:
            rows_BLJ = self.visible_BLJ
            if slots_BP is not None and rows_BLJ.shape[1] > 1:  # one row is that of all positions
                rows_BLJ = at(_repeat_rows(rows_BLJ, len(slots_BP)), slots_BP)
            seen.append(rows_BLJ if rows_BLJ.shape[-1] == J else _pad(rows_BLJ, M))
        return seen

    def _seen_by_all(self, L: int, J: int) -> list:
        """Lists what is the same for all queries, each broadcasting to [B, 1, J]."""
        M, seen = J - L, []
        if self.lengths_B is not None:
            seen.append(jnp.arange(J) < self.lengths_B[:, None, None] + M)
        if self.valid_BL is not None:
            seen.append(_pad(self.valid_BL, M)[:, None])
        if self.memory_BM is not None:
            pad = ((0, 0), (0, L))
            seen.append(jnp.pad(self.memory_BM, pad, constant_values=True)[:, None])
        return seen


# Joins a field that both masks have.
JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "is_causal": lambda a, b: True,
    "same_length": lambda a, b: True,
    "hides_slots": lambda a, b: True,
    # The narrower of two windows hides more.
    "window": min,
    "lengths_B": jnp.minimum,
    "valid_BL": jnp.logical_and,
    "memory_BM": jnp.logical_and,
    "sees_memory_BL": jnp.logical_and,
    "visible_BLJ": jnp.logical_and,
}


def _write_out(mask: Mask, *names: str):
    """Writes some fields of a mask out: bool [B, L, L]."""
    fields = {name: getattr(mask, name) for name in names}
    return Mask(**fields).dense(fields[names[0]].shape[1])


def count_lengths(valid_BL):
    """Counts the positions of each row that are text, of rows padded at their end: int32 [B].

    Raises:
        ValueError: a row has text behind its padding.
    """
    # Under `jax.jit` the values are not there to be checked: a caller whose rows are padded
    # elsewhere gives `Mask.valid_BL` instead, which is exact.
    if not isinstance(valid_BL, jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            is_behind_BL = jnp.asarray(valid_BL)[:, 1:] > jnp.asarray(valid_BL)[:, :-1]
            if is_behind_BL.any():
                raise ValueError("a row has text behind padding: give Mask(valid_BL=...) instead")
    return valid_BL.sum(1, dtype=jnp.int32)


def at(x_BL, slots_BP=None):
    """Takes the entries of [B, L, ...] at these positions, [B, P, ...]; None: all."""
    if slots_BP is None:
        return x_BL
    return jax.vmap(lambda x_L, slots_P: x_L[slots_P])(x_BL, slots_BP)


def _repeat_rows(x_BLJ, B: int):
    return jnp.broadcast_to(x_BLJ, (B, *x_BLJ.shape[1:]))


def _pad(x_BJ, M: int, value: Any = True):
    """Pads the keys of a sequence with M entries of the memory in front."""
    if not M:
        return x_BJ
    return jnp.pad(x_BJ, [(0, 0)] * (x_BJ.ndim - 1) + [(M, 0)], constant_values=value)


# --- as attention takes it ------------------------------------------------------------------------


@flax.struct.dataclass
class AttentionView:
    """A mask, prepared for the queries of one stream; the same in every layer.

    Attributes:
        mask: who sees whom.
        L: positions of the sequence, the last L of the J keys.
        sees_itself: a query sees its own position, whatever the mask says.
        slots_BP: the queries' positions; None: all L in order.
        visible: bool, broadcasts to [B, H, L, J]; all of the above, written out.
        segments_BL, segments_BJ: ids of the queries' and the keys' segments; None: of no interest.
        is_other_segment: bool, as `visible`; where the two differ.
        window: of a banded layer, which sees the last `window` positions alone; 0: there is none.
        local_band: bool, as `visible`; True where a banded layer sees.
        is_banded: bool scalar, whether this layer is.
    """

    mask: Mask
    L: int = _static()
    sees_itself: bool = _static(default=False)
    slots_BP: Any = None
    visible: Any = None
    segments_BL: Any = None
    segments_BJ: Any = None
    is_other_segment: Any = None
    window: int = _static(default=0)
    local_band: Any = None
    is_banded: Any = None

    def at_queries(self, x_BL):
        """Takes the entries of [B, L, ...] at the queries' positions."""
        return at(jnp.asarray(x_BL), self.slots_BP)

    def restrict_to_band(self, is_banded) -> "AttentionView":
        """Narrows the view to its band where a bool scalar, the layer's, is True."""
        if self.local_band is None:
            return self
        # The scan over layers traces one program for both kinds: whether a layer is banded is
        # not known when a kernel is chosen.
        visible = self.visible & (self.local_band | ~is_banded)
        return dataclasses.replace(self, visible=visible, is_banded=is_banded)


def make_view(
    mask: Mask,
    L: int,
    J: int = 0,
    *,
    slots_BP=None,
    segments_BJ=None,
    sees_itself: bool = False,
    window: int = 0,
) -> AttentionView:
    """Prepares a mask for layers that share it.

    Args:
        L, J: positions of the sequence, and keys with the memory; 0: no memory.
        others: see `AttentionView`.
    """
    J = J or L
    visible = mask.dense(L, J, slots_BP)
    if sees_itself:
        places = jnp.arange(L)[None] if slots_BP is None else slots_BP
        visible |= jnp.arange(J) == places[..., None] + J - L
    band = Mask(is_causal=True, window=window).dense(L, J, slots_BP) if window else None
    segments_BL = is_other = None
    if segments_BJ is not None:
        segments_BL = at(segments_BJ[:, J - L :], slots_BP)
        is_other = segments_BL[:, :, None] != segments_BJ[:, None]
    # One for all heads.
    visible, band, is_other = (x if x is None else x[:, None] for x in (visible, band, is_other))
    return AttentionView(
        mask=mask,
        L=L,
        sees_itself=sees_itself,
        slots_BP=slots_BP,
        visible=visible,
        segments_BL=segments_BL,
        segments_BJ=segments_BJ,
        is_other_segment=is_other,
        window=window,
        local_band=band,
    )
