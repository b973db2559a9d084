"""Says what a mask means to layers that read word by word."""

import jax.numpy as jnp

from modules.masks import Mask

KNOWN = {"is_causal", "lengths_B", "valid_BL", "groups_BL"}


def refuse_mask(mask: Mask, Z: int) -> str:
    """Says in a line why layers of Z directions cannot honour a mask; "" if they can."""
    if others := [name for name in mask.fields() if name not in KNOWN]:
        return (
            f"a recurrent network has read what came before and nothing else: causal masks, "
            f"lengths and documents, not {', '.join(others)}"
        )
    # The mask and the directions must agree: neither may see more, or less, than the other says.
    if mask.is_causal and Z == 2:
        return "the second direction of a network with model.Z=2 sees what comes: set model.Z=1"
    if not mask.is_causal and Z == 1:
        return "a network with model.Z=1 sees nothing of what comes: it needs a causal mask"
    return ""


def refuse_all_but_lengths(mask: Mask, reader: str) -> str:
    """Says in a line why a network that reads both ways cannot honour a mask; "" if it can.

    Args:
        reader: the network and its verb, as "a CNN sees".
    """
    if mask.is_causal:
        return f"{reader} what comes: it takes no causal mask"
    if others := set(mask.fields()) - {"lengths_B", "valid_BL"}:
        return f"{reader} the words around: it takes lengths, not {', '.join(sorted(others))}"
    return ""


def separate_starts(mask: Mask):
    """Returns where documents begin of a text for each direction, [B, Z, L]; None: nowhere.

    Raises:
        ValueError: the mask is not a causal one of documents.
    """
    if set(mask.fields()) - {"groups_BL"} != {"is_causal"}:
        raise ValueError("a text for each direction is read under a causal mask of documents")
    return group_starts(mask.groups_BL)


def valid_positions(mask: Mask, B: int, L: int):
    """Returns where a mask has text: bool [B, L]."""
    valid_BL = jnp.ones((B, L), bool) if mask.valid_BL is None else mask.valid_BL
    if mask.lengths_B is None:
        return valid_BL
    return valid_BL & (jnp.arange(L) < mask.lengths_B[:, None])


def group_starts(groups):
    """Returns where a group begins, [..., L]; what goes on from the memory is of group 0."""
    if groups is None:
        return None
    before = jnp.concatenate([jnp.zeros_like(groups[..., :1]), groups[..., :-1]], axis=-1)
    return groups != before
