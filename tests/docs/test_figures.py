"""The pictures of the documentation are drawn from values, by modules that the pages name."""

import json

import numpy as np
import pytest

from docs.figures import curves, data_flow, drawing, masks, two_streams


def test_masks_are_those_of_the_objectives():
    drawn, (targets_L, rank_L, _) = masks.compute_masks(), masks.permute()
    query_LL, content_LL = (drawn[f"XLNet, {name} stream"] for name in ("query", "content"))
    assert targets_L.sum() == 4
    assert not query_LL[np.diag(targets_L)].any()  # no prediction sees its own word
    assert content_LL.diagonal().all()
    earlier_LL = rank_L[None] < rank_L[:, None]
    np.testing.assert_array_equal(query_LL[targets_L], earlier_LL[targets_L])
    np.testing.assert_array_equal(drawn["GPT (causal LM)"], np.tri(masks.L, dtype=bool))


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (masks.draw_masks, "masks"),
        (data_flow.draw_data_flow, "data_flow"),
        (two_streams.draw_two_streams, "two_streams"),
    ],
)
def test_a_picture_is_written_small_and_as_committed(tmp_path, draw, name):
    path = drawing.save_picture(draw(), name, tmp_path)
    assert path.stat().st_size < 150_000
    from matplotlib import image

    committed = image.imread(drawing.FOLDER / f"{name}.png")
    assert image.imread(path).shape == committed.shape


def test_curves_have_training_held_out_and_baseline_by_tokens(tmp_path):
    run = tmp_path / "mini"
    run.mkdir()
    held_out = {"held_out/loss": 6.5, "held_out/unigram": 6.0}
    lines = [{"step": 1, "loss": 7.0, "tokens": 2e6}, {"step": 1, "tokens": 2e6, **held_out}]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    [axes] = curves.draw_curves([run]).axes
    training, held_out, baseline = axes.lines
    assert training.get_xydata().tolist() == [[2.0, 7.0]]
    assert held_out.get_xydata().tolist() == [[2.0, 6.5]]
    assert baseline.get_ydata()[0] == 6.0
