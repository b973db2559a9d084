"""A study's rows become one picture."""

import numpy as np

from pretrain.diagnostics.measurements import Row
from pretrain.diagnostics.pictures import draw_study


def test_curves_and_sweeps_become_a_png(tmp_path):
    numbers = {"ln radius": 0.1, "slope": -0.2}
    for study in ("deep", "sweep"):
        rows = [Row(study, f"rnn {x}", numbers, np.array([1.0, 0.5])) for x in ("0.9", "1.1")]
        draw_study(rows, tmp_path / f"{study}.png")
        assert (tmp_path / f"{study}.png").read_bytes().startswith(b"\x89PNG")
