"""A leaf's name is its path."""

import jax

from pretrain.checkpoint import named_leaves


def test_names_are_paths_in_the_order_of_leaves():
    tree = {"params": {"head": {"bias_V": 1}, "backbone": {"token_VD": 2}}, "step": 3}
    leaves = named_leaves.flatten(tree)
    assert set(leaves) == {"params/head/bias_V", "params/backbone/token_VD", "step"}
    assert list(leaves.values()) == jax.tree.leaves(tree)
    assert named_leaves.nest(leaves) == tree


def test_fields_and_places_in_lists_are_names_too():
    assert named_leaves.flatten({"mu": [4, (5,)]}) == {"mu/0": 4, "mu/1/0": 5}
