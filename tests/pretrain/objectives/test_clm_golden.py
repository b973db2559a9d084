"""What the released AWD-LSTM's loss is over two windows, ours is, under the masks that it drew."""

import jax
import numpy as np
import pytest

from modules.heads import language_model
from pretrain.objectives import clm
from pretrain.training.train_state import total_loss
from tests.support import awd_lstm_original as original
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")


def batch(arrays, window: int):
    """A window as `batches.bptt` lays it out, with two places of padding."""
    tokens_BL, next_BL = (
        np.int32(np.pad(arrays[f"{x}{window}"].T, ((0, 0), (0, 2)))) for x in "xt"
    )
    valid_BL = np.arange(next_BL.shape[1]) < next_BL.shape[1] - 2
    valid_BL = np.broadcast_to(valid_BL, next_BL.shape)
    return {
        "tokens_BL": tokens_BL,
        "next_BL": next_BL,
        "document_start_BL": np.zeros_like(valid_BL),
        "continues_B": np.full(4, window > 0),
        "valid_BL": valid_BL,
        "loss_mask_BL": valid_BL,
        "weight_B": np.ones(4, np.float32),
    }


def build():
    backbone = original.backbone()
    return clm.Objective(
        backbone,
        language_model.build(backbone, tied=True, bias=True),
        attend_across_documents=True,
        stateful=True,
        dropout=original.OUTPUT_DROPOUT,
        ar=2.0,
        tar=1.0,
        loss_chunks=2,
    )


def arrange(arrays, group: str):
    backbone, head = original.arrange_weights(arrays, group)
    return {"backbone": backbone, "head": head}


def test_losses_penalties_states_and_gradients_of_two_windows_are_the_original_s():
    arrays, objective = original.read(), build()
    params = jax.tree.map(np.float32, arrange(arrays, "w"))
    state = {"lstm": objective.backbone.initial_memory(4)}
    # What stands in the state before the text begins has no part in it.
    state = jax.tree.map(lambda x: x + 1, state)

    def loss(params, state, rows):
        rngs = {"dropout": jax.random.key(0)}
        given = {"params": params, "state": state}
        sums, new = objective.apply(given, rows, train=True, rngs=rngs, mutable=["state"])
        return total_loss(sums) / sums["loss"].weight, (sums, new["state"])

    for window in (0, 1):
        with original.recorded_masks(arrays, window):
            run = quick_jit(jax.value_and_grad(loss, has_aux=True))
            (_, (sums, state)), grads = run(params, state, batch(arrays, window))
        for name, theirs in (("loss", "ce"), ("ar", "ar"), ("tar", "tar")):
            ours = float(sums[name].total / sums[name].weight)
            assert ours == pytest.approx(arrays[f"{theirs}{window}"], rel=2e-6), name
        offs = jax.tree.map(off, state["lstm"], original.arrange_states(arrays, window))
        assert max(jax.tree.leaves(offs)) < 2e-6, offs
        offs = jax.tree.map(off, grads, arrange(arrays, f"g{window}"))
        assert max(jax.tree.leaves(offs)) < 1e-5, offs
