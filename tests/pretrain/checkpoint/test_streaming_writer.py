"""A checkpoint written array by array is one like any other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.checkpoint import manager, named_leaves, streaming_writer
from pretrain.checkpoint.paths import list_steps


def test_a_checkpoint_written_piecemeal_is_restored_and_verified(tmp_path):
    arrays = {"params/a_D": np.arange(4, dtype=np.float32), "params/b/c_D": np.ones(2, np.float32)}
    streaming_writer.write(tmp_path, 7, arrays.items())
    like = jax.tree.map(jnp.zeros_like, named_leaves.nest(arrays))
    found, position, step = manager.Checkpoints(tmp_path).restore(like)
    assert (step, position) == (7, {})
    for name, x in named_leaves.flatten(found).items():
        np.testing.assert_array_equal(x, arrays[name])


def test_arrays_are_written_without_compression(tmp_path):
    """Compressed, they would need memory for what comes of it."""
    zeros = np.zeros(1 << 18, np.float32)
    streaming_writer.write(tmp_path, 0, [("params/a_D", zeros)])
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size > zeros.nbytes


def test_an_array_that_is_not_finite_leaves_no_checkpoint(tmp_path):
    arrays = {"params/a_D": np.ones(2, np.float32), "params/b_D": np.array([np.nan], np.float32)}
    with pytest.raises(FloatingPointError, match="params/b_D is not finite"):
        streaming_writer.write(tmp_path, 0, arrays.items())
    assert list_steps(tmp_path / "checkpoints") == []
